//! A cell of a validation: one policy at one load. A cell has several pieces. A piece is a live run and its repeat,
//! between probes of the machine's speed. Pieces in which the machine's speed changed do not count. The live runs of
//! the other pieces are compared with simulations.

use super::host_times::HostTimes;
use super::piece_report::{PartialRun, PieceReport};
use super::simulated::{LiveRow, Simulated};
use crate::compare::latencies::Latencies;
use crate::compare::numbers::{Numbers, QUANTITIES, Quantity, RunRecords};
use crate::compare::over_time::Curves;
use crate::compare::pass_errors::PassErrors;
use crate::compare::token_flow::TokenFlow;
use foretoken_report::ValidatedRun;
use foretoken_sim::metrics::{Overload, Slo};
use foretoken_sim::{RequestRecords, StepRecord, Time};
use serde::Serialize;

/// The records of requests and steps of a live run, or of its simulation.
pub struct Records {
    pub requests: RequestRecords,
    /// One record per step of the run. `used_blocks` is always 0, because the log of a live run does not record KV
    /// blocks.
    pub steps: Vec<StepRecord>,
}

/// How often a simulation needed data about draft tokens that the live run did not reveal. An accept/reject bit in
/// these counts says whether the target accepts a draft token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Missed {
    /// Number of accept/reject bits that were taken from another round of the request, or from another position in the
    /// draft, because the live run did not reveal them where the simulation needed them.
    pub other_round: u64,
    /// Number of accept/reject bits that no round revealed, so that the experiment's acceptance source drew them.
    pub invented: u64,
    /// Number of the draft model's confidences (also of tokens in draft trees), entropies and divergences that the live
    /// run did not reveal, so that the experiment's acceptance source gave them.
    pub looks: u64,
}

impl Missed {
    /// Adds up the counts of several pieces.
    fn joined(pieces: impl IntoIterator<Item = Missed>) -> Missed {
        pieces.into_iter().fold(Missed::default(), |sum, one| Missed {
            other_round: sum.other_round + one.other_round,
            invented: sum.invented + one.invented,
            looks: sum.looks + one.looks,
        })
    }
}

/// The live runs of a piece, and its simulations. Both live runs serve the same requests at the same arrival times, so
/// each simulation is made once, from the first live run.
pub struct PieceRuns {
    pub live: Vec<Records>,
    /// The simulation with the acceptance that the first live run revealed.
    pub recorded: Records,
    /// The simulation in which the experiment's acceptance source, not the live run, decides which draft tokens are
    /// right.
    pub modelled: Records,
    /// The simulation with the acceptance that the first live run revealed, and with passes that are 3 % longer. It
    /// shows how a small error of pass times changes latencies.
    pub nudged: Records,
    /// The simulation with the acceptance that the first live run revealed, and with costs that were learned from the
    /// live runs of the other cells. `None` without such costs.
    pub learned: Option<Records>,
    /// The token flow (drafted, verified and accepted tokens) of the simulation `recorded`, compared with the token
    /// flow of the first live run.
    pub flow: TokenFlow,
    /// How often the simulation `recorded` needed acceptance data that the live run did not reveal.
    pub missed: Missed,
    /// The first difference between the first live run and a replay of it with its recorded step times; `None` if every
    /// decision and every token was the same.
    pub replay_parted: Option<String>,
    /// How many requests per second arrived in the first live run and how many finished, if more arrived than finished.
    /// `None` if the server kept up with the arrivals, and for a closed loop.
    pub overload: Option<Overload>,
    /// The latency bounds (SLO) that all requests of the runs have.
    pub slo: Slo,
    /// The TPOT bound of each request alone, in seconds, by request id; infinity if it has none. Empty if no request
    /// has a bound of its own.
    pub own_tpot_s: Vec<f64>,
}

/// The time of all model passes of one step of a live run, measured and predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepTimes {
    pub measured_s: f64,
    pub predicted_s: f64,
}

