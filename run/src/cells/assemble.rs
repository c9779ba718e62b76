//! Makes the results folder from stored cells: tables, figures and the comparison, in the order of the plan, which
//! lists all runs.
//!
//! Every cell is read back from its file, also if this process ran it. So a resumed run gives the same bytes as a run
//! without an interrupt.

use super::fleet_entry::fleet_entry;
use super::folder::Folder;
use super::id::{CellId, ids, key, swept};
use super::store::Store;
use super::unwritten::{make_folder, write_problem};
use super::warnings::Warnings;
use crate::arena::Scenario;
use crate::compare::Comparison;
use crate::load::is_autoregressive;
use crate::offered::{Offered, is_closed};
use crate::papers::PaperReport;
use crate::plan::{Plan, Variant};
use crate::questions::Answer;
use crate::scaled;
use crate::spec::experiment::Experiment;
use crate::spec::fleet::FleetSpec;
use crate::spec::problem::{Problem, Result};
use foretoken_policies::PolicySpec;
use foretoken_report::{
    Cell, Entry, Figure, FleetColumns, FlowRow, Key, ReplicaRow, Report, RequestsWriter, Role, ScaledBound, ScaledRow,
    StepsWriter, advised, headline, relate, write_calibration, write_decisions, write_figures, write_flows,
    write_lengths, write_lives, write_positions, write_replica_counts, write_replicas, write_series, write_summary,
};
use foretoken_sim::metrics::{ReplicaSummary, Scaled};
use foretoken_traces::ArrivalSpec;

/// The results of an experiment whose runs are all finished: the comparison, and the digest of each run.
pub struct Assembled {
    /// The comparison of the policies, which the printed table shows.
    pub comparison: Comparison,
    /// For each cell, in the order of the plan, which lists all runs: the digest of its results, and its numbers of
    /// requests and of request-steps.
    pub numbers: Vec<Numbers>,
    /// What the page shows; `None` if no figures were asked for.
    pub drawn: Option<Drawn>,
    /// The policy that the headline names first. `None` if no policy is compared with plain decoding.
    pub advised: Option<Advised>,
}

/// The policy that the headline names first.
pub struct Advised {
    pub policy: String,
    /// The policy's speedup over plain decoding with the first seed, for each combination of swept values.
    pub speedups: Vec<Option<f64>>,
}

/// The runs of a results folder with their figures, from which its page is made.
pub struct Drawn {
    /// The finished runs, in the order of the plan.
    pub cells: Vec<Cell>,
    pub figures: Vec<Figure>,
}

/// The digest of the results of a cell, to find cells with equal results, and the cell's number of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Digest of all results of the cell except its warnings; equal digests mean equal results.
    pub digest: blake3::Hash,
    /// Number of requests that arrived in the cell.
    pub requests: u64,
}

