//! Reads one cell (run) from a results folder, to draw its timeline.

use super::Recorded;
use super::select::{Wanted, choose};
use crate::cells::Manifest;
use crate::plan::{Plan, Variant};
use foretoken_report::{Key, ReportError, read_keys, read_kv_peaks, read_requests, read_steps};
use foretoken_sim::engine::{Order, Rules, SpeculativeConfig};
use foretoken_sim::{DeliverAt, Drafting, RequestRecords, StepRecord};
use foretoken_spec::problem::{Problem, Result};
use std::path::Path;

const STEPS: &str = "steps.parquet";

/// A cell of a results folder, with its steps and requests.
pub struct Cell {
    /// The cell's policy, seed and swept values.
    pub key: Key,
    /// Number of cells that fit the user's wish. This cell is the first of them.
    pub fitting: usize,
    /// Where the cell's numbers come from: simulated, measured on a device, or observed on a server.
    pub source: String,
    /// One record per step, in order.
    pub steps: Vec<StepRecord>,
    /// One record per request.
    pub requests: RequestRecords,
    blocks: Option<u32>,
    behind: Option<DeliverAt>,
}

impl Cell {
    /// Reads the first cell of a results folder that fits `wanted`.
    ///
    /// # Errors
    /// The folder's run is not complete, the run did not record its steps, a file is damaged, or no cell fits.
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
        let steps = read_steps(folder, &key).map_err(unreadable)?;
        let requests = read_requests(folder, &key).map_err(unreadable)?;
        let most_used = steps.iter().map(|s| s.used_blocks).max().unwrap_or(0);
        let peak = read_kv_peaks(folder).map_err(unreadable)?[at];
        // The number of all KV blocks is computed from the largest number of used blocks and the largest share of used
        // blocks, which the summary has.
        let blocks = (most_used > 0 && peak > 0.0).then(|| (f64::from(most_used) / peak).round() as u32);
        let behind = behind(folder, &key)?;
        Ok(Cell { key, fitting, source: manifest.source, steps, requests, blocks, behind })
    }

    /// The data of the cell for its timeline.
    pub fn recorded(&self) -> Recorded<'_> {
        let Cell { key, source, steps, requests, blocks, behind, .. } = self;
        Recorded { key, source, steps, requests, blocks: *blocks, behind: *behind }
    }
}

/// Reads the manifest of a folder, and checks that the results are complete.
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

/// When output tokens leave a step, if the run makes drafts at the end of a step (as vLLM does). `None` if the run
/// makes drafts at the start of a step.
fn behind(folder: &Path, key: &Key) -> Result<Option<DeliverAt>> {
    let plan = Plan::of_results(folder)?;
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
