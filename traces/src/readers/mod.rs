//! One reader a format. A reader turns rows into requests; what is common (order, zero lengths, limits, ties,
//! counting what is left out) is the collector's. Rows are streamed: no reader holds a file in memory.

mod adaspec;
mod azure;
mod burstgpt;
mod collector;
pub(crate) mod json;
mod mooncake;
mod number;
mod plain;
mod published;
mod specbench;
mod table;
mod truth_table;

pub use published::{SpecForgeRow, TreeSteps, read_specforge, read_tree_steps};

use crate::{TraceError, TraceFormat, TraceSpec};
use collector::Collector;
use foretoken_sim::Workload;
use std::path::PathBuf;

/// Which columns a trace really has; the others hold placeholders (instant 0, length 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gives {
    /// Arrival instants.
    pub arrivals: bool,
    /// Prompt and output lengths.
    pub lengths: bool,
}

/// What a file holds.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The format it was read as.
    pub format: TraceFormat,
    /// Its requests.
    pub workload: Workload,
    /// What of them is real.
    pub gives: Gives,
    /// Rows in the file (turns not asked for and filtered-out rows included).
    pub rows: u64,
    /// What was left out or changed, with counts, in words.
    pub notes: Vec<String>,
    /// Every file read.
    pub files: Vec<PathBuf>,
}

/// Reads a trace.
///
/// `baseline_tpot_s` is the unloaded time per output token in seconds, by which AdaServe's positive `slo_ratio`s are
/// multiplied; other formats do not use it.
///
/// # Errors
/// Everything wrong with the file or with options that do not belong to its format; see [`TraceError`].
pub fn read(spec: &TraceSpec, baseline_tpot_s: Option<f64>) -> Result<Trace, TraceError> {
    let format = match spec.format {
        Some(format) => format,
        None => TraceFormat::detect(&spec.path)?,
    };
    check_options(spec, format)?;
    let collector = Collector::new(spec, format);
    match format {
        TraceFormat::BurstGpt => burstgpt::read(spec, collector),
        TraceFormat::Mooncake => mooncake::read(spec, collector),
        TraceFormat::Azure => azure::read(spec, collector),
        TraceFormat::AdaSpec => adaspec::read(spec, collector),
        TraceFormat::SpecBench => specbench::read(spec, collector),
        TraceFormat::Lengths => plain::read_lengths(spec, collector),
        TraceFormat::Windows => plain::read_windows(spec, collector),
        TraceFormat::TruthTable => truth_table::read(spec, collector),
        TraceFormat::AdaServe => plain::read_adaserve(spec, collector, baseline_tpot_s),
    }
}

/// Refuses options of another format: an option that does nothing is a mistake the user wants to hear of.
fn check_options(spec: &TraceSpec, format: TraceFormat) -> Result<(), TraceError> {
    let given = [
        ("failed_rows", spec.failed_rows.is_some(), TraceFormat::BurstGpt),
        ("ties", spec.ties.is_some(), TraceFormat::BurstGpt),
        ("model", spec.model.is_some(), TraceFormat::BurstGpt),
        ("log_type", spec.log_type.is_some(), TraceFormat::BurstGpt),
        ("turns", spec.turns.is_some(), TraceFormat::SpecBench),
        ("accept", spec.accept.is_some(), TraceFormat::SpecBench),
    ];
    match given.iter().find(|(_, given, of)| *given && *of != format) {
        None => Ok(()),
        Some((key, _, of)) => {
            let what = format!("is an option of {} files; this one is read as {}", of.name(), format.name());
            Err(TraceError::file(&spec.path, format!("{key} {what}"), format!("remove {key}, or set format")))
        }
    }
}
