//! `prompt-lookup`: the drafter copies text from the context. The position where a lookup starts decides whether the
//! lookup finds a match and how many of its tokens are right (docs/model.md 13).
//!
//! The output alternates between stretches that repeat earlier text and stretches that do not: a Markov chain with two
//! states over positions. Inside a repeating stretch a lookup matches and is right to the end of the stretch. Outside,
//! a lookup sometimes matches, but its first token is wrong. Matches and runs are therefore autocorrelated, as in real
//! text: one position after the start of a right match there is another right match, shorter by one token.

use super::TruthRow;
use super::fault::{BadAcceptance, bad};
use super::source::{Bits, below, within};
use crate::executor::RequestTruth;
use crate::luck::{Luck, Stream};
use serde::{Deserialize, Serialize};

/// Prompt lookup: how often it finds a match, and how many tokens of a match are right. The defaults are assumed: with
/// proposals of 3 or 4 tokens, draft rounds accept 0.3 to 0.4 of the verified tokens, the range of SmartSpec's section
/// 7.1.2. `precision` counts the matches at all output positions. Of the matches at which rounds start, fewer are
/// right, because a round starts where the previous round went wrong, which is rarely inside repeated text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PromptLookup {
    /// Share of output positions at which a lookup finds a match, [0, 1].
    pub match_rate: f64,
    /// Share of matches whose first token is right, [0, 1].
    pub precision: f64,
    /// Mean number of right tokens in a row after a right first token, that token included, ≥ 1. The number is
    /// geometric.
    pub mean_run: f64,
}

impl Default for PromptLookup {
    fn default() -> Self {
        PromptLookup { match_rate: 0.4, precision: 0.7, mean_run: 4.0 }
    }
}

impl PromptLookup {
    /// Share of output positions that lie in stretches of repeated text.
    fn repeating(&self) -> f64 {
        self.match_rate * self.precision
    }

    /// P(the next position repeats earlier text | this position repeats earlier text).
    fn stays(&self) -> f64 {
        1.0 - 1.0 / self.mean_run
    }

    /// P(the next position repeats earlier text | this position does not). The value is chosen so that the share of
    /// repeating positions is `repeating`.
    fn enters(&self) -> f64 {
        self.repeating() * (1.0 - self.stays()) / (1.0 - self.repeating())
    }

    /// Probability that a lookup matches at a position where the output does not repeat earlier text. The first token
    /// of such a stray match is wrong. Stray and right matches together have the rate `match_rate`.
    fn strays(&self) -> f64 {
        self.match_rate * (1.0 - self.precision) / (1.0 - self.repeating())
    }

    /// Checks the settings of the prompt lookup. An error names the setting by its path below `acceptance`, which
    /// begins with `key`.
    pub(super) fn check(&self, key: &str) -> Result<(), BadAcceptance> {
        self.fault().map_or(Ok(()), |(own, why)| bad(&format!("{key}.{own}"), why))
    }

    /// The key of the first wrong setting of the prompt lookup and why it is wrong; `None` if all its settings are
    /// good.
    fn fault(&self) -> Option<(&'static str, String)> {
        let shares = [("match_rate", self.match_rate), ("precision", self.precision)];
        if let Some((key, value)) = shares.into_iter().find(|(_, v)| !(0.0..=1.0).contains(v)) {
            return Some((key, format!("{value} is not a share in [0, 1]")));
        }
        if !(self.mean_run >= 1.0 && self.mean_run.is_finite()) {
            return Some(("mean_run", format!("{} is not a number of tokens ≥ 1", self.mean_run)));
        }
        if self.repeating() >= 1.0 || self.enters() > 1.0 {
            let why = format!(
                "runs of {} tokens on average cannot make up {} of all positions: lower match_rate or precision, or raise mean_run",
                self.mean_run,
                self.repeating()
            );
            return Some(("mean_run", why));
        }
        None
    }
}

/// Draws at which output positions a prompt lookup finds a match, and which of the tokens that it copies are right.
pub(super) struct Lookups {
    pub spec: PromptLookup,
    pub seed: u64,
}