/// The comparison of live and simulated runs of one policy at one load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CellReport {
    pub policy: String,
    /// The load as text, such as `closed loop of 4` (clients) or `0.8 of its service rate`.
    pub load: String,
    /// The load as a share of the policy's service rate; absent if the load was not set as such a share.
    pub share: Option<f64>,
    /// All pieces of the cell. The fields below leave out pieces that were not finished or during which the machine
    /// changed its speed.
    pub pieces: Vec<PieceReport>,
    /// Number of requests that the first live runs of the pieces sent; the requests of repeats are not counted.
    pub requests: u64,
    /// For each live run whose recording is not complete: how many seconds and requests of the run were recorded and
    /// compared.
    pub parts: Vec<PartialRun>,
    /// The first difference between a live run and a replay of it with its recorded step times; absent if every
    /// decision and every token was the same.
    pub replay_parted: Option<String>,
    /// The token flow (drafted, verified and accepted tokens) of the simulations that use the live runs' acceptance,
    /// compared with the token flow of the live runs.
    pub flow: TokenFlow,
    /// How often the simulations that use the live runs' acceptance needed acceptance data that the live runs did not
    /// reveal.
    pub missed: Missed,
    /// The compared numbers, such as mean TPOT, one row each. In each row, the first observed value is over the first
    /// live runs of all pieces, the second value over their repeats.
    pub rows: Vec<LiveRow>,
    /// For TTFT, TPOT and E2E: the largest distance, in [0, 1], between two distribution functions over requests. One
    /// is of the simulations that use the live runs' acceptance, the other of the first live runs.
    pub distances: [Option<f64>; 3],
    /// For TTFT, TPOT and E2E: the largest distance, in [0, 1], between two distribution functions over requests. One
    /// is of the first live runs, the other of their repeats. Absent without repeats.
    pub live_distances: Option<[Option<f64>; 3]>,
    /// How far the simulations (with the live runs' acceptance) are from the first live runs in two curves over time:
    /// batch size and draft length. Each value is the mean absolute difference / the mean of the live curve.
    pub curves: [Option<f64>; 2],
    /// How far the repeats are from the first live runs in two curves over time: batch size and draft length. Each
    /// value is the mean absolute difference / the mean of the first live runs' curve. Absent without repeats.
    pub live_curves: Option<[Option<f64>; 2]>,
    /// Errors of the predicted times of single passes of the live runs, by kind of pass (decode, verify, …).
    pub regions: Vec<PassErrors>,
    /// Errors of the predicted times of single passes of the live runs, by kind of pass, if the costs were learned from
    /// the live runs of the other cells. Empty without such costs.
    pub learned_regions: Vec<PassErrors>,
    /// Relative change of the simulated mean E2E if all passes take 3 % longer.
    pub e2e_sensitivity: Option<f64>,
    /// How many requests per second arrived and how many finished, in the first live run that was overloaded. Absent
    /// unless more than half of the pieces were overloaded. Only pieces that were finished at a steady machine speed
    /// count.
    pub overload: Option<Overload>,
    /// Mean host time of a step (its time outside of model passes, with recording), seconds. It was measured in the
    /// warm-up before the live runs. The simulations add this time to each step.
    pub overhead_s: f64,
    /// Host times (times of steps outside of model passes) in the first live run of one piece: the first piece that was
    /// finished at a steady machine speed.
    pub host: HostTimes,
}

