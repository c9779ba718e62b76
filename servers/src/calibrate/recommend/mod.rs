//! Recommends a policy for a server and its traffic: the best fixed draft length, the best table of draft lengths by
//! batch size, the best policy of the serving engine, their gains at each load, and how certain the gains are.
//!
//! All candidates are simulated with the same requests and the same random draws for each seed, at each observed load
//! or at the load of an experiment. Candidates whose costs (such as mean E2E) are within 1 % of the least cost are as
//! good as the best, and `foretoken_report::which` takes one of them.
//!
//! A gain or a loss at a load counts only if it exceeds its error. The error is the root of the sum of squares of the
//! 95 % interval over seeds and of the calibration's error between runs. A change of the server's policy is advised if
//! the largest gain that counts, over all loads, exceeds the largest loss that counts. A change is also advised if the
//! server's present policy breaks the limit on TPOT.

mod acting;
mod advice;
mod answer;
mod at_load;
mod break_even;
mod candidates;
mod compare;
mod confirm;
mod decide;
mod files;
mod gain;
mod host;
mod loads;
mod measured;
mod names;
mod now;
mod page;
mod question;
mod starts;
mod subject;
mod unknown;
mod words;

pub use acting::{Acting, acting};
pub use advice::Advice;
pub use answer::{Best, Verdict, WithHost};
pub use at_load::AtLoad;
pub use break_even::BreakEven;
pub use candidates::{Candidate, doubling};
pub use compare::{Compared, compare};
pub use decide::{Decision, gain_over};
pub use files::{ADVICE, PAGE, check, write};
pub use gain::Gain;
pub use loads::{Load, Loads};
pub use measured::Faster;
pub use names::table_in_words;
pub use now::Now;
pub use question::{AskedLoad, Engine, Goal, Objective, Question};
pub use starts::Start;
pub use subject::Subject;

use crate::calibrate::kept::Known;
use crate::calibrate::loads::SeenRun;
use foretoken_run::spec::problem::Result;
use std::sync::atomic::AtomicBool;

