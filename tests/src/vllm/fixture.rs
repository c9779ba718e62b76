//! Parses recorded workloads of vLLM. `tests/vllm/README.md` defines the format of the files, which are called
//! fixtures.

use foretoken_sim::engine::{Lengths, SpeculativeConfig};
use foretoken_sim::{DraftMethod, EngineConfig, Request, Runner, SchedulingPolicy, Time, Version, Workload};
use std::collections::{BTreeMap, HashMap};
use std::io::BufRead;

/// Why a line of a fixture (a file of recorded workloads) does not follow the format of `tests/vllm/README.md`.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct BadFixture {
    /// Number of the fixture's line, from 1.
    pub line: usize,
    /// What is wrong with the fixture's line.
    pub why: String,
}

/// One workload that vLLM's scheduler or engine core ran, with the recording of the run.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The line of the fixture file at which the workload begins.
    pub line: usize,
    /// Seed of the workload's draws, which Rust and the Python recorder both compute.
    pub seed: u64,
    /// The settings with which vLLM's scheduler ran.
    pub config: EngineConfig,
    /// The settings of speculation with which vLLM ran.
    pub speculation: SpeculativeConfig,
    /// How the number of proposed draft tokens is chosen: `fixed`, `request` or `batch`.
    pub lengths: String,
    /// Probability that a draft token is accepted, in thousandths.
    pub accept: u64,
    /// Did vLLM check at its start that the KV pool holds one request of `max_model_len` tokens?
    pub checked: bool,
    /// The requests of the workload. Shared prefixes are given token by token.
    pub workload: Workload,
    /// The values that vLLM derived from the settings; `None` if vLLM refused the settings.
    pub derived: Option<Derived>,
    /// The recorded steps of vLLM's scheduler. Empty for a workload that vLLM's whole engine core ran: `calls` has its
    /// recorded calls.
    pub steps: Vec<Step>,
    /// True if vLLM's whole engine core ran the workload, false if only its scheduler did.
    pub core: bool,
    /// The engine core's calls of the scheduler. Empty for a workload of the scheduler alone.
    pub calls: Vec<Call>,
    /// The end of vLLM's recorded run, in µs of the simulated clock with which vLLM was recorded.
    pub end: u64,
    /// Indices of the requests that vLLM refused when they arrived.
    pub refused: Vec<u32>,
    /// How the run ended: `done`, `endless`, `stuck` or `assertion`. If vLLM refused the settings, the recorder's word
    /// for the reason.
    pub ending: String,
    /// Hash over the block tables of all requests, at the end of the run.
    pub blocks: u64,
}

/// The values that vLLM derives from its settings, by name.
pub type Derived = BTreeMap<String, u64>;

/// One call of `schedule`, the scheduler's method that plans a step. A recording of vLLM's scheduler alone leaves out
/// calls that neither scheduled nor preempted a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Start of the call of `schedule`, in µs of the simulated clock with which vLLM was recorded.
    pub start: u64,
    /// The requests that the call scheduled, in order.
    pub entries: Vec<Entry>,
    /// Number of free KV blocks right after scheduling.
    pub free: i64,
    /// The draft length of the step (vLLM's `num_spec_tokens_to_schedule`).
    pub k: u32,
    /// Does the scheduler ask for no draft tokens after this step (vLLM's `skip_drafts`)?
    pub skip_drafts: bool,
    /// Indices of the requests that the call preempted, in order.
    pub preempted: Vec<u32>,
    /// Indices of the requests that ended in this step, in order.
    pub finished: Vec<u32>,
    /// The low 12 bits of the hash over block tables after this step.
    pub blocks: u64,
}

impl Step {
    /// The end of the step, in µs of the simulated clock with which vLLM was recorded. On this clock a step takes 1000
    /// µs, and 7 µs for each scheduled token.
    pub fn end(&self) -> u64 {
        self.start + 1000 + 7 * self.entries.iter().map(|e| u64::from(e.tokens)).sum::<u64>()
    }
}

/// A call of the scheduler by vLLM's engine core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A call of `schedule`, the scheduler's method that plans a step.
    Schedule(Step),
    /// A call of `update_from_output`, the scheduler's method that applies a step's output.
    Update(Update),
}

