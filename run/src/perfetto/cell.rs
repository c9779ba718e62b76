//! Reads one cell (run) from a results folder, to draw its timeline.

use super::fleet::Fleet;
use super::recorded::Recorded;
use super::select::{Wanted, choose};
use crate::cells::{Manifest, entries};
use crate::plan::{Plan, Variant};
use crate::spec::problem::{Problem, Result};
use foretoken_report::{
    Key, ReportError, read_keys, read_kv_peaks, read_requests, read_routes, read_scaling, read_step_replicas,
    read_steps,
};
use foretoken_sim::engine::{Order, Rules, SpeculativeConfig};
use foretoken_sim::{DeliverAt, Drafting, RequestRecords, StepRecord};
use std::path::Path;

const STEPS: &str = "steps.parquet";

/// One run in a results folder, with its steps and requests.
pub struct Cell {
    /// The policy, seed and swept values of the run that the timeline shows.
    pub key: Key,
    /// Number of runs in the folder that fit the user's choice of policy, seed and swept values. The run that the
    /// timeline shows is the first of them.
    pub fitting: usize,
    /// Where the run's numbers come from: simulated, measured on a device, or observed on a server.
    pub source: String,
    /// One record per engine step of the run, in the order of their starts.
    pub steps: Vec<StepRecord>,
    pub requests: RequestRecords,
    blocks: Option<u32>,
    behind: Option<DeliverAt>,
    fleet: Option<Fleet>,
}

impl Cell {
    /// Reads the first run of a results folder that fits the user's choice `wanted`.
    pub fn read(folder: &Path, wanted: &Wanted) -> Result<Cell> {
        let manifest = complete(folder)?;
        if !manifest.has(STEPS) {
            let message = format!("{} has no steps.parquet: its steps were not kept", folder.display());
            return Err(Problem::bad_input(message).help("run the experiment again with --set output.steps=true"));
        }
        manifest.check(folder, [STEPS, "requests.parquet", "summary.parquet"])?;
        let mut keys = read_keys(folder).map_err(unreadable)?;
        let (at, fitting) = choose(&keys, wanted)?;
        let key = keys.swap_remove(at);
        let mut steps = read_steps(folder, &key).map_err(unreadable)?;
        let requests = read_requests(folder, &key).map_err(unreadable)?;
        let most_used = steps.iter().map(|s| s.used_blocks).max().unwrap_or(0);
        let peak = read_kv_peaks(folder).map_err(unreadable)?[at];
        // The number of all KV blocks is computed from the largest number of used blocks and the largest share of used
        // blocks, which the summary has.
        let blocks = (most_used > 0 && peak > 0.0).then(|| (f64::from(most_used) / peak).round() as u32);
        let plan = Plan::of_results(folder)?;
        let behind = behind(&plan, &key)?;
        let fleet = fleet(folder, (&plan, at), &key, &mut steps)?;
        let blocks = blocks.filter(|_| fleet.is_none());
        Ok(Cell { key, fitting, source: manifest.source, steps, requests, blocks, behind, fleet })
    }

    /// The fleet's replicas and router; `None` for a single engine.
    pub fn fleet(&self) -> Option<&Fleet> {
        self.fleet.as_ref()
    }

    /// The run's data from which its timeline is drawn.
    pub fn recorded(&self) -> Recorded<'_> {
        let Cell { key, source, steps, requests, blocks, behind, .. } = self;
        Recorded { key, source, steps, requests, blocks: *blocks, behind: *behind }
    }
}

/// Reads the manifest of a results folder, and checks that the results are complete.
fn complete(folder: &Path) -> Result<Manifest> {
    let manifest = Manifest::read(folder)?;
    match manifest.complete {
        true => Ok(manifest),
        false => Err(Problem::bad_input(format!("the run in {} is not complete", folder.display()))
            .help("complete it with foretoken run --resume")),
    }
}

fn unreadable(error: ReportError) -> Box<Problem> {
    Problem::bad_input(error.to_string()).help("the folder is damaged, or another version of Foretoken wrote it")
}

/// For a run that makes draft tokens at the end of a step (as vLLM does): are a step's output tokens sent to the
/// clients before or after the step makes its draft tokens? `None` if the run makes draft tokens at the start of a
/// step.
fn behind(plan: &Plan, key: &Key) -> Result<Option<DeliverAt>> {
    let same = |v: &&Variant| v.choices.iter().map(|c| &c.value).eq(key.sweep.iter().map(|s| &s.value));
    let Some(variant) = plan.variants.iter().find(same) else { return Ok(None) };
    let engine = variant.engine(true)?;
    let drafting = SpeculativeConfig {
        drafter: true,
        num_speculative_tokens: engine.max_draft_len,
        parallel_drafting: variant.experiment.hardware.drafting == Drafting::Parallel,
        ..SpeculativeConfig::default()
    };
    let rules = Rules::of(&engine, &drafting).ok();
    Ok(rules.filter(|rules| rules.order != Order::StepStart).map(|rules| rules.deliver_at))
}

/// The fleet of the run at index `at` of the plan's runs; `None` for a single engine. Also sorts `steps` by their
/// starts; for a single engine they are in this order already.
fn fleet(folder: &Path, (plan, at): (&Plan, usize), key: &Key, steps: &mut Vec<StepRecord>) -> Result<Option<Fleet>> {
    let Some(routes) = read_routes(folder, key).map_err(unreadable)? else { return Ok(None) };
    let by = read_step_replicas(folder, key).map_err(unreadable)?.unwrap_or_else(|| vec![0; steps.len()]);
    let Some(entry) = entries(plan).into_iter().nth(at) else { return Ok(None) };
    let scaled = read_scaling(folder, &entry).map_err(unreadable)?;
    let Some(of) = &entry.fleet else { return Ok(None) };
    let mut all: Vec<(StepRecord, u32)> = steps.drain(..).zip(by).collect();
    all.sort_by_key(|(step, replica)| (step.start, *replica));
    let (sorted, by): (Vec<StepRecord>, Vec<u32>) = all.into_iter().unzip();
    *steps = sorted;
    let known = scaled.as_ref().map_or(of.pools.len(), |scaled| scaled.lives.len());
    let names = (0..known).map(|replica| of.name(replica)).collect();
    Ok(Some(Fleet { router: of.router.clone(), names, by, routes, scaled }))
}
