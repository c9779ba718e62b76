//! Draws, for an acceptance source, the number of tokens that a round emits and the number of its draft tokens. A round
//! is one request's draft tokens of one step, verified together.
//!
//! The explorer's page computes constant rates and rates by depth itself. For other sources the program draws for many
//! requests which draft tokens are right, and goes through the rounds as in a run with a fixed draft length.

use foretoken_sim::acceptance::{AcceptanceSpec, Mixture, PromptLookup, Rates, Suffix};
use foretoken_sim::{AcceptanceSource, Request, RequestTruth, Time, TruthRow, Workload};
use serde::Serialize;

/// Number of requests that are drawn for each category of requests that an acceptance source names. `PROMPT` and
/// `OUTPUT` are their lengths in tokens.
const REQUESTS: u32 = 500;
const PROMPT: u32 = 512;
const OUTPUT: u32 = 256;

/// The most draft tokens of a request in a step that a user can choose on the explorer's page.
pub(super) const LONGEST: usize = 16;

/// Mean numbers of emitted tokens and of draft tokens of a round under one acceptance source, by the draft length that
/// the policy asks for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Acceptance {
    pub source: Rates,
    /// A sentence for the page that says how the numbers of this acceptance source were drawn: for which number of
    /// requests, of which lengths.
    pub note: String,
    /// Mean number of tokens that a request emits in a step, the target's own token included. The index is the draft
    /// length, from 0 to [`LONGEST`].
    pub tokens: Vec<f64>,
    /// For each draft length, the shares of rounds that have a first, second, … draft token: a lookup may find fewer
    /// draft tokens than asked for. `None` if every round has all of them.
    pub shares: Option<Vec<Vec<f64>>>,
}

impl Acceptance {
    /// Draws the acceptance of `source` for requests of 512 prompt tokens and 256 output tokens, equally many of each
    /// category that the source names. `None` for recordings and truth tables, because they say which draft tokens are
    /// right for the requests of one workload only. `None` also for a lookup with a draft model beside it.
    pub fn drawn(source: &Rates) -> Option<Acceptance> {
        if source.is_recorded() || matches!(source, Rates::LookupBesideModel(_)) {
            return None;
        }
        let workload = synthetic(categories(source));
        let spec = AcceptanceSpec { source: source.clone(), ..AcceptanceSpec::default() };
        let built = spec.build(1, &workload).ok()?;
        let each = if workload.categories.len() > 1 { " of each category" } else { "" };
        let note = format!(
            "Drawn from the source's law: {REQUESTS} requests{each} with {PROMPT} prompt and {OUTPUT} output tokens."
        );
        Some(Acceptance::of(source, note, &*built, &workload))
    }

    /// Goes through the rounds of all requests of `workload` with each fixed draft length. Averages the numbers of
    /// emitted tokens and of draft tokens per round. `bits` says which draft tokens are right.
    fn of(source: &Rates, note: String, bits: &dyn AcceptanceSource, workload: &Workload) -> Acceptance {
        // The index of `emitted` and `rounds` is the draft length that is asked for. `emitted` counts output tokens;
        // `rounds` counts the rounds by their number of draft tokens.
        let mut emitted = [0u64; LONGEST + 1];
        let mut rounds = [[0u64; LONGEST + 1]; LONGEST + 1];
        let mut row = TruthRow::default();
        for id in 0..workload.len() as u32 {
            let request = RequestTruth::of(workload, id);
            for k in 0..=LONGEST {
                // Where runs differ by their draft length, each length has its own truth.
                match bits.of_run(k as u32) {
                    Some(run) => run.start(request, LONGEST as u32, &mut row),
                    None if k == 0 => bits.start(request, LONGEST as u32, &mut row),
                    None => {}
                }
                // The step that ends the prompt emits output token 0, so the first draft token is for position 1. The
                // draft tokens of the last step may go beyond the output's end; they are not cut.
                let mut position = 1;
                while position < request.output_len {
                    let drafts = row.proposed(position).min(k as u32);
                    let tokens = row.run(position, drafts) + 1;
                    rounds[k][drafts as usize] += 1;
                    emitted[k] += u64::from(tokens);
                    position += tokens;
                }
            }
        }
        let share = |k: usize, n: u64| n as f64 / rounds[k].iter().sum::<u64>() as f64;
        let shares = |k: usize| (1..=k).map(|j| share(k, rounds[k][j..].iter().sum())).collect();
        Acceptance {
            source: source.clone(),
            note,
            tokens: (0..=LONGEST).map(|k| share(k, emitted[k])).collect(),
            shares: bits.may_lack_proposals().then(|| (0..=LONGEST).map(shares).collect()),
        }
    }
}

