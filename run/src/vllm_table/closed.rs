//! Reduces an experiment to one variant in closed loops, in which each client sends a request when its last one ends.

use crate::plan::{Plan, Variant};
use crate::spec::document::Choice;
use crate::spec::experiment::{BeliefSpec, Experiment, Output, SloSpec};
use crate::spec::problem::{Problem, Result};
use foretoken_traces::{ArrivalSpec, LengthSpec};
use std::path::Path;

/// The one variant of a plan, with a closed loop in place of its arrivals. Settings without effect in a closed loop
/// with a fixed draft length (arrivals, their transformations, latency bounds, the table `[belief]`) get their
/// defaults. If a plan sweeps only these settings, a note on stderr names the sweeps. The variant records its steps.
pub fn one_setting(mut plan: Plan, file: &Path) -> Result<Variant> {
    plan.variants.iter_mut().for_each(|v| close_the_loop(&mut v.experiment));
    let experiments: Vec<toml::Value> = plan.variants.iter().map(|v| value(&v.experiment)).collect();
    if experiments.iter().all(|v| *v == experiments[0]) {
        let ignored: Vec<&str> = plan.variants[0].choices.iter().map(|c| c.path.as_str()).collect();
        if !ignored.is_empty() {
            eprintln!("note: the sweep of {} makes no difference to closed loops", ignored.join(", "));
        }
        return Ok(plan.variants.swap_remove(0));
    }
    let swept: Vec<Vec<&Choice>> = (0..plan.variants[0].choices.len())
        .filter(|&at| matters(&plan, &experiments, at))
        .map(|at| values_of(&plan, at))
        .collect();
    let described: Vec<String> = swept.iter().map(|values| describe(values)).collect();
    let sets: Vec<String> = swept.iter().map(|values| set(values[0])).collect();
    let problem =
        Problem::bad_input(format!("{} sweeps {}: a table is for one setting", file.display(), described.join(", ")));
    Err(problem.help(format!("choose a value with --set, for example {}", sets.join(" "))))
}

/// Replaces the arrivals by a closed loop of one client. A trace that gave both arrivals and lengths still gives the
/// lengths.
fn close_the_loop(experiment: &mut Experiment) {
    let workload = &mut experiment.workload;
    let arrivals = std::mem::replace(&mut workload.arrivals, ArrivalSpec::ClosedLoop(1));
    if let (None, ArrivalSpec::Trace(trace)) = (&workload.lengths, arrivals) {
        workload.lengths = Some(LengthSpec::Trace(trace));
    }
    workload.transform.clear();
    workload.duration_s = None;
    workload.requests = None;
    (experiment.slo, experiment.belief) = (SloSpec::default(), BeliefSpec::default());
    // Steps are recorded, because the output tokens per second of a closed loop are computed from them.
    experiment.output = Output { steps: true, ..experiment.output };
}

fn value(experiment: &Experiment) -> toml::Value {
    toml::Value::try_from(experiment).expect("it was read from TOML")
}

/// Does the swept setting with index `at` have an effect in closed loops? `experiments` has the closed-loop experiment
/// of each variant, as TOML. True if the experiments of two variants that differ only in this setting are different.
fn matters(plan: &Plan, experiments: &[toml::Value], at: usize) -> bool {
    let choices = |v: usize| &plan.variants[v].choices;
    let differ_in_it_alone = |a: usize, b: usize| {
        choices(a)[at] != choices(b)[at] && (0..choices(a).len()).all(|i| i == at || choices(a)[i] == choices(b)[i])
    };
    let differ = |a: usize, b: usize| differ_in_it_alone(a, b) && experiments[a] != experiments[b];
    (0..experiments.len()).any(|a| (0..a).any(|b| differ(a, b)))
}

fn values_of(plan: &Plan, at: usize) -> Vec<&Choice> {
    let mut values: Vec<&Choice> = Vec::new();
    for choice in plan.variants.iter().map(|v| &v.choices[at]) {
        if !values.contains(&choice) {
            values.push(choice);
        }
    }
    values
}

/// Longest swept value, in bytes, that the error message shows. For longer values, which are tables, it shows only the
/// number of values.
const SHORT: usize = 40;

fn describe(values: &[&Choice]) -> String {
    let texts: Vec<&str> = values.iter().map(|c| c.value.as_str()).collect();
    match texts.iter().all(|v| v.len() <= SHORT) {
        true => format!("{} ({})", values[0].path, texts.join(", ")),
        false => format!("{} ({} values)", values[0].path, texts.len()),
    }
}

fn set(choice: &Choice) -> String {
    match choice.value.len() <= SHORT {
        true => format!("--set {}={}", choice.path, choice.value),
        false => format!("--set '{}={{ … }}'", choice.path),
    }
}
