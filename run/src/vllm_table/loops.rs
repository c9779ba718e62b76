//! Runs closed loops, in which each client sends one request after another. Measures a policy's output tokens per
//! second with a given number of clients, and how many requests the steps schedule.

use crate::plan::Variant;
use crate::setting::Setting;
use crate::spec::problem::{Exit, Problem, Result};
use foretoken_policies::PolicySpec;
use foretoken_sim::{Ending, StepRecord, Time};
use foretoken_traces::ArrivalSpec;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

/// Number of requests that each client of a closed loop sends before the measurement starts.
const SETTLING: u32 = 2;
/// Fewest requests that each client of a closed loop sends during the measurement.
const ROUNDS: u32 = 10;
/// Fewest requests that all clients of a closed loop send together during the measurement.
const FEWEST: u32 = 200;
/// Fewest output tokens of all clients of a closed loop together during the measurement.
const TOKENS: f64 = 16_000.0;
/// Number of requests in the sample of the workload that gives the mean output length and the shortest prompt.
pub const SAMPLE: u32 = 64;

/// The results of one policy in closed loops with one number of clients, over all seeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Output tokens per second of the closed loop, one number per seed.
    pub tok_s: Vec<f64>,
    /// Accepted over drafted tokens of the closed loop, one number per seed; 0 if nothing was drafted.
    pub accepted: Vec<f64>,
    /// For each number of requests that a step may schedule (requests in prefill included): the number of steps that
    /// schedule this number, summed over seeds.
    pub sizes: BTreeMap<u32, u64>,
    /// Largest share (0 to 1) of the KV blocks in use, over the whole closed loops of all seeds, including the time
    /// before the measurement starts.
    pub kv_peak: f64,
}

/// Runs closed loops of one experiment with all seeds.
pub struct Loops<'a> {
    pub(super) variant: Variant,
    seeds: &'a [u64],
    interrupt: &'a AtomicBool,
    outputs: f64,
}

impl<'a> Loops<'a> {
    /// Prepares the closed loops of a variant for these seeds. Also returns a [`Setting`] with [`SAMPLE`] requests of
    /// the workload.
    pub fn new(variant: Variant, seeds: &'a [u64], interrupt: &'a AtomicBool) -> Result<(Loops<'a>, Setting)> {
        let mut loops = Loops { variant, seeds, interrupt, outputs: 1.0 };
        let sample = loops.setting(1, SAMPLE, seeds[0])?;
        loops.outputs = sample.workload.output_len.iter().map(|&n| f64::from(n)).sum::<f64>() / f64::from(SAMPLE);
        Ok((loops, sample))
    }

    /// Runs each policy in a closed loop of `clients` clients for each replica with every seed. Returns the results in
    /// the order of `policies`. An engine's batch has requests of its own replica only.
    pub fn measure(&mut self, clients: u32, policies: &[PolicySpec]) -> Result<Vec<Measured>> {
        let replicas = self.variant.experiment.fleet.as_ref().map_or(1, |fleet| fleet.replicas.number());
        let clients = clients * replicas;
        let (first, last) = self.window(clients);
        let settings: Vec<Setting> =
            self.seeds.iter().map(|&seed| self.setting(clients, last + 1, seed)).collect::<Result<_>>()?;
        let pairs: Vec<(&PolicySpec, &Setting)> =
            policies.iter().flat_map(|policy| settings.iter().map(move |setting| (policy, setting))).collect();
        let runs: Vec<Window> = pairs
            .into_par_iter()
            .map(|(policy, setting)| run_loop(setting, policy, (first, last), clients, self.interrupt))
            .collect::<Result<_>>()?;
        Ok(runs.chunks(settings.len()).map(|seeds| Measured::of(seeds, replicas)).collect())
    }

    /// The ids of the two requests whose arrivals begin and end the measurement. In a closed loop, requests of equal
    /// length end in waves. Between the two arrivals, each client sends the same number of requests. So only whole
    /// waves are measured, and no draft length gains from a wave that is cut.
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
    /// The results of one replica, if `replicas` of them served the clients.
    fn of(seeds: &[Window], replicas: u32) -> Measured {
        let mut sizes: BTreeMap<u32, u64> = BTreeMap::new();
        seeds.iter().flat_map(|w| &w.sizes).for_each(|(&size, steps)| *sizes.entry(size).or_default() += steps);
        Measured {
            tok_s: seeds.iter().map(|w| w.tok_s / f64::from(replicas)).collect(),
            accepted: seeds.iter().map(|w| w.accepted).collect(),
            kv_peak: seeds.iter().map(|w| w.kv_peak).fold(0.0, f64::max),
            sizes,
        }
    }