/// The acceptance sources that the explorer's page always offers, with their names: Spec-Bench's mixture as a whole and
/// by task, prompt lookup, and suffix decoding, with their default settings.
pub fn usual() -> Vec<(String, Acceptance)> {
    let spec_bench = Mixture::default();
    let tasks = spec_bench.categories.iter().map(|(task, law)| (task.replace('_', " "), *law));
    let laws = std::iter::once(("all tasks".to_owned(), spec_bench.all)).chain(tasks).map(|(task, law)| {
        let alone = Mixture { all: law, categories: Default::default(), ..spec_bench.clone() };
        (format!("Spec-Bench, {task} (mixture)"), Rates::Mixture(alone))
    });
    let copied = [
        ("prompt lookup (assumed shares)".to_owned(), Rates::PromptLookup(PromptLookup::default())),
        ("suffix decoding (assumed shares)".to_owned(), Rates::Suffix(Suffix::default())),
    ];
    laws.chain(copied).filter_map(|(name, source)| Acceptance::drawn(&source).map(|drawn| (name, drawn))).collect()
}

/// The categories of requests that an acceptance source names; a single category without a name if it names none.
fn categories(source: &Rates) -> Vec<String> {
    let named: Vec<String> = match source {
        Rates::Mixture(mixture) => mixture.categories.keys().cloned().collect(),
        Rates::ByCategory(of) => of.categories.keys().cloned().collect(),
        _ => Vec::new(),
    };
    if named.is_empty() { vec![String::new()] } else { named }
}

fn synthetic(categories: Vec<String>) -> Workload {
    let mut workload = Workload { categories, ..Workload::default() };
    for category in 0..workload.categories.len() as u16 {
        for _ in 0..REQUESTS {
            workload.push(Request { category, ..Request::new(Time::ZERO, PROMPT, OUTPUT) });
        }
    }
    workload
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_policies::expected_tokens;

    fn drawn(source: &Rates) -> Acceptance {
        Acceptance::drawn(source).unwrap()
    }

    #[test]
    fn drawn_rounds_are_those_of_the_law() {
        let constant = drawn(&Rates::Constant { rate: 0.7 });
        assert_eq!(constant.shares, None);
        for (k, &tokens) in constant.tokens.iter().enumerate() {
            let law = expected_tokens(0.7, k as u32);
            assert!((tokens / law - 1.0).abs() < 0.01, "{k}: {tokens} drawn, {law} by the law");
        }
        let depths = drawn(&Rates::ByDepth { rates: vec![0.9, 0.5] });
        assert!((depths.tokens[3] / (1.0 + 0.9 + 0.45 + 0.225) - 1.0).abs() < 0.01, "{:?}", depths.tokens);
    }

    #[test]
    fn rounds_without_a_match_have_no_drafts() {
        let lookup = drawn(&Rates::PromptLookup(PromptLookup { match_rate: 0.3, precision: 0.5, mean_run: 1.0 }));
        let shares = lookup.shares.unwrap();
        // With prompt lookup, 30 % of positions have a match (earlier text that the lookup copies as draft tokens). The
        // share is larger at positions where drafting starts, because these follow wrong draft tokens.
        assert!((0.29..0.35).contains(&shares[4][0]) && shares[4][3] == shares[4][0], "{:?}", shares[4]);
        // With these settings, at most one draft token of a request is accepted in a step, in about half of the steps
        // in which the lookup finds a match.
        let gained = (lookup.tokens[4] - 1.0) / shares[4][0];
        assert!((0.4..0.6).contains(&gained), "{gained}");
        let suffix = drawn(&Rates::Suffix(Suffix::default())).shares.unwrap();
        assert!(suffix[16][15] < suffix[16][0], "short matches have short proposals: {:?}", suffix[16]);
    }

    #[test]
    fn recordings_belong_to_a_workload() {
        assert_eq!(Acceptance::drawn(&Rates::Recorded { hazards: vec![0.5] }), None);
        assert_eq!(usual().len(), 9);
    }
}
