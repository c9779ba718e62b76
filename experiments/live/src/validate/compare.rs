//! One policy at one load: what the device did, once or twice, and what the simulator says of it.

use super::flow::{self, Flow};
use super::numbers::{Curves, Numbers, QUANTITIES, Samples, Unit};
use super::regions::{RegionError, regions};
use super::simulate::{Replay, Simulated};
use super::tapes::PartOf;
use crate::serve::tape::{Tape, Told};
use crate::serve::{HostClock, HostTimes};
use foretoken_report::ValidatedRun;
use foretoken_sim::live::{RecordedRounds, ReplayClock};
use foretoken_sim::metrics::{Overload, Slo, overload_of};
use foretoken_sim::{AcceptanceSource, Ending, RequestRecords, Serving, Time};
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicBool;

/// By how much passes are lengthened to see what a small error of theirs does to latencies.
const NUDGE: f64 = 1.03;

/// A number and what the simulator says of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its name.
    pub quantity: String,
    /// How its errors are told.
    pub unit: Unit,
    /// Of each live run.
    pub live: Vec<f64>,
    /// Simulated with the recorded acceptance.
    pub recorded: Option<f64>,
    /// Simulated with the modelled one.
    pub modelled: Option<f64>,
    /// Of `recorded` against the mean of the live runs.
    pub recorded_error: Option<f64>,
    /// Of `modelled`.
    pub modelled_error: Option<f64>,
    /// Of one live run against the other, without sign: no prediction can be expected to do better.
    pub live_against_live: Option<f64>,
}

/// What recorded acceptance was asked for and did not hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missed {
    /// Bits that another round had revealed.
    pub other_round: u64,
    /// Bits that nobody had revealed: the model's.
    pub invented: u64,
    /// Confidences and the like: the model's.
    pub looks: u64,
}

/// Everything about one policy at one load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellReport {
    /// The policy.
    pub policy: String,
    /// Its load, in words.
    pub load: String,
    /// Share of its own service rate, when it was run at one.
    pub share: Option<f64>,
    /// Requests sent.
    pub requests: u64,
    /// How much of the live runs was compared, where that is not all: one entry a run that is not whole.
    pub parts: Vec<PartOf>,
    /// Did a replay of the first run on its own recorded times repeat every decision and token? `None`: it did; else where not.
    pub replay_parted: Option<String>,
    /// The token flow with recorded acceptance against the live one.
    pub flow: Flow,
    /// What the recorded acceptance did not hold.
    pub missed: Missed,
    /// The numbers.
    pub rows: Vec<Row>,
    /// The largest distance between distributions, TTFT, TPOT, E2E: recorded against live.
    pub distances: [Option<f64>; 3],
    /// The same of the two live runs.
    pub live_distances: Option<[Option<f64>; 3]>,
    /// How far batch size and draft length over time are off: recorded against live.
    pub curves: [Option<f64>; 2],
    /// The same of the two live runs.
    pub live_curves: Option<[Option<f64>; 2]>,
    /// By what kind of pass.
    pub regions: Vec<RegionError>,
    /// What mean E2E becomes when all passes take 3 % longer, relative.
    pub e2e_sensitivity: Option<f64>,
    /// Did the live run fall behind its arrivals?
    pub overload: Option<Overload>,
    /// Host time between steps that the simulation was given, seconds.
    pub overhead_s: f64,
    /// Host time of the first live run.
    pub host: HostTimes,
}

/// One cell to compare.
pub struct Comparison<'a> {
    /// How it is simulated.
    pub replay: Replay<'a>,
    /// The live runs; the first one's acceptance is replayed.
    pub tapes: &'a [Tape],
    /// Which of them are parts, and how much they hold.
    pub parts: &'a [PartOf],
    /// Its load, in words, and as a share of its own service rate.
    pub load: (String, Option<f64>),
    /// The bounds requests are held to.
    pub slo: Slo,
}

