//! Closed loops: measures the output tokens a second of a policy with a number of clients, and the number of requests
//! that its steps schedule.

use crate::plan::Variant;
use crate::setting::Setting;
use foretoken_policies::PolicySpec;
use foretoken_sim::{Ending, StepRecord, Time};
use foretoken_spec::problem::{Exit, Problem, Result};
use foretoken_traces::ArrivalSpec;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

/// Requests that each client sends before its loop is measured.
const SETTLING: u32 = 2;
/// Fewest requests that each client sends while its loop is measured.
const ROUNDS: u32 = 10;
/// Fewest requests of a loop while it is measured.
const FEWEST: u32 = 200;
/// Fewest output tokens of a loop while it is measured.
const TOKENS: f64 = 16_000.0;
/// Requests of the sample that tells how long prompts and outputs are.
pub const SAMPLE: u32 = 64;

/// The results of one policy in closed loops with one number of clients.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Output tokens a second, one number per seed.
    pub tok_s: Vec<f64>,
    /// Steps by the number of requests that they schedule, prompts among them, over all seeds.
    pub sizes: BTreeMap<u32, u64>,
    /// Largest share of the KV blocks in use, over all seeds.
    pub kv_peak: f64,
}

/// Runs closed loops of one setting.
pub struct Loops<'a> {
    variant: Variant,
    seeds: &'a [u64],
    interrupt: &'a AtomicBool,
    outputs: f64,
}

impl<'a> Loops<'a> {
    /// The loops of a setting on these seeds, and a sample of its requests.
    ///
    /// # Errors
    /// The setting of the first seed cannot be built.
    pub fn new(variant: Variant, seeds: &'a [u64], interrupt: &'a AtomicBool) -> Result<(Loops<'a>, Setting)> {
        let mut loops = Loops { variant, seeds, interrupt, outputs: 1.0 };
        let sample = loops.setting(1, SAMPLE, seeds[0])?;
        loops.outputs = sample.workload.output_len.iter().map(|&n| f64::from(n)).sum::<f64>() / f64::from(SAMPLE);
        Ok((loops, sample))
    }

    /// Runs each policy in loops of `clients` clients on every seed, in the order of the policies.
    ///
    /// # Errors
    /// The setting cannot be built, nothing fits into the engine, no pass takes any time, or the work is interrupted.
    pub fn measure(&mut self, clients: u32, policies: &[PolicySpec]) -> Result<Vec<Measured>> {
        let (first, last) = self.window(clients);
        let settings: Vec<Setting> =
            self.seeds.iter().map(|&seed| self.setting(clients, last + 1, seed)).collect::<Result<_>>()?;
        let all: Vec<(&PolicySpec, &Setting)> =
            policies.iter().flat_map(|policy| settings.iter().map(move |setting| (policy, setting))).collect();
        let runs: Vec<Window> = all
            .into_par_iter()
            .map(|(policy, setting)| one(setting, policy, (first, last), clients, self.interrupt))
            .collect::<Result<_>>()?;
        Ok(runs.chunks(settings.len()).map(Measured::of).collect())
    }

    /// The ids of the requests whose arrivals begin and end the measurement. Each client sends one request after
    /// another, so requests of equal length end in waves. Each client sends the same number of requests during the
    /// measurement, so that whole waves are measured and no draft length gains from a cut wave.
    fn window(&self, clients: u32) -> (u32, u32) {
        let requests = f64::from(FEWEST).max(TOKENS / self.outputs.max(1.0));
        let rounds = ROUNDS.max((requests / f64::from(clients)).ceil() as u32);
        (SETTLING * clients, (SETTLING + rounds) * clients)
    }

    fn setting(&mut self, clients: u32, requests: u32, seed: u64) -> Result<Setting> {
        let workload = &mut self.variant.experiment.workload;
        workload.arrivals = ArrivalSpec::ClosedLoop(clients);
        workload.requests = Some(requests);
        Setting::new(&self.variant, seed)
    }
}

