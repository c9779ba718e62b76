//! Compares the policy `vllm-adaptive` with recorded decisions of vLLM's adaptive verification and its acceptance
//! estimator: cost tables, the estimator's coefficients, the number of draft tokens to verify in each step, and the
//! verified tokens.

use super::*;
use crate::recorded::{draw, lines, near, read};
use crate::testing::{Batch, CONTEXT, outcome};
use crate::vllm::cost_table::CostTable;

#[derive(Deserialize)]
struct Palette {
    /// For each sampling temperature and each of 64 levels of confidence: Σ exp(logit − greatest logit) over the
    /// vocabulary, the inverse of the confidence.
    sums: Vec<Vec<f64>>,
}

#[derive(Deserialize)]
struct Recorded {
    seed: u64,
    k: u32,
    interval: u32,
    captured: u32,
    logits: usize,
    draft: Vec<(u32, f64)>,
    verify: Vec<(u32, f64)>,
    draft_ms: Vec<f64>,
    verify_ms: Vec<f64>,
    temperatures: Vec<usize>,
    steps: String,
    fits: Vec<Vec<f64>>,
    /// For the first request of the recorded history's last step: the acceptance probability that vLLM's estimator
    /// predicted for each draft position.
    last: Vec<f64>,
}

/// A decoding request of a recorded step: slot (its place in vLLM's batch), number of its draft tokens, number that
/// vLLM verified, number accepted.
type Row = [u32; 4];

/// Parses a recorded step, which is the text `AT:ROWS|CHUNK`: the number of the step, four digits for each decoding
/// request, and the number of tokens of the step's prompt chunk (`|CHUNK` may be missing).
fn step(text: &str) -> (u64, Vec<Row>, u32) {
    let (at, text) = text.split_once(':').expect("a step has a number");
    let (rows, chunk) = text.split_once('|').unwrap_or((text, "0"));
    let digits: Vec<u32> = rows.chars().map(|c| c.to_digit(10).expect("a digit")).collect();
    let rows = digits.chunks(4).map(|row| row.try_into().expect("four digits")).collect();
    (at.parse().expect("a number"), rows, chunk.parse().expect("a number"))
}

struct Replay<'a> {
    h: &'a Recorded,
    sums: &'a [Vec<f64>],
    policy: Adaptive,
    /// For each of the recording's 8 slots (places in vLLM's batch): the id of the request in it (`id`), and the step
    /// in which the request's present tokens were drafted (`drafted`).
    id: [u32; 8],
    drafted: [u64; 8],
    ties: u32,
}

impl Replay<'_> {
    fn q(&self, slot: u32, position: u64) -> f64 {
        let level = draw(self.h.seed, 11, 64 * u64::from(slot) + position, self.drafted[slot as usize]) % 64;
        1.0 / self.sums[self.h.temperatures[slot as usize]][level as usize]
    }

    fn drafts(&self, rows: &[Row]) -> Drafts {
        let mut drafts = Drafts::default();
        drafts.reset(rows.len(), self.h.k);
        drafts.draft_len = rows.iter().map(|row| row[1]).collect();
        drafts.verify_len = drafts.draft_len.clone();
        for (i, row) in rows.iter().enumerate() {
            (0..self.h.k).for_each(|j| drafts.set_confidence(i, j as usize, self.q(row[0], j.into())));
        }
        drafts
    }

    /// Lets the policy decide which draft tokens to verify in one recorded step, compares with vLLM's decision, and
    /// lets the policy observe the outcome.
    fn verify(&mut self, at: u64, rows: &[Row], chunk: u32) {
        let column = |n: usize| rows.iter().map(|row| row[n]).collect::<Vec<u32>>();
        let mut batch = Batch::new(&vec![100; rows.len()], &column(1));
        batch.ids = rows.iter().map(|row| self.id[row[0] as usize]).collect();
        if chunk > 0 {
            batch.prefill.add(0, chunk);
        }
        let mut drafts = self.drafts(rows);
        self.policy.select(&batch.view(), &mut drafts);
        let admitted = column(2);
        if drafts.verify_len != admitted {
            // A decision that differs from vLLM's is allowed if it verifies the same number of draft tokens as vLLM
            // with the same sum of survivals (probabilities that a token and all before it are accepted): a tie in
            // vLLM's top-k.
            let worth = |lens: &[u32]| -> f64 {
                let row = |i: usize| &self.policy.confidence[i * self.h.k as usize..];
                let one = |i: usize, n: u32| survivals(row(i).iter().copied()).take(n as usize).sum::<f64>();
                lens.iter().enumerate().map(|(i, &n)| one(i, n)).sum()
            };
            let total = |lens: &[u32]| lens.iter().sum::<u32>();
            let different = format!("history {}, step {at}: {:?} for {admitted:?}", self.h.seed, drafts.verify_len);
            assert_eq!(total(&drafts.verify_len), total(&admitted), "{different}");
            assert!(near(worth(&drafts.verify_len), worth(&admitted)), "{different}");
            self.ties += 1;
        }
        self.policy.observe(&outcome(&drafts, &admitted, &column(3)));
    }
}