impl Comparison<'_> {
    /// Compares.
    pub fn report(&self) -> (CellReport, ValidatedRun) {
        let setting = self.replay.setting;
        let first = &self.tapes[0];
        let told: Vec<Told> = self.tapes.iter().map(Tape::told).collect();
        let mut acceptance = RecordedRounds::new(setting.workload.len(), setting.acceptance());
        first.steps.iter().for_each(|step| acceptance.add(step));
        let recorded = self.replay.run(&acceptance, 1.0);
        let misses = acceptance.misses();
        let nudged = self.replay.run(&acceptance, NUDGE);
        let modelled = self.replay.run(setting.acceptance(), 1.0);
        let numbers = |told: &Told| Numbers::of(told, self.slo, &setting.workload.slo_tpot_s);
        let live: Vec<Numbers> = told.iter().map(numbers).collect();
        let (by_record, by_model, by_nudge) = (numbers(&recorded.told), numbers(&modelled.told), numbers(&nudged.told));
        let (draft, target) = setting.costs();
        let (regions, points) = regions(first, draft, target, setting.reads().0);
        let samples: Vec<Samples> = told.iter().map(|t| Samples::of(&t.records)).collect();
        let simulated = Samples::of(&recorded.told.records);
        let end = told.iter().chain([&recorded.told]).filter_map(|t| t.steps.last()).map(|s| s.end).max();
        let curves = |t: &Told| Curves::of(&t.steps, end.unwrap_or(Time(1)));
        let live_curves: Vec<Curves> = told.iter().map(curves).collect();
        let recorded_curves = curves(&recorded.told);
        let e2e = |n: &Numbers| n.e2e.map(|q| q.mean);
        let seen = if first.complete() { Time::MAX } else { first.last() };
        let report = CellReport {
            policy: self.replay.spec.label(),
            load: self.load.0.clone(),
            share: self.load.1,
            requests: first.head.arrival.len() as u64,
            parts: self.parts.to_vec(),
            replay_parted: self.replay_parted(&acceptance),
            flow: flow::compare(&first.steps, &recorded.steps),
            missed: Missed { other_round: misses.other_round, invented: misses.invented, looks: misses.looks },
            rows: rows(&live, &by_record, &by_model),
            distances: simulated.distances(&samples[0]),
            live_distances: samples.get(1).map(|other| other.distances(&samples[0])),
            curves: recorded_curves.error(&live_curves[0]),
            live_curves: live_curves.get(1).map(|other| other.error(&live_curves[0])),
            regions,
            e2e_sensitivity: e2e(&by_nudge).zip(e2e(&by_record)).map(|(slow, usual)| slow / usual - 1.0),
            overload: overload_of(&told[0].records, seen).filter(|_| first.head.clients.is_none()),
            overhead_s: first.head.overhead_s,
            host: host(first),
        };
        let again = |at: usize| samples.get(at).cloned().unwrap_or_default();
        let bins = |of: fn(&Curves) -> &Vec<f64>| {
            let live = |at: usize| live_curves.get(at).map(of).cloned().unwrap_or_default();
            [live(0), live(1), of(&recorded_curves).clone(), Vec::new()]
        };
        let drawn = ValidatedRun {
            title: format!("{}, {}", report.policy, report.load),
            latencies: [again(0), again(1), simulated, Samples::of(&modelled.told.records)]
                .map(Samples::into_latencies),
            requests: both_finished(&told[0].records, &recorded.told.records),
            steps: points,
            end_s: end.map_or(0.0, Time::as_s),
            batch_size: bins(|c| &c.batch_size),
            draft_len: bins(|c| &c.draft_len),
        };
        (report, drawn)
    }

    /// Runs the engine and the policy again on the very times that were recorded: schedule, decisions and tokens must be the
    /// same, step by step. Says where they are not.
    fn replay_parted(&self, acceptance: &dyn AcceptanceSource) -> Option<String> {
        let (setting, tape) = (self.replay.setting, &self.tapes[0]);
        let policy = setting.policy(self.replay.spec);
        let config = setting.engine(policy.is_some());
        let max_draft_len = if policy.is_some() { config.max_draft_len } else { 0 };
        let clock = ReplayClock::new(&tape.steps, acceptance, max_draft_len, setting.workload.len());
        let plain = policy.is_none();
        let interrupt = AtomicBool::new(false);
        let serving = Serving {
            workload: &setting.workload,
            arrivals: tape.head.arrivals(),
            config,
            slo_tpot_s: tape.head.slo_tpot_s,
            keep_steps: false,
            interrupt: &interrupt,
        };
        let served = serving.run(super::watch::Watched::new(clock, plain, Time::ZERO), policy);
        let (ending, error) = (served.run.ending, served.error.map(|e| e.to_string()));
        let again = flow::compare(&tape.steps, &served.executor.into_steps());
        match (again.parted, ending, error) {
            // A recording that stops early is left where it stops.
            (Some(parting), _, _) if parting.what != flow::Difference::End => {
                Some(format!("step {}: {}", parting.step, parting.how))
            }
            (None, Ending::Done, None) => None,
            (_, _, Some(error)) if tape.complete() => Some(error),
            (Some(parting), _, _) if tape.complete() => Some(format!("step {}: {}", parting.step, parting.how)),
            _ => None,
        }
    }
}

