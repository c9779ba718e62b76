//! Compares one policy at one load: the live runs of the pieces that count with their simulations.

use super::beside::{Beside, Missed};
use super::flow::Flow;
use super::numbers::{Curves, Numbers, Part, QUANTITIES, Samples, Unit};
use super::regions::{Point, RegionError};
use super::standing::PieceReport;
use super::tapes::PartOf;
use crate::serve::tape::{Tape, Told};
use crate::serve::{HostClock, HostTimes};
use foretoken_report::ValidatedRun;
use foretoken_sim::metrics::Overload;
use foretoken_sim::{RequestRecords, StepRecord, Time};
use serde::{Deserialize, Serialize};

/// A number, measured and simulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The number's name.
    pub quantity: String,
    /// The number's unit, which decides how errors are computed.
    pub unit: Unit,
    /// The values of the first live runs and of their repeats, each pooled over all pieces.
    pub live: Vec<f64>,
    /// Simulated with the recorded acceptance.
    pub recorded: Option<f64>,
    /// Simulated with the modelled acceptance.
    pub modelled: Option<f64>,
    /// Simulated with the recorded acceptance and with costs learned from the other cells' live runs.
    pub learned: Option<f64>,
    /// Error of `recorded` against the mean of the live values.
    pub recorded_error: Option<f64>,
    /// `modelled` over the mean of the live values, minus 1; `None` where one of them is absent.
    pub modelled_error: Option<f64>,
    /// Error of `learned` against the mean of the live values.
    pub learned_error: Option<f64>,
    /// Difference of the two live values, without sign. No prediction can be expected to be closer.
    pub live_against_live: Option<f64>,
}

/// The comparison of one policy at one load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellReport {
    /// The policy's label.
    pub policy: String,
    /// The load as text.
    pub load: String,
    /// The load as a share of the policy's own service rate, if it was set so.
    pub share: Option<f64>,
    /// All of its pieces. The numbers are from those that count.
    pub pieces: Vec<PieceReport>,
    /// Number of requests sent, counted in the first live runs only.
    pub requests: u64,
    /// For each live run that is not whole: how much of it was compared.
    pub parts: Vec<PartOf>,
    /// Where a replay of a first live run on its own times first differed; `None` if every decision and token was the
    /// same.
    pub replay_parted: Option<String>,
    /// Token flow with recorded acceptance compared with the live one.
    pub flow: Flow,
    /// Acceptance data that the recordings lack.
    pub missed: Missed,
    /// The numbers that are compared.
    pub rows: Vec<Row>,
    /// Largest distance between the distributions of (TTFT, TPOT, E2E): recorded against live.
    pub distances: [Option<f64>; 3],
    /// The same distances between the two live runs.
    pub live_distances: Option<[Option<f64>; 3]>,
    /// Errors of (batch size, draft length) over time: recorded against live.
    pub curves: [Option<f64>; 2],
    /// The same errors between the two live runs.
    pub live_curves: Option<[Option<f64>; 2]>,
    /// Errors of single passes, by kind of pass.
    pub regions: Vec<RegionError>,
    /// The same, predicted with costs learned from the other cells' live runs; empty without them.
    pub learned_regions: Vec<RegionError>,
    /// Relative change of mean E2E if all passes take 3 % longer.
    pub e2e_sensitivity: Option<f64>,
    /// Present if the live runs of more than half of the pieces fell behind their arrivals: the first of these
    /// overloads.
    pub overload: Option<Overload>,
    /// Mean host time between steps used in the simulations, in seconds.
    pub overhead_s: f64,
    /// Host times of the first live run.
    pub host: HostTimes,
}

/// The data of one cell from which its report is made.
pub struct Comparison {
    /// The policy's label.
    pub policy: String,
    /// (the load as text, the load as a share of the policy's own service rate).
    pub load: (String, Option<f64>),
    /// All of its pieces.
    pub pieces: Vec<PieceReport>,
    /// The pieces that count, with their simulations.
    pub counted: Vec<Beside>,
    /// The tapes of the pieces that count.
    pub tapes: Vec<Vec<Tape>>,
    /// For each of these tapes that is not whole: how much of it there is.
    pub parts: Vec<PartOf>,
    /// Predictions of single passes: errors by kind of pass, and (measured, predicted) seconds of every step.
    pub passes: (Vec<RegionError>, Vec<Point>),
    /// Errors by kind of pass with costs learned from the other cells' live runs.
    pub learned_regions: Vec<RegionError>,
}

impl Comparison {
    /// The numbers of the runs that `of` selects, one per piece, pooled.
    fn pooled<'a>(&'a self, of: impl Fn(&'a Beside) -> Option<&'a Told>) -> Numbers {
        let parts: Vec<Part> = self.counted.iter().filter_map(|p| Some(p.part(of(p)?))).collect();
        Numbers::of(&parts)
    }

    /// The live runs: the first ones for `part` 0, their repeats for 1.
    fn live(&self, part: usize) -> impl Iterator<Item = &Told> {
        self.counted.iter().filter_map(move |p| p.live.get(part))
    }

