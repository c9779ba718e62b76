//! Measures every shape in several visits, in a shuffled order with anchors in between, until the time is spent.
//!
//! A visit is one warm-up pass and then a few timed passes. Visits of one shape lie far apart, so a change of the
//! machine shows as a difference between visits and not as an effect of the shape. The seed fixes the order: finished
//! visits are a prefix of it, and an interrupted measurement continues where it ended.

use crate::assess::Timed;
use crate::shapes::{Kind, Role, Shape};
use foretoken_sim::{Luck, Pair, Stream};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A device that runs a pass and measures its time. A trait, so that tests can measure a machine with known costs.
pub trait Passes {
    /// The error of the device.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Runs one pass of a model with everything that a server does around it. Returns how long the pass took.
    ///
    /// # Errors
    /// The device fails.
    fn time(&mut self, role: Role, shape: &Shape) -> Result<Duration, Self::Error>;
}

/// A planned visit: a few passes of one shape in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// Which model runs the pass.
    pub role: Role,
    /// The shape of the pass.
    pub shape: Shape,
    /// Whether this is an anchor. Anchors are measured again and again to see whether the machine changes.
    pub anchor: bool,
}

/// A finished visit (one shape, timed once), with the times of its passes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Visit {
    /// The plan of the visit.
    pub stop: Stop,
    /// Seconds of each timed pass.
    pub seconds: Vec<f64>,
}

/// How much time a measurement spends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// A visit adds timed passes until they take this long together, within the limits `least` and `most`.
    pub visit: Duration,
    /// Fewest timed passes of a visit.
    pub least: u32,
    /// Most timed passes of a visit.
    pub most: u32,
    /// Rounds continue until the timed passes of all visits take this long together.
    pub all: Duration,
}

/// The usual number of visits of each shape. Samples are spread over visits so that a machine which is slow for some
/// seconds spoils few of them. Where passes are long there are fewer visits; where there is time there are more, which
/// shows all speeds of a machine that changes over a minute.
const USUAL_ROUNDS: usize = 6;
/// The fewest and the most visits of each shape.
pub const ROUNDS: (usize, usize) = (2, 60);
/// Visits between two visits of the anchors.
const ANCHOR_EVERY: usize = 10;
/// Share of the time budget for timed passes; the rest is for warm-up passes and for evicting caches.
const TIMED_SHARE: f64 = 0.45;

/// The order of visits: `ROUNDS.1` rounds of all shapes, each shuffled by the seed. Before every tenth visit both
/// models' anchors are visited: the first decode shape, or the first shape. Same shapes and seed, same order.
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
    /// Splits a time budget over a schedule of `scheduled` visits so that the usual number of rounds fits.
    pub fn within(budget: Duration, scheduled: usize) -> Effort {
        let visits = (scheduled / ROUNDS.1 * USUAL_ROUNDS).max(1);
        let all = budget.mul_f64(TIMED_SHARE);
        Effort { visit: all / visits as u32, least: 2, most: 8, all }
    }

    /// Estimates the number of visits in whole rounds, after `done` visits took `timed_s` seconds of a schedule of
    /// `scheduled` visits.
    fn expected(&self, done: usize, timed_s: f64, scheduled: usize) -> usize {
        let round = scheduled / ROUNDS.1;
        let needed = (done as f64 * self.all.as_secs_f64() / timed_s.max(1e-9)).ceil() as usize;
        needed.clamp(round * ROUNDS.0, scheduled).next_multiple_of(round.max(1))
    }
}

/// Why a measurement ended early.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError<E: std::error::Error + 'static, K> {
    /// The device failed in a pass.
    #[error("the {} pass of {} requests × {} new tokens at context {} failed: {cause}", stop.role.name(), stop.shape.requests, stop.shape.new, stop.shape.context)]
    Pass {
        /// The visit in which the pass failed.
        stop: Stop,
        /// The error of the device.
        cause: E,
    },
    /// The caller's `keep` returned an error.
    #[error("a visit could not be stored")]
    Keep(K),
    /// The caller set the interrupt flag.
    #[error("interrupted")]
    Interrupted,
}

/// The condition on which a measurement ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Until {
    /// The measurement ends with the round in which the effort is spent.
    Spent,
    /// The measurement ends after this share of the estimated visits, but not within the first round, so that a fit is
    /// possible.
    Share(f64),
}

/// Makes the visits of `stops` that are not in `done`, until the given share of the effort is spent. `done` must
/// be a prefix of `stops`. Each finished visit goes to `keep` with its number from 0 and the estimated number of
/// visits.
///
/// # Errors
/// See [`MeasureError`]. Visits that went to `keep` before stay good.
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
    // The first pass is not timed: caches still hold the shape before, and a GPU may capture a graph now.
    passes.time(stop.role, &stop.shape)?;
    let mut seconds = Vec::new();
    let mut spent = Duration::ZERO;
    while seconds.len() < effort.least as usize || (seconds.len() < effort.most as usize && spent < effort.visit) {
        let took = passes.time(stop.role, &stop.shape)?;
        spent += took;
        // A coarse clock may measure 0, but a time of 0 has no relative error.
        seconds.push(took.as_secs_f64().max(1e-9));
    }
    Ok(seconds)
}

/// The times of each shape of a model, sorted by shape. Anchor visits are not included.
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

/// Relative change of a model's anchor from the first to the last third of its visits; `None` with fewer than three.
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