/// Replays a recorded history. Compares the cost tables, the verified draft tokens of every step, the estimator's
/// coefficients after each refit, and the last predictions. Returns the number of steps whose decision differs by a
/// tie.
fn replay(h: &Recorded, sums: &[Vec<f64>]) -> u32 {
    let params = VllmAdaptive { k: Some(h.k), refit_interval: h.interval, ..VllmAdaptive::default() };
    let mut policy = Adaptive::new(params, &CONTEXT);
    let table = |curve: &[(u32, f64)], most| CostTable::new(curve, most, h.captured, CostLookup::Staircase);
    policy.tables = CostTables { draft: table(&h.draft, 7), verify: table(&h.verify, 96) };
    policy.max_total_logits = h.logits;
    let tables = [(&policy.tables.draft, &h.draft_ms, 2), (&policy.tables.verify, &h.verify_ms, 7)];
    for (table, ms, by) in tables {
        for (n, &ms) in ms.iter().enumerate() {
            assert!(near(table.s(by * n), ms), "history {}: {} for {ms} at {}", h.seed, table.s(by * n), by * n);
        }
    }
    let mut replay = Replay { h, sums, policy, id: [0; 8], drafted: [0; 8], ties: 0 };
    let (mut requests, mut fits) = (0, h.fits.iter());
    for text in h.steps.split(' ') {
        let refits = replay.policy.estimator.refits();
        let at = match text.split_once(":+") {
            Some((at, slots)) => {
                let at = at.parse().expect("a number");
                for slot in slots.chars().map(|c| c.to_digit(10).expect("a digit") as usize) {
                    requests += 1;
                    (replay.id[slot], replay.drafted[slot]) = (requests, at);
                }
                // The policy decides nothing in a step that has prompts only, but the estimator counts the step.
                let drafts = Drafts::default();
                replay.policy.select(&Batch::new(&[], &[]).view(), &mut Drafts::default());
                replay.policy.observe(&outcome(&drafts, &[], &[]));
                at
            }
            None => {
                let (at, rows, chunk) = step(text);
                replay.verify(at, &rows, chunk);
                rows.iter().for_each(|row| replay.drafted[row[0] as usize] = at);
                at
            }
        };
        if replay.policy.estimator.refits() > refits {
            let ours = replay.policy.estimator.coefficients();
            let theirs = fits.next().expect("as many refits");
            for (&ours, &theirs) in ours.iter().zip(theirs) {
                assert!(near(ours.into(), theirs), "history {}, step {at}: {ours} for {theirs}", h.seed);
            }
        }
    }
    assert_eq!(fits.next(), None, "history {}: as many refits", h.seed);
    let last = h.steps.rsplit(' ').next().and_then(|text| text.split_once(':')).expect("a last step");
    if let Some(slot) = last.1.trim_start_matches('+').chars().next().and_then(|c| c.to_digit(10)) {
        for (j, &theirs) in h.last.iter().enumerate() {
            let ours = replay.policy.estimator.predict(replay.q(slot, j as u64), j);
            assert!(near(ours, theirs), "history {}, last prediction {j}: {ours} for {theirs}", h.seed);
        }
    }
    replay.ties
}

#[test]
fn budgets_lengths_and_coefficients_are_vllms() {
    let lines = lines("vllm-adaptive.jsonl.zst");
    let palette: Palette = read(&lines[0]);
    let all: Vec<Recorded> = lines[1..].iter().map(|line| read(line)).collect();
    let ties: u32 = all.iter().map(|h| replay(h, &palette.sums)).sum();
    let refits: usize = all.iter().map(|h| h.fits.len()).sum();
    assert!(all.len() >= 300 && refits >= 400, "{} histories, {refits} refits", all.len());
    println!("{} histories, {refits} refits, {ties} steps with a tie", all.len());
}
