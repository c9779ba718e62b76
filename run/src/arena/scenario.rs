//! The numbers of one scenario of the arena: latencies, rates and counts of the run of each policy with each seed. The
//! arena's table is made from them.

use super::field::{read, references};
use crate::plan::Plan;
use crate::spec::arena::{Arena, ArenaSet};
use crate::spec::document::Path;
use crate::spec::problem::{Problem, Result};
use foretoken_policies::PolicySpec;
use foretoken_report::Cell;
use foretoken_traces::ArrivalSpec;
use serde::{Deserialize, Serialize};

/// A scenario of the arena, with the latencies and rates of each policy and seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// The set to which the scenario belongs. Policies may be tuned on `tuning` scenarios only; `seen` scenarios were
    /// used to judge an earlier version of a policy; held-out scenarios are used to judge tuned policies.
    pub set: ArenaSet,
    /// A few words on how the scenario's experiment differs from the other scenarios'.
    pub about: String,
    /// The seeds of the runs; [`Ran::runs`] has one entry per seed, in the same order.
    pub seeds: Vec<u64>,
    /// Number of requests that arrived in a run: the smallest number over all runs.
    pub requests: u64,
    /// Whether all requests are there at the start. Then a policy is judged by the time until the last one ends, and
    /// not by the mean E2E.
    #[serde(default)]
    pub batch: bool,
    /// The policies that ran in the scenario, with their runs, in the order in which the experiment's plan lists the
    /// policies.
    pub entrants: Vec<Ran>,
}

/// The runs of one policy in one scenario of the arena, one per seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ran {
    /// The policy's label: its name, and the settings that differ from their defaults.
    pub policy: String,
    /// The policy's role in the arena's ranking: an oracle with which others are compared, another policy that knows
    /// which draft tokens are right, a fixed draft length, or a contender, which chooses draft lengths as a server
    /// could.
    pub part: Part,
    /// Does the policy draft trees? False for chains.
    pub trees: bool,
    /// The latencies, rates and counts of the policy's runs, one run per seed of the scenario.
    pub runs: Vec<Numbers>,
}

/// A policy's role in the arena, which decides whether it is ranked and whether others are compared with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// An oracle that may be the reference, against which losses are computed. The oracle with the least mean E2E is
    /// taken.
    Reference,
    /// Another policy that sees the hidden truth. It is shown in the arena's table, but has no rank and is never the
    /// reference.
    Bound,
    /// Plain decoding, or decoding with one fixed draft length.
    Fixed,
    /// A policy that a server can run and that chooses draft lengths.
    Contender,
}

/// The latencies, rates and counts of one run: one policy with one seed in one scenario.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Numbers {
    /// Mean end-to-end latency of the run's finished requests, seconds.
    pub e2e_s: f64,
    /// Seconds from the first arrival to the last end.
    #[serde(default)]
    pub duration_s: f64,
    /// Output tokens of finished requests / the summed time of the engine's steps in seconds. Time between steps does
    /// not count.
    pub busy_tok_s: f64,
    /// Mean time to first token of the run's requests, seconds.
    pub ttft_s: f64,
    /// 99th percentile over requests of the time per output token, seconds; absent if no finished output has two tokens
    /// or more.
    pub tpot_p99_s: Option<f64>,
    /// Share of requests (0 to 1) that met every latency bound of the experiment's `[slo]` table; absent if there is no
    /// bound.
    pub slo: Option<f64>,
    pub finished: u64,
    /// Was the run overloaded, that is, did the queue grow as long as requests arrived?
    pub behind: bool,
}

impl Scenario {
    /// The arena's numbers of an experiment, from its finished `cells`. `None` if the experiment has no `[arena]`
    /// table, or if in one of the runs no request finished.
    pub fn of(plan: &Plan, cells: &[Cell]) -> Option<Scenario> {
        let arena: &Arena = plan.variants[0].experiment.arena.as_ref()?;
        let n = plan.policies.len();
        let entrants: Option<Vec<Ran>> = (0..n)
            .map(|p| {
                let runs: Option<Vec<Numbers>> = cells.iter().skip(p).step_by(n).map(Numbers::of).collect();
                let spec = &plan.policies[p].spec;
                let trees = spec.definition().drafts_trees();
                Some(Ran { policy: spec.label(), part: Part::of(spec), trees, runs: runs? })
            })
            .collect();
        let requests = cells.iter().map(|c| c.summary.requests).min()?;
        Some(Scenario {
            set: arena.set,
            about: arena.about.clone(),
            seeds: plan.seeds.clone(),
            requests,
            batch: matches!(plan.variants[0].experiment.workload.arrivals, ArrivalSpec::Batch(_)),
            entrants: entrants?,
        })
    }
}

impl Part {
    fn of(spec: &PolicySpec) -> Part {
        if is_reference(spec) {
            Part::Reference
        } else if spec.sees_hidden_truth() {
            Part::Bound
        } else if matches!(spec.name(), "autoregressive" | "fixed") {
            Part::Fixed
        } else {
            Part::Contender
        }
    }
}

/// Is the policy one of the oracles in [`references`], with the same settings?
fn is_reference(spec: &PolicySpec) -> bool {
    let label = spec.label();
    references().any(|text| read(&text).is_ok_and(|r| r.label() == label))
}

impl Numbers {
    fn of(cell: &Cell) -> Option<Numbers> {
        let s = &cell.summary;
        Some(Numbers {
            e2e_s: s.e2e?.mean,
            duration_s: s.duration_s,
            busy_tok_s: s.busy_token_goodput_tok_s,
            ttft_s: s.ttft?.mean,
            tpot_p99_s: s.tpot.map(|q| q.p99),
            slo: s.slo_attainment,
            finished: s.finished,
            behind: s.overload.is_some(),
        })
    }
}

/// Checks an experiment that has an `[arena]` table, which makes it a scenario of the arena. Does nothing without this
/// table.
pub fn check(plan: &Plan) -> Result<()> {
    let first = &plan.variants[0];
    if first.experiment.arena.is_none() {
        return Ok(());
    }
    let wrong = |at: &str, message: &str, help: &str| -> Result<()> {
        let problem: Box<Problem> = first.document().problem_at(&Path::of(at), message.to_owned());
        Err(problem.help(help.to_owned()))
    };
    if let Some(choice) = first.choices.first() {
        let message = format!("a scenario of the arena sweeps nothing, and this one sweeps {}", choice.path);
        return wrong("arena", &message, "give each value a file of its own, or leave [arena] out");
    }
    if first.experiment.slo.adaspec_scale.is_some() {
        let message =
            "slo.adaspec-scale takes the bound from this very load, and bounds of the arena do not move with the load";
        return wrong("slo", message, "give the bound itself: slo.tpot_s");
    }
    let has = |part: fn(Part) -> bool| plan.policies.iter().any(|p| part(Part::of(&p.spec)));
    if !has(|part| part == Part::Reference) {
        let message = "a scenario of the arena needs an oracle as reference";
        return wrong("policies", message, "add { oracle-goodput = {} }, or leave `policies` out: then all run");
    }
    Ok(())
}
