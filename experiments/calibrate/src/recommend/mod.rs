//! What a server should do with its traffic: the best fixed length, the best table by batch size, the best policy that its engine has,
//! what they would bring over what it does now, and how sure that is.
//!
//! Candidates are simulated on the calibrated server with the same requests and the same luck, seed by seed. Of candidates within 1 % of
//! the best the one with the shorter drafts is taken. A change is advised where its gain is above zero by more than the interval over seeds
//! and the calibration's own error between runs together.

mod advice;
mod break_even;
mod candidates;
mod kept;
mod loads;
mod page;
mod question;
mod starts;
mod words;

pub use advice::{Advice, Verdict};
pub use break_even::BreakEven;
pub use candidates::Candidate;
pub use kept::{ADVICE, PAGE, check, write};
pub use loads::{Load, Loads};
pub use question::{Engine, Goal, Objective, Question};
pub use starts::Start;

use crate::kept::Known;
use foretoken_spec::experiment::SloSpec;
use foretoken_spec::problem::{Problem, Result};
use std::sync::atomic::AtomicBool;

/// Answers a question.
///
/// # Errors
/// The experiment cannot be loaded or a candidate run; an interrupt.
pub fn recommend(ask: &Question, interrupt: &AtomicBool) -> Result<Advice> {
    if let Some(why) = ask.known.as_ref().and_then(Known::cannot_say) {
        return Ok(Advice::unknown(ask, why));
    }
    let plan = ask.at_its_load()?;
    if ask.objective.of == Goal::Slo && plan.variants[0].experiment.slo == SloSpec::default() {
        return Err(Problem::bad_input(
            "the experiment promises nothing, so that there is no share of requests to raise",
        )
        .help("give it bounds: --set slo.ttft_s=0.5 --set slo.tpot_s=0.05"));
    }
    let table = candidates::table(ask.plan(&[])?, &ask.file, interrupt)?;
    let specs = candidates::specs(&plan, ask, &table.ranges);
    let mut all = candidates::evaluate(&plan, &specs, ask.objective, interrupt)?;
    candidates::compare(&mut all, ask.now);
    let best = candidates::best(all.iter());
    let fixed = candidates::best(all.iter().filter(|c| c.fixed)).map(|c| c.longest);
    // What is said of drafting is said of the best length that drafts.
    let drafting = candidates::best(all.iter().filter(|c| c.fixed && c.longest > 0)).map_or(1, |c| c.longest);
    let now = all.iter().find(|c| c.fixed && c.longest == ask.now);
    let error = ask.known.as_ref().map_or(0.0, |k| k.between_runs);
    let mut warnings: Vec<String> = plan.warnings().into_iter().map(str::to_owned).collect();
    warnings.extend(table.warnings());
    let seen = ask.known.as_ref().map_or(u32::MAX, |k| k.positions);
    if let Some(best) = best.filter(|c| c.longest > seen) {
        warnings.push(format!(
            "{} drafts deeper than the {seen} positions that were observed: acceptance there is extrapolated; observe K = {} next",
            best.policy, best.longest
        ));
    }
    if plan.seeds.len() < 2 {
        warnings.push("one seed has no interval: give the experiment several".to_owned());
    }
    let verdict = verdict(ask, best, error);
    let advised = match verdict {
        Verdict::Change => best,
        Verdict::Stay => now,
        Verdict::DoNotSpeculate | Verdict::Unknown(_) => None,
    };
    Ok(Advice {
        source: if ask.known.is_some() { "simulated on a calibration" } else { "simulated" },
        engine: ask.engine,
        objective: ask.objective,
        now: ask.now,
        verdict,
        best: best.map(|b| b.policy.clone()),
        gain: best.and_then(|b| b.gain),
        calibration_error: error,
        fixed,
        break_even: break_even::at_batches(&plan, drafting, &all)?,
        loads: Some(loads::sweep(ask, &plan, drafting, interrupt)?),
        starts: starts::starts(&plan, ask, advised, &all)?,
        table: table.ranges,
        candidates: all,
        warnings,
    })
}

fn verdict(ask: &Question, best: Option<&Candidate>, error: f64) -> Verdict {
    let Some(best) = best else {
        return Verdict::Unknown("no candidate keeps the limit: loosen it, or observe a lower load".into());
    };
    let sure = best.gain.is_some_and(|g| g.mean > g.half_width.unwrap_or(0.0).hypot(error));
    match (best.longest, ask.now, sure) {
        (0, 0, _) | (0, _, true) => Verdict::DoNotSpeculate,
        (_, _, true) => Verdict::Change,
        (_, _, false) => Verdict::Stay,
    }
}

#[cfg(test)]
mod tests;