/// The data from which the report of one cell is made.
pub struct CellRuns {
    pub policy: String,
    /// The load as text, such as `closed loop of 4` (clients) or `0.8 of its service rate`.
    pub load: String,
    /// The load as a share of the policy's service rate; `None` if the load was not set as such a share.
    pub share: Option<f64>,
    pub pieces: Vec<PieceReport>,
    /// The live runs and simulations of the pieces that were finished at a steady machine speed; at least one.
    pub counted: Vec<PieceRuns>,
    /// For each incomplete tape of the pieces that were finished at a steady machine speed: how much of the run the
    /// tape has.
    pub parts: Vec<PartialRun>,
    /// Errors of the predicted times of single passes of the live runs, by kind of pass (decode, verify, …).
    pub pass_errors: Vec<PassErrors>,
    pub step_times: Vec<StepTimes>,
    /// Errors of the predicted times of single passes of the live runs, by kind of pass, if the costs were learned from
    /// the live runs of the other cells.
    pub learned_pass_errors: Vec<PassErrors>,
    /// Number of requests that the first live runs of the pieces sent; the requests of repeats are not counted.
    pub requests: u64,
    /// Mean host time of a step (its time outside of model passes, with recording), seconds. It was measured in the
    /// warm-up before the live runs. The simulations add this time to each step.
    pub overhead_s: f64,
    /// Host times (times of steps outside of model passes) in the first live run of one piece: the first piece that was
    /// finished at a steady machine speed.
    pub host: HostTimes,
}

impl CellRuns {
    pub fn report(&self) -> CellReport {
        let latencies: Vec<Latencies> = (0..self.repeats()).map(|n| self.live_latencies(n)).collect();
        let simulated = self.simulated_latencies(|p| &p.recorded);
        let live_curves: Vec<Curves> = (0..self.repeats()).map(|n| self.curves(self.live(n))).collect();
        let curves = self.curves(self.counted.iter().map(|p| &p.recorded));
        let overloads: Vec<Overload> = self.counted.iter().filter_map(|p| p.overload).collect();
        CellReport {
            policy: self.policy.clone(),
            load: self.load.clone(),
            share: self.share,
            pieces: self.pieces.clone(),
            requests: self.requests,
            parts: self.parts.clone(),
            replay_parted: self.counted.iter().find_map(|p| p.replay_parted.clone()),
            flow: TokenFlow::joined(self.counted.iter().map(|p| p.flow.clone())),
            missed: Missed::joined(self.counted.iter().map(|p| p.missed)),
            rows: self.rows(),
            distances: simulated.distances(&latencies[0]),
            live_distances: latencies.get(1).map(|again| again.distances(&latencies[0])),
            curves: curves.error(&live_curves[0]),
            live_curves: live_curves.get(1).map(|again| again.error(&live_curves[0])),
            regions: self.pass_errors.clone(),
            learned_regions: self.learned_pass_errors.clone(),
            e2e_sensitivity: self.e2e_sensitivity(),
            overload: overloads.first().copied().filter(|_| 2 * overloads.len() > self.counted.len()),
            overhead_s: self.overhead_s,
            host: self.host,
        }
    }

    /// The latencies of the cell, its step times and curves over time, for the figures.
    pub fn figure_data(&self) -> ValidatedRun {
        let live = |n: usize| if n < self.repeats() { self.live_latencies(n) } else { Latencies::default() };
        let simulated = [self.simulated_latencies(|p| &p.recorded), self.simulated_latencies(|p| &p.modelled)];
        let [recorded, modelled] = simulated;
        let live_curves = [0, 1].map(|n| (n < self.repeats()).then(|| self.curves(self.live(n))));
        let recorded_curves = self.curves(self.counted.iter().map(|p| &p.recorded));
        let series = |read: fn(&Curves) -> &Vec<f64>| {
            let [first, again] = live_curves.each_ref().map(|c| c.as_ref().map(read).cloned().unwrap_or_default());
            [first, again, read(&recorded_curves).clone(), Vec::new()]
        };
        let both = |p: &PieceRuns| both_finished(&p.live[0].requests, &p.recorded.requests);
        ValidatedRun {
            title: format!("{}, {}", self.policy, self.load),
            latencies: [live(0), live(1), recorded, modelled].map(Latencies::into_array),
            requests: self.counted.iter().flat_map(both).collect(),
            steps: self.step_times.iter().map(|t| (t.measured_s, t.predicted_s)).collect(),
            end_s: self.end().map_or(0.0, Time::as_s),
            batch_size: series(|c| &c.batch_size),
            draft_len: series(|c| &c.draft_len),
        }
    }

