//! Acceptance from the rounds of observed runs: a truth table, and rates by position in a round. A round is a request's
//! draft tokens of one step, verified together.
//!
//! A round that drafted K tokens and accepted `n` of them shows `n` right positions and, if n < K, one wrong position.
//! If n = K, nothing was drafted at the next position: the round is censored there and counts as neither failure nor
//! success. Positions beyond the largest K were never seen, so their rates are extrapolated.

use crate::calibrate::foreign::Foreign;
use crate::calibrate::source::Source;
use crate::calibrate::spread::{Counts, Spread};
use crate::recordings::request::{Answer, Rounds};
use foretoken_sim::Recording;
use foretoken_traces::truth::speculation_profile::SpeculationProfile;
use foretoken_traces::truth::{ObservedTruth, RecordedModel, RecordedOutput, TruthHeader, TruthTable};

/// Deepest draft position of a round for which an acceptance rate is given. The rates are for positions 1 to this
/// position; rates that were not observed are extrapolated.
const DEEPEST: usize = 16;

/// Number of rounds that a speculation profile counts as if it has shares only. The rates are then the file's.
const UNCOUNTED: u64 = 1_000_000;

/// How often the draft tokens at one position of a round were accepted.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Position {
    /// Position of the draft token among the request's draft tokens of one step; the first one has 1.
    pub position: usize,
    /// Number of observed rounds that drafted this position and accepted all positions before it.
    pub reached: u64,
    /// Number of the `reached` rounds that accepted the draft token at this position too.
    pub accepted: u64,
    /// Probability that the draft token at this position is accepted, if all draft tokens before it in the step were.
    /// If observed steps reached this position: (accepted + 1) / (reached + 2). Otherwise an extrapolated rate.
    pub rate: f64,
    /// True if no observed round reached this position. The rate is then extrapolated.
    pub extrapolated: bool,
}

/// Which draft tokens of observed runs were accepted: rates by position in a round, and a truth table by answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Acceptance {
    pub positions: Vec<Position>,
    /// A truth table: which draft tokens of an answer were right. It has the answers for which the server reports draft
    /// tokens in every step after the first. `None` if there is no such answer.
    pub table: Option<TruthTable>,
    /// Number of observed answers for which the server reports draft tokens in every step after the first.
    pub whole: usize,
    /// Number of observed answers for which the server reports draft tokens in some steps only. The output positions of
    /// these draft tokens are not known, so `table` leaves these answers out.
    pub broken: usize,
}

impl Acceptance {
    /// Collects the acceptance of the observed runs `sources` and of the files `foreign`. The last round of an
    /// observed answer does not count. If no answer of a run reports rounds, the counts come from the server's
    /// `/metrics`. A speculation profile counts if no round was seen. `None` if nothing says what was accepted.
    pub fn of(sources: &[Source], foreign: &[Foreign]) -> Option<Acceptance> {
        let mut counts = vec![(0u64, 0u64); DEEPEST];
        let mut lengths: Vec<u32> = Vec::new();
        let (mut whole, mut broken) = (0, 0);
        let mut families: Vec<String> = Vec::new();
        let mut outputs: Vec<RecordedOutput> = Vec::new();
        let mut of_outputs: Vec<Counts> = Vec::new();
        for source in sources {
            let mut reports_rounds = false;
            for answer in &source.run.answers {
                let Some(rounds) = answer.rounds.as_ref().filter(|r| !r.drafted.is_empty()) else { continue };
                reports_rounds = true;
                count(rounds, &mut counts, &mut lengths);
                if !answer.rounds_are_whole() {
                    broken += 1;
                    continue;
                }
                whole += 1;
                let category = source.recording.head.categories.get(usize::from(answer.asked.category));
                let family = index_of(&mut families, category.map_or("all", String::as_str));
                outputs.push(RecordedOutput::observed(family, answer.prompt_len().max(1), &bits(answer, rounds)));
                let mut own = vec![(0, 0); DEEPEST];
                count(rounds, &mut own, &mut Vec::new());
                of_outputs.push(own);
            }
            if !reports_rounds && let Some(by_count) = source.run.metrics.rounds_of_one_length() {
                let k = by_count.len() as u32 - 1;
                lengths.push(k);
                by_count.iter().zip(0..).for_each(|(&n, a)| count_rounds(k, a, n, &mut counts));
            }
        }
        for &(drafted, accepted, rounds) in foreign.iter().flat_map(|f| &f.rounds) {
            lengths.push(drafted);
            count_rounds(drafted, accepted, rounds, &mut counts);
        }
        if counts[0].0 == 0 {
            for profile in foreign.iter().filter_map(|f| f.profile.as_ref()) {
                lengths.push(profile.num_speculative_tokens);
                for (drafted, accepted, rounds) in profile.rounds(UNCOUNTED) {
                    count_rounds(drafted, accepted, rounds, &mut counts);
                }
            }
        }
        if counts[0].0 == 0 {
            return None;
        }
        lengths.sort_unstable();
        lengths.dedup();
        let positions = extrapolated(&counts);
        if let Some(spread) = Spread::of(&of_outputs) {
            outputs.iter_mut().zip(&of_outputs).for_each(|(output, own)| output.set_chances(spread.chances(own)));
        }
        let table = (!outputs.is_empty()).then(|| table(sources, families, outputs, lengths, &positions));
        Some(Acceptance { positions, table, whole, broken })
    }

