//! Draws a random workload from a seed: settings that vLLM accepts, mostly with too small a KV pool, and some requests.

use crate::chance::mix;
use crate::running::cdiv;
use crate::workload::{Ask, Release, Workload};

/// A stream of random numbers.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }

    /// A random number from `low` to `high`, both included.
    fn from(&mut self, low: i64, high: i64) -> i64 {
        low + (self.next() % (high - low + 1).max(1) as u64) as i64
    }

    /// True in `percent` of 100 cases.
    fn chance(&mut self, percent: i64) -> bool {
        self.from(0, 99) < percent
    }

    fn one<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.from(0, values.len() as i64 - 1) as usize]
    }
}

pub fn workload(seed: u64) -> Workload {
    let mut dice = Dice(mix(seed));
    let mut w = Workload {
        release: dice.one(&[Release::V0_33, Release::V0_33, Release::V0_32]),
        core: dice.chance(60),
        seed,
        drafter: String::new(),
        k: 0,
        lengths: "fixed".to_owned(),
        accept: dice.one(&[0, 300, 600, 800, 950, 1000]),
        pool: "tight".to_owned(),
        by_priority: dice.chance(40),
        caching: dice.chance(60),
        block_size: dice.one(&[2, 4, 8, 8, 16]),
        blocks: 0,
        checked: false,
        seqs: dice.one(&[1, 2, 4, 6, 8, 8, 16]),
        active: 0,
        budget: 0,
        length: 0,
        threshold: 0,
        adaptive: false,
        reserve: dice.chance(40),
        watermark: if dice.chance(25) { dice.one(&[10, 50, 100, 250, 400]) } else { 0 },
        interval: if dice.chance(35) { dice.from(2, 6) } else { 1 },
        chunked: dice.chance(85),
        runner: dice.from(1, 2),
        parallel: false,
        modules: 1,
        fill_in: false,
        table: Vec::new(),
        asynchronous: false,
        step_start: false,
        asks: Vec::new(),
    };
    drafter(&mut dice, &mut w);
    requests(&mut dice, &mut w);
    limits(&mut dice, &mut w);
    pool(&mut dice, &mut w);
    w
}

fn drafter(dice: &mut Dice, w: &mut Workload) {
    let drafter = dice.one(&["none", "ngram", "draft-model", "eagle", "eagle3", "mtp", "dflash", "dspark"]);
    w.drafter = drafter.to_owned();
    if drafter != "none" {
        w.k = dice.from(1, 6);
        w.lengths = dice.one(&["fixed", "request", "batch"]).to_owned();
    }
    match drafter {
        "draft-model" | "eagle3" => w.parallel = dice.chance(30),
        "mtp" if dice.chance(35) => {
            w.modules = dice.from(2, 3);
            w.k = w.modules * dice.from(1, 2);
            w.block_size = w.block_size.max(8);
        }
        "dspark" => w.fill_in = dice.chance(40),
        _ => {}
    }
    if drafter == "dspark" {
        w.runner = 2;
    } else if w.parallel {
        w.runner = 1;
    }
    let looks_up = drafter == "ngram" && (w.runner == 1 || w.release == Release::V0_32);
    w.asynchronous = w.core && !looks_up && dice.chance(60);
    w.step_start = !w.core && w.k > 0 && w.lengths == "fixed" && dice.chance(60);
    if w.lengths == "batch" {
        let mut first = 1;
        for _ in 0..dice.from(1, 4) {
            let last = first + dice.from(0, 4);
            w.table.push((first, last, dice.from(0, w.k)));
            first = last + dice.one(&[1, 1, 2, 4]);
        }
    }
}

fn requests(dice: &mut Dice, w: &mut Workload) {
    let (longest, outputs) = (dice.one(&[12, 24, 48, 48, 96]), dice.one(&[4, 8, 16, 32]));
    let (gap, burst) = (dice.one(&[0, 300, 1000, 3000, 8000]), dice.one(&[1, 1, 3, 8]));
    let shares = if w.caching { dice.one(&[20, 70, 90, 100]) } else { dice.one(&[0, 50]) };
    let prefixes: Vec<i64> = (0..dice.from(1, 3)).map(|_| w.block_size * dice.from(1, 6) + dice.from(0, 3)).collect();
    let mut arrival = 0;
    for index in 0..dice.one(&[3, 6, 10, 16, 24, 36]) {
        if index % burst == 0 && index > 0 {
            arrival += dice.from(0, 2 * gap * burst);
        }
        let prompt = match dice.from(0, 3) {
            0 => 1,
            1 => w.block_size * dice.from(1, 4) + dice.from(0, 1),
            _ => dice.from(1, longest),
        };
        let mut ask = Ask { arrival, prompt, outputs: dice.from(1, outputs), ..Ask::default() };
        if dice.chance(shares) {
            ask.group = dice.from(1, prefixes.len() as i64) as u64;
            let whole = prefixes[ask.group as usize - 1];
            ask.prefix = if dice.chance(25) { dice.from(1, whole) } else { whole };
            ask.prompt = ask.prefix + if dice.chance(35) { 0 } else { prompt };
        }
        if w.by_priority {
            ask.priority = dice.from(0, 3);
        }
        w.asks.push(ask);
    }
}

fn limits(dice: &mut Dice, w: &mut Workload) {
    let longest = w.asks.iter().map(|ask| ask.prompt + ask.outputs).max().unwrap();
    let near = dice.from(0, 12);
    w.length = dice.one(&[longest, longest, longest + 1, longest + near, longest + 100, longest - near / 2]).max(2);
    if dice.chance(25) {
        w.active = dice.from(1, w.seqs);
    }
    w.budget = dice.one(&[12, 16, 24, 32, 64, 128]);
    if dice.chance(40) {
        w.budget = w.seqs * (w.k + 1) * dice.one(&[5, 8, 10, 12]) / 10;
    }
    // The token budget is large enough for one token and the extra tokens of any drafter.
    w.budget = w.budget.max(w.seqs).max(w.k + 2).max(if w.chunked { 0 } else { w.length });
    if dice.chance(45) {
        // vLLM may pad a request that it admits with tokens in place of draft tokens. A lower threshold for long
        // prefills would cut these tokens off, and an assertion of vLLM would fail.
        w.threshold = dice.from(w.k + 1, w.k + 40);
        w.adaptive = dice.chance(45);
        w.length = w.length.max(w.threshold);
        w.budget = w.budget.max(if w.chunked { 0 } else { w.length });
    }
}

fn pool(dice: &mut Dice, w: &mut Workload) {
    let mut lengths: Vec<i64> = w.asks.iter().map(|ask| (ask.prompt + ask.outputs).min(w.length)).collect();
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    let size = w.block_size;
    w.checked = dice.chance(85);
    // With fewer KV blocks than `least`, the pool cannot hold one request that decodes.
    let least = cdiv((2 * w.k + 2).min(w.length), size) + 1;
    let one = match w.checked {
        true => cdiv(w.length, size) + 1,
        false => cdiv(lengths[0] + dice.from(-size, w.k + 1), size) + 1,
    };
    let active: i64 = lengths.iter().take(w.seqs as usize).map(|&length| cdiv(length, size)).sum();
    let more = match dice.from(0, 9) {
        0 => 2 * active + w.k * w.seqs,
        1..=2 => 0,
        _ => dice.from(0, (active - one).max(1) / 2),
    };
    w.blocks = (one + more).max(least).max(2);
}