    /// Computes the cell's numbers and errors. Returns its report, and the run for the figures.
    pub fn report(self) -> (CellReport, ValidatedRun) {
        let parts = self.counted.iter().map(|p| p.live.len()).max().unwrap_or(0);
        let recorded = || self.counted.iter().map(|p| &p.recorded);
        let live: Vec<Numbers> = (0..parts).map(|part| self.pooled(move |p| p.live.get(part))).collect();
        let (by_record, by_model, by_nudge) =
            (self.pooled(|p| Some(&p.recorded)), self.pooled(|p| Some(&p.modelled)), self.pooled(|p| Some(&p.nudged)));
        let by_others = self.pooled(|p| p.learned.as_ref());
        let samples: Vec<Samples> = (0..parts).map(|part| Samples::of(self.live(part).map(|t| &t.records))).collect();
        let simulated = Samples::of(recorded().map(|t| &t.records));
        let modelled = Samples::of(self.counted.iter().map(|p| &p.modelled.records));
        let ends = self.counted.iter().flat_map(|p| p.live.iter().chain([&p.recorded]));
        let end = ends.filter_map(|t| t.steps.last()).map(|s| s.end).max();
        let curves = |told: Vec<&Told>| {
            let steps: Vec<&[StepRecord]> = told.into_iter().map(|t| t.steps.as_slice()).collect();
            Curves::of(&steps, end.unwrap_or(Time(1)))
        };
        let live_curves: Vec<Curves> = (0..parts).map(|part| curves(self.live(part).collect())).collect();
        let recorded_curves = curves(recorded().collect());
        let e2e = |n: &Numbers| n.e2e.map(|q| q.mean);
        let heads = || self.tapes.iter().filter_map(|tapes| tapes.first()).map(|tape| &tape.head);
        let overloads: Vec<Overload> = self.counted.iter().filter_map(|p| p.overload).collect();
        let again = |at: usize| samples.get(at).cloned().unwrap_or_default();
        let bins = |of: fn(&Curves) -> &Vec<f64>| {
            let live = |at: usize| live_curves.get(at).map(of).cloned().unwrap_or_default();
            [live(0), live(1), of(&recorded_curves).clone(), Vec::new()]
        };
        let drawn = ValidatedRun {
            title: format!("{}, {}", self.policy, self.load.0),
            latencies: [again(0), again(1), simulated.clone(), modelled].map(Samples::into_latencies),
            requests: self
                .counted
                .iter()
                .flat_map(|p| both_finished(&p.live[0].records, &p.recorded.records))
                .collect(),
            steps: self.passes.1,
            end_s: end.map_or(0.0, Time::as_s),
            batch_size: bins(|c| &c.batch_size),
            draft_len: bins(|c| &c.draft_len),
        };
        let report = CellReport {
            requests: heads().map(|head| head.arrival.len() as u64).sum(),
            replay_parted: self.counted.iter().find_map(|p| p.replay_parted.clone()),
            flow: Flow::joined(self.counted.iter().map(|p| p.flow.clone())),
            missed: Missed::joined(self.counted.iter().map(|p| p.missed)),
            rows: rows(&live, &by_record, &by_model, &by_others),
            distances: simulated.distances(&samples[0]),
            live_distances: samples.get(1).map(|other| other.distances(&samples[0])),
            curves: recorded_curves.error(&live_curves[0]),
            live_curves: live_curves.get(1).map(|other| other.error(&live_curves[0])),
            e2e_sensitivity: e2e(&by_nudge).zip(e2e(&by_record)).map(|(slow, usual)| slow / usual - 1.0),
            overload: overloads.first().copied().filter(|_| 2 * overloads.len() > self.counted.len()),
            overhead_s: heads().map(|head| head.overhead_s).sum::<f64>() / self.tapes.len() as f64,
            host: host(&self.tapes[0][0]),
            policy: self.policy,
            load: self.load.0,
            share: self.load.1,
            pieces: self.pieces,
            parts: self.parts,
            regions: self.passes.0,
            learned_regions: self.learned_regions,
        };
        (report, drawn)
    }
}

/// (live, simulated) end-to-end latencies in seconds, of the requests that finished in both runs.
fn both_finished(live: &RequestRecords, simulated: &RequestRecords) -> Vec<(f64, f64)> {
    let both = (0..live.len()).filter(|&i| live.finished(i) && simulated.finished(i));
    both.map(|i| (live.e2e_s(i), simulated.e2e_s(i))).collect()
}

/// The host times of a run's steps.
fn host(tape: &Tape) -> HostTimes {
    let mut clock = HostClock::default();
    tape.steps.iter().for_each(|step| clock.add(step));
    clock.times()
}

fn rows(live: &[Numbers], recorded: &Numbers, modelled: &Numbers, learned: &Numbers) -> Vec<Row> {
    let row = |&(name, unit, get): &super::numbers::Quantity| {
        let all = live.iter().map(get).collect::<Option<Vec<f64>>>()?;
        Some(row(name, unit, all, [get(recorded), get(modelled), get(learned)]))
    };
    QUANTITIES.iter().filter_map(row).collect()
}

/// Makes a row. The simulated values are (recorded acceptance, modelled acceptance, learned costs).
pub fn row(name: &str, unit: Unit, live: Vec<f64>, [recorded, modelled, learned]: [Option<f64>; 3]) -> Row {
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
        learned,
        recorded_error: error(recorded),
        modelled_error: error(modelled),
        learned_error: error(learned),
        live_against_live: apart,
        live,
    }
}

impl CellReport {
    /// Finds the row with this name.
    pub fn row(&self, quantity: &str) -> Option<&Row> {
        self.rows.iter().find(|r| r.quantity == quantity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_against_the_mean_of_the_live_runs() {
        let r = row("x", Unit::Seconds, vec![0.9, 1.1], [Some(1.05), None, Some(0.99)]);
        let close = |a: Option<f64>, b: f64| (a.unwrap() - b).abs() < 1e-12;
        assert!(close(r.recorded_error, 0.05) && close(r.live_against_live, 0.2) && r.modelled_error.is_none());
        assert!(close(r.learned_error, -0.01));
        let share = row("x", Unit::Share, vec![0.5], [Some(0.45), Some(0.6), None]);
        assert!(close(share.recorded_error, -0.05) && close(share.modelled_error, 0.1));
        assert_eq!(share.live_against_live, None);
    }
}
