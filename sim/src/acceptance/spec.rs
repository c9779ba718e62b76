//! The settings of acceptance sources, which decide in a simulation which draft tokens are right.

use super::beside_model::{Beside, LookupBesideModel};
use super::by_category::ByCategory;
use super::by_depth::ByDepth;
use super::by_length::{Lengths, Rule, conditional};
use super::confidence::{Confidence, ConfidenceModel};
use super::counterfactual::Counterfactual;
use super::fault::{BadAcceptance, bad, check_points, check_rates};
use super::independent::{ByContext, ByPosition, Constant};
use super::mixture::{Mixture, MixtureBits};
use super::prompt_lookup::{Lookups, PromptLookup};
use super::recorded::{POOLED_HAZARDS, Recorded};
use super::source::Common;
use super::suffix::{Suffix, SuffixTree};
use super::{AcceptanceSource, Beta, RankLaw};
use crate::workload::Workload;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Which draft tokens the target accepts in a simulated run, and the confidences that the draft model reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AcceptanceSpec {
    /// The law or the recording that decides which draft tokens are right.
    pub source: Rates,
    /// How the confidences that the draft model reports for its tokens are drawn.
    pub confidence: Confidence,
    /// For token trees: probability that the draft model's r-th guess at a position is right if no better guess is, for
    /// r = 2, 3, …
    pub ranks: RankLaw,
}

/// The law or the recording that decides which draft tokens are right. A draft token is right if it is the token that
/// the target makes. It is accepted if all draft tokens before it in its round are right, too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Rates {
    /// Every draft token is right with the same probability, independently.
    Constant {
        /// Probability that a draft token is right, [0, 1].
        rate: f64,
    },
    /// The probability that a draft token is right depends on the position in the output: each rate holds for `span`
    /// positions.
    ByPosition {
        /// Probabilities that a draft token is right, [0, 1], in the order of the output positions. The last one holds
        /// to the end of the output.
        rates: Vec<f64>,
        /// Number of output positions for which each rate holds, at least 1.
        span: u32,
    },
    /// The probability that a draft token is right depends on the context: the tokens of prompt and output before the
    /// draft token. Draft tokens after long contexts are often worse.
    ByContext {
        /// `[tokens, rate]`: tokens of context, rising, and the probability that a draft token is right, [0, 1].
        /// Between two points the rate is on the straight line; outside of the points it is the rate of the nearest
        /// point. The rate is updated every 64 output tokens.
        points: Vec<(u32, f64)>,
    },
    /// The probability that a draft token is right depends on its place in the draft round (as for EAGLE heads).
    ByDepth {
        /// Probability, [0, 1], that the i-th draft token of a round is right if all before it are right. The last rate
        /// holds for all deeper places: with 3 rates, draft tokens 3, 4 and 5 have the third.
        rates: Vec<f64>,
    },
    /// The same law as `by-depth`, given by shares of all draft rounds and not of the rounds that reach a place: vLLM's
    /// counters by position, divided by its number of drafts.
    Marginal {
        /// Share of all draft rounds in which the i-th draft token and all before it are right, [0, 1], not rising. For
        /// deeper places the last share falls as it did from the one before.
        shares: Vec<f64>,
    },
    /// The share of all draft tokens that are accepted, at one draft length: vLLM's draft acceptance rate, llama.cpp's
    /// accepted by drafted tokens. The same as `mean-length` with 1 + share × k tokens at K = k.
    DraftedShare {
        /// Accepted draft tokens divided by draft tokens, [0, 1].
        share: f64,
        /// The draft length at which the share was counted, at least 1.
        k: u32,
    },
    /// The mean number of tokens that a round emits is given for each draft length, as benchmarks publish it. A run
    /// has the mean of its own draft length: the most tokens that its policy drafts in a round.
    MeanLength(Lengths),
    /// Like `mean-length`, without chance: of a mean of L tokens, the first ⌊L − 1⌋ draft tokens of every round are
    /// right, and the next one with the remaining fraction. vLLM (`synthetic_acceptance_length`) and SGLang
    /// (`SGLANG_SIMULATE_ACC_LEN`) force acceptance so in benchmarks. Confidences say nothing of what is accepted.
    Forced(Lengths),
    /// The mean lengths of a published curve, by its name, as `foretoken acceptance list` prints it. The same as
    /// `mean-length = { golden = NAME }`.
    Golden(String),
    /// Every request has its own probability that a draft token is right, drawn from a Beta law. Neighbouring draft
    /// tokens of a request are correlated.
    Mixture(Mixture),
    /// Every category of requests (chat, code, …) has its own probability that a draft token is right.
    ByCategory(ByCategory),
    /// Prompt lookup: the drafter copies text from the context. The position at which a draft round starts decides
    /// whether there is a match and how many of its tokens are right.
    PromptLookup(PromptLookup),
    /// Suffix decoding: a suffix tree proposes what followed the newest tokens in earlier text. The longer the match,
    /// the more tokens are proposed.
    Suffix(Suffix),
    /// Two drafters: prompt lookup in draft rounds in which it finds a match, and a draft model in other rounds.
    LookupBesideModel(LookupBesideModel),
    /// The workload's requests have recordings of how far either of two drafters would get at each output position.
    Counterfactual(Counterfactual),
    /// The workload's requests have recordings of which of their draft tokens are right.
    Recorded {
        /// For draft tokens that a recording does not cover: probability, [0, 1], that the i-th draft token of a round
        /// is right if all before it are. The last one holds for all deeper places.
        #[serde(default = "pooled")]
        hazards: Vec<f64>,
    },
    /// The acceptance comes from a `speculation_profile.json`, the file in which NVIDIA's Model-Optimizer describes a
    /// draft checkpoint. Draft tokens beyond the measured ones are never right.
    Profile(ProfileSource),
    /// The acceptance of requests without a recording comes from a truth table, a file that records which draft tokens
    /// of real requests were right.
    Table(TableSource),
}