/// Simulates the candidate policies for the question `ask` and gives advice. If the calibration lacks data for advice,
/// the answer says what to observe next.
pub fn recommend(ask: &Question, interrupt: &AtomicBool) -> Result<Advice> {
    if let Some((why, next)) = ask.known.as_ref().and_then(Known::cannot_say) {
        let runs: Vec<SeenRun> = ask.loads().iter().flat_map(AskedLoad::runs).cloned().collect();
        let confirm = next.map(|k| confirm::command(ask, &now::fixed(k), &runs));
        return Ok(Advice { confirm, ..Advice::unknown(ask, why) });
    }
    let Compared { asked, plans, typical, table, specs, mut at_loads, mut found, with_host, error } =
        compare(ask, None, interrupt)?;
    let method = confirm::method(ask, &plans[0]);
    let ask = &Question { method, ..ask.clone() };
    let best_name = found.best.map(|at| at_loads[0].candidates[at].name.clone());
    if let Some(doubt) = with_host.as_ref().and_then(|other| other.doubt(&found.verdict, best_name.as_deref())) {
        found.verdict = doubt;
    }
    let now = specs.iter().position(|spec| *spec == ask.now.spec).expect("what runs now is a candidate");
    if let Some(best) = found.best {
        at_loads.iter_mut().for_each(|at| at.advised_gain = decide::gain_over(at, now, best));
    }
    // The candidate policy that stands for drafting, when drafting is compared with plain decoding: the advised policy
    // if it drafts, or else the best fixed draft length.
    let drafting = found.best.filter(|&at| at_loads[0].candidates[at].longest > 0);
    let drafting = drafting.unwrap_or_else(|| best_drafting(&at_loads[typical]));
    let advised = match found.verdict {
        Verdict::Change => found.best,
        Verdict::Stay => Some(now),
        Verdict::DoNotSpeculate | Verdict::Unknown(_) => None,
    };
    let candidates = &at_loads[typical].candidates;
    let single = decide::with_loss(&decide::decisive(&at_loads), drafting)
        .filter(|_| candidates[drafting].fixed)
        .map_or_else(|| best_drafting(&at_loads[typical]), |_| drafting);
    let starts = starts::starts(&plans[typical], ask, advised.map(|at| &candidates[at]), candidates)?;
    let (paste, lacks) = confirm::paste(ask, &starts);
    let changed = match found.verdict {
        Verdict::Change | Verdict::DoNotSpeculate => found.best.filter(|&at| at != now),
        Verdict::Stay | Verdict::Unknown(_) => None,
    };
    // The recommended command `foretoken observe` observes the server at the load with the largest gain, where the gain
    // is easiest to measure.
    let gain = |at: &usize| at_loads[*at].advised_gain.map_or(f64::NEG_INFINITY, |g| g.mean);
    let largest = (0..asked.len()).max_by(|a, b| gain(a).total_cmp(&gain(b))).unwrap_or(typical);
    let confirm = changed.map(|at| confirm::command(ask, &specs[at], asked[largest].runs()));
    let decisive = decide::decisive(&at_loads);
    let with_loss = |at: Option<usize>| at.and_then(|at| decide::with_loss(&decisive, at));
    let table_warnings = table.warnings();
    let advised_now = advised.or(found.best.filter(|_| found.verdict == Verdict::DoNotSpeculate));
    let contradicting =
        advised_now.map_or(vec![], |at| measured::contradicting(&asked, &at_loads, ask.objective, at, error));
    let not_trusted = ask.known.as_ref().and_then(Known::not_trusted);
    let mut advice = Advice {
        source: if ask.known.is_some() { "simulated on a calibration" } else { "simulated" },
        subject: Subject::of(ask, &plans[typical]),
        engine: ask.engine,
        objective: ask.objective,
        now: ask.now.clone(),
        not_trusted: not_trusted.clone(),
        contradicting,
        verdict: found.verdict,
        best: with_loss(found.best),
        single: with_loss(found.single),
        by_table: with_loss(found.by_table),
        depends_on_load: found.depends_on_load,
        calibration_error: error,
        with_host,
        break_even: break_even::at_batches(
            &table,
            plans[typical].clone(),
            &ask.file,
            candidates[single].longest,
            candidates,
            interrupt,
        )?,
        loads: Some(loads::sweep(ask, plans[typical].clone(), &specs, &specs[drafting], interrupt)?),
        starts,
        paste,
        lacks,
        confirm,
        table: table.ranges,
        warnings: Vec::new(),
        at_loads,
    };
    advice.warnings = plans[typical].warnings().into_iter().map(str::to_owned).collect();
    // The advice begins with the distrust, so that it is no warning at the end.
    advice.warnings.retain(|warning| not_trusted.as_ref().is_none_or(|why| !warning.contains(why)));
    advice.warnings.extend(table_warnings);
    advice.warnings.extend(advice.with_host.as_ref().and_then(|other| other.note(best_name.as_deref())));
    let further = warnings(ask, &advice);
    advice.warnings.extend(further);
    Ok(advice)
}

/// The index of the candidate policy that is the best fixed draft length of at least one token at the load `at`.
fn best_drafting(at: &AtLoad) -> usize {
    let best = candidates::best(at.candidates.iter().filter(|c| c.fixed && c.longest > 0), None);
    // If no draft length keeps the limit on TPOT, a draft length of 1 is taken.
    let longest = best.map_or(1, |c| c.longest);
    at.candidates.iter().position(|c| c.fixed && c.longest == longest).expect("every length is a candidate")
}

fn warnings(ask: &Question, advice: &Advice) -> Vec<String> {
    let mut all = Vec::new();
    for at in &advice.at_loads {
        if let Some(overloaded) = at.overloaded() {
            let than = match at.overload {
                Some(_) => "advice for a load that is carried may be another",
                None => "gains over it grow with the length of the run",
            };
            all.push(format!("{}: {overloaded}. Latencies measure the queue there; {than}", at.load));
        }
    }
    let seen = ask.known.as_ref().map_or(u32::MAX, |k| k.positions);
    if let Some(best) = advice.best.as_ref().filter(|best| best.longest > seen) {
        all.push(format!(
            "{} drafts deeper than the {seen} positions that were observed: acceptance there is extrapolated; observe K = {} next",
            best.name, best.longest
        ));
    }
    if advice.subject.seeds < 2 {
        all.push("one seed has no interval: give the experiment several".to_owned());
    }
    all
}

#[cfg(test)]
mod stated_tests;
#[cfg(test)]
mod tests;
