//! Reduces an experiment to one setting, with closed loops in place of its arrivals.

use crate::plan::{Plan, Variant};
use foretoken_spec::document::Choice;
use foretoken_spec::experiment::{BeliefSpec, Experiment, Output, SloSpec};
use foretoken_spec::problem::{Problem, Result};
use foretoken_traces::{ArrivalSpec, LengthSpec};
use std::path::Path;

/// The one setting of a plan, with closed loops in place of its arrivals. What a closed loop of a fixed length does not
/// use (arrivals, transformations of them, bounds, beliefs) is set to its default, so that a sweep over it leaves one
/// setting.
///
/// # Errors
/// When the experiment sweeps something that does make a difference.
pub fn one_setting(mut plan: Plan, file: &Path) -> Result<Variant> {
    plan.variants.iter_mut().for_each(|v| close_the_loop(&mut v.experiment));
    let all: Vec<toml::Value> = plan.variants.iter().map(|v| value(&v.experiment)).collect();
    if all.iter().all(|v| *v == all[0]) {
        let ignored: Vec<&str> = plan.variants[0].choices.iter().map(|c| c.path.as_str()).collect();
        if !ignored.is_empty() {
            eprintln!("note: the sweep of {} makes no difference to closed loops", ignored.join(", "));
        }
        return Ok(plan.variants.swap_remove(0));
    }
    let swept: Vec<Vec<&Choice>> = (0..plan.variants[0].choices.len())
        .filter(|&at| matters(&plan, &all, at))
        .map(|at| values_of(&plan, at))
        .collect();
    let said: Vec<String> = swept.iter().map(|values| said(values)).collect();
    let sets: Vec<String> = swept.iter().map(|values| set(values[0])).collect();
    let problem =
        Problem::bad_input(format!("{} sweeps {}: a table is for one setting", file.display(), said.join(", ")));
    Err(problem.help(format!("choose a value with --set, for example {}", sets.join(" "))))
}

/// Replaces the arrivals by a closed loop of one client. A trace's arrivals become the lengths.
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
    // The rate of a loop is computed from its steps.
    experiment.output = Output { steps: true, ..experiment.output };
}

fn value(experiment: &Experiment) -> toml::Value {
    toml::Value::try_from(experiment).expect("it was read from TOML")
}

/// Does swept setting `at` make a difference: do two settings differ that differ in no other choice?
fn matters(plan: &Plan, all: &[toml::Value], at: usize) -> bool {
    let choices = |v: usize| &plan.variants[v].choices;
    let alone = |a: usize, b: usize| {
        choices(a)[at] != choices(b)[at] && (0..choices(a).len()).all(|i| i == at || choices(a)[i] == choices(b)[i])
    };
    (0..all.len()).any(|a| (0..a).any(|b| alone(a, b) && all[a] != all[b]))
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

/// A value longer than this is a table: the message then has the number of values.
const SHORT: usize = 40;

fn said(values: &[&Choice]) -> String {
    let all: Vec<&str> = values.iter().map(|c| c.value.as_str()).collect();
    match all.iter().all(|v| v.len() <= SHORT) {
        true => format!("{} ({})", values[0].path, all.join(", ")),
        false => format!("{} ({} values)", values[0].path, all.len()),
    }
}

fn set(choice: &Choice) -> String {
    match choice.value.len() <= SHORT {
        true => format!("--set {}={}", choice.path, choice.value),
        false => format!("--set '{}={{ … }}'", choice.path),
    }
}
