//! Times passes of every shape in several visits, in a shuffled order, until the time budget is spent.
//!
//! A visit is one or two warm-up passes and then a few timed passes of one shape. Visits of the same shape are far
//! apart in time. A change of the machine's speed then shows as a difference between visits, and not as an effect of
//! the shape. An anchor is a shape that is visited often; anchors show such changes too. The seed fixes the order of
//! all visits, so an interrupted measurement can continue with the next visit.

use crate::assess::Timed;
use crate::shapes::{Kind, Role, Shape};
use foretoken_sim::{Luck, Pair, Stream};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A device that runs and times passes. Tests implement this trait by a machine with known costs.
pub trait Passes {
    /// The error with which a pass can fail.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Runs one pass of the model `role`, with the work that a server does on the host for this pass. Returns the time
    /// of the pass and the host work together.
    fn time(&mut self, role: Role, shape: &Shape) -> Result<Duration, Self::Error>;

    /// Number of warm-up passes of a shape, after which each further pass takes the same time. A visit does not time
    /// these first passes.
    fn warm_up_passes(&self) -> u32 {
        1
    }
}

/// A planned visit: a few passes in a row of one shape of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// The model (target or draft) that runs the passes of the visit.
    pub role: Role,
    /// The shape of the visit's passes.
    pub shape: Shape,
    /// True if the shape is an anchor: a shape that is visited again and again, to see whether the machine's speed
    /// changes.
    pub anchor: bool,
}

/// A finished visit, with the times of its timed passes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Visit {
    /// The planned visit: which model runs which shape.
    pub stop: Stop,
    /// Seconds of each timed pass of the visit.
    pub seconds: Vec<f64>,
}

/// The time that a measurement may spend on one visit and on all visits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// A visit ends when its timed passes together took this time. But it has at least `least` and at most `most` timed
    /// passes.
    pub visit: Duration,
    /// Fewest timed passes of a visit.
    pub least: u32,
    /// Most timed passes of a visit.
    pub most: u32,
    /// When the timed passes of all visits together took this time, the measurement ends at the end of the present
    /// round. The number of rounds stays within [`ROUNDS`].
    pub all: Duration,
}

/// The usual number of visits of each shape. The passes of a shape are spread over several visits, so that a machine
/// that is slow for some seconds affects few of them. If passes are long, shapes get fewer visits. If time is left,
/// shapes get more visits, so that the visits see all speeds of a machine whose speed changes over a minute.
const USUAL_ROUNDS: usize = 6;
/// (fewest, most) rounds of a measurement. In a round, a few passes of each shape are timed.
pub const ROUNDS: (usize, usize) = (2, 60);
/// The anchor of each model is timed before the visits 0, 10, 20 and so on of each round. (A round visits each shape
/// once. An anchor is a shape that is timed again and again, to see whether the machine's speed changes.)
const ANCHOR_EVERY: usize = 10;
/// Share of the time budget that is spent on timed passes. The rest is for warm-up passes and for passes that evict
/// caches.
const TIMED_SHARE: f64 = 0.45;

/// Returns the order of all visits: `ROUNDS.1` rounds over the shapes of both models. The seed shuffles each round. The
/// anchor of each model, a shape that shows changes of the machine's speed, is visited before the visits 0, 10, 20 and
/// so on of a round. A model's anchor is its first decode shape, or its first shape if it has no decode shape. Equal
/// shapes and seeds give equal orders.
pub fn schedule(shapes: Pair<&[Shape]>, seed: u64) -> Vec<Stop> {
    let of_each = Role::EACH.zip(shapes);
    let stops_of = |(role, shapes): (Role, &[Shape])| {
        shapes.iter().map(move |&shape| Stop { role, shape, anchor: false }).collect::<Vec<_>>()
    };
    let all: Vec<Stop> = of_each.map(stops_of).into_array().concat();
    let anchor = |(role, shapes): (Role, &[Shape])| {
        let first = shapes.iter().find(|s| s.kind == Kind::Decode).or(shapes.first())?;
        Some(Stop { role, shape: *first, anchor: true })
    };
    let anchors: Vec<Stop> = of_each.into_array().into_iter().filter_map(anchor).collect();
    let mut stops = Vec::new();
    for round in 0..ROUNDS.1 {
        let luck = Luck::new(seed, Stream::Profile, 0).narrow(round as u64);
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_by_key(|&i| luck.bits(i as u64));
        for (n, i) in order.into_iter().enumerate() {
            if n % ANCHOR_EVERY == 0 {
                stops.extend(&anchors);
            }
            stops.push(all[i]);
        }
    }
    stops
}

impl Effort {
    /// Divides the time budget `budget` among the visits, so that the usual number of rounds over all shapes fits into
    /// it. `scheduled` is the number of visits in the whole schedule.
    pub fn within(budget: Duration, scheduled: usize) -> Effort {
        let visits = (scheduled / ROUNDS.1 * USUAL_ROUNDS).max(1);
        let all = budget.mul_f64(TIMED_SHARE);
        Effort { visit: all / visits as u32, least: 2, most: 8, all }
    }

    /// Estimates how many visits the measurement will make, in whole rounds. The timed passes of the first `done`
    /// visits took `timed_s` seconds. The schedule has `scheduled` visits.
    fn expected(&self, done: usize, timed_s: f64, scheduled: usize) -> usize {
        let round = scheduled / ROUNDS.1;
        let needed = (done as f64 * self.all.as_secs_f64() / timed_s.max(1e-9)).ceil() as usize;
        needed.clamp(round * ROUNDS.0, scheduled).next_multiple_of(round.max(1))
    }
}

