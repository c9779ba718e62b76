//! The acceptance sources a user may ask for, by name.

use super::by_depth::ByDepth;
use super::confidence::{Confidence, ConfidenceModel};
use super::independent::{ByPosition, Constant};
use super::mixture::{Mixture, MixtureBits};
use super::prompt_lookup::{Lookups, PromptLookup};
use super::recorded::{POOLED_HAZARDS, Recorded};
use super::source::{Bits, Source};
use super::{AcceptanceSource, Beta, RankLaw};
use crate::workload::Workload;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Where bits come from, and the confidences that go with them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AcceptanceSpec {
    /// What the draft gets right.
    pub source: Rates,
    /// What it says of its tokens.
    pub confidence: Confidence,
    /// What its further guesses are worth, for trees: P(the r-th guess is right | no earlier one is), r = 2, 3, …
    pub ranks: RankLaw,
}

/// What the draft gets right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Rates {
    /// Every position right with one probability, independently.
    Constant {
        /// The probability, [0, 1].
        rate: f64,
    },
    /// By output position: a rate for each stretch of `span` positions, the last one to the end.
    ByPosition {
        /// Rates, [0, 1].
        rates: Vec<f64>,
        /// Positions a rate holds for, at least 1.
        span: u32,
    },
    /// By draft depth (EAGLE family): conditional rates, the last one repeats.
    ByDepth {
        /// Rates, [0, 1].
        rates: Vec<f64>,
    },
    /// A rate of its own for every request, autocorrelated bits.
    Mixture(Mixture),
    /// Text copied from the context: matches and runs by where a round starts.
    PromptLookup(PromptLookup),
    /// The workload's recordings.
    Recorded {
        /// P(right | i − 1 accepted before) for unknown bits, i = 1…; the last repeats.
        #[serde(default = "pooled")]
        hazards: Vec<f64>,
    },
    /// The recordings of a truth table, dealt out to requests that bring none.
    Table(TableSource),
}

/// A truth table as `foretoken profile-acceptance` writes it: bits, ranks and confidences at every output position. Whoever
/// builds the source has read the file and given every request of the workload a recording of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TableSource {
    /// The file.
    pub path: PathBuf,
    /// What holds for a request that is longer than its recording.
    #[serde(default)]
    pub beyond: Beyond,
}

/// What holds for a request that is longer than its recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Beyond {
    /// It is an error.
    #[default]
    Refuse,
    /// The recording begins again, at output position 1.
    Wrap,
}

fn pooled() -> Vec<f64> {
    POOLED_HAZARDS.to_vec()
}

impl Rates {
    /// The file it is read from, if it is read from one.
    pub fn path_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            Rates::Table(table) => Some(&mut table.path),
            _ => None,
        }
    }

    /// Does it replay what a draft once got right?
    pub fn is_recorded(&self) -> bool {
        matches!(self, Rates::Recorded { .. } | Rates::Table(_))
    }
}

impl Default for Rates {
    fn default() -> Self {
        Rates::Mixture(Mixture::default())
    }
}

/// A setting no source can be built from.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("acceptance.{key}: {why}")]
pub struct BadAcceptance {
    /// The setting, below `acceptance`.
    pub key: String,
    /// What is wrong and what would be right.
    pub why: String,
}

fn bad<T>(key: &str, why: impl Into<String>) -> Result<T, BadAcceptance> {
    Err(BadAcceptance { key: key.into(), why: why.into() })
}

fn check_rates(key: &str, rates: &[f64]) -> Result<(), BadAcceptance> {
    if rates.is_empty() {
        return bad(key, "needs at least one rate");
    }
    match rates.iter().find(|r| !(0.0..=1.0).contains(*r)) {
        Some(r) => bad(key, format!("{r} is not a probability in [0, 1]")),
        None => Ok(()),
    }
}

impl AcceptanceSpec {
    /// Checks every value that serde cannot.
    pub fn check(&self) -> Result<(), BadAcceptance> {
        if let Some((key, why)) = self.confidence.fault() {
            return bad(key, why);
        }
        match &self.source {
            Rates::Constant { rate } => check_rates("source.constant.rate", &[*rate]),
            Rates::ByPosition { span: 0, .. } => bad("source.by-position.span", "must be at least 1"),
            Rates::ByPosition { rates, .. } => check_rates("source.by-position.rates", rates),
            Rates::ByDepth { rates } => check_rates("source.by-depth.rates", rates),
            Rates::Recorded { hazards } => check_rates("source.recorded.hazards", hazards),
            // Whether the file can be used is for its reader to say.
            Rates::Table(_) => Ok(()),
            Rates::PromptLookup(lookup) => match lookup.fault() {
                Some((key, why)) => bad(&format!("source.prompt-lookup.{key}"), why),
                None => Ok(()),
            },
            Rates::Mixture(m) => {
                if !(0.0..1.0).contains(&m.autocorrelation) {
                    let why = format!("{} is not in [0, 1)", m.autocorrelation);
                    return bad("source.mixture.autocorrelation", why);
                }
                // Outside these shapes rates are all 0 and 1, or all the same, and the law cannot be drawn from any more.
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

    /// The source for a workload. Fails when a recording is asked for that the workload does not have.
    pub fn build(&self, seed: u64, workload: &Workload) -> Result<Box<dyn AcceptanceSource>, BadAcceptance> {
        self.check()?;
        let confidence = ConfidenceModel::new(&self.confidence, seed);
        let common = Common { confidence, ranks: self.ranks.clone(), seed };
        Ok(match &self.source {
            Rates::Constant { rate } => common.with(Constant { rate: *rate, seed }),
            Rates::ByPosition { rates, span } => common.with(ByPosition { rates: rates.clone(), span: *span, seed }),
            Rates::ByDepth { rates } => common.with(ByDepth { rates: rates.clone(), seed }),
            Rates::PromptLookup(spec) => common.with(Lookups { spec: *spec, seed }),
            Rates::Mixture(m) => common.with(MixtureBits::new(m, &workload.categories, seed)),
            Rates::Recorded { hazards } => {
                if let Some(i) = without_recording(workload) {
                    let why = format!(
                        "request {i} has no recorded acceptance: take the lengths from a Spec-Bench recording or a truth table, or choose another source"
                    );
                    return bad("source.recorded", why);
                }
                // Those that the recordings bring, unless somebody says otherwise.
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

/// The first request that replays no recording.
fn without_recording(workload: &Workload) -> Option<usize> {
    (0..workload.len()).find(|&i| workload.recording.get(i).is_none_or(|&r| r == u32::MAX))
}

/// What all sources share.
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
