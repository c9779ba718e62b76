//! Compares the candidate policies at every load that is asked about. `recommend` and `ask` both begin with this.

use super::answer::WithHost;
use super::at_load::AtLoad;
use super::candidates::{self, doubling};
use super::decide::{Decision, decide};
use super::host;
use super::question::{AskedLoad, Goal, Question};
use foretoken_policies::PolicySpec;
use foretoken_run::plan::Plan;
use foretoken_run::spec::experiment::SloSpec;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::vllm_table::Table;
use std::sync::atomic::AtomicBool;

/// The candidate policies' results at every load, and what follows from them.
pub struct Compared {
    pub asked: Vec<AskedLoad>,
    pub plans: Vec<Plan>,
    /// The index of the load that represents all loads.
    pub typical: usize,
    /// The best draft length for each number of clients in closed loops, as `foretoken export vllm` finds it.
    pub table: Table,
    /// The candidate policies.
    pub specs: Vec<PolicySpec>,
    /// The candidate policies' results at each load.
    pub at_loads: Vec<AtLoad>,
    /// The advice without a measured server's host time.
    pub found: Decision,
    /// The advice with a measured server's host time; `None` if the experiment has host time or measured costs.
    pub with_host: Option<WithHost>,
    /// The calibration's error between runs, as a share; 0 without a calibration.
    pub error: f64,
}

/// Simulates every candidate policy at every load of the question, on the same requests and the same luck. `quick`
/// are the numbers of clients of a table by batch size that is made with the first seed alone. `None`: the table has 1,
/// 2, 4, … clients up to `max_num_seqs`, and all seeds.
pub fn compare(ask: &Question, quick: Option<&[u32]>, interrupt: &AtomicBool) -> Result<Compared> {
    let asked = ask.loads();
    let plans = asked.iter().map(|load| ask.plan(load)).collect::<Result<Vec<Plan>>>()?;
    let experiment = &plans[0].variants[0].experiment;
    if ask.objective.of == Goal::Slo && experiment.slo == SloSpec::default() {
        return Err(Problem::bad_input(
            "the experiment promises nothing, so that there is no share of requests to raise",
        )
        .help("give it bounds: --set slo.ttft_s=0.5 --set slo.tpot_s=0.05"));
    }
    let typical = typical(&asked);
    let every: Vec<u32> = doubling(plans[typical].variants[0].experiment.engine.max_num_seqs).collect();
    let mut for_table = plans[typical].clone();
    if quick.is_some() {
        for_table.seeds.truncate(1);
    }
    let table = Table::find(for_table, &ask.file, quick.unwrap_or(&every), interrupt)?;
    let specs = candidates::specs(&plans[typical], ask, &table.ranges);
    let mut at_loads = Vec::new();
    for (load, plan) in asked.iter().zip(&plans) {
        at_loads.push(AtLoad::of(ask, load, plan, &specs, interrupt)?);
    }
    let error = ask.known.as_ref().map_or(0.0, |k| k.between_runs);
    let found = decide(ask, &at_loads, error);
    let with_host = host::with_host(ask, asked.iter().zip(&plans), &specs, &found, error, interrupt)?;
    Ok(Compared { asked, plans, typical, table, specs, at_loads, found, with_host, error })
}

/// The index of the load that represents all loads: the first load with open arrivals. Without open arrivals, the
/// load with the most requests.
fn typical(asked: &[AskedLoad]) -> usize {
    let seen = |load: &AskedLoad| match load {
        AskedLoad::Observed(seen) => Some((seen.is_open(), seen.requests)),
        AskedLoad::Own | AskedLoad::Full => None,
    };
    let open = asked.iter().position(|load| seen(load).is_some_and(|s| s.0));
    let most = || (0..asked.len()).max_by_key(|&at| seen(&asked[at]).map_or(0, |s| s.1));
    open.or_else(most).unwrap_or(0)
}