/// A truth table, as `foretoken profile-acceptance` writes it. At every output position it says whether the draft
/// model's first guess is right, which guess is, and with what confidence. The program that builds the source must have
/// read the file and given every request of the workload a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TableSource {
    /// Path of the truth table, the file with the recorded acceptance of a draft model on a target's own text.
    pub path: PathBuf,
    /// What happens if a request has more output tokens than its recording.
    #[serde(default)]
    pub beyond: Beyond,
}

/// A `speculation_profile.json`: how often a draft checkpoint is right. The program that builds the source must have
/// read the file and replaced the source by what the file says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileSource {
    /// Path of the file.
    pub path: PathBuf,
}

/// What happens if a request has more output tokens than its recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Beyond {
    /// The run is refused with an error.
    #[default]
    Refuse,
    /// The recording is repeated from its first output position.
    Wrap,
}

fn pooled() -> Vec<f64> {
    POOLED_HAZARDS.to_vec()
}

impl Rates {
    /// The path of the file (truth table, speculation profile) that the source reads, if it reads one.
    pub fn path_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            Rates::Table(table) => Some(&mut table.path),
            Rates::Profile(profile) => Some(&mut profile.path),
            _ => None,
        }
    }

    /// The mean lengths by draft length, for a source that has them. `None` also for a name without its lengths.
    pub fn mean_lengths(&self) -> Option<&Lengths> {
        match self {
            Rates::MeanLength(lengths) | Rates::Forced(lengths) => Some(lengths),
            _ => None,
        }
    }

    /// Fills in the lengths of the published curve that the source names. `curve` looks a name up.
    ///
    /// # Errors
    /// No curve has the name, or other lengths are given beside it.
    pub fn fill_golden(&mut self, curve: impl FnOnce(&str) -> Result<Lengths, String>) -> Result<(), BadAcceptance> {
        let (key, given) = match self {
            Rates::Golden(name) => ("source", Lengths { lengths: Vec::new(), golden: Some(std::mem::take(name)) }),
            Rates::MeanLength(given) => ("source.mean-length", std::mem::take(given)),
            Rates::Forced(given) => ("source.forced", std::mem::take(given)),
            _ => return Ok(()),
        };
        let filled = match &given.golden {
            None => given,
            Some(name) => match curve(name) {
                Err(why) => return bad(&format!("{key}.golden"), why),
                Ok(curve) if given.lengths.is_empty() || given.lengths == curve.lengths => curve,
                Ok(_) => {
                    return bad(&format!("{key}.lengths"), format!("{name} has other ones: leave one of both out"));
                }
            },
        };
        *self = if matches!(self, Rates::Forced(_)) { Rates::Forced(filled) } else { Rates::MeanLength(filled) };
        Ok(())
    }

    /// Whether the source repeats which draft tokens were right in a real run, and does not draw this from a law.
    pub fn is_recorded(&self) -> bool {
        matches!(self, Rates::Recorded { .. } | Rates::Table(_) | Rates::Counterfactual(_))
    }
}