/// Writes tables and figures of a plan whose cells are all stored, and compares the policies. Draws figures only if
/// `figures` is true, and writes them only if the experiment's `output.figures` is true, too.
pub fn assemble(plan: &Plan, folder: &Folder, figures: bool) -> Result<Assembled> {
    let store = Store::open(folder, &plan.digest())?;
    let output = plan.variants[0].experiment.output;
    let entries = entries(plan);
    let keys = || entries.iter().map(|e| &e.key);
    let path = |name: &str| folder.path().join(name);

    let is_fleet = plan.variants.iter().any(Variant::is_fleet);
    let columns = match plan.variants.iter().any(Variant::is_split) {
        true => FleetColumns::HandOff,
        false if is_fleet => FleetColumns::Replica,
        false => FleetColumns::None,
    };
    let mut requests = RequestsWriter::create(&path("requests.parquet"), keys(), columns).map_err(write_problem)?;
    let mut replicas: Vec<(Key, u32, ReplicaSummary)> = Vec::new();
    let mut scaled: Vec<Option<Scaled>> = Vec::new();
    let mut steps = match output.steps {
        true => Some(StepsWriter::create(&path("steps.parquet"), keys(), is_fleet).map_err(write_problem)?),
        false => None,
    };
    let mut cells: Vec<Cell> = Vec::with_capacity(entries.len());
    let mut warnings = Warnings::default();
    let mut usable_blocks = Vec::with_capacity(entries.len());
    let mut numbers = Vec::with_capacity(entries.len());
    let mut loads: Vec<Vec<Offered>> = vec![Vec::new(); plan.variants.len()];
    for (id, entry) in ids(plan).zip(entries) {
        let (stored, records) = store.open_cell(id)?.ok_or_else(|| {
            let gone = || format!("{} is gone", store.file(id).display());
            let what = store.damage(id, ids(plan)).unwrap_or_else(gone);
            Problem::failed(format!("{what} ({})", key(plan, id)))
                .help("run the same command with --resume: it runs the missing cells again")
        })?;
        numbers.push(Numbers { digest: stored.numbers(&records), requests: stored.summary.requests });
        let of_replicas = stored.replicas.clone().unwrap_or_default();
        scaled.push(of_replicas.scaled.clone());
        let (cell, all_steps, said, blocks) = stored.into_cell(entry, &records);
        if id.policy == plan.baseline {
            loads[id.variant].extend(Offered::of(&records));
        }
        requests.push(cell.key(), &records, &of_replicas).map_err(write_problem)?;
        records.check().map_err(|e| Problem::failed(e.to_string()))?;
        if let Some(steps) = &mut steps {
            let of_each: Vec<u64> = of_replicas.each.iter().map(|did| did.steps).collect();
            steps.push(cell.key(), &all_steps, &of_each).map_err(write_problem)?;
        }
        replicas.extend((0..).zip(of_replicas.each).map(|(r, did)| (cell.key().clone(), r, did)));
        warnings.collect(cell.key(), said);
        usable_blocks.push(blocks);
        cells.push(cell);
    }
    requests.finish().map_err(write_problem)?;
    steps.map_or(Ok(()), |s| s.finish().map_err(write_problem))?;
    relate(&mut cells);
    write_summary(&path("summary.parquet"), &cells).map_err(write_problem)?;
    write_positions(&path("positions.parquet"), &cells).map_err(write_problem)?;
    write_series(&path("series.parquet"), &cells).map_err(write_problem)?;
    write_lengths(&path("lengths.parquet"), &cells).map_err(write_problem)?;
    write_calibration(&path("calibration.parquet"), &cells).map_err(write_problem)?;
    if is_fleet {
        let rows: Vec<ReplicaRow> = replicas.iter().map(|(key, r, did)| (key, *r, *did)).collect();
        let keys = cells.iter().map(Cell::key);
        write_replicas(&path("replicas.parquet"), keys, &rows).map_err(write_problem)?;
        let fleets = cells.iter().filter_map(|cell| Some((cell.key(), cell.fleet.as_deref()?)));
        let rows = fleets.flat_map(|(key, fleet)| (0..).zip(&fleet.flows).map(move |(r, flow)| (key, r, flow)));
        let (rows, keys) = (rows.collect::<Vec<FlowRow>>(), cells.iter().map(Cell::key));
        write_flows(&path("replica_series.parquet"), keys, &rows).map_err(write_problem)?;
    }
    if scaled.iter().any(Option::is_some) {
        let rows = cells.iter().zip(&scaled).filter_map(|(cell, scaled)| Some((cell.key(), scaled.as_ref()?)));
        let rows: Vec<ScaledRow> = rows.collect();
        let keys = || cells.iter().map(Cell::key);
        write_lives(&path("lives.parquet"), keys(), &rows).map_err(write_problem)?;
        write_replica_counts(&path("replica_counts.parquet"), keys(), &rows).map_err(write_problem)?;
        write_decisions(&path("decisions.parquet"), keys(), &rows).map_err(write_problem)?;
    }
    let paper = plan.variants[0].experiment.paper.as_ref();
    let question = plan.variants[0].experiment.question.as_ref();
    if !figures && paper.is_none() && question.is_none() {
        // Each run's distributions and its numbers over time are needed only for figures, claims of papers and
        // questions. They are dropped here to save memory.
        cells.iter_mut().for_each(Cell::forget_curves);
    }
    let mut comparison = Comparison::of(plan, &cells, &usable_blocks);
    let mut doubts = Vec::new();
    let plain = cells.iter().skip(plan.baseline).step_by(plan.seeds.len() * plan.policies.len());
    for (((result, variant), loads), plain) in comparison.variants.iter_mut().zip(&plan.variants).zip(loads).zip(plain)
    {
        let served_by = is_closed(variant).then(|| plan.policies[plan.baseline].spec.label());
        result.load = Offered::mean(&loads).map(|load| Offered { served_by, ..load });
        doubts.extend(result.load.as_ref().and_then(|load| load.doubt(variant, plain)));
    }
    doubts.dedup();
    let policies = comparison.variants.iter_mut().flat_map(|variant| &mut variant.policies);
    for (policy, costs) in policies.zip(scaled::costs(plan, &cells, &scaled)) {
        policy.scaled = costs;
    }
    let report = Report { name: plan.name.clone(), source: plan.source(), cells };
    comparison.headline = headline(&report);
    let named = advised(&report);
    comparison.advised.clone_from(&named);
    let figures = figures.then(|| foretoken_report::figures(&report));
    if let Some(figures) = figures.as_ref().filter(|_| output.figures) {
        keep_figures(folder, figures)?;
    }
    let cells = report.cells;
    let advised = named.map(|policy| {
        let first = plan.seeds[0];
        let of_variant =
            |cells: &[Cell]| cells.iter().find(|c| c.key().policy == policy && c.key().seed == first)?.speedup;
        let speedups = cells.chunks(plan.seeds.len() * plan.policies.len()).map(of_variant).collect();
        Advised { policy, speedups }
    });
    if let Some(paper) = paper {
        comparison.paper = Some(PaperReport::of(paper, plan, &cells)?);
    }
    if let Some(question) = question {
        comparison.question = Some(Answer::of(question, plan, &cells)?);
    }
    comparison.arena = Scenario::of(plan, &cells);
    comparison.warnings =
        plan.warnings().into_iter().map(str::to_owned).chain(warnings.texts()).chain(doubts).collect();
    let drawn = figures.map(|figures| Drawn { cells, figures });
    Ok(Assembled { comparison, numbers, drawn, advised })
}