/// A recorded call of `update_from_output`, the scheduler's method that applies a step's output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// Start of the call of `update_from_output`, in µs of the simulated clock with which vLLM was recorded.
    pub start: u64,
    /// What happened to each request of the step, in the order of the step. The number of tokens that the request got
    /// is a digit in base 36. A `!` before the digit means that the request was preempted after the step was scheduled.
    /// `x` means that the request had ended before.
    pub fates: String,
    /// Number of free KV blocks after the call of `update_from_output`.
    pub free: i64,
    /// Indices of the requests that ended in the call of `update_from_output`, in order.
    pub finished: Vec<u32>,
}

/// Duration of a call of `schedule` on the simulated clock with which vLLM was recorded, in µs.
pub const SCHEDULE: u64 = 90;
/// Duration of a call of `update_from_output` on the simulated clock with which vLLM was recorded, in µs.
pub const UPDATE: u64 = 40;

/// A request that a recorded step schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The id of the scheduled request.
    pub request: u32,
    /// Number of the request's tokens that the step schedules.
    pub tokens: u32,
    /// Number of the request's draft tokens that the step schedules, part of `tokens`.
    pub drafts: u32,
    /// For a request that this step admits: the number of its tokens that were found in the prefix cache. Else `None`.
    pub cached: Option<u32>,
}

/// Reads the workloads of vLLM that a fixture (a file of recordings) contains, one by one.
pub struct Fixture<R> {
    lines: std::io::Lines<R>,
    at: usize,
    version: Version,
    /// True for a recording of vLLM's whole engine core, false for one of its scheduler alone.
    pub core: bool,
    /// How often each rule of vLLM's scheduler was applied while the file was recorded, as the end of the file says.
    pub fired: BTreeMap<String, u64>,
    next: Option<String>,
}

impl<R: BufRead> Fixture<R> {
    /// Opens a fixture (a file of recorded workloads of vLLM) and reads its first line.
    ///
    /// # Errors
    /// The file is not a fixture of this format, or our scheduler has no rules for its release of vLLM.
    pub fn open(from: R) -> Result<Fixture<R>, BadFixture> {
        let version = Version::V0_33;
        let mut f = Fixture { lines: from.lines(), at: 0, version, core: false, fired: BTreeMap::new(), next: None };
        let head = f.line()?.unwrap_or_default();
        let words: Vec<&str> = head.split_whitespace().collect();
        f.core = words.first() == Some(&"foretoken-vllm-core");
        f.version = match words[..] {
            ["foretoken-vllm" | "foretoken-vllm-core", "1", version] if version.starts_with("0.33.") => Version::V0_33,
            ["foretoken-vllm" | "foretoken-vllm-core", "1", version] if version.starts_with("0.32.") => Version::V0_32,
            ["foretoken-vllm", "1", version] if version.starts_with("0.6.") => Version::V0,
            _ => return Err(f.bad(format!("{head:?} is no head of a fixture that is known"))),
        };
        f.next = f.line()?;
        Ok(f)
    }

    fn bad(&self, why: impl Into<String>) -> BadFixture {
        BadFixture { line: self.at, why: why.into() }
    }

    fn line(&mut self) -> Result<Option<String>, BadFixture> {
        self.at += 1;
        self.lines.next().transpose().map_err(|e| self.bad(e.to_string()))
    }

    /// Reads the next recorded workload; `None` at the end of the file.
    ///
    /// # Errors
    /// A line does not follow the format that the README defines.
    pub fn read(&mut self) -> Result<Option<Recorded>, BadFixture> {
        loop {
            let Some(line) = self.next.take() else { return Ok(None) };
            let result = match line.split_once(' ') {
                Some(("W", rest)) => self.workload(rest).map(Some),
                Some(("C", rest)) => {
                    let (count, rule) = rest.split_once(' ').ok_or_else(|| self.bad("a count and a rule are due"))?;
                    let count = count.parse().map_err(|_| self.bad("a count is due"))?;
                    self.fired.insert(rule.to_owned(), count);
                    Ok(None)
                }
                _ => Err(self.bad(format!("{line:?} begins no workload"))),
            };
            match result {
                Ok(None) => self.next = self.line()?,
                other => return other,
            }
        }
    }