impl Default for Rates {
    fn default() -> Self {
        Rates::Mixture(Mixture::default())
    }
}

impl AcceptanceSpec {
    /// Checks the settings of acceptance that serde cannot check.
    ///
    /// # Errors
    /// A list of rates, points or categories is empty, a rate is not in [0, 1], the tokens of points do not rise, a
    /// span is 0, an autocorrelation is not in [0, 1), the shape of a Beta distribution is not in [0.001, 1000000], or
    /// the model of the confidences, of the prompt lookup, of the suffix tree or of the draft model beside a lookup has
    /// a fault. The error names the setting.
    pub fn check(&self) -> Result<(), BadAcceptance> {
        if let Some((key, why)) = self.confidence.fault() {
            return bad(key, why);
        }
        match &self.source {
            Rates::Constant { rate } => check_rates("source.constant.rate", &[*rate]),
            Rates::ByPosition { span: 0, .. } => bad("source.by-position.span", "must be at least 1"),
            Rates::ByPosition { rates, .. } => check_rates("source.by-position.rates", rates),
            Rates::ByContext { points } => check_points("source.by-context.points", points),
            Rates::ByDepth { rates } => check_rates("source.by-depth.rates", rates),
            Rates::Marginal { shares } => {
                check_rates("source.marginal.shares", shares)?;
                match (1..shares.len()).find(|&i| shares[i] > shares[i - 1]) {
                    Some(i) => {
                        let why = format!(
                            "place {} cannot be right in more rounds ({}) than place {i} ({}): shares that rise are conditional ones, for by-depth.rates",
                            i + 1,
                            shares[i],
                            shares[i - 1]
                        );
                        bad("source.marginal.shares", why)
                    }
                    None => Ok(()),
                }
            }
            Rates::DraftedShare { k: 0, .. } => bad("source.drafted-share.k", "must be at least 1"),
            Rates::DraftedShare { share, .. } => check_rates("source.drafted-share.share", &[*share]),
            Rates::Profile(_) => Ok(()),
            Rates::MeanLength(lengths) => lengths.check("source.mean-length"),
            Rates::Forced(lengths) => lengths.check("source.forced"),
            Rates::Golden(name) => bad("source.golden", format!("the lengths of {name} are not filled in")),
            Rates::Recorded { hazards } => check_rates("source.recorded.hazards", hazards),
            // Where the truth table (a file of recorded acceptance) is read, it is checked whether it can be used.
            Rates::Table(_) => Ok(()),
            Rates::ByCategory(of) => of.check(),
            Rates::PromptLookup(lookup) => lookup.check("source.prompt-lookup"),
            Rates::Suffix(suffix) => suffix.check("source.suffix"),
            Rates::LookupBesideModel(both) => both.check(),
            Rates::Counterfactual(of) => of.check(),
            Rates::Mixture(m) => {
                if !(0.0..1.0).contains(&m.autocorrelation) {
                    let why = format!("{} is not in [0, 1)", m.autocorrelation);
                    return bad("source.mixture.autocorrelation", why);
                }
                // Shapes below 0.001 or above 1000000 are refused: all rates would be 0 or 1, or all rates would be
                // equal, and no numbers could be drawn from the Beta law.
                let why = "a and b must be > 0, from 0.001 to 1000000";
                let fault = |beta: &Beta| [beta.a, beta.b].iter().any(|shape| !(1e-3..=1e6).contains(shape));
                match m.categories.iter().find(|(_, beta)| fault(beta)) {
                    Some((name, _)) => bad(&format!("source.mixture.categories.{name}"), why),
                    None if fault(&m.all) => bad("source.mixture.all", why),
                    None => Ok(()),
                }
            }
        }
    }

