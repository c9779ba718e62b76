//! A workload: an engine's settings, and requests. Reads and writes the lines `W` (settings) and `R` (a request), which
//! `tests/vllm/README.md` defines.

use std::collections::HashMap;
use std::fmt::Write;

/// The release of vLLM that the model (our second implementation of vLLM's scheduler) imitates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    V0_32,
    V0_33,
}

/// A request of a workload.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// Arrival time of the request, µs.
    pub arrival: i64,
    pub prompt: i64,
    pub outputs: i64,
    /// The group of the request. Requests of one group share their first tokens; 0 stands for no group.
    pub group: u64,
    /// Number of tokens that the request shares with its group.
    pub prefix: i64,
    pub priority: i64,
}

/// The settings of an engine, under the names that `tests/vllm/README.md` lists, and the requests.
#[derive(Clone, Debug)]
pub struct Workload {
    pub release: Release,
    /// True if the whole engine core runs the workload, false if only the scheduler does.
    pub core: bool,
    pub seed: u64,
    pub drafter: String,
    pub k: i64,
    pub lengths: String,
    pub accept: u64,
    pub pool: String,
    pub by_priority: bool,
    pub caching: bool,
    pub block_size: i64,
    pub blocks: i64,
    pub checked: bool,
    pub seqs: i64,
    pub active: i64,
    pub budget: i64,
    pub length: i64,
    pub threshold: i64,
    pub adaptive: bool,
    pub reserve: bool,
    pub watermark: i64,
    pub interval: i64,
    pub chunked: bool,
    pub runner: i64,
    pub parallel: bool,
    pub modules: i64,
    pub fill_in: bool,
    /// Ranges of batch sizes and their draft lengths: first, last, length.
    pub table: Vec<(i64, i64, i64)>,
    pub asynchronous: bool,
    /// True if tokens are drafted at the start of the step that verifies them. vLLM has no such setting, so the lines
    /// of a recording do not have it.
    pub step_start: bool,
    pub asks: Vec<Ask>,
}

impl Workload {
    /// Reads the lines of a workload that begins with `W`. Lines other than `W` and `R` are skipped.
    pub fn parse(release: Release, core: bool, text: &str) -> Workload {
        let head = text.lines().next().unwrap().strip_prefix("W ").expect("a workload begins with W");
        let said: HashMap<&str, &str> = head.split(' ').map(|pair| pair.split_once('=').unwrap()).collect();
        let number = |name: &str| said[name].parse::<i64>().unwrap();
        let flag = |name: &str| number(name) == 1;
        let ranges = said["table"].split(',').filter(|range| *range != "-");
        let mut work = Workload {
            release,
            core,
            seed: said["seed"].parse().unwrap(),
            drafter: said["drafter"].to_owned(),
            k: number("k"),
            lengths: said["lengths"].to_owned(),
            accept: number("accept") as u64,
            pool: said["pool"].to_owned(),
            by_priority: said["policy"] == "priority",
            caching: flag("caching"),
            block_size: number("block_size"),
            blocks: number("blocks"),
            checked: flag("checked"),
            seqs: number("seqs"),
            active: number("active"),
            budget: number("budget"),
            length: number("length"),
            threshold: number("threshold"),
            adaptive: flag("adaptive"),
            reserve: flag("reserve"),
            watermark: number("watermark"),
            interval: number("interval"),
            chunked: flag("chunked"),
            runner: number("runner"),
            parallel: flag("parallel"),
            modules: number("modules"),
            fill_in: flag("fill_in"),
            table: ranges.map(range).collect(),
            asynchronous: said.get("async").is_some_and(|said| *said == "1"),
            step_start: false,
            asks: Vec::new(),
        };
        for line in text.lines().filter_map(|line| line.strip_prefix("R ")) {
            let before = work.asks.last().map_or(0, |ask| ask.arrival);
            work.asks.push(ask(line, before));
        }
        work
    }

    /// The workload as the lines `W` (settings) and `R` (requests) of a recording, as `tests/vllm/README.md` defines
    /// them.
    pub fn lines(&self) -> String {
        let ranges: Vec<String> = self.table.iter().map(|(first, last, k)| format!("{first}-{last}:{k}")).collect();
        let policy = if self.by_priority { "priority" } else { "fcfs" };
        let mut text = format!(
            "W seed={} drafter={} k={} lengths={} accept={} pool={} policy={policy} caching={} block_size={} blocks={} \
             checked={} seqs={} active={} budget={} length={} threshold={} adaptive={} reserve={} watermark={} \
             interval={} chunked={} runner={} parallel={} modules={} fill_in={} table={}",
            self.seed,
            self.drafter,
            self.k,
            self.lengths,
            self.accept,
            self.pool,
            i64::from(self.caching),
            self.block_size,
            self.blocks,
            i64::from(self.checked),
            self.seqs,
            self.active,
            self.budget,
            self.length,
            self.threshold,
            i64::from(self.adaptive),
            i64::from(self.reserve),
            self.watermark,
            self.interval,
            i64::from(self.chunked),
            self.runner,
            i64::from(self.parallel),
            self.modules,
            i64::from(self.fill_in),
            if ranges.is_empty() { "-".to_owned() } else { ranges.join(",") },
        );
        if self.core {
            write!(text, " async={}", i64::from(self.asynchronous)).unwrap();
        }
        let mut before = 0;
        for ask in &self.asks {
            write!(text, "\nR {} {} {}", ask.arrival - before, ask.prompt, ask.outputs).unwrap();
            if ask.group > 0 {
                write!(text, " g{}:{}", ask.group, ask.prefix).unwrap();
            }
            if ask.priority != 0 {
                write!(text, " p{}", ask.priority).unwrap();
            }
            before = ask.arrival;
        }
        text.push('\n');
        text
    }
}

fn range(text: &str) -> (i64, i64, i64) {
    let (range, k) = text.split_once(':').unwrap();
    let dash = range[1..].find('-').unwrap() + 1;
    (range[..dash].parse().unwrap(), range[dash + 1..].parse().unwrap(), k.parse().unwrap())
}

fn ask(line: &str, before: i64) -> Ask {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |at: usize| words[at].parse::<i64>().unwrap();
    let mut ask = Ask { arrival: before + number(0), prompt: number(1), outputs: number(2), ..Ask::default() };
    for word in &words[3..] {
        if let Some((group, prefix)) = word.strip_prefix('g').and_then(|word| word.split_once(':')) {
            (ask.group, ask.prefix) = (group.parse().unwrap(), prefix.parse().unwrap());
        } else {
            ask.priority = word.strip_prefix('p').unwrap().parse().unwrap();
        }
    }
    ask
}
