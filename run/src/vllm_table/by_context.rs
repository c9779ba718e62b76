//! A table of draft lengths by batch size and context (vLLM RFC #48627), and what it gains over vLLM's table by batch
//! size alone.
//!
//! For each context, closed loops of requests with this context give a table by batch size. Together they are the cells
//! of the table by both. The table by batch size alone is made from loops in which all contexts are mixed in equal
//! parts. A cell's gain compares the two tables' lengths in the loops of the cell's context: these are measured anyway.
//! At last both tables run in the mixed loops, where a step has one length for requests of all contexts.

use super::choose::{is_significant, over};
use super::closed::one_setting;
use super::loops::Loops;
use super::table::{Loop, Row, Table, of_length};
use crate::plan::Plan;
use crate::spec::problem::Result;
use foretoken_policies::{BatchRange, ContextRange, PolicySpec, VllmContext};
use foretoken_sim::metrics::Interval;
use foretoken_traces::LengthSpec;
use foretoken_traces::generate::{CategoryLaw, CategoryLengths, FixedLengths};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// The tables by batch size of several contexts, joined to one table by batch size and context.
#[derive(Clone, Debug, PartialEq)]
pub struct ContextTable {
    /// vLLM's table by batch size, from loops in which all contexts are mixed.
    pub by_batch: Table,
    /// The table by batch size of each context in tokens, ascending.
    pub contexts: Vec<(u32, Table)>,
    /// The table by batch size and context; empty if no context reached a batch size.
    pub ranges: Vec<ContextRange>,
    /// For each number of clients in mixed loops: ln(tokens per second with the table by both / with the one by batch).
    pub mixed: Vec<(u32, Interval)>,
}

/// A cell: the lengths of both tables at a number of clients and a context, and what the cell's own length gains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// The draft length of the table by batch size and context.
    pub k: u32,
    /// The draft length of the table by batch size alone, at the batch size of this cell.
    pub by_batch: u32,
    /// ln(tokens per second with `k` / with `by_batch`), paired by seed.
    pub gain: Interval,
}

impl Cell {
    /// Whether the table by context gains nothing here: the lengths are equal, or the seeds do not tell them apart.
    pub fn is_nothing(&self) -> bool {
        self.k == self.by_batch || !is_significant(self.gain) || self.gain.mean <= 0.0
    }
}

impl ContextTable {
    /// Makes the tables for the numbers of clients in `sizes` and the contexts `contexts`, in tokens. A request has the
    /// mean answer of the experiment, and a prompt with which its context is this long in the middle of its answer.
    pub fn find(
        plan: Plan,
        file: &Path,
        sizes: &[u32],
        contexts: &BTreeSet<u32>,
        interrupt: &AtomicBool,
    ) -> Result<ContextTable> {
        let seeds = plan.seeds.clone();
        let (_, sample) = Loops::new(one_setting(plan.clone(), file)?, &seeds, interrupt)?;
        let outputs: u32 = sample.workload.output_len.iter().sum();
        let output = (outputs / sample.workload.output_len.len().max(1) as u32).max(1);
        let fixed = |context: u32| FixedLengths { prompt: context.saturating_sub(output / 2).max(1), output };
        let part = |&context: &u32| {
            let lengths = CategoryLaw::Fixed(fixed(context));
            (format!("{context} tokens"), CategoryLengths { share: 1.0, lengths })
        };
        let mix = LengthSpec::Categories(contexts.iter().map(part).collect());
        let by_batch = Table::find(with_lengths(&plan, &mix), file, sizes, interrupt)?;
        let find = |&context: &u32| {
            let lengths = LengthSpec::Fixed(fixed(context));
            Ok((context, Table::find(with_lengths(&plan, &lengths), file, sizes, interrupt)?))
        };
        let tables = contexts.iter().map(find).collect::<Result<Vec<_>>>()?;
        let most = plan.variants[0].experiment.engine.max_model_len;
        let ranges = joined(&tables.iter().map(|(c, t)| (*c, &t.ranges[..])).collect::<Vec<_>>(), most);
        let mut found = ContextTable { by_batch, contexts: tables, ranges, mixed: Vec::new() };
        // vLLM refuses a table that never drafts.
        if found.ranges.iter().any(|r| r.4 > 0) && found.by_batch.ranges.iter().any(|r| r.2 > 0) {
            let (mut loops, _) = Loops::new(one_setting(with_lengths(&plan, &mix), file)?, &seeds, interrupt)?;
            // Both tables run as the same policy: vLLM's own table also changes which graphs a step can use.
            let alone = joined(&[(0, &found.by_batch.ranges[..])], most);
            let policies = [found.ranges.clone(), alone]
                .map(|table| PolicySpec::VllmContext(VllmContext { num_speculative_tokens_per_batch_size: table }));
            for row in found.by_batch.rows.iter().filter(|row| row.not_reached.is_none()) {
                let measured = loops.measure(row.clients, &policies)?;
                found.mixed.push((row.clients, over(&measured[0].tok_s, &measured[1].tok_s)));
            }
        }
        Ok(found)
    }

