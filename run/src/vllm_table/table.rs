//! The table of draft lengths: a row for each number of clients, the ranges of batch sizes, and the rates of the
//! finished table in the closed loops.

use super::choose::{Choice, choose, is_significant, over};
use super::closed::one_setting;
use super::loops::{Loops, Measured, SAMPLE};
use crate::bar::{Bar, Counts};
use crate::plan::Plan;
use crate::setting::Setting;
use crate::spec::problem::Result;
use foretoken_policies::{Autoregressive, BatchRange, PolicySpec, VllmDynamic};
use foretoken_sim::EngineConfig;
use foretoken_sim::metrics::Interval;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// The largest number of clients for which closed loops are run. Servers are set up for far fewer requests at a time.
pub const LARGEST: u32 = 4096;
/// The difference in output tokens per second, as a share, above which a warning appears: if the table of draft lengths
/// is slower than the fastest fixed length by more than this, or if the fastest fixed length is slower than the engine
/// without a drafter by more than this. The difference must also be significant over the seeds.
const BEHIND: f64 = 0.01;

/// The table of draft lengths by batch size, and the closed loops from which it was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The rows of the table of draft lengths: one for each number of clients that the user asked for, ascending.
    pub rows: Vec<Row>,
    /// vLLM's `num_speculative_tokens_per_batch_size`, as (first size, last size, draft length); empty if no row is in
    /// the table.
    pub ranges: Vec<BatchRange>,
    pub seeds: usize,
}

/// The table's row for one number of clients: its draft length, with the results of the closed loops from which it was
/// chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Number of clients of the closed loop. Each client has one request at the server at any time.
    pub clients: u32,
    /// The results of the closed loops with this row's number of clients. `None` if no loop is run, because the engine
    /// can never hold one request of each client, or because the number of clients is above [`LARGEST`].
    pub measured: Option<Loop>,
    /// Why the row is not in the table of draft lengths; `None` if the row is in the table.
    pub not_reached: Option<String>,
}

/// The results of the closed loops with one number of clients.
#[derive(Clone, Debug, PartialEq)]
pub struct Loop {
    /// The results of each draft length, ascending by length. Each ran on a server that is set up for this length
    /// alone. The drafter is loaded for length 0 too.
    pub alone: Vec<(u32, Measured)>,
    /// How the draft lengths, each on a server that is set up for this length alone, compare with the fastest of them.
    pub alone_choice: Choice,
    /// The results of each draft length on a server that is set up for the table's longest length. They equal `alone`
    /// if this server gives the same rates, or if the row takes the longest length.
    pub lengths: Vec<(u32, Measured)>,
    /// How the draft lengths, each on a server that is set up for the table's longest length, compare with the fastest
    /// of them, and the length that the row takes.
    pub choice: Choice,
    /// The results of the closed loop on an engine without a drafter.
    pub plain: Measured,
    /// The results of the closed loop with the finished table of draft lengths; `None` before it is run, or if no row
    /// is in the table.
    pub table: Option<Measured>,
}

impl Loop {
    /// The results of the draft length that the row takes, on a server that is set up for the table's longest length.
    pub fn taken(&self) -> &Measured {
        of_length(&self.lengths, self.choice.k)
    }

    /// The results of the fastest draft length, on a server that is set up for this length alone.
    pub fn fastest(&self) -> &Measured {
        of_length(&self.alone, self.alone_choice.fastest)
    }

    /// The batch size for which this row of the table of draft lengths stands: the number of requests that the median
    /// step of the closed loop schedules, with the row's draft length.
    pub fn scheduled(&self) -> u32 {
        self.taken().scheduled()
    }

    /// ln(output tokens per second with the finished table / with the fastest fixed draft length), paired by seed: mean
    /// and 95 % interval. `None` if the table was not run.
    pub fn table_over_fastest(&self) -> Option<Interval> {
        Some(over(&self.table.as_ref()?.tok_s, &self.fastest().tok_s))
    }