    /// Mean tokens of a round with `k` drafts, the target's own counted.
    pub fn tokens(&self, k: u32) -> f64 {
        let reached = self.positions.iter().take(k as usize).scan(1.0, |reached, position| {
            *reached *= position.rate;
            Some(*reached)
        });
        1.0 + reached.sum::<f64>()
    }

    /// The observed acceptance as a `speculation_profile.json` of a server whose drafter has this `method` and whose
    /// target is called `target`. Extrapolated positions are left out. `None` if no round drafted.
    pub fn speculation_profile(&self, method: &str, target: Option<&str>) -> Option<SpeculationProfile> {
        let seen: Vec<(u64, u64)> =
            self.positions.iter().take_while(|p| !p.extrapolated).map(|p| (p.reached, p.accepted)).collect();
        let mut profile = SpeculationProfile::of_counts(&seen, Some(method))?;
        profile.target_model = target.map(|name| [("path".to_owned(), name.into())].into());
        let by = format!("Foretoken {}, from the rounds of observed answers", env!("CARGO_PKG_VERSION"));
        profile.measurement_conditions = Some(serde_json::json!({ "measured_by": by, "rounds": seen[0].0 }));
        Some(profile)
    }

    /// P(accepted | all earlier draft tokens of the step accepted) at the draft positions 1, 2, … of a request's step.
    /// Rates of positions that no observed step reached are extrapolated.
    pub fn hazards(&self) -> Vec<f64> {
        self.positions.iter().map(|p| p.rate).collect()
    }
}

fn index_of(families: &mut Vec<String>, name: &str) -> u16 {
    let at = families.iter().position(|f| f == name).unwrap_or_else(|| {
        families.push(name.to_owned());
        families.len() - 1
    });
    at as u16
}

/// Adds the rounds of an answer to `counts`, by position, and their draft lengths to `lengths`. The last round is left
/// out: the answer may have ended within this round, so that a token missing there is no rejection.
fn count(rounds: &Rounds, counts: &mut [(u64, u64)], lengths: &mut Vec<u32>) {
    let all = rounds.drafted.iter().zip(&rounds.accepted);
    for (&drafted, &accepted) in all.take(rounds.drafted.len() - 1) {
        if drafted > 0 {
            lengths.push(drafted);
        }
        count_rounds(drafted, accepted, 1, counts);
    }
}

/// Adds `rounds` equal rounds to `counts`, by draft position. Each of these rounds drafted `drafted` tokens, of which
/// the target accepted the first `accepted`. Positions after the first rejection do not count.
fn count_rounds(drafted: u32, accepted: u32, rounds: u64, counts: &mut [(u64, u64)]) {
    for (position, count) in (0..drafted.min(accepted + 1)).zip(counts) {
        count.0 += rounds;
        count.1 += if position < accepted { rounds } else { 0 };
    }
}