impl Bits for Lookups {
    fn fill(&self, request: RequestTruth, positions: usize, out: &mut TruthRow) {
        out.reset(positions, 1);
        let key = u64::from(request.id);
        let luck = Luck::new(self.seed, Stream::Right, key);
        let mut repeats = luck.unit(0) < self.spec.repeating();
        for n in 0..positions {
            if n > 0 {
                repeats = luck.unit(n as u64) < if repeats { self.spec.stays() } else { self.spec.enters() };
            }
            if repeats {
                out.set(0, n);
            }
        }
        let stray = self.spec.strays();
        let strays = Luck::new(self.seed, Stream::Lookup, key);
        out.match_where(|w, right| (right | below(strays, stray, w)) & within(w, 0, positions));
    }

    fn rate(&self, _: RequestTruth, _: u32, depth: u32) -> f64 {
        if depth == 0 { self.spec.precision } else { self.spec.stays() }
    }

    fn may_lack_proposals(&self) -> bool {
        true
    }

    fn right_after(&self, _: RequestTruth, _: usize, _: u32, _: u32, before: bool) -> f64 {
        if before { self.spec.stays() } else { self.spec.enters() }
    }

    fn proposes_if_wrong(&self) -> f64 {
        self.spec.strays()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(spec: PromptLookup, n: u32, each: impl FnMut(&TruthRow)) {
        let mut each = each;
        let source = Lookups { spec, seed: 3 };
        let mut row = TruthRow::default();
        for id in 0..n {
            source.fill(
                RequestTruth { id, prompt_len: 0, output_len: 400, category: 0, recording: None },
                408,
                &mut row,
            );
            each(&row);
        }
    }

    #[test]
    fn matches_precision_and_runs_are_what_was_asked() {
        let spec = PromptLookup { match_rate: 0.4, precision: 0.5, mean_run: 4.0 };
        let (mut positions, mut matches, mut right, mut run) = (0u32, 0u32, 0u32, 0u32);
        rows(spec, 3000, |row| {
            for n in 0..370 {
                positions += 1;
                matches += u32::from(row.matched(n));
                right += u32::from(row.right(n, 0));
                assert!(row.matched(n) || !row.right(n, 0), "nothing is right without a match");
                run += row.run(n, 32);
            }
        });
        let share = |a: u32, b: u32| f64::from(a) / f64::from(b);
        assert!((share(matches, positions) - 0.4).abs() < 0.01);
        assert!((share(right, matches) - 0.5).abs() < 0.01);
        // The length of a run of right tokens is memoryless. So the mean number of right tokens in a row, counted from
        // any right position on, is the mean of a whole run (`mean_run`, here 4).
        assert!((share(run, right) - 4.0).abs() < 0.1, "{}", share(run, right));
    }

    /// With the default settings and rounds of 3 or 4 draft tokens, a share of 0.3 to 0.4 of the verified tokens is
    /// accepted, as SmartSpec's section 7.1.2 reports. Each round starts where the previous round ended.
    #[test]
    fn the_defaults_accept_as_the_paper_says() {
        for k in 3..=4 {
            let (mut verified, mut accepted) = (0, 0);
            rows(PromptLookup::default(), 1000, |row| {
                let mut n = 1;
                while n < 390 {
                    let run = if row.matched(n) { row.run(n, k) } else { 0 };
                    verified += if row.matched(n) { k } else { 0 };
                    accepted += run;
                    n += run + 1;
                }
            });
            let rate = f64::from(accepted) / f64::from(verified);
            assert!((0.29..=0.41).contains(&rate), "k {k}: {rate}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let fault = |spec: PromptLookup| spec.fault().map(|(key, _)| key);
        assert_eq!(fault(PromptLookup { match_rate: 1.2, ..PromptLookup::default() }), Some("match_rate"));
        assert_eq!(fault(PromptLookup { mean_run: 0.5, ..PromptLookup::default() }), Some("mean_run"));
        let crowded = PromptLookup { match_rate: 1.0, precision: 0.9, mean_run: 1.0 };
        assert_eq!(fault(crowded), Some("mean_run"));
        assert_eq!(fault(PromptLookup::default()), None);
    }
}