    /// Builds the source for a workload.
    ///
    /// # Errors
    /// The errors of [`check`](Self::check). Or the source replays recordings, and a request of the workload has none.
    /// Or the source is `by-category`, and it has no law for the category of a request.
    pub fn build(&self, seed: u64, workload: &Workload) -> Result<Box<dyn AcceptanceSource>, BadAcceptance> {
        self.check()?;
        let common = self.common(&self.confidence, seed);
        Ok(match &self.source {
            Rates::Constant { rate } => common.with(Constant { rate: *rate, seed }),
            Rates::ByPosition { rates, span } => common.with(ByPosition { rates: rates.clone(), span: *span, seed }),
            Rates::ByContext { points } => common.with(ByContext { points: points.clone(), seed }),
            Rates::ByDepth { rates } => common.with(ByDepth { rates: rates.clone(), seed }),
            Rates::Marginal { shares } => common.with(ByDepth { rates: conditional(shares), seed }),
            Rates::DraftedShare { share, k } => {
                let lengths = Lengths { lengths: vec![(*k, 1.0 + share * f64::from(*k))], golden: None };
                self.by_run(&lengths, Rule::Drawn, seed)
            }
            Rates::Profile(file) => {
                return bad("source.profile", format!("{} was not read", file.path.display()));
            }
            Rates::MeanLength(lengths) => self.by_run(lengths, Rule::Drawn, seed),
            Rates::Forced(lengths) => self.by_run(lengths, Rule::Forced, seed),
            Rates::Golden(_) => unreachable!("the check refuses a name without lengths"),
            Rates::ByCategory(of) => common.with(of.build(seed, workload)?),
            Rates::LookupBesideModel(both) => common.with(Beside::new(both, seed)),
            Rates::Counterfactual(of) => common.with(of.build(seed, workload)?),
            Rates::PromptLookup(spec) => common.with(Lookups { spec: *spec, seed }),
            Rates::Suffix(spec) => common.with(SuffixTree::new(spec, seed)),
            Rates::Mixture(m) => common.with(MixtureBits::new(m, &workload.categories, seed)),
            Rates::Recorded { hazards } => {
                if let Some(i) = without_recording(workload) {
                    let why = format!(
                        "request {i} has no recorded acceptance: take the lengths from a Spec-Bench recording or a truth table, or choose another source"
                    );
                    return bad("source.recorded", why);
                }
                // Hazards are the probabilities that a draft token is right where no recording says whether it is. If
                // the workload's recordings have hazards of their own, these are used, unless the user has set other
                // hazards.
                let own = !workload.hazards.is_empty() && *hazards == pooled();
                let hazards = if own { workload.hazards.clone() } else { hazards.clone() };
                common.with(Recorded::new(workload, hazards, false, seed))
            }
            Rates::Table(table) => {
                if let Some(i) = without_recording(workload) {
                    return bad("source.table", format!("request {i} was given no recording of the table"));
                }
                let wraps = table.beyond == Beyond::Wrap;
                let hazards = if workload.hazards.is_empty() { pooled() } else { workload.hazards.clone() };
                common.with(Recorded::new(workload, hazards, wraps, seed))
            }
        })
    }
}

impl AcceptanceSpec {
    fn common(&self, confidence: &Confidence, seed: u64) -> Common {
        Common { confidence: ConfidenceModel::new(confidence, seed), ranks: self.ranks.clone(), seed }
    }

    fn by_run(&self, lengths: &Lengths, rule: Rule, seed: u64) -> Box<dyn AcceptanceSource> {
        Box::new(lengths.build(rule, &self.confidence, seed, |confidence| self.common(confidence, seed)))
    }
}

/// Index of the first request of the workload that has no recording of which of its draft tokens are right.
fn without_recording(workload: &Workload) -> Option<usize> {
    (0..workload.len()).find(|&i| workload.recording.get(i).is_none_or(|&r| r == u32::MAX))
}