/// For each cell, in the order of `plan`, which lists all runs: its policy, swept values and seed, and facts on its
/// policy and its TPOT bound that reports need.
pub fn entries(plan: &Plan) -> Vec<Entry> {
    let bounds: Vec<Option<ScaledBound>> = (0..plan.variants.len()).map(|v| scaled_bound(plan, v)).collect();
    let entry = |id: CellId| {
        let entrant = &plan.policies[id.policy];
        Entry {
            key: key(plan, id),
            look: entrant.spec.look(),
            role: match &entrant.spec {
                PolicySpec::OracleGoodput(_) => Role::Bound,
                spec if spec.sees_hidden_truth() => Role::Oracle,
                spec if id.policy == plan.baseline && is_autoregressive(spec) => Role::Baseline,
                _ => Role::Contender,
            },
            fixed: match &entrant.spec {
                PolicySpec::Autoregressive(_) => Some(0),
                PolicySpec::Fixed(p) => Some(p.k),
                _ => None,
            },
            blind: entrant.spec.definition().is_blind(),
            trees: entrant.spec.definition().drafts_trees(),
            stops_for_slo: entrant.spec.definition().stops_for_slo(),
            batch: matches!(plan.variants[id.variant].experiment.workload.arrivals, ArrivalSpec::Batch(_)),
            gpus: gpus(&plan.variants[id.variant].experiment),
            implied: entrant.implied,
            bound: bounds[id.variant].clone(),
            fleet: fleet_entry(&plan.variants[id.variant]),
        }
    };
    ids(plan).map(entry).collect()
}

/// Number of GPUs on which the target model runs, over all replicas. `None` if the target's costs name no GPUs,
/// if a kind of replica has hardware of its own, or if a scaling rule changes the number of replicas.
fn gpus(experiment: &Experiment) -> Option<u32> {
    let target = experiment.hardware.target.machine()?;
    if experiment.fleet.as_ref().is_some_and(FleetSpec::is_scaled) {
        return None;
    }
    let alike =
        experiment.fleet.as_ref().is_none_or(|f| f.replicas.kinds().iter().all(|kind| kind.hardware.is_empty()));
    let replicas = experiment.fleet.as_ref().map_or(1, |f| f.replicas.number());
    alike.then(|| target.tensor_parallel * replicas)
}

/// The autoregressive run whose P90 TPOT times a factor is the TPOT bound of variant number `variant`, with this
/// factor. `None` if the bound does not come from an autoregressive run.
fn scaled_bound(plan: &Plan, variant: usize) -> Option<ScaledBound> {
    let slo = &plan.variants[variant].experiment.slo;
    let only_bound = slo.ttft_s.is_none() && slo.e2e_s.is_none();
    Some(ScaledBound { from: swept(plan, plan.bound_from(variant)?), scale: slo.adaspec_scale?, alone: only_bound })
}

/// The results of an experiment of which some cells are not finished.
pub struct Unfinished {
    /// The finished cells, in the order of the plan, which lists all runs.
    pub cells: Vec<Cell>,
    pub warnings: Vec<String>,
    /// One sentence for each cell whose stored file is damaged.
    pub damaged: Vec<String>,
}

/// Reads the finished cells of an experiment that did not end. `digest` is the plan's digest in the folder's manifest.
pub fn finished_cells(plan: &Plan, folder: &Folder, digest: &str) -> Result<Unfinished> {
    let store = Store::open(folder, digest)?;
    let (mut cells, mut damaged, mut warnings) = (Vec::new(), Vec::new(), Warnings::default());
    for (id, entry) in ids(plan).zip(entries(plan)) {
        let Some((stored, records)) = store.open_cell(id)? else {
            damaged.extend(
                store
                    .damage(id, ids(plan))
                    .map(|which| format!("{which}; this run is left out, and --resume repeats it")),
            );
            continue;
        };
        let (cell, _, said, _) = stored.into_cell(entry, &records);
        records.check().map_err(|e| Problem::failed(e.to_string()))?;
        warnings.collect(cell.key(), said);
        cells.push(cell);
    }
    relate(&mut cells);
    Ok(Unfinished { cells, warnings: warnings.texts(), damaged })
}

pub fn keep_figures(folder: &Folder, figures: &[Figure]) -> Result<()> {
    let to = folder.figures();
    make_folder(&to)?;
    write_figures(&to, figures).map_err(write_problem)
}