    fn workload(&mut self, head: &str) -> Result<Recorded, BadFixture> {
        let line = self.at;
        let said: HashMap<&str, &str> = head.split(' ').filter_map(|pair| pair.split_once('=')).collect();
        let (config, speculation) = (self.config(&said)?, self.speculation(&said)?);
        let mut recorded = Recorded {
            line,
            seed: self.number(&said, "seed")?,
            lengths: self.word(&said, "lengths")?.to_owned(),
            accept: self.number(&said, "accept")?,
            checked: self.number::<u8>(&said, "checked")? == 1,
            workload: Workload { prefix_block: 1, ..Workload::default() },
            derived: None,
            steps: Vec::new(),
            core: self.core,
            calls: Vec::new(),
            end: 0,
            refused: Vec::new(),
            ending: String::new(),
            blocks: 0,
            config,
            speculation,
        };
        let mut before = Step { k: recorded.speculation.num_speculative_tokens, ..Step::default() };
        let (mut arrival, mut now) = (0, 0);
        while let Some(line) = self.line()? {
            let (kind, rest) = line.split_at(1.min(line.len()));
            match kind {
                "R" => self.request(rest.trim(), &mut arrival, &mut recorded)?,
                "D" => {
                    let pairs = rest.trim().split(' ').filter_map(|pair| pair.split_once('='));
                    let read = pairs.map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
                    recorded.derived = Some(read.collect::<Option<_>>().ok_or_else(|| self.bad("numbers are due"))?);
                }
                "S" if self.core => {
                    let step = self.step(rest, &before, now)?;
                    now = step.start + SCHEDULE;
                    // If this step has no scheduled requests, the next line's omitted request ids still refer to the
                    // last step that had some.
                    let entries = if step.entries.is_empty() { before.entries } else { step.entries.clone() };
                    before = Step { entries, ..step.clone() };
                    recorded.calls.push(Call::Schedule(step));
                }
                "U" => {
                    let update = self.update(rest, before.free, now)?;
                    (now, before.free) = (update.start + UPDATE, update.free);
                    recorded.calls.push(Call::Update(update));
                }
                "S" => {
                    let first = recorded.steps.is_empty();
                    let start = if first { 0 } else { before.end() };
                    let step = self.step(rest, &before, start)?;
                    before = step.clone();
                    recorded.steps.push(step);
                }
                "X" => recorded.refused.push(rest.trim().parse().map_err(|_| self.bad("a request is due"))?),
                "E" => {
                    let words: Vec<&str> = rest.split_whitespace().collect();
                    let [ending, end, blocks] = words[..] else { return Err(self.bad("an ending has three words")) };
                    recorded.ending = ending.to_owned();
                    recorded.end = end.parse().map_err(|_| self.bad("a time is due"))?;
                    recorded.blocks = u64::from_str_radix(blocks, 16).map_err(|_| self.bad("a hash is due"))?;
                    self.next = self.line()?;
                    return Ok(recorded);
                }
                _ => return Err(self.bad(format!("{line:?} is no line of a workload"))),
            }
        }
        Err(self.bad("the workload has no end"))
    }

