//! The table: a row for each closed loop, the ranges of batch sizes, and the rates of the finished table in the loops.

use super::choose::{Choice, choose, over, told_apart};
use super::closed::one_setting;
use super::loops::{Loops, Measured, SAMPLE};
use crate::bar::{Bar, Counts};
use crate::plan::Plan;
use crate::setting::Setting;
use foretoken_policies::{Autoregressive, BatchRange, PolicySpec, VllmDynamic};
use foretoken_sim::EngineConfig;
use foretoken_sim::metrics::Interval;
use foretoken_spec::problem::Result;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// The largest number of clients that is tried; engines are set to far fewer.
pub const LARGEST: u32 = 4096;
/// A warning is given if the table is more than this share slower than the fastest fixed length.
const BEHIND: f64 = 0.01;

/// The best length for each batch size.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// One row for each number of clients that was asked for, ascending.
    pub rows: Vec<Row>,
    /// vLLM's `num_speculative_tokens_per_batch_size`; empty when no row was reached.
    pub ranges: Vec<BatchRange>,
    /// Number of seeds of each loop.
    pub seeds: usize,
}

/// A row: the closed loops of one number of clients.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Clients, each of which has one request at the server at any time.
    pub clients: u32,
    /// The results of the loops; `None` if the engine can never hold this number of requests.
    pub measured: Option<Loop>,
    /// Why the row is not in the table; `None` if it is.
    pub not_reached: Option<String>,
}

/// The results of the closed loops with one number of clients.
#[derive(Clone, Debug, PartialEq)]
pub struct Loop {
    /// Each length on a server of its own, ascending. The drafter is loaded, at length 0 too.
    pub alone: Vec<(u32, Measured)>,
    /// The comparison of the lengths in `alone`.
    pub of_alone: Choice,
    /// Each length on a server that is set up for the table's longest length, if its rates differ; otherwise equal to
    /// `alone`.
    pub lengths: Vec<(u32, Measured)>,
    /// The comparison of `lengths`, and the length of the row.
    pub choice: Choice,
    /// The results of the engine without a drafter.
    pub plain: Measured,
    /// The results of the finished table; `None` before it is run.
    pub table: Option<Measured>,
}

impl Loop {
    /// The results of the row's length.
    pub fn taken(&self) -> &Measured {
        of(&self.lengths, self.choice.k)
    }

    /// The results of the fastest length on a server of its own.
    pub fn fastest(&self) -> &Measured {
        of(&self.alone, self.of_alone.fastest)
    }

    /// The batch size that the row stands for: the requests that the median step schedules at the row's length.
    pub fn scheduled(&self) -> u32 {
        self.taken().scheduled()
    }

    /// Logarithm of the table's rate over the rate of the fastest fixed length; `None` without a table.
    pub fn table_over_fastest(&self) -> Option<Interval> {
        Some(over(&self.table.as_ref()?.tok_s, &self.fastest().tok_s))
    }

    /// Share of the table's steps whose batch size has another length in `ranges` than the row's.
    pub fn other_lengths(&self, ranges: &[BatchRange]) -> f64 {
        let Some(table) = &self.table else { return 0.0 };
        let length = |size: u32| ranges.iter().rev().find(|range| range.0 <= size).map_or(0, |range| range.2);
        let others = table.sizes.iter().filter(|(size, _)| length(**size) != self.choice.k);
        others.map(|(_, steps)| *steps).sum::<u64>() as f64 / table.sizes.values().sum::<u64>().max(1) as f64
    }

    /// Is the table significantly slower than the fastest fixed length, and by more than 1 %?
    pub fn table_is_behind(&self) -> bool {
        self.table_over_fastest().is_some_and(|i| -i.mean.exp_m1() > BEHIND && told_apart(i))
    }

    /// Is the engine without a drafter significantly faster than every length, and by more than 1 %?
    pub fn plain_is_ahead(&self) -> bool {
        let ahead = over(&self.plain.tok_s, &self.fastest().tok_s);
        ahead.mean.exp_m1() > BEHIND && told_apart(ahead)
    }
}

impl Table {
    /// Measures the loops of `sizes` clients with every length, chooses, and runs the finished table in the same loops.
    ///
    /// # Errors
    /// The plan sweeps something that matters, a loop cannot be run, or the work is interrupted.
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
                    // vLLM takes no table without drafts, and length 0 was run.
                    all if all.iter().all(|range| range.2 == 0) => Some(of(&measured.alone, 0).clone()),
                    all => loops.measure(row.clients, &[by_batch_size(all.to_vec())])?.pop(),
                };
            }
            bar.inc(1);
        }
        bar.finish();
        Ok(Table { rows, ranges, seeds: seeds.len() })
    }
}

fn of(lengths: &[(u32, Measured)], k: u32) -> &Measured {
    &lengths.iter().find(|(length, _)| *length == k).expect("the length was run").1
}

fn longest(ranges: &[BatchRange]) -> u32 {
    ranges.iter().map(|range| range.2).max().unwrap_or(0)
}

fn loop_of(lengths: &[u32], mut measured: Vec<Measured>) -> Loop {
    let plain = measured.pop().expect("the engine without a drafter is the last policy");
    let alone: Vec<(u32, Measured)> = lengths.iter().copied().zip(measured).collect();
    let choice = among(&alone);
    Loop { lengths: alone.clone(), of_alone: choice.clone(), choice, alone, plain, table: None }
}

fn among(lengths: &[(u32, Measured)]) -> Choice {
    let rates: Vec<(u32, &[f64])> = lengths.iter().map(|(k, m)| (*k, &m.tok_s[..])).collect();
    choose(&rates).expect("length 0 always fits")
}

