//! The advice that `recommend` gives, as data.

use super::answer::{Best, Verdict, WithHost};
use super::at_load::AtLoad;
use super::break_even::BreakEven;
use super::loads::Loads;
use super::now::Now;
use super::question::{Engine, Objective, Question};
use super::starts::Start;
use super::subject::Subject;
use serde::Serialize;

/// The answer to a question.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// The source of the numbers.
    pub source: &'static str,
    /// The server or the setting.
    pub subject: Subject,
    /// The engine for which settings were asked.
    pub engine: Engine,
    /// The number that was optimised.
    pub objective: Objective,
    /// The server's policy now.
    pub now: Now,
    /// The advice.
    pub verdict: Verdict,
    /// The candidate that is compared with the server's policy; `None` if no candidate keeps the limit.
    pub best: Option<Best>,
    /// The best single length over all loads; 0 is plain decoding.
    pub single: Option<Best>,
    /// The table by batch size over all loads.
    pub by_table: Option<Best>,
    /// True if the best single length differs between loads.
    pub depends_on_load: bool,
    /// The calibration's error between runs, as a share. A gain must also exceed it.
    pub calibration_error: f64,
    /// The advice with the host time of a measured server; `None` if the experiment has host time or measured costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with_host: Option<WithHost>,
    /// The loads.
    pub at_loads: Vec<AtLoad>,
    /// The best length by batch size, with the drafter loaded: `[first, last, K]`.
    pub table: Vec<(u32, u32, u32)>,
    /// When drafting pays, by batch size: decode steps alone, against plain decoding without a drafter.
    pub break_even: Vec<BreakEven>,
    /// The gain of drafting as the load grows.
    pub loads: Option<Loads>,
    /// The file with which the engine is started.
    pub starts: Vec<Start>,
    /// vLLM's command-line argument for the advice, to paste.
    pub paste: Option<String>,
    /// What the user must add to the argument.
    pub lacks: Option<String>,
    /// The command that checks the advice on the server.
    pub confirm: Option<String>,
    /// Notes for the user.
    pub warnings: Vec<String>,
}

impl Advice {
    /// An advice without an answer, with the reason.
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
            with_host: None,
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