/// Why a measurement ended early.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError<E: std::error::Error + 'static, K> {
    /// The device failed to run a pass.
    #[error("the {} pass of {} requests × {} new tokens at context {} failed: {cause}", stop.role.name(), stop.shape.requests, stop.shape.new, stop.shape.context)]
    Pass {
        /// The planned visit in which the pass failed.
        stop: Stop,
        cause: E,
    },
    /// The caller's function `keep`, which stores the times of visits, returned an error.
    #[error("a visit could not be stored")]
    Keep(K),
    /// The caller set the interrupt flag.
    #[error("interrupted")]
    Interrupted,
}

/// The condition on which a measurement ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Until {
    /// The measurement ends with the round in which the time [`Effort::all`] is spent.
    Spent,
    /// The measurement ends after this share (0 to 1) of the estimated number of visits, but never before each shape
    /// was visited once, so that a fit is possible.
    Share(f64),
}

/// Makes those visits of `stops` that are not in `done`, and adds them to `done`, until the condition `until` holds.
/// `done` must be a prefix of `stops`. After each visit, the function calls `keep` with the visit's number (from 0),
/// the estimated number of all visits, and the visit. If `interrupt` is set, the function returns an error before the
/// next visit.
pub fn measure<P: Passes + ?Sized, K>(
    passes: &mut P,
    stops: &[Stop],
    (effort, until): (Effort, Until),
    done: &mut Vec<Visit>,
    interrupt: &AtomicBool,
    mut keep: impl FnMut(usize, usize, &Visit) -> Result<(), K>,
) -> Result<(), MeasureError<P::Error, K>> {
    assert!(done.len() <= stops.len() && done.iter().zip(stops).all(|(v, s)| v.stop == *s), "a prefix of the schedule");
    let timed = |visit: &Visit| visit.seconds.iter().sum::<f64>();
    let mut timed_s: f64 = done.iter().map(timed).sum();
    for (at, stop) in stops.iter().enumerate().skip(done.len()) {
        let round = (stops.len() / ROUNDS.1).max(1);
        let expected = effort.expected(at, timed_s, stops.len());
        let enough = match until {
            Until::Spent => at.is_multiple_of(round) && at >= expected,
            Until::Share(share) => at >= round && at as f64 >= share * expected as f64,
        };
        if enough {
            break;
        }
        if interrupt.load(Ordering::Relaxed) {
            return Err(MeasureError::Interrupted);
        }
        let seconds = visit(passes, stop, effort).map_err(|cause| MeasureError::Pass { stop: *stop, cause })?;
        let visit = Visit { stop: *stop, seconds };
        timed_s += timed(&visit);
        keep(at, effort.expected(at + 1, timed_s, stops.len()), &visit).map_err(MeasureError::Keep)?;
        done.push(visit);
    }
    Ok(())
}

fn visit<P: Passes + ?Sized>(passes: &mut P, stop: &Stop, effort: Effort) -> Result<Vec<f64>, P::Error> {
    // The first pass is not timed, because the caches still hold the data of the previous shape. On a GPU the second
    // pass is not timed either, because it records a CUDA graph.
    for _ in 0..passes.warm_up_passes() {
        passes.time(stop.role, &stop.shape)?;
    }
    let mut seconds = Vec::new();
    let mut spent = Duration::ZERO;
    while seconds.len() < effort.least as usize || (seconds.len() < effort.most as usize && spent < effort.visit) {
        let took = passes.time(stop.role, &stop.shape)?;
        spent += took;
        // A coarse clock may measure 0 s, for which no relative error exists. Each time is therefore at least 1 ns.
        seconds.push(took.as_secs_f64().max(1e-9));
    }
    Ok(seconds)
}

/// Collects the times of each shape of the model `role`, sorted by shape. Anchors (shapes that are timed again and
/// again to see the machine's speed) are left out.
pub fn collect(visits: &[Visit], role: Role) -> Vec<Timed> {
    let mut all: Vec<Timed> = Vec::new();
    for v in visits.iter().filter(|v| v.stop.role == role && !v.stop.anchor) {
        match all.iter_mut().find(|t| t.shape == v.stop.shape) {
            Some(timed) => timed.visits.push(v.seconds.clone()),
            None => all.push(Timed { shape: v.stop.shape, visits: vec![v.seconds.clone()] }),
        }
    }
    all.sort_by_key(|t| t.shape);
    all
}

/// Relative change of the time of the anchor of the model `role` (0.05: 5 % slower). An anchor is a shape that is timed
/// again and again. The change compares the last third of the anchor's visits with the first third. `None` if the
/// anchor has fewer than three visits.
pub fn drift(visits: &[Visit], role: Role) -> Option<f64> {
    let time_of = |v: &Visit| crate::assess::median(v.seconds.clone());
    let times: Vec<f64> = visits.iter().filter(|v| v.stop.role == role && v.stop.anchor).map(time_of).collect();
    let third = times.len() / 3;
    (third > 0).then(|| {
        let (first, last) = (times[..third].to_vec(), times[times.len() - third..].to_vec());
        crate::assess::median(last) / crate::assess::median(first) - 1.0
    })
}

#[cfg(test)]
#[path = "measure_tests.rs"]
mod tests;
