//! Text on the SLO bounds of a run, and warnings for runs that were overloaded.

use super::say;
use crate::figures::view::{View, bounds, distinct, words};
use crate::html::Part;
use crate::number::fixed;
use crate::{Cell, Report, ScaledBound, Swept};
use foretoken_sim::metrics::Overload;

/// With more combinations of swept values than this, the text on the bounds gives a range and does not list them.
const OPEN: usize = 6;
/// If more policies than this were overloaded, the warning gives their number and not their names.
const FEW: usize = 3;

/// The SLO bounds as text for the section "What was asked". If TPOT bounds are multiples of the P90 TPOT of
/// autoregressive runs, the text names these runs. `None` without bounds.
pub fn asked(view: &View) -> Option<String> {
    let all = view.all(|_| true);
    let said = |c: &&[Swept]| bounds(&view.all(|s| s == *c));
    let each: Vec<String> = view.combinations.iter().map(said).collect();
    let scaled = distinct(all.iter().filter_map(|c| c.entry.bound.as_ref()), |a, b| a == b);
    let same = each.iter().all(|e| *e == each[0]);
    let listed = || {
        let one = |(c, said): (&&[Swept], &String)| format!("{said} at {}", words(*c));
        view.combinations.iter().zip(&each).map(one).collect::<Vec<_>>().join("; ")
    };
    let text = match () {
        () if each.first().is_none_or(String::is_empty) => return None,
        () if same => each[0].clone(),
        () if each.len() <= OPEN => listed(),
        () => bounds(&all),
    };
    Some(text + &origin(view, &scaled))
}

/// A text on the autoregressive runs from whose P90 TPOT the TPOT bounds are computed; empty if no bound is computed
/// so.
fn origin(view: &View, scaled: &[&ScaledBound]) -> String {
    let Some(first) = scaled.first() else { return String::new() };
    let p90 = match distinct(scaled.iter().map(|b| b.scale), |a, b| a == b).as_slice() {
        [1.0] => "the P90 TPOT of autoregressive".to_owned(),
        [scale] => format!("{scale} times the P90 TPOT of autoregressive"),
        _ => "a multiple of the P90 TPOT of autoregressive".to_owned(),
    };
    let apart = |c: &Swept| view.combinations.iter().any(|s| s.iter().any(|o| o.path == c.path && o.value != c.value));
    // The swept values that are the same in all runs from whose P90 TPOT bounds are computed.
    let fixed = first.from.iter().filter(|c| apart(c) && scaled.iter().all(|b| b.from.contains(c)));
    let fixed = words(fixed);
    match (view.combinations.len(), fixed.as_str()) {
        (1, _) => format!(", {p90}"),
        (_, "") => format!(", {p90} of each setting: the bound moves with what is swept"),
        (_, at) => format!(", {p90} at {at}, whatever the load"),
    }
}

/// Names the policies that stop drafting for a TPOT bound. If a bound is a multiple of the P90 TPOT of a run at other
/// swept values, also names these values. `None` if no policy stops drafting for a bound.
pub fn stops_for_slo(view: &View) -> Option<String> {
    let stops: Vec<&Cell> = view.all(|_| true).into_iter().filter(|c| c.entry.stops_for_slo).collect();
    let stops: Vec<&Cell> = stops.into_iter().filter(|c| c.summary.slo.tpot_s.is_some()).collect();
    let names = distinct(stops.iter().map(|c| c.key().policy.as_str()), |a, b| a == b);
    let first = stops.first()?;
    let (does, it) = if names.len() == 1 { ("does", "it expects") } else { ("do", "they expect") };
    let rule = format!("{} {does} not speculate in a step that {it} to miss the TPOT bound", names.join(", "));
    let elsewhere = stops.iter().find(|c| c.stops_for_a_bound_of_another_load());
    let from = elsewhere.and_then(|c| c.entry.bound.as_ref()).map(|b| {
        let apart = |s: &&Swept| first.key().sweep.len() == 1 || view.combinations.iter().any(|c| !c.contains(s));
        words(b.from.iter().filter(apart))
    });
    Some(match from {
        None => rule + ".",
        Some(at) => format!(
            "{rule}. Where rows have a ~, the bound is that of {at}, not of the row's own load, and they may draft less for it; \
             slo.reference = \"each-load\" gives each load a bound of its own."
        ),
    })
}

/// A warning if some policy was overloaded. If this happened at several combinations of swept values, the warning gives
/// their number, and a sentence on each is folded away.
pub fn overloads(report: &Report) -> Vec<Part> {
    let settings = distinct(report.cells.iter().map(|c| c.key().sweep.as_slice()), |a, b| a == b);
    let all = settings.len();
    let mut said: Vec<String> = settings.into_iter().filter_map(|s| overload(report, s)).collect();
    if said.len() < 2 {
        return said.pop().map(Part::Warning).into_iter().collect();
    }
    let warning = format!(
        "Overloaded in {} of {all} settings: the queue grew while requests came, so latencies measure how long the run was.",
        said.len()
    );
    vec![Part::Warning(warning), Part::More { title: "Each of these settings".into(), parts: vec![Part::List(said)] }]
}

fn overload(report: &Report, sweep: &[Swept]) -> Option<String> {
    let cells: Vec<&Cell> = report.cells.iter().filter(|c| c.key().sweep == sweep).collect();
    let behind = cells.iter().filter_map(|c| Some((c.key().policy.as_str(), c.summary.overload?)));
    let behind: Vec<(&str, Overload)> = behind.collect();
    let names = distinct(behind.iter().map(|b| b.0), |a, b| a == b);
    if names.is_empty() {
        return None;
    }
    // For each overloaded policy, `of` reads one number of the overload, such as the rate of completed requests. The
    // number is averaged over the seeds in which the policy was overloaded. The text gives the least and the greatest
    // number of all policies.
    let range = |of: fn(&Overload) -> f64, decimals: usize| {
        let mean = |name: &&str| {
            let own: Vec<f64> = behind.iter().filter(|b| b.0 == *name).map(|b| of(&b.1)).collect();
            own.iter().sum::<f64>() / own.len() as f64
        };
        let means: Vec<f64> = names.iter().map(mean).collect();
        let least = fixed(means.iter().copied().fold(f64::INFINITY, f64::min), decimals);
        let most = fixed(means.iter().copied().fold(f64::NEG_INFINITY, f64::max), decimals);
        if least == most { least } else { format!("{least} to {most}") }
    };
    let all = distinct(cells.iter().map(|c| c.key().policy.as_str()), |a, b| a == b).len();
    let who = match names.len() {
        n if n == all && n > FEW => format!("all {n} policies"),
        n if n > FEW => format!("{n} of {all} policies, {}", say::few(&names)),
        _ => names.join(", "),
    };
    let said = format!(
        "{who} ({} requests/s came, {} were completed, {} were waiting at the end)",
        range(|o| o.offered_req_s, 1),
        range(|o| o.completed_req_s, 1),
        range(|o| o.waiting[2] as f64, 0)
    );
    let at = if sweep.is_empty() { String::new() } else { format!(" at {}", words(sweep)) };
    let mut text = format!(
        "Overloaded{at}: the queue grew while requests came, so latencies measure how long the run was: {said}."
    );
    if cells.iter().any(|c| c.over_overload) {
        text += " Speedups (marked !) are over such a run and depend on its length.";
    }
    if cells.iter().any(|c| c.bound_of_overload) {
        text += " The TPOT bound is scaled from such a run: it is a measure of the queue, not a promise.";
    }
    Some(text)
}
