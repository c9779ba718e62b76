//! Checks whether advice from rooflines holds with host time. A roofline counts the device's time only. If the
//! experiment has no host time either, the candidates are simulated a second time with the host time of a measured
//! server. If the advice changes, no advice is given.

use super::answer::{Verdict, WithHost};
use super::at_load::AtLoad;
use super::decide::{Decision, decide};
use super::question::{AskedLoad, Question};
use foretoken_policies::PolicySpec;
use foretoken_run::host_band::{SOURCE, is_left_out, measured};
use foretoken_run::plan::Plan;
use foretoken_run::spec::problem::Result;
use std::sync::atomic::AtomicBool;

/// The advice if the host time of a measured server is added to the simulation; `None` if the experiment has host time,
/// or measured costs.
pub fn with_host<'a>(
    ask: &Question,
    asked: impl Iterator<Item = (&'a AskedLoad, &'a Plan)>,
    specs: &[PolicySpec],
    found: &Decision,
    error: f64,
    interrupt: &AtomicBool,
) -> Result<Option<WithHost>> {
    let mut at_loads = Vec::new();
    for (load, plan) in asked {
        if !is_left_out(plan) {
            return Ok(None);
        }
        let mut plan = plan.clone();
        plan.variants[0].experiment.engine.host = measured();
        at_loads.push(AtLoad::of(ask, load, &plan, specs, interrupt)?);
    }
    let other = decide(ask, &at_loads, error);
    let name = |d: &Decision| d.best.map(|at| at_loads[0].candidates[at].name.clone());
    let flips = std::mem::discriminant(&found.verdict) != std::mem::discriminant(&other.verdict);
    Ok(Some(WithHost { source: SOURCE, best: name(&other), verdict: other.verdict, flips, at_loads }))
}

impl WithHost {
    /// A text that names the advice with host time, such as `run K = 3`. The text stands at the end of a sentence.
    fn says(&self) -> String {
        let best = self.best.clone().unwrap_or_else(|| "no candidate".into());
        match &self.verdict {
            Verdict::Change => format!("run {best}"),
            Verdict::Stay => "stay as it is".to_owned(),
            Verdict::DoNotSpeculate => "do not speculate".to_owned(),
            Verdict::Unknown(why) => why.clone(),
        }
    }

    /// Returns the verdict "unknown", with the reason as text, if host time changes the advice; else `None`.
    /// `without` and `best` are the advice and the best candidate policy without host time.
    pub fn doubt(&self, without: &Verdict, best: Option<&str>) -> Option<Verdict> {
        let first = WithHost { verdict: without.clone(), best: best.map(str::to_owned), ..self.clone() };
        self.flips.then(|| {
            Verdict::Unknown(format!(
                "it depends on your host: calibrate. The experiment counts no host time ([engine.host]). Without it the \
                 advice is: {}. With the host time of a measured server ({}) it is: {}. Measure K = 0 and K = 3 at your \
                 loads, and `foretoken calibrate TABLE.csv` on them",
                first.says(),
                self.source,
                self.says()
            ))
        })
    }

    /// A note for the user if host time leaves the verdict as it is (`flips` is false); else `None`. `best` is the best
    /// candidate policy without host time. If the verdict is to change the policy, and another candidate is the best
    /// with host time, the note calls the advice nearly the same.
    pub fn note(&self, best: Option<&str>) -> Option<String> {
        let same = !matches!(self.verdict, Verdict::Change) || self.best.as_deref() == best;
        let is = if same { "the same" } else { "nearly the same" };
        (!self.flips).then(|| {
            format!(
                "no host time is counted; with that of a measured server ({}) the advice is {is}: {}",
                self.source,
                self.says()
            )
        })
    }
}