/// End-to-end latencies of the requests that finished in both runs.
fn both_finished(live: &RequestRecords, simulated: &RequestRecords) -> Vec<(f64, f64)> {
    let both = (0..live.len()).filter(|&i| live.finished(i) && simulated.finished(i));
    both.map(|i| (live.e2e_s(i), simulated.e2e_s(i))).collect()
}

/// What the host took of a run's steps.
fn host(tape: &Tape) -> HostTimes {
    let mut clock = HostClock::default();
    tape.steps.iter().for_each(|step| clock.add(step));
    clock.times()
}

fn rows(live: &[Numbers], recorded: &Numbers, modelled: &Numbers) -> Vec<Row> {
    let row = |&(name, unit, get): &super::numbers::Quantity| {
        let all = live.iter().map(get).collect::<Option<Vec<f64>>>()?;
        Some(row(name, unit, all, get(recorded), get(modelled)))
    };
    QUANTITIES.iter().filter_map(row).collect()
}

/// A row from its values.
pub fn row(name: &str, unit: Unit, live: Vec<f64>, recorded: Option<f64>, modelled: Option<f64>) -> Row {
    let mean = live.iter().sum::<f64>() / live.len() as f64;
    let error = |value: Option<f64>| value.and_then(|v| unit.error(v, mean));
    let apart = match live.as_slice() {
        [a, b] => match unit {
            Unit::Share => Some((a - b).abs()),
            _ => (mean > 0.0).then(|| (a - b).abs() / mean),
        },
        _ => None,
    };
    Row {
        quantity: name.to_owned(),
        unit,
        recorded,
        modelled,
        recorded_error: error(recorded),
        modelled_error: error(modelled),
        live_against_live: apart,
        live,
    }
}

impl CellReport {
    /// The row of this name.
    pub fn row(&self, quantity: &str) -> Option<&Row> {
        self.rows.iter().find(|r| r.quantity == quantity)
    }
}

impl Simulated {
    /// Requests a second of a closed loop.
    pub fn service_rate(&self, clients: u32) -> Option<f64> {
        super::numbers::service_rate(&self.told.records, clients)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_against_the_mean_of_the_live_runs() {
        let r = row("x", Unit::Seconds, vec![0.9, 1.1], Some(1.05), None);
        let close = |a: Option<f64>, b: f64| (a.unwrap() - b).abs() < 1e-12;
        assert!(close(r.recorded_error, 0.05) && close(r.live_against_live, 0.2) && r.modelled_error.is_none());
        let share = row("x", Unit::Share, vec![0.5], Some(0.45), Some(0.6));
        assert!(close(share.recorded_error, -0.05) && close(share.modelled_error, 0.1));
        assert_eq!(share.live_against_live, None);
    }
}
