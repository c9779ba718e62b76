//! All-reduces: times by the number of values.

use super::curve::Curve;
use super::table_set::{Missing, TableSet};

/// Seconds of an all-reduce over `gpus` GPUs by its number of values of 16 bits. Times in a CUDA graph are taken where
/// the table has both: engines run them so.
///
/// # Errors
/// The table has no such number of GPUs.
pub(super) fn curve(tables: &TableSet, gpus: u32) -> Result<Curve, Missing> {
    let what = format!("all-reduce over {gpus} GPUs");
    let columns = ["num_gpus", "message_size"];
    let graph =
        tables.first(("comm", "custom_allreduce"), tables.engine, (&columns, &["kernel_source"]), &what, |table| {
            let rows: Vec<usize> = table.rows_where(&[("num_gpus", i64::from(gpus))], &[]).collect();
            let graph: Vec<usize> =
                rows.iter().copied().filter(|&row| table.word("kernel_source", row).contains("graph")).collect();
            let taken = if graph.is_empty() { &rows } else { &graph };
            let points = taken.iter().map(|&row| (table.number("message_size", row) as f64, table.seconds(row)));
            let curve = Curve::new(points.collect());
            (!curve.is_empty()).then_some((curve, graph.len() < rows.len() && !graph.is_empty()))
        });
    let (curve, chosen) = graph?;
    if chosen {
        tables.note("all-reduces in a CUDA graph, not the eager ones".to_owned());
    }
    Ok(curve.cleaned().0)
}