/// Measures the rows with shorter drafts than `longest` on a server that is set up for `longest`, and chooses their
/// lengths again. Stops at the first row if such a server gives a length the same rates as a server of its own.
fn choose_again(rows: &mut [Row], longest: u32, loops: &mut Loops, max_num_seqs: u32, bar: &Bar) -> Result<()> {
    for row in rows {
        let Some(m) = row.measured.as_mut().filter(|m| m.choice.k < longest) else { continue };
        bar.say(format!("a server for drafts of {longest}, {} clients", row.clients));
        let shorter = || m.alone.iter().filter(|(k, _)| *k < longest);
        let on_it = |k: u32| set_up_for(longest, k, max_num_seqs);
        let probe = loops.measure(row.clients, &[on_it(m.choice.k)])?;
        if probe[0].tok_s == m.taken().tok_s {
            return Ok(());
        }
        let others: Vec<u32> = shorter().map(|(k, _)| *k).filter(|k| *k != m.choice.k).collect();
        let measured = loops.measure(row.clients, &others.iter().map(|k| on_it(*k)).collect::<Vec<_>>())?;
        let mut lengths: Vec<(u32, Measured)> = others.into_iter().zip(measured).collect();
        lengths.extend([m.choice.k].into_iter().zip(probe));
        lengths.push((longest, of(&m.alone, longest).clone()));
        lengths.sort_by_key(|(k, _)| *k);
        (m.choice, m.lengths) = (among(&lengths), lengths);
    }
    Ok(())
}

/// The lengths with which the engine starts, and the policies that run: each length, then the engine without a drafter.
fn policies(setting: &Setting) -> (Vec<u32>, Vec<PolicySpec>) {
    let config = setting.engine(true);
    let fits = |k: &u32| setting.starts(&always(*k, config.max_num_seqs)).is_ok();
    let lengths: Vec<u32> = (0..=config.max_draft_len).filter(fits).collect();
    let plain = PolicySpec::Autoregressive(Autoregressive {});
    let policies = lengths.iter().map(|&k| always(k, config.max_num_seqs)).chain([plain]).collect();
    (lengths, policies)
}

/// vLLM's own policy with a table of one length. vLLM requires a length above 0 somewhere in the table.
fn always(k: u32, max_num_seqs: u32) -> PolicySpec {
    set_up_for(k.max(1), k, max_num_seqs)
}

/// vLLM's own policy with length `k` for every batch, on a server that is set up for `longest` tokens. The table has a
/// range with `longest` beyond the largest batch size.
fn set_up_for(longest: u32, k: u32, max_num_seqs: u32) -> PolicySpec {
    let beyond = max_num_seqs.saturating_add(1);
    by_batch_size(match k == longest {
        true => vec![(1, max_num_seqs, k)],
        false => vec![(1, max_num_seqs, k), (beyond, beyond, longest)],
    })
}

/// vLLM's own policy with a table.
pub fn by_batch_size(table: Vec<BatchRange>) -> PolicySpec {
    PolicySpec::VllmDynamic(VllmDynamic { num_speculative_tokens_per_batch_size: table })
}

/// Batch size and length of each row that is in the table. A row whose steps schedule no more requests than the
/// steps of a row before it is not, and says why.
fn place(rows: &mut [Row], config: &EngineConfig) -> Vec<(u32, u32)> {
    let mut placed: Vec<(u32, u32)> = Vec::new();
    for row in rows {
        let Some(measured) = &row.measured else { continue };
        row.not_reached = None;
        let scheduled = measured.scheduled();
        match placed.last() {
            Some(&(before, _)) if scheduled <= before => {
                let limit = match measured.taken().kv_peak >= 0.9 {
                    true => "KV memory was full".to_owned(),
                    false => format!("engine.max_num_batched_tokens = {}", config.max_num_batched_tokens),
                };
                row.not_reached = Some(format!("steps schedule {scheduled}, as with fewer clients: {limit}"));
            }
            _ => placed.push((scheduled, measured.choice.k)),
        }
    }
    placed
}

/// The ranges of rows: a batch size between two rows has the length of the nearer one, by ratio. The first range begins
/// at 1 and the last one ends with the last row. Equal neighbours are one range.
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

/// Why the engine can never hold `clients` requests; `None` if nothing is known against it before a run.
fn limit(sample: &Setting, clients: u32) -> Option<String> {
    let config = sample.engine(true);
    let shortest = sample.workload.prompt_len.iter().copied().min().unwrap_or(1);
    let held = config.num_gpu_blocks / shortest.div_ceil(config.block_size).max(1);
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
        // The length may rise and fall.
        assert_eq!(ranges(&[(1, 2), (2, 4), (4, 2)]), [(1, 1, 2), (2, 2, 4), (3, 4, 2)]);
        assert_eq!(ranges(&[]), []);
    }

    /// 20 clients schedule 15 requests at a time, as 16 clients do: the row of 20 is not in the table and has a reason.
    #[test]
    fn a_row_that_schedules_no_more_than_the_one_before_is_not_in_the_table() {
        let measured = |scheduled| {
            let measured = Measured { tok_s: vec![100.0], sizes: [(scheduled, 1)].into(), kv_peak: 0.2 };
            Some(loop_of(&[1], vec![measured.clone(), measured]))
        };
        let row = |clients, scheduled| Row { clients, measured: measured(scheduled), not_reached: None };
        let mut rows = [row(8, 8), row(16, 15), row(20, 15), row(32, 24)];
        assert_eq!(place(&mut rows, &EngineConfig::default()), [(8, 1), (15, 1), (24, 1)]);
        let said = rows[2].not_reached.as_ref().unwrap();
        assert!(said.contains("steps schedule 15") && said.contains("max_num_batched_tokens = 2048"), "{said}");
        assert!(rows[3].not_reached.is_none());
    }
}