    /// The largest number of live runs in a piece: 2, or 1 if no piece has a repeat.
    fn repeats(&self) -> usize {
        self.counted.iter().map(|p| p.live.len()).max().unwrap_or(0)
    }

    /// Live run number `n` of each piece, where the piece has this run. `n` = 0 is the first live run, `n` = 1 its
    /// repeat.
    fn live(&self, n: usize) -> impl Iterator<Item = &Records> {
        self.counted.iter().filter_map(move |p| p.live.get(n))
    }

    fn live_latencies(&self, n: usize) -> Latencies {
        Latencies::of(self.live(n).map(|r| &r.requests))
    }

    fn simulated_latencies(&self, run: fn(&PieceRuns) -> &Records) -> Latencies {
        Latencies::of(self.counted.iter().map(|p| &run(p).requests))
    }

    /// The numbers of several runs, pooled. `run` selects one run of each piece. If it returns `None`, the piece is
    /// left out.
    fn pooled<'a>(&'a self, run: impl Fn(&'a PieceRuns) -> Option<&'a Records>) -> Numbers {
        let records = |p: &'a PieceRuns| {
            let Records { requests, steps } = run(p)?;
            Some(RunRecords { requests, steps, slo: p.slo, own_tpot_s: &p.own_tpot_s })
        };
        Numbers::of(&self.counted.iter().filter_map(records).collect::<Vec<_>>())
    }

    fn rows(&self) -> Vec<LiveRow> {
        let live: Vec<Numbers> = (0..self.repeats()).map(|n| self.pooled(move |p| p.live.get(n))).collect();
        let recorded = self.pooled(|p| Some(&p.recorded));
        let modelled = self.pooled(|p| Some(&p.modelled));
        let learned = self.pooled(|p| p.learned.as_ref());
        let row = |&Quantity { name, unit, read }: &Quantity| {
            let live = live.iter().map(read).collect::<Option<Vec<f64>>>()?;
            let simulated = Simulated {
                recorded: read(&recorded),
                modelled: read(&modelled),
                learned: read(&learned),
                ..Simulated::default()
            };
            Some(simulated.row(name, unit, live))
        };
        QUANTITIES.iter().filter_map(row).collect()
    }

    fn e2e_sensitivity(&self) -> Option<f64> {
        let usual = self.pooled(|p| Some(&p.recorded)).e2e?.mean;
        let slow = self.pooled(|p| Some(&p.nudged)).e2e?.mean;
        Some(slow / usual - 1.0)
    }

    /// The latest end of a step in all live runs of the cell and in the simulations that use the live runs' acceptance.
    fn end(&self) -> Option<Time> {
        let runs = self.counted.iter().flat_map(|p| p.live.iter().chain([&p.recorded]));
        runs.filter_map(|r| r.steps.last()).map(|s| s.end).max()
    }

    fn curves<'a>(&self, runs: impl Iterator<Item = &'a Records>) -> Curves {
        let steps: Vec<&[StepRecord]> = runs.map(|r| r.steps.as_slice()).collect();
        Curves::of(&steps, self.end().unwrap_or(Time(1)))
    }
}

/// The (live, simulated) end-to-end latency, seconds, of each request that finished in both runs.
fn both_finished(live: &RequestRecords, simulated: &RequestRecords) -> Vec<(f64, f64)> {
    let in_both = (0..live.len()).filter(|&i| live.finished(i) && simulated.finished(i));
    in_both.map(|i| (live.e2e_s(i), simulated.e2e_s(i))).collect()
}

impl CellReport {
    /// The row of the compared number called `quantity`, such as mean TPOT; `None` if the runs do not show this number.
    pub fn row(&self, quantity: &str) -> Option<&LiveRow> {
        self.rows.iter().find(|r| r.quantity == quantity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pieces_missed_adds_up() {
        let pieces =
            [Missed { other_round: 1, invented: 2, looks: 3 }, Missed { other_round: 10, invented: 20, looks: 30 }];
        assert_eq!(Missed::joined(pieces), Missed { other_round: 11, invented: 22, looks: 33 });
    }
}
