//! The settings of acceptance sources, which decide in a simulation which draft tokens are right.

use super::beside_model::{Beside, LookupBesideModel};
use super::by_category::ByCategory;
use super::by_depth::ByDepth;
use super::confidence::{Confidence, ConfidenceModel};
use super::fault::{BadAcceptance, bad, check_points, check_rates};
use super::independent::{ByContext, ByPosition, Constant};
use super::mixture::{Mixture, MixtureBits};
use super::prompt_lookup::{Lookups, PromptLookup};
use super::recorded::{POOLED_HAZARDS, Recorded};
use super::source::{Bits, Source};
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
    /// The workload's requests have recordings of which of their draft tokens are right.
    Recorded {
        /// For draft tokens that a recording does not cover: probability, [0, 1], that the i-th draft token of a round
        /// is right if all before it are. The last one holds for all deeper places.
        #[serde(default = "pooled")]
        hazards: Vec<f64>,
    },
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
    /// The path of the truth table (the file with recorded acceptance), for a source that reads one.
    pub fn path_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            Rates::Table(table) => Some(&mut table.path),
            _ => None,
        }
    }

    /// Whether the source repeats which draft tokens were right in a real run, and does not draw this from a law.
    pub fn is_recorded(&self) -> bool {
        matches!(self, Rates::Recorded { .. } | Rates::Table(_))
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
            Rates::Recorded { hazards } => check_rates("source.recorded.hazards", hazards),
            // Where the truth table (a file of recorded acceptance) is read, it is checked whether it can be used.
            Rates::Table(_) => Ok(()),
            Rates::ByCategory(of) => of.check(),
            Rates::PromptLookup(lookup) => lookup.check("source.prompt-lookup"),
            Rates::Suffix(suffix) => suffix.check("source.suffix"),
            Rates::LookupBesideModel(both) => both.check(),
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
        let confidence = ConfidenceModel::new(&self.confidence, seed);
        let common = Common { confidence, ranks: self.ranks.clone(), seed };
        Ok(match &self.source {
            Rates::Constant { rate } => common.with(Constant { rate: *rate, seed }),
            Rates::ByPosition { rates, span } => common.with(ByPosition { rates: rates.clone(), span: *span, seed }),
            Rates::ByContext { points } => common.with(ByContext { points: points.clone(), seed }),
            Rates::ByDepth { rates } => common.with(ByDepth { rates: rates.clone(), seed }),
            Rates::ByCategory(of) => common.with(of.build(seed, workload)?),
            Rates::LookupBesideModel(both) => common.with(Beside::new(both, seed)),
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

/// Index of the first request of the workload that has no recording of which of its draft tokens are right.
fn without_recording(workload: &Workload) -> Option<usize> {
    (0..workload.len()).find(|&i| workload.recording.get(i).is_none_or(|&r| r == u32::MAX))
}

/// The parts that all acceptance sources share: the model of confidences, the probabilities of second and later
/// guesses, and the seed of the draws.
struct Common {
    confidence: ConfidenceModel,
    ranks: RankLaw,
    seed: u64,
}

impl Common {
    fn with<B: Bits + 'static>(self, bits: B) -> Box<dyn AcceptanceSource> {
        Box::new(Source { bits, confidence: self.confidence, ranks: self.ranks, seed: self.seed })
    }
}