    /// The share of the steps of this closed loop, run with the finished table, whose batch size gets another draft
    /// length from the table's `ranges` than the row's length.
    pub fn other_lengths(&self, ranges: &[BatchRange]) -> f64 {
        let Some(table) = &self.table else { return 0.0 };
        let length = |size: u32| ranges.iter().rev().find(|range| range.0 <= size).map_or(0, |range| range.2);
        let others = table.sizes.iter().filter(|(size, _)| length(**size) != self.choice.k);
        others.map(|(_, steps)| *steps).sum::<u64>() as f64 / table.sizes.values().sum::<u64>().max(1) as f64
    }

    /// Is the server with the finished table slower than with the fastest fixed draft length, significantly and by more
    /// than 1 %?
    pub fn table_is_behind(&self) -> bool {
        self.table_over_fastest().is_some_and(|i| -i.mean.exp_m1() > BEHIND && is_significant(i))
    }

    /// Is the engine without a drafter faster than with every draft length, significantly and by more than 1 %?
    pub fn plain_is_ahead(&self) -> bool {
        let ahead = over(&self.plain.tok_s, &self.fastest().tok_s);
        ahead.mean.exp_m1() > BEHIND && is_significant(ahead)
    }
}

impl Table {
    /// Makes the table of draft lengths. For each number of clients in `sizes`, runs a closed loop with every draft
    /// length and chooses one. Then runs the finished table in the same loops.
    pub fn find(plan: Plan, file: &Path, sizes: &[u32], interrupt: &AtomicBool) -> Result<Table> {
        let seeds = plan.seeds.clone();
        let (mut loops, sample) = Loops::new(one_setting(plan, file)?, &seeds, interrupt)?;
        let mut sizes = sizes.to_vec();
        sizes.sort_unstable();
        sizes.dedup();
        let bar = Bar::new(2 * sizes.len() as u64, "loops", &Counts::default());
        let (lengths, policies) = policies(&sample);
        let mut rows = Vec::new();
        for &clients in &sizes {
            bar.say(format!("{clients} clients"));
            let not_reached = limit(&sample, clients);
            let measured = match &not_reached {
                Some(_) => None,
                None => Some(loop_of(&lengths, loops.measure(clients, &policies)?)),
            };
            rows.push(Row { clients, measured, not_reached });
            bar.inc(1);
        }
        let config = sample.engine(true);
        let longest = longest(&ranges(&place(&mut rows, config)));
        choose_again(&mut rows, longest, &mut loops, config.max_num_seqs, &bar)?;
        let ranges = ranges(&place(&mut rows, config));
        for row in &mut rows {
            bar.say(format!("the table, {} clients", row.clients));
            if let Some(measured) = &mut row.measured {
                measured.table = match &ranges[..] {
                    [] => None,
                    // vLLM refuses a table that has only draft length 0. Length 0 was run already and gives the same
                    // rates as this table.
                    ranges if ranges.iter().all(|range| range.2 == 0) => Some(of_length(&measured.alone, 0).clone()),
                    ranges => loops.measure(row.clients, &[by_batch_size(ranges.to_vec())])?.pop(),
                };
            }
            bar.inc(1);
        }
        bar.finish();
        Ok(Table { rows, ranges, seeds: seeds.len() })
    }
}

pub(super) fn of_length(lengths: &[(u32, Measured)], k: u32) -> &Measured {
    &lengths.iter().find(|(length, _)| *length == k).expect("the length was run").1
}

fn longest(ranges: &[BatchRange]) -> u32 {
    ranges.iter().map(|range| range.2).max().unwrap_or(0)
}

fn loop_of(lengths: &[u32], mut measured: Vec<Measured>) -> Loop {
    let plain = measured.pop().expect("the engine without a drafter is the last policy");
    let alone: Vec<(u32, Measured)> = lengths.iter().copied().zip(measured).collect();
    let choice = among(&alone);
    Loop { lengths: alone.clone(), alone_choice: choice.clone(), choice, alone, plain, table: None }
}

fn among(lengths: &[(u32, Measured)]) -> Choice {
    let rates: Vec<(u32, &[f64])> = lengths.iter().map(|(k, m)| (*k, &m.tok_s[..])).collect();
    choose(&rates).expect("length 0 always fits")
}

