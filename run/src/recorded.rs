//! Reads `acceptance.source.table`, a truth table of recordings. A recording says which draft tokens for an output are
//! right. Each request of a workload gets one recording.

use crate::spec::document::Document;
use crate::spec::problem::Result;
use crate::spec::read::trace_problem;
use foretoken_sim::Workload;
use foretoken_sim::acceptance::Rates;
use foretoken_traces::truth::TruthTable;

/// Gives every request a recording, if the experiment names a truth table, a file of recordings. Adds notes about the
/// recordings, for the reader of the results.
pub fn assign(
    source: &Rates,
    document: &Document,
    workload: &mut Workload,
    seed: u64,
    notes: &mut Vec<String>,
) -> Result<()> {
    if let Rates::Table(table) = source {
        let warnings = TruthTable::read(&table.path)
            .and_then(|read| read.assign(&table.path, workload, table.beyond, seed))
            .map_err(|e| trace_problem(document, &e))?;
        notes.extend(warnings);
    }
    if source.is_recorded() && workload.recordings.iter().any(|r| !r.confidences.is_empty()) {
        notes.push("confidences are recorded on the target's path, and modelled off it".to_owned());
    }
    Ok(())
}