impl Measured {
    fn of(seeds: &[Window]) -> Measured {
        let mut sizes: BTreeMap<u32, u64> = BTreeMap::new();
        seeds.iter().flat_map(|w| &w.sizes).for_each(|(&size, steps)| *sizes.entry(size).or_default() += steps);
        Measured {
            tok_s: seeds.iter().map(|w| w.tok_s).collect(),
            kv_peak: seeds.iter().map(|w| w.kv_peak).fold(0.0, f64::max),
            sizes,
        }
    }

    /// Requests that the median step schedules; 0 without a step.
    pub fn scheduled(&self) -> u32 {
        let all: u64 = self.sizes.values().sum();
        let mut seen = 0;
        let found = self.sizes.iter().find(|(_, steps)| {
            seen += *steps;
            2 * seen >= all
        });
        found.map_or(0, |(&size, _)| size)
    }
}

/// The results of one loop with one seed.
struct Window {
    tok_s: f64,
    /// Steps by the number of requests that they schedule, prompts among them.
    sizes: BTreeMap<u32, u64>,
    kv_peak: f64,
}

fn one(
    setting: &Setting,
    policy: &PolicySpec,
    window: (u32, u32),
    clients: u32,
    interrupt: &AtomicBool,
) -> Result<Window> {
    let (run, played) = setting.run(policy, f64::INFINITY, interrupt);
    match run.ending {
        Ending::Done => {}
        Ending::Interrupted => return Err(Problem::new(Exit::Interrupted, "interrupted: no table is written")),
        Ending::OutOfTime | Ending::Failed | Ending::Certain => {
            let message = format!("a closed loop of {clients} clients ran past the simulated clock's 213 days");
            return Err(Problem::bad_input(message).help("some time in the experiment is absurd: check hardware"));
        }
    }
    let summary = setting.summary(&run, Default::default());
    if summary.finished == 0 {
        return Err(setting.nothing_fits(&played, &run));
    }
    let (tok_s, sizes) = between(&run.records.arrival, &run.steps, window);
    if !tok_s.is_finite() || tok_s <= 0.0 {
        let message = format!("{}: no pass took any time, so there is no rate", played.label());
        return Err(Problem::bad_input(message).help("look at hardware: every pass needs a cost above 0"));
    }
    Ok(Window { tok_s, sizes, kv_peak: summary.kv_use_peak })
}

/// Output tokens a second between the arrivals of two requests, and the steps in between by their size.
fn between(arrival: &[Time], steps: &[StepRecord], (first, last): (u32, u32)) -> (f64, BTreeMap<u32, u64>) {
    let (from, to) = (arrival[first as usize], arrival[last as usize]);
    let mut tokens = 0;
    let mut sizes = BTreeMap::new();
    for step in steps.iter().filter(|s| s.end > from && s.end <= to) {
        tokens += u64::from(step.emitted);
        *sizes.entry(step.batch_size + step.chunks).or_default() += 1;
    }
    (tokens as f64 / (to - from).as_s(), sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_step_is_that_of_the_middle() {
        let median = |sizes: &[(u32, u64)]| {
            Measured { tok_s: vec![], sizes: sizes.iter().copied().collect(), kv_peak: 0.0 }.scheduled()
        };
        assert_eq!(median(&[(1, 10), (15, 2), (16, 20)]), 16);
        assert_eq!(median(&[(7, 1), (9, 1)]), 7);
        assert_eq!(median(&[]), 0);
    }

    /// Requests 2 and 4 arrive at 10 and 30 ps. The step that ends as request 2 arrives is before the measurement, the
    /// step that ends as request 4 arrives is its last one.
    #[test]
    fn a_measurement_begins_behind_one_arrival_and_ends_with_another() {
        let arrival = [0, 0, 10, 20, 30].map(Time);
        let step = |start, end, emitted, batch_size| StepRecord {
            start: Time(start),
            end: Time(end),
            emitted,
            batch_size,
            chunks: 1,
            ..StepRecord::default()
        };
        let steps = [step(0, 10, 100, 9), step(10, 20, 4, 1), step(20, 30, 6, 2), step(30, 40, 100, 9)];
        let (tok_s, sizes) = between(&arrival, &steps, (2, 4));
        assert!((tok_s * 20e-12 - 10.0).abs() < 1e-6, "{tok_s}");
        assert_eq!(sizes.into_iter().collect::<Vec<_>>(), [(2, 1), (3, 1)]);
    }
}