/// Rows of the table may take a shorter draft length than `longest`. For these rows, measures the lengths below
/// `longest` again, on a server that is set up for `longest` draft tokens, and chooses again. Stops at the first row
/// whose length has the same rates on both kinds of server.
fn choose_again(rows: &mut [Row], longest: u32, loops: &mut Loops, max_num_seqs: u32, bar: &Bar) -> Result<()> {
    for row in rows {
        let Some(m) = row.measured.as_mut().filter(|m| m.choice.k < longest) else { continue };
        bar.say(format!("a server for drafts of {longest}, {} clients", row.clients));
        let shorter = || m.alone.iter().filter(|(k, _)| *k < longest);
        let on_table_server = |k: u32| set_up_for(longest, k, max_num_seqs);
        let probe = loops.measure(row.clients, &[on_table_server(m.choice.k)])?;
        if probe[0].tok_s == m.taken().tok_s {
            return Ok(());
        }
        let others: Vec<u32> = shorter().map(|(k, _)| *k).filter(|k| *k != m.choice.k).collect();
        let policies: Vec<PolicySpec> = others.iter().map(|k| on_table_server(*k)).collect();
        let measured = loops.measure(row.clients, &policies)?;
        let mut lengths: Vec<(u32, Measured)> = others.into_iter().zip(measured).collect();
        lengths.extend([m.choice.k].into_iter().zip(probe));
        lengths.push((longest, of_length(&m.alone, longest).clone()));
        lengths.sort_by_key(|(k, _)| *k);
        (m.choice, m.lengths) = (among(&lengths), lengths);
    }
    Ok(())
}

/// (The draft lengths with which the engine starts; the policies to run: one for each of these lengths, then plain
/// decoding without a drafter).
fn policies(setting: &Setting) -> (Vec<u32>, Vec<PolicySpec>) {
    let config = setting.engine(true);
    let fits = |k: &u32| setting.starts(&always(*k, config.max_num_seqs)).is_ok();
    let lengths: Vec<u32> = (0..=config.max_draft_len).filter(fits).collect();
    let plain = PolicySpec::Autoregressive(Autoregressive {});
    let policies = lengths.iter().map(|&k| always(k, config.max_num_seqs)).chain([plain]).collect();
    (lengths, policies)
}

/// vLLM's own policy with length `k` at every batch size, on a server that is set up for length `k`. For `k` = 0 the
/// server is set up for length 1, because vLLM requires a length above 0 in the table.
pub(super) fn always(k: u32, max_num_seqs: u32) -> PolicySpec {
    set_up_for(k.max(1), k, max_num_seqs)
}

/// vLLM's own policy with length `k` at every batch size, on a server that is set up for `longest` draft tokens. Its
/// table has the length `longest` for a batch size that never occurs.
fn set_up_for(longest: u32, k: u32, max_num_seqs: u32) -> PolicySpec {
    let beyond = max_num_seqs.saturating_add(1);
    by_batch_size(match k == longest {
        true => vec![(1, max_num_seqs, k)],
        false => vec![(1, max_num_seqs, k), (beyond, beyond, longest)],
    })
}

/// vLLM's own policy, which takes the draft length from `table`: (first batch size, last batch size, length) each.
pub fn by_batch_size(table: Vec<BatchRange>) -> PolicySpec {
    PolicySpec::VllmDynamic(VllmDynamic { num_speculative_tokens_per_batch_size: table })
}

/// The (batch size, draft length) of each row that is in the table of draft lengths. A row is not in the table if no
/// closed loop was run for it, or if its steps schedule no more requests than the steps of an earlier row;
/// `not_reached` then says why.
fn place(rows: &mut [Row], config: &EngineConfig) -> Vec<(u32, u32)> {
    let mut placed: Vec<(u32, u32)> = Vec::new();
    for row in rows {
        let Some(measured) = &row.measured else { continue };
        row.not_reached = None;
        let scheduled = measured.scheduled();
        match placed.last() {
            Some(&(before, _)) if scheduled <= before => {
                let limit = match config.running_limit(true) {
                    _ if measured.taken().kv_peak >= 0.9 => "KV memory was full".to_owned(),
                    (setting, most) if scheduled >= most => format!("engine.{setting} = {most}"),
                    _ => format!("engine.max_num_batched_tokens = {}", config.max_num_batched_tokens),
                };
                row.not_reached = Some(format!("steps schedule {scheduled}, as with fewer clients: {limit}"));
            }
            _ => placed.push((scheduled, measured.choice.k)),
        }
    }
    placed
}

