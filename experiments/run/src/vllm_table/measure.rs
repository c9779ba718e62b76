//! Closed loops of every length, and the steps of them that scheduled as many requests as a row asks for.

use crate::plan::Variant;
use crate::setting::Setting;
use foretoken_policies::{PolicySpec, VllmDynamic};
use foretoken_sim::{Ending, EngineConfig, Run, Time};
use foretoken_spec::problem::{Exit, Problem, Result};
use foretoken_traces::ArrivalSpec;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rayon::prelude::*;
use std::io::IsTerminal;
use std::sync::atomic::AtomicBool;

/// Steps below which a length and seed say nothing of a row.
pub const LEAST_STEPS: u64 = 100;
/// Requests a client sends, so that lengths average out.
const ROUNDS: u32 = 12;
/// Fewest requests of a loop, and what tells how long their outputs are.
const FEWEST: u32 = 64;
/// The largest batch size that is tried: far beyond what engines are set to.
pub const LARGEST: u32 = 4096;
/// Clients tried for a row, as multiples of its size, while the engine does not schedule enough of them at once.
const CLIENTS: [f64; 6] = [1.0, 1.25, 1.5, 2.0, 3.0, 4.0];

/// Sums over steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Steps.
    pub steps: u64,
    /// Output tokens.
    pub tokens: u64,
    /// Time, ps.
    pub time: u64,
}

impl Sums {
    fn add(&mut self, other: Sums) {
        self.steps += other.steps;
        self.tokens += other.tokens;
        self.time += other.time;
    }
}

/// A row of the table, as far as it could be measured.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    /// Lengths with their sums, one a seed, each over enough steps.
    Reached {
        /// Requests scheduled at once.
        size: u32,
        /// By length.
        lengths: Vec<(u32, Vec<Sums>)>,
        /// Lengths whose drafts the token budget does not hold.
        without: Vec<u32>,
    },
    /// The engine did not schedule that many at once, or too seldom.
    NotReached {
        /// Requests asked for.
        size: u32,
        /// Why.
        why: String,
    },
}

/// What rows are measured with.
pub struct Loops<'a> {
    /// The setting; its arrivals are closed loops.
    pub variant: Variant,
    /// The seeds.
    pub seeds: &'a [u64],
    /// Ends it.
    pub interrupt: &'a AtomicBool,
}

/// What a loop of one length shows of a row: its sums, the most it scheduled at once, and how full KV was.
struct Loop {
    sums: Sums,
    most: u32,
    kv: f64,
}

impl Loops<'_> {
    /// Measures rows, in ascending order of their sizes.
    ///
    /// # Errors
    /// When the setting cannot be built or run, and when it is interrupted.
    pub fn rows(&mut self, sizes: &[u32]) -> Result<Vec<Row>> {
        let probe = self.setting(1, FEWEST, self.seeds[0])?;
        let config = probe.engine(true).clone();
        let outputs = probe.workload.output_len.iter().map(|&n| f64::from(n)).sum::<f64>() / f64::from(FEWEST);
        let shortest = probe.workload.prompt_len.iter().copied().min().unwrap_or(1);
        // Enough steps for a length of which every draft is right, with half as many again and the ends that are left out.
        let steps = 1.5 * LEAST_STEPS as f64 * f64::from(config.max_draft_len + 1);
        let rounds = ROUNDS.max((steps / outputs).ceil() as u32 + 2);
        let mut rows: Vec<Row> = Vec::new();
        let mut ceiling: Option<(u32, String)> = None;
        let bar = bar(sizes.len());
        for &size in sizes {
            bar.set_message(format!("batch size {size}"));
            let beyond = limit(&config, shortest, size);
            let known = ceiling.as_ref().filter(|c| c.0 < size).map(|c| c.1.clone());
            let row = match beyond.or(known) {
                Some(why) => Row::NotReached { size, why },
                None => {
                    let (row, most, why) = self.row(size, rounds, &config)?;
                    ceiling = (most < size).then_some((most, why));
                    row
                }
            };
            rows.push(row);
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(rows)
    }

    /// A row, the most requests scheduled at once on the way to it, and what kept it from more. It takes every length whose drafts
    /// the token budget holds: were one left out that got there too seldom, another would win for want of rivals.
    fn row(&mut self, size: u32, rounds: u32, config: &EngineConfig) -> Result<(Row, u32, String)> {
        let lengths = (config.max_num_batched_tokens / size).min(config.max_draft_len + 1);
        let tried = || 0..lengths as usize;
        let mut sums = vec![vec![Sums::default(); self.seeds.len()]; lengths as usize];
        let mut most = vec![0; lengths as usize];
        let mut kv: f64 = 0.0;
        for share in CLIENTS {
            let clients = (f64::from(size) * share).ceil() as u32;
            let before = most.clone();
            for (seed, loops) in self.loops(clients, size, rounds, lengths)?.into_iter().enumerate() {
                for (k, one) in loops.into_iter().enumerate() {
                    sums[k][seed].add(one.sums);
                    most[k] = most[k].max(one.most);
                    kv = kv.max(one.kv);
                }
            }
            // More clients help a length that gets on with them: by a quarter of the way at least.
            let hopeless = |k: usize| share > 1.0 && most[k] < size && most[k] - before[k] <= (size - most[k]) / 4;
            if tried().all(|k| enough(&sums[k])) || tried().any(hopeless) {
                break;
            }
        }
        let lacking: Vec<String> = tried().filter(|&k| !enough(&sums[k])).map(|k| k.to_string()).collect();
        let greatest = most.iter().copied().max().unwrap_or(0);
        let limit = match kv >= 0.9 {
            true => "KV memory was full".to_owned(),
            false => format!("engine.max_num_batched_tokens = {} holds no more", config.max_num_batched_tokens),
        };
        let why = match greatest < size {
            true => format!("at most {greatest} were scheduled at once: {limit}"),
            false => format!(
                "under {LEAST_STEPS} steps a seed scheduled as many with length {}: {limit}",
                lacking.join(", ")
            ),
        };
        let row = match lacking.as_slice() {
            [] => Row::Reached {
                size,
                lengths: (0u32..).zip(sums).collect(),
                without: (lengths..config.max_draft_len + 1).collect(),
            },
            _ => Row::NotReached { size, why: why.clone() },
        };
        Ok((row, greatest, why))
    }

    /// Loops of that many clients with the first `lengths` lengths, by seed.
    fn loops(&mut self, clients: u32, size: u32, rounds: u32, lengths: u32) -> Result<Vec<Vec<Loop>>> {
        let requests = rounds.saturating_mul(clients).max(FEWEST);
        let settings: Vec<Setting> =
            self.seeds.iter().map(|&seed| self.setting(clients, requests, seed)).collect::<Result<_>>()?;
        let interrupt = self.interrupt;
        let one = |setting: &Setting, k: u32| {
            let policy = always(k, setting.engine(true).max_num_seqs);
            let (run, played) = setting.run(&policy, f64::INFINITY, interrupt);
            match run.ending {
                Ending::Interrupted => {
                    return Err(Problem::new(Exit::Interrupted, "interrupted: no table is written"));
                }
                Ending::OutOfTime | Ending::Failed | Ending::Certain => {
                    let message = format!("a closed loop of {clients} clients ran past the simulated clock's 213 days");
                    return Err(
                        Problem::bad_input(message).help("some time in the experiment is absurd: look at hardware")
                    );
                }
                Ending::Done => {}
            }
            let summary = setting.summary(&run, Default::default());
            if summary.finished == 0 {
                return Err(setting.nothing_fits(&played, &run));
            }
            let (sums, most) = of_size(&run, size);
            Ok(Loop { sums, most, kv: summary.kv_use_peak })
        };
        settings
            .par_iter()
            .map(|setting| (0..lengths).into_par_iter().map(|k| one(setting, k)).collect::<Result<Vec<Loop>>>())
            .collect()
    }

    fn setting(&mut self, clients: u32, requests: u32, seed: u64) -> Result<Setting> {
        let workload = &mut self.variant.experiment.workload;
        workload.arrivals = ArrivalSpec::ClosedLoop(clients);
        workload.requests = Some(requests);
        Setting::new(&self.variant, seed)
    }
}

