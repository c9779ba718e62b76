//! The answer.

use super::break_even::BreakEven;
use super::candidates::Candidate;
use super::loads::Loads;
use super::question::{Engine, Objective, Question};
use super::starts::Start;
use foretoken_sim::metrics::Interval;
use serde::Serialize;

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// Where its numbers come from.
    pub source: &'static str,
    /// Whose settings were asked for.
    pub engine: Engine,
    /// What was made best.
    pub objective: Objective,
    /// What the server drafts now.
    pub now: u32,
    /// What is advised.
    pub verdict: Verdict,
    /// The label of the best of all candidates; `None` where none keeps the limit.
    pub best: Option<String>,
    /// What the best brings over what runs now, as a share; the interval is over seeds.
    pub gain: Option<Interval>,
    /// The calibration's error between runs, as a share: what the gain must be beyond as well.
    pub calibration_error: f64,
    /// The best fixed length; 0 is plain decoding.
    pub fixed: Option<u32>,
    /// The best length by batch size: `[first, last, K]`.
    pub table: Vec<(u32, u32, u32)>,
    /// All candidates, in the order tried.
    pub candidates: Vec<Candidate>,
    /// When drafting pays, by batch size.
    pub break_even: Vec<BreakEven>,
    /// The gain of drafting over plain decoding by load.
    pub loads: Option<Loads>,
    /// What to start the engine with.
    pub starts: Vec<Start>,
    /// What whoever follows it should know.
    pub warnings: Vec<String>,
}

/// What is advised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Run the best candidate.
    Change,
    /// What runs now is as good as anything, as far as can be told.
    Stay,
    /// Do not speculate.
    DoNotSpeculate,
    /// The data does not say: why, and what to observe next.
    Unknown(String),
}

impl Advice {
    /// That nothing can be said, and why.
    pub fn unknown(ask: &Question, why: String) -> Advice {
        Advice {
            source: "observed",
            engine: ask.engine,
            objective: ask.objective,
            now: ask.now,
            verdict: Verdict::Unknown(why),
            best: None,
            gain: None,
            calibration_error: 0.0,
            fixed: None,
            table: Vec::new(),
            candidates: Vec::new(),
            break_even: Vec::new(),
            loads: None,
            starts: Vec::new(),
            warnings: Vec::new(),
        }
    }
}