/// The ranges of batch sizes for the table's `rows`, given as (batch size, draft length). A batch size between two rows
/// gets the length of the row that is nearer by ratio. The first range begins at 1; the last range ends at the batch
/// size of the last row. Neighbouring ranges with equal lengths are joined.
fn ranges(rows: &[(u32, u32)]) -> Vec<BatchRange> {
    let mut ranges: Vec<BatchRange> = Vec::new();
    let mut first = 1;
    for (i, &(size, k)) in rows.iter().enumerate() {
        let last = rows.get(i + 1).map_or(size, |next| (u64::from(size) * u64::from(next.0)).isqrt() as u32);
        match ranges.last_mut() {
            Some(range) if range.2 == k => range.1 = last,
            _ => ranges.push((first, last, k)),
        }
        first = last + 1;
    }
    ranges
}

/// Why no closed loop of `clients` clients is run: the engine can never hold one request of each client, or `clients`
/// is above [`LARGEST`]. `None` if the loop is run.
fn limit(sample: &Setting, clients: u32) -> Option<String> {
    let config = sample.engine(true);
    let shortest = sample.workload.prompt_len.iter().copied().min().unwrap_or(1);
    let of_each = config.blocks_held(shortest, config.max_draft_len);
    let held = config.num_gpu_blocks / of_each.max(1);
    if clients > config.max_num_seqs {
        Some(format!("engine.max_num_seqs = {}", config.max_num_seqs))
    } else if clients > config.max_num_batched_tokens {
        Some(format!("engine.max_num_batched_tokens = {}", config.max_num_batched_tokens))
    } else if clients > held {
        let blocks = config.num_gpu_blocks;
        Some(format!("KV memory of {blocks} blocks holds at most {held} requests, by the shortest of {SAMPLE} prompts"))
    } else if clients > LARGEST {
        Some(format!("sizes up to {LARGEST} are tried"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_every_size_from_one_and_meet_between_rows() {
        assert_eq!(ranges(&[(4, 5), (8, 5), (16, 2), (32, 0)]), [(1, 11, 5), (12, 22, 2), (23, 32, 0)]);
        assert_eq!(ranges(&[(1, 3)]), [(1, 1, 3)]);
        // In vLLM's table, draft lengths need not become shorter as the batch size grows.
        assert_eq!(ranges(&[(1, 2), (2, 4), (4, 2)]), [(1, 1, 2), (2, 2, 4), (3, 4, 2)]);
        assert_eq!(ranges(&[]), []);
    }

    /// In the closed loop of 20 clients, steps schedule 15 requests, no more than with 16 clients. So the row of 20
    /// clients is not in the table, and the row says why.
    #[test]
    fn a_row_that_schedules_no_more_than_the_one_before_is_not_in_the_table() {
        let measured = |scheduled| {
            let measured =
                Measured { tok_s: vec![100.0], accepted: vec![0.0], sizes: [(scheduled, 1)].into(), kv_peak: 0.2 };
            Some(loop_of(&[1], vec![measured.clone(), measured]))
        };
        let row = |clients, scheduled| Row { clients, measured: measured(scheduled), not_reached: None };
        let mut rows = [row(8, 8), row(16, 15), row(20, 15), row(32, 24)];
        assert_eq!(place(&mut rows, &EngineConfig::default()), [(8, 1), (15, 1), (24, 1)]);
        let reason = rows[2].not_reached.as_ref().unwrap();
        assert!(reason.contains("steps schedule 15") && reason.contains("max_num_batched_tokens = 2048"), "{reason}");
        assert!(rows[3].not_reached.is_none());
    }
}
