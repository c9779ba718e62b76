//! Readers of trace files, one for each format. A reader turns rows into requests. The module `collector` does what all
//! formats need: it checks the order of arrival times, lengths of 0 tokens and limits on lengths, and counts the rows
//! that are left out. Rows are streamed. Only truth tables (which draft tokens were right on recorded outputs) and the
//! `accept` file of Spec-Bench are held in memory as a whole.

mod adaspec;
mod azure;
mod burstgpt;
mod clock;
mod collector;
mod columns;
mod json;
mod litellm;
mod mooncake;
mod number;
pub(crate) mod objects;
mod opentelemetry;
mod plain;
mod specbench;
mod specdecode_bench;
mod table;
mod trace;
mod truth_table;

pub use trace::{Gives, Trace};

use crate::error::TraceError;
use crate::format::{TraceFormat, formats};
use crate::trace_spec::TraceSpec;
use collector::Collector;

/// Makes the function `read_as`, which reads a trace file with the reader of its format. The table of formats names the
/// readers.
macro_rules! dispatch {
    ($($(#[$doc:meta])+ $format:ident, $name:literal, $file:ident::$read:ident, $signs:tt;)+) => {
        fn read_as(format: TraceFormat, spec: &TraceSpec, collector: Collector) -> Result<Trace, TraceError> {
            match format {
                $(TraceFormat::$format => $file::$read(spec, collector),)+
            }
        }
    };
}

formats!(dispatch);

/// Reads a trace.
///
/// `baseline_tpot_s` is the time per output token of an unloaded server, seconds. Positive values of AdaServe's column
/// `slo_ratio` are multiplied by it. Other formats do not use it.
///
/// # Errors
/// The file is wrong, or the options do not belong to its format; see [`TraceError`].
pub fn read(spec: &TraceSpec, baseline_tpot_s: Option<f64>) -> Result<Trace, TraceError> {
    let format = match spec.format {
        Some(format) => format,
        None if spec.columns.is_some() => TraceFormat::Columns,
        None => TraceFormat::detect(&spec.path)?,
    };
    check_options(spec, format)?;
    let collector = Collector::new(spec, format, baseline_tpot_s);
    read_as(format, spec, collector)
}

/// Refuses options that belong to other formats than `format`. An option that has no effect is a mistake of the user.
fn check_options(spec: &TraceSpec, format: TraceFormat) -> Result<(), TraceError> {
    use TraceFormat::{BurstGpt, Columns, LiteLlm, Mooncake, OpenTelemetry, SpecBench};
    let given: [(&str, bool, &[TraceFormat]); 9] = [
        ("failed_rows", spec.failed_rows.is_some(), &[BurstGpt, LiteLlm]),
        ("ties", spec.ties.is_some(), &[BurstGpt]),
        ("model", spec.model.is_some(), &[BurstGpt, LiteLlm, OpenTelemetry]),
        ("log_type", spec.log_type.is_some(), &[BurstGpt]),
        ("turns", spec.turns.is_some(), &[SpecBench]),
        ("accept", spec.accept.is_some(), &[SpecBench]),
        ("columns", spec.columns.is_some(), &[Columns]),
        ("unit", spec.unit.is_some(), &[Mooncake]),
        ("block_size", spec.block_size.is_some(), &[Mooncake, Columns]),
    ];
    if spec.block_size == Some(0) {
        return Err(TraceError::file(&spec.path, "block_size is 0", "give the number of prompt tokens of a block"));
    }
    match given.iter().find(|(_, given, of)| *given && !of.contains(&format)) {
        None => Ok(()),
        Some((key, _, of)) => {
            let of = of.iter().map(|format| format.name()).collect::<Vec<_>>().join(" and ");
            let what = format!("is an option of {of} files; this one is read as {}", format.name());
            let hint = match *key {
                "unit" if format == Columns => "columns has a key unit of its own".to_owned(),
                _ => format!("remove {key}, or set format"),
            };
            Err(TraceError::file(&spec.path, format!("{key} {what}"), hint))
        }
    }
}