    /// The cells of one context, in the order of its table's rows. `None` where no loop was run, or the row is not in
    /// the table.
    pub fn cells<'a>(&'a self, table: &'a Table) -> impl Iterator<Item = (u32, Option<Cell>)> + 'a {
        table.rows.iter().map(|row| (row.clients, self.cell(row)))
    }

    fn cell(&self, row: &Row) -> Option<Cell> {
        let measured: &Loop = row.measured.as_ref().filter(|_| row.not_reached.is_none())?;
        let by_batch = length_at(&self.by_batch.ranges, measured.scheduled())?;
        let rates = |k: u32| &of_length(&measured.lengths, k).tok_s;
        let has = |k: u32| measured.lengths.iter().any(|(length, _)| *length == k);
        let k = measured.choice.k;
        has(by_batch).then(|| Cell { k, by_batch, gain: over(rates(k), rates(by_batch)) })
    }
}

fn with_lengths(plan: &Plan, lengths: &LengthSpec) -> Plan {
    let mut plan = plan.clone();
    for variant in &mut plan.variants {
        variant.experiment.workload.lengths = Some(lengths.clone());
    }
    plan
}

/// The draft length that vLLM's table has for a batch size; `None` if the table is empty.
fn length_at(ranges: &[BatchRange], size: u32) -> Option<u32> {
    ranges.iter().rev().find(|range| range.0 <= size).or(ranges.first()).map(|range| range.2)
}

/// A range of contexts with the draft length in it: (first, last, length).
type LengthIn = (u32, u32, u32);
/// A range of batch sizes with the cells of all contexts: (first, last, cells).
type BatchRow = (u32, u32, Vec<LengthIn>);

/// Joins the tables by batch size of ascending contexts. A context between two of them gets the cell of the nearer one
/// by ratio. The ranges of batch sizes are cut wherever a context's table changes; contexts with equal lengths are
/// joined, and so are neighbouring ranges that are equal in all contexts.
fn joined(tables: &[(u32, &[BatchRange])], max_model_len: u32) -> Vec<ContextRange> {
    let tables: Vec<_> = tables.iter().filter(|(_, ranges)| !ranges.is_empty()).collect();
    let starts: BTreeSet<u32> = tables.iter().flat_map(|(_, ranges)| ranges.iter().map(|r| r.0)).collect();
    let last = tables.iter().flat_map(|(_, ranges)| ranges.iter().map(|r| r.1)).max().unwrap_or(0);
    let mut rows: Vec<BatchRow> = Vec::new();
    for &first in &starts {
        let end = starts.range(first + 1..).next().map_or(last, |next| next - 1);
        let mut cells: Vec<LengthIn> = Vec::new();
        let mut from = 0;
        for (i, (context, ranges)) in tables.iter().enumerate() {
            let k = length_at(ranges, first).unwrap_or(0);
            let next = tables.get(i + 1).map(|(next, _)| (u64::from(*context) * u64::from(*next)).isqrt() as u32);
            let to = next.unwrap_or(max_model_len).max(from);
            match cells.last_mut() {
                Some(cell) if cell.2 == k => cell.1 = to,
                _ => cells.push((from, to, k)),
            }
            from = to + 1;
        }
        match rows.last_mut() {
            Some((_, to, before)) if *before == cells => *to = end,
            _ => rows.push((first, end, cells)),
        }
    }
    let cells = |(first, last, cells): BatchRow| cells.into_iter().map(move |(from, to, k)| (first, last, from, to, k));
    rows.into_iter().flat_map(cells).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_by_batch_size_are_joined_by_context() {
        let short: &[BatchRange] = &[(1, 16, 3), (17, 64, 0)];
        let long: &[BatchRange] = &[(1, 8, 3), (9, 64, 2)];
        let wanted = [
            (1, 8, 0, 8192, 3),
            (9, 16, 0, 1999, 3),
            (9, 16, 2000, 8192, 2),
            (17, 64, 0, 1999, 0),
            (17, 64, 2000, 8192, 2),
        ];
        // Half way by ratio between 1,000 and 3,999 tokens are 1,999.
        assert_eq!(joined(&[(1000, short), (3999, long)], 8192), wanted);
        assert_eq!(joined(&[(1000, short), (3999, short)], 8192), [(1, 16, 0, 8192, 3), (17, 64, 0, 8192, 0)]);
        assert_eq!(joined(&[(1000, &[]), (3999, long)], 8192), [(1, 8, 0, 8192, 3), (9, 64, 0, 8192, 2)]);
        let table = VllmContext { num_speculative_tokens_per_batch_size: wanted.to_vec() };
        foretoken_policies::Definition::check(&table).unwrap();
    }
}
