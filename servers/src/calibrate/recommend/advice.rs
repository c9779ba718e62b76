//! The advice that `recommend` gives, as data.

use super::answer::{Best, Verdict, WithHost};
use super::at_load::AtLoad;
use super::break_even::BreakEven;
use super::loads::Loads;
use super::measured::Faster;
use super::now::Now;
use super::question::{Engine, Objective, Question};
use super::starts::Start;
use super::subject::Subject;
use crate::calibrate::kept::Known;
use foretoken_run::spec::problem::{Exit, Problem, Result};
use serde::Serialize;

/// The answer of `foretoken recommend`: which policy a server should run, and the results on which this advice is
/// based.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// Where the results come from: observed, or simulated, with or without a calibration.
    pub source: &'static str,
    /// The observed server, or the models and hardware, that the advice is for.
    pub subject: Subject,
    pub engine: Engine,
    /// The number that the recommendation optimises, such as mean E2E, with the limit on TPOT if there is one.
    pub objective: Objective,
    pub now: Now,
    /// Why the calibration is not trusted, as text; `None` if it is trusted or was not judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_trusted: Option<String>,
    /// The measured runs that contradict the advice: the fastest one at each load.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contradicting: Vec<Faster>,
    /// What to do with the server's policy: change it, keep it, or run without a drafter.
    pub verdict: Verdict,
    /// The candidate policy that does best over all loads (see `decide.rs`); `None` if no candidate keeps the limit on
    /// TPOT.
    pub best: Option<Best>,
    /// The fixed draft length that does best over all loads; length 0 is plain decoding.
    pub single: Option<Best>,
    /// The policy with draft lengths by batch size (vLLM's table, or SGLang's adaptive policy), with its largest loss
    /// over all loads. `None` if there is no such candidate, or if it breaks the limit on TPOT at a load.
    pub by_table: Option<Best>,
    /// True if there are several loads, and no fixed draft length is good at all of them. A length is good at a load if
    /// its cost (such as mean E2E) is at most 1 % above the cost of the best fixed length there.
    pub depends_on_load: bool,
    /// The calibration's error between runs, as a share: the error with which a fit to all other runs predicts the
    /// summed step times of a run. Only a gain above this error counts.
    pub calibration_error: f64,
    /// The advice if a measured server's host time is added to the simulated steps. `None` if the experiment already
    /// has host time or measured costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with_host: Option<WithHost>,
    /// The candidate policies' simulated results at each load.
    pub at_loads: Vec<AtLoad>,
    /// The best draft length by batch size, as `(smallest batch, largest batch, K)`. The drafter stays loaded: at K = 0
    /// it still runs over prompts.
    pub table: Vec<(u32, u32, u32)>,
    /// The break-even by batch size: the share of draft tokens that must be accepted so that drafting pays. It is
    /// computed for steps without prompts, against a server without a drafter.
    pub break_even: Vec<BreakEven>,
    /// The gain of drafting over plain decoding at loads from low to full; `None` if nothing was simulated.
    pub loads: Option<Loads>,
    /// The files with the recommended settings with which the engine is started.
    pub starts: Vec<Start>,
    /// The command-line argument with which vLLM follows the advice; `None` for SGLang, or if there is no file to start
    /// vLLM with.
    pub paste: Option<String>,
    /// What the user must add to the command-line argument `paste`, as text; `None` if nothing is missing.
    pub lacks: Option<String>,
    /// The command that observes the server next: with the advised policy or, if there is no advice, with the draft
    /// length that was not observed yet. `None` if the policy need not change and no draft length is missing.
    pub confirm: Option<String>,
    pub warnings: Vec<String>,
}

impl Advice {
    /// The answer of `foretoken recommend` to `ask` if the data allows no advice. `why` is the reason.
    pub fn unknown(ask: &Question, why: String) -> Advice {
        Advice {
            source: "observed",
            subject: Subject::observed(ask),
            engine: ask.engine,
            objective: ask.objective,
            now: ask.now.clone(),
            not_trusted: ask.known.as_ref().and_then(Known::not_trusted),
            contradicting: Vec::new(),
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

    /// Returns an error, with which the program exits, if a measured run contradicts the advice.
    pub fn judge(&self) -> Result<()> {
        let Some(first) = self.contradicting.first() else { return Ok(()) };
        let what = first.in_words();
        Err(Problem::new(Exit::Negative, format!("{}{}", what[..1].to_lowercase(), &what[1..]))
            .help("believe the measurement; calibrate on more loads and draft lengths before you follow the advice"))
    }
}