/// Rows as they are measured, on a terminal.
fn bar(rows: usize) -> ProgressBar {
    let to = std::io::stderr();
    let target = if to.is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} rows  {elapsed}  {msg}");
    ProgressBar::with_draw_target(Some(rows as u64), target).with_style(style.expect("the template is constant"))
}

/// vLLM's own policy with a table of one length. Its check wants some length above 0: one lies where no batch gets.
fn always(k: u32, max_num_seqs: u32) -> PolicySpec {
    let beyond = max_num_seqs.saturating_add(1);
    let table = if k == 0 { vec![(1, max_num_seqs, 0), (beyond, beyond, 1)] } else { vec![(1, max_num_seqs, k)] };
    PolicySpec::VllmDynamic(VllmDynamic { num_speculative_tokens_per_batch_size: table })
}

fn enough(sums: &[Sums]) -> bool {
    sums.iter().all(|s| s.steps >= LEAST_STEPS)
}

/// The steps of a run that scheduled `size` requests, and the most that any step did: between the first completion and the
/// last request's start, while as many clients as there are keep the engine busy.
fn of_size(run: &Run, size: u32) -> (Sums, u32) {
    let records = &run.records;
    let first = (0..records.len()).filter(|&i| records.finished(i)).map(|i| records.finish[i]).min();
    let (first, last) = (first.unwrap_or(Time::MAX), records.arrival.iter().copied().max().unwrap_or_default());
    let (mut sums, mut most) = (Sums::default(), 0);
    for step in run.steps.iter().filter(|s| s.start >= first && s.end <= last) {
        let scheduled = step.batch_size + step.chunks;
        most = most.max(scheduled);
        if scheduled == size {
            sums.steps += 1;
            sums.tokens += u64::from(step.emitted);
            sums.time += (step.end - step.start).0;
        }
    }
    (sums, most)
}

/// Why the engine can never schedule `size` requests at once, where that is known before anything runs.
fn limit(config: &EngineConfig, shortest: u32, size: u32) -> Option<String> {
    let blocks = shortest.div_ceil(config.block_size).max(1);
    let held = config.num_gpu_blocks / blocks;
    if size > config.max_num_seqs {
        Some(format!("engine.max_num_seqs = {}", config.max_num_seqs))
    } else if size > config.max_num_batched_tokens {
        Some(format!("engine.max_num_batched_tokens = {}", config.max_num_batched_tokens))
    } else if size > held {
        let blocks = config.num_gpu_blocks;
        Some(format!("KV memory of {blocks} blocks holds at most {held} requests, by the shortest of {FEWEST} prompts"))
    } else if size > LARGEST {
        Some(format!("sizes up to {LARGEST} are tried"))
    } else {
        None
    }
}
