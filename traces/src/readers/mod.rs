//! Readers of trace files, one per format. A reader turns rows into requests. `collector` does what all formats need:
//! it checks order, zero lengths and limits, and counts the rows that are left out. Rows are streamed: no reader holds
//! a whole file in memory.

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
mod trace;
mod truth_table;

pub use published::{SpecForgeRow, TreeSteps, read_specforge, read_tree_steps};
pub use trace::{Gives, Trace};

use crate::error::TraceError;
use crate::format::TraceFormat;
use crate::trace_spec::TraceSpec;
use collector::Collector;

/// Reads a trace.
///
/// `baseline_tpot_s` is the unloaded time per output token, seconds. AdaServe's positive `slo_ratio`s are multiplied by
/// it; other formats do not use it.
///
/// # Errors
/// The file is wrong, or has options that do not belong to its format; see [`TraceError`].
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

/// Refuses options of other formats, because an option without effect is a mistake.
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