/// For each token of an answer: whether the draft token at its position was right. `None` if nothing was drafted at
/// this position, or if the result is not known. The first token comes from the prompt's step and is never drafted.
/// After the last step with draft tokens, every position is `None`.
fn bits(answer: &Answer, rounds: &Rounds) -> Vec<Option<bool>> {
    let mut bits = vec![None];
    let tokens = answer.tokens() as usize;
    for (&drafted, &accepted) in rounds.drafted.iter().zip(&rounds.accepted) {
        bits.extend(std::iter::repeat_n(Some(true), accepted as usize));
        // The entry for the output token after the step's right draft tokens. If the step drafted a token at this
        // position, this draft token was wrong: `false`. If every draft token of the step was right, nothing was
        // drafted at this position: `None`.
        bits.push((accepted < drafted).then_some(false));
    }
    // The last round may reach beyond the answer's end. Right draft tokens may then have been cut off, so a wrong draft
    // token at the answer's last position counts as unknown.
    let over = bits.len() > tokens;
    bits.resize(tokens, None);
    if over
        && let Some(last) = bits.last_mut()
        && *last == Some(false)
    {
        *last = None;
    }
    bits
}

/// Which draft tokens of an answer were right, in the form of a recording that a simulation reads. If one of the
/// answer's rounds is missing, all positions are unknown.
pub fn own_recording(answer: &Answer) -> Recording {
    let bits = match answer.rounds.as_ref().filter(|_| answer.rounds_are_whole()) {
        Some(rounds) => bits(answer, rounds),
        None => vec![None; answer.tokens().max(1) as usize],
    };
    let one = RecordedOutput::observed(0, answer.prompt_len().max(1), &bits);
    foretoken_traces::truth::observed_recording(&one)
}

/// The acceptance rates by draft position: first the observed rates, then extrapolated ones.
///
/// Rounds that reach a deep position belong to easy text, so rates rise with depth and level off. Beyond the last
/// observed position, the differences between neighbouring rates continue as a geometric series. The ratio of the
/// series is the ratio of the last two observed differences, limited to the range from 0 to 1/2. With fewer than three
/// observed rates, the last observed rate is used for all further positions. An extrapolated rate is at most 0.999.
fn extrapolated(counts: &[(u64, u64)]) -> Vec<Position> {
    // One accepted and one rejected draft token are added to the counts of each position, so that few observations of a
    // position do not give a rate of 0 or 1.
    let observed = counts.iter().take_while(|c| c.0 > 0);
    let rates: Vec<f64> = observed.map(|&(n, a)| (a as f64 + 1.0) / (n as f64 + 2.0)).collect();
    let seen = rates.len();
    let rise = match rates.as_slice() {
        [.., a, b, c] if (b - a).abs() > 1e-9 => Some((c - b, ((c - b) / (b - a)).clamp(0.0, 0.5))),
        _ => None,
    };
    let mut all: Vec<f64> = rates.clone();
    let mut step = rise.map_or(0.0, |(last, ratio)| last * ratio);
    while all.len() < counts.len() {
        let next = (all[all.len() - 1] + step).clamp(0.0, 0.999);
        all.push(next);
        step *= rise.map_or(0.0, |(_, ratio)| ratio);
    }
    let position = |(i, rate): (usize, f64)| Position {
        position: i + 1,
        reached: counts[i].0,
        accepted: counts[i].1,
        rate,
        extrapolated: i >= seen,
    };
    all.into_iter().enumerate().map(position).collect()
}

fn table(
    sources: &[Source],
    families: Vec<String>,
    outputs: Vec<RecordedOutput>,
    lengths: Vec<u32>,
    positions: &[Position],
) -> TruthTable {
    let head = &sources[0].recording.head;
    let model = |name: &str| RecordedModel { name: name.into(), dtype: "unknown".into(), digest: "unknown".into() };
    let mut hasher = blake3::Hasher::new();
    for source in sources {
        hasher.update(source.digest.as_bytes());
    }
    TruthTable {
        header: TruthHeader {
            foretoken: env!("CARGO_PKG_VERSION").into(),
            target: model(&head.model),
            draft: model("the server's"),
            device: format!("observed at {}", head.url),
            prompts: format!("the prompts of {} observed runs", sources.len()),
            prompts_digest: hasher.finalize().to_hex().to_string(),
            temperature: head.temperature,
            families,
            observed: Some(ObservedTruth {
                lengths,
                hazards: positions.iter().map(|p| p.rate).collect(),
                seen: positions.iter().filter(|p| !p.extrapolated).count(),
            }),
        },
        outputs,
    }
}