    fn word<'a>(&self, said: &HashMap<&str, &'a str>, name: &str) -> Result<&'a str, BadFixture> {
        said.get(name).copied().ok_or_else(|| self.bad(format!("{name} is missing")))
    }

    fn number<N: std::str::FromStr>(&self, said: &HashMap<&str, &str>, name: &str) -> Result<N, BadFixture> {
        let word = self.word(said, name)?;
        word.parse().map_err(|_| self.bad(format!("{name}={word} is no number")))
    }

    fn flag(&self, said: &HashMap<&str, &str>, name: &str) -> Result<bool, BadFixture> {
        Ok(self.number::<u8>(said, name)? == 1)
    }

    fn config(&self, said: &HashMap<&str, &str>) -> Result<EngineConfig, BadFixture> {
        let method = match self.word(said, "drafter")? {
            "none" | "draft-model" => DraftMethod::DraftModel,
            "ngram" => DraftMethod::Ngram,
            "eagle" => DraftMethod::Eagle,
            "eagle3" => DraftMethod::Eagle3,
            "mtp" => DraftMethod::Mtp,
            "dflash" => DraftMethod::Dflash,
            "dspark" if self.flag(said, "fill_in")? => DraftMethod::DsparkFillIn,
            "dspark" => DraftMethod::Dspark,
            other => return Err(self.bad(format!("no drafter is called {other}"))),
        };
        let v0 = self.version == Version::V0;
        Ok(EngineConfig {
            version: self.version,
            method,
            mtp_modules: self.number::<u32>(said, "modules")?.max(1),
            runner: match self.number::<u8>(said, "runner")? {
                _ if v0 => None,
                1 => Some(Runner::V1),
                _ => Some(Runner::V2),
            },
            // vLLM v0 has no asynchronous scheduling, and vLLM's scheduler was recorded alone only with synchronous
            // scheduling.
            async_scheduling: match (v0, self.core) {
                (true, _) => None,
                (false, true) => Some(self.flag(said, "async")?),
                (false, false) => Some(false),
            },
            scheduling_policy: match self.word(said, "policy")? {
                "priority" => SchedulingPolicy::Priority,
                _ => SchedulingPolicy::Fcfs,
            },
            max_num_seqs: self.number(said, "seqs")?,
            max_num_active_seqs: Some(self.number(said, "active")?).filter(|&active| active > 0),
            max_num_batched_tokens: self.number(said, "budget")?,
            max_model_len: self.number(said, "length")?,
            chunked_prefill: Some(self.flag(said, "chunked")?),
            long_prefill_token_threshold: self.number(said, "threshold")?,
            long_prefill_token_threshold_adaptive: self.flag(said, "adaptive")?,
            scheduler_reserve_full_isl: Some(!v0 && self.flag(said, "reserve")?),
            watermark: if v0 { None } else { Some(f64::from(self.number::<u32>(said, "watermark")?) / 1000.0) },
            prefill_schedule_interval: self.number(said, "interval")?,
            prefix_caching: self.flag(said, "caching")?,
            block_size: self.number(said, "block_size")?,
            num_gpu_blocks: self.number(said, "blocks")?,
            ..EngineConfig::default()
        })
    }

    fn speculation(&self, said: &HashMap<&str, &str>) -> Result<SpeculativeConfig, BadFixture> {
        let mut per_batch_size = Vec::new();
        let table = self.word(said, "table")?;
        for range in table.split(',').filter(|_| table != "-") {
            // A range of batch sizes with its draft length K is written `FIRST-LAST:K`. FIRST or K may be negative, so
            // not every minus sign separates FIRST from LAST.
            let read = || {
                let (range, k) = range.split_once(':')?;
                let dash = range[1..].find('-')? + 1;
                Some((range[..dash].parse().ok()?, range[dash + 1..].parse().ok()?, k.parse().ok()?))
            };
            per_batch_size.push(read().ok_or_else(|| self.bad(format!("{range} is no range")))?);
        }
        let k = self.number(said, "k")?;
        Ok(SpeculativeConfig {
            drafter: k > 0,
            num_speculative_tokens: k,
            parallel_drafting: self.flag(said, "parallel")?,
            per_batch_size,
            lengths: Lengths::Released,
        })
    }

    fn request(&self, line: &str, arrival: &mut u64, to: &mut Recorded) -> Result<(), BadFixture> {
        let bad = || self.bad(format!("{line:?} is no request"));
        let mut words = line.split(' ');
        let mut number = || words.next().and_then(|w| w.parse::<u64>().ok()).ok_or_else(bad);
        let (gap, prompt, outputs) = (number()?, number()? as u32, number()? as u32);
        *arrival += gap;
        let mut request = Request::new(Time(*arrival * 1_000_000), prompt, outputs);
        for word in words {
            if let Some((group, prefix)) = word.strip_prefix('g').and_then(|w| w.split_once(':')) {
                let (group, prefix): (u64, u32) =
                    (group.parse().map_err(|_| bad())?, prefix.parse().map_err(|_| bad())?);
                request.prefix = (0..u64::from(prefix.min(prompt))).map(|i| group << 24 | i).collect();
            } else {
                request.priority = word.strip_prefix('p').and_then(|w| w.parse().ok()).ok_or_else(bad)?;
            }
        }
        to.workload.push(request);
        Ok(())
    }

    fn update(&self, line: &str, free: i64, now: u64) -> Result<Update, BadFixture> {
        let bad = || self.bad(format!("{line:?} is no update"));
        let mut words = line.split(' ');
        let fates = words.next().unwrap_or("").to_owned();
        let mut update = Update { start: now, fates, free, finished: Vec::new() };
        for word in words {
            let (kind, rest) = word.split_at(1.min(word.len()));
            match kind {
                "@" => update.start += rest.parse::<u64>().map_err(|_| bad())?,
                "f" => update.free += rest.parse::<i64>().map_err(|_| bad())?,
                "." => {
                    let ids = rest.split(',').map(|id| id.parse().map_err(|_| bad()));
                    update.finished = ids.collect::<Result<_, _>>()?;
                }
                _ => return Err(bad()),
            }
        }
        Ok(update)
    }

    fn step(&self, line: &str, before: &Step, start: u64) -> Result<Step, BadFixture> {
        let bad = || self.bad(format!("{line:?} is no step"));
        let mut words = line.split(' ');
        let mut step = Step {
            start,
            entries: self.entries(words.next().unwrap_or(""), &before.entries)?,
            preempted: Vec::new(),
            finished: Vec::new(),
            ..before.clone()
        };
        let ids = |list: &str| list.split(',').map(|id| id.parse().map_err(|_| bad())).collect::<Result<Vec<u32>, _>>();
        for word in words {
            let (kind, rest) = word.split_at(1.min(word.len()));
            match kind {
                "@" => step.start += rest.parse::<u64>().map_err(|_| bad())?,
                "f" => step.free += rest.parse::<i64>().map_err(|_| bad())?,
                "k" => step.k = rest.parse().map_err(|_| bad())?,
                "s" => step.skip_drafts = rest == "1",
                "-" => step.preempted = ids(rest)?,
                "." => step.finished = ids(rest)?,
                "#" => step.blocks = u64::from_str_radix(rest, 16).map_err(|_| bad())?,
                _ => return Err(bad()),
            }
        }
        Ok(step)
    }

    /// Parses the scheduled requests of a recorded step. `before` has the requests of the step before. If an entry has
    /// no id, its request is the one that follows in `before` after the request of the last entry.
    fn entries(&self, text: &str, before: &[Entry]) -> Result<Vec<Entry>, BadFixture> {
        let bad = || self.bad(format!("{text:?} are no requests of a step"));
        let place: HashMap<u32, usize> = before.iter().enumerate().map(|(at, e)| (e.request, at)).collect();
        let (mut entries, mut expected, mut rest) = (Vec::new(), 0usize, text);
        while let Some(first) = rest.chars().next() {
            let follower = || before.get(expected).map(|e| e.request).ok_or_else(bad);
            let entry = if first == '(' {
                let (inside, after) = rest[1..].split_once(')').ok_or_else(bad)?;
                rest = after;
                let (id, what) = inside.split_once(':').ok_or_else(bad)?;
                let request = if id.is_empty() { follower()? } else { id.parse().map_err(|_| bad())? };
                let (what, cached) = what.split_once('+').map_or((what, None), |(what, c)| (what, Some(c)));
                let (tokens, drafts) = what.split_once('/').unwrap_or((what, "0"));
                Entry {
                    request,
                    tokens: tokens.parse().map_err(|_| bad())?,
                    drafts: drafts.parse().map_err(|_| bad())?,
                    cached: cached.map(|c| c.parse().map_err(|_| bad())).transpose()?,
                }
            } else {
                rest = &rest[1..];
                let drafts = first.to_digit(36).ok_or_else(bad)?;
                Entry { request: follower()?, tokens: drafts + 1, drafts, cached: None }
            };
            expected = place.get(&entry.request).map_or(before.len(), |at| at + 1);
            entries.push(entry);
        }
        Ok(entries)
    }
}