    /// The number of requests that the median step of the closed loops schedules; 0 if there is no step.
    pub fn scheduled(&self) -> u32 {
        let total: u64 = self.sizes.values().sum();
        let mut seen = 0;
        let found = self.sizes.iter().find(|(_, steps)| {
            seen += *steps;
            2 * seen >= total
        });
        found.map_or(0, |(&size, _)| size)
    }
}

/// The results of one closed loop with one seed: output tokens per second and numbers of scheduled requests during the
/// measurement, and the largest KV use of the whole loop.
struct Window {
    tok_s: f64,
    accepted: f64,
    /// For each number of requests that a step may schedule (requests in prefill included): the number of steps that
    /// schedule this number.
    sizes: BTreeMap<u32, u64>,
    kv_peak: f64,
}

fn run_loop(
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
    let (tok_s, accepted, sizes) = between(&run.records.arrival, &run.steps, window);
    if !tok_s.is_finite() || tok_s <= 0.0 {
        let message = format!("{}: no pass took any time, so there is no rate", played.label());
        return Err(Problem::bad_input(message).help("look at hardware: every pass needs a cost above 0"));
    }
    Ok(Window { tok_s, accepted, sizes, kv_peak: summary.kv_use_peak })
}

/// (Output tokens per second between the arrivals of the requests `first` and `last`; accepted over drafted tokens of
/// the steps that end in this time; the number of these steps, by the number of requests that they schedule).
fn between(arrival: &[Time], steps: &[StepRecord], (first, last): (u32, u32)) -> (f64, f64, BTreeMap<u32, u64>) {
    let (from, to) = (arrival[first as usize], arrival[last as usize]);
    let (mut tokens, mut drafted, mut accepted) = (0, 0, 0);
    let mut sizes = BTreeMap::new();
    for step in steps.iter().filter(|s| s.end > from && s.end <= to) {
        tokens += u64::from(step.emitted);
        drafted += u64::from(step.drafted);
        accepted += u64::from(step.accepted);
        *sizes.entry(step.batch_size + step.chunks).or_default() += 1;
    }
    (tokens as f64 / (to - from).as_s(), accepted as f64 / drafted.max(1) as f64, sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_step_is_that_of_the_middle() {
        let median = |sizes: &[(u32, u64)]| {
            Measured { tok_s: vec![], accepted: vec![], sizes: sizes.iter().copied().collect(), kv_peak: 0.0 }
                .scheduled()
        };
        assert_eq!(median(&[(1, 10), (15, 2), (16, 20)]), 16);
        assert_eq!(median(&[(7, 1), (9, 1)]), 7);
        assert_eq!(median(&[]), 0);
    }

    /// The measurement goes from the arrival of request 2 (at 10 ps) to the arrival of request 4 (at 30 ps). A step
    /// that ends at 10 ps is not in it; a step that ends at 30 ps is.
    #[test]
    fn a_measurement_begins_behind_one_arrival_and_ends_with_another() {
        let arrival = [0, 0, 10, 20, 30].map(Time);
        let step = |start, end, emitted, batch_size| StepRecord {
            start: Time(start),
            end: Time(end),
            emitted,
            batch_size,
            drafted: 4,
            accepted: 3,
            chunks: 1,
            ..StepRecord::default()
        };
        let steps = [step(0, 10, 100, 9), step(10, 20, 4, 1), step(20, 30, 6, 2), step(30, 40, 100, 9)];
        let (tok_s, accepted, sizes) = between(&arrival, &steps, (2, 4));
        assert!((tok_s * 20e-12 - 10.0).abs() < 1e-6, "{tok_s}");
        assert_eq!(accepted, 0.75);
        assert_eq!(sizes.into_iter().collect::<Vec<_>>(), [(2, 1), (3, 1)]);
    }
}
