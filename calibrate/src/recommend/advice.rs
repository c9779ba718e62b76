//! The advice that `recommend` gives, as data.

use super::at_load::AtLoad;
use super::break_even::BreakEven;
use super::loads::Loads;
use super::now::Now;
use super::question::{Engine, Objective, Question};
use super::starts::Start;
use super::subject::Subject;
use serde::Serialize;

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// Where its numbers come from.
    pub source: &'static str,
    /// What server or setting it is about.
    pub subject: Subject,
    /// Whose settings were asked for.
    pub engine: Engine,
    /// What was made best.
    pub objective: Objective,
    /// What the server runs now.
    pub now: Now,
    /// What is advised.
    pub verdict: Verdict,
    /// What is held against what runs now; `None` where nothing keeps the limit.
    pub best: Option<Best>,
    /// The best single length over all loads; 0 is plain decoding.
    pub single: Option<Best>,
    /// What comes of the table by batch size over all loads.
    pub by_table: Option<Best>,
    /// Is another single length the best at another load?
    pub depends_on_load: bool,
    /// The calibration's error between runs, as a share: what a gain must be beyond as well.
    pub calibration_error: f64,
    /// Each load.
    pub at_loads: Vec<AtLoad>,
    /// The best length by batch size, with the drafter loaded: `[first, last, K]`.
    pub table: Vec<(u32, u32, u32)>,
    /// When drafting pays, by batch size: decode steps alone, against plain decoding without a drafter.
    pub break_even: Vec<BreakEven>,
    /// What drafting brings as the load grows.
    pub loads: Option<Loads>,
    /// What to start the engine with.
    pub starts: Vec<Start>,
    /// The argument of vLLM that says what is advised, to be pasted.
    pub paste: Option<String>,
    /// What the argument still lacks.
    pub lacks: Option<String>,
    /// The command that shows on the server whether the advice holds.
    pub confirm: Option<String>,
    /// Notes for its user.
    pub warnings: Vec<String>,
}

/// A candidate, held against the best at each load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Best {
    /// Its label.
    pub policy: String,
    /// Its name.
    pub name: String,
    /// Its longest draft.
    pub longest: u32,
    /// Its cost over that of the best at the load where it does worst, less one.
    pub worst_loss: f64,
    /// That load.
    pub worst_at: String,
}

/// What is advised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Run the best candidate.
    Change,
    /// What runs now is as good as any candidate, as far as the data shows.
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
            subject: Subject::observed(ask),
            engine: ask.engine,
            objective: ask.objective,
            now: ask.now.clone(),
            verdict: Verdict::Unknown(why),
            best: None,
            single: None,
            by_table: None,
            depends_on_load: false,
            calibration_error: 0.0,
            at_loads: Vec::new(),
            table: Vec::new(),
            break_even: Vec::new(),
            loads: None,
            starts: Vec::new(),
            paste: None,
            lacks: None,
            confirm: None,
            warnings: Vec::new(),
        }
    }
}
