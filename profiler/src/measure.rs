//! The measuring: every shape in several visits, in a shuffled order, with an anchor in between, for as long as there is time.
//!
//! A visit is one warm-up pass and then a few timed ones. Visits of one shape lie far apart, so that what changes on the machine
//! meanwhile shows as a difference between them and not as an effect of the shape. The order is fixed by a seed: what was
//! measured is a prefix of it, and an interrupted measuring goes on where it ended.

use crate::assess::Timed;
use crate::shapes::{Kind, Role, Shape};
use foretoken_sim::{Luck, Stream};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What can run a pass and say how long it took. Behind a trait, so that a machine with known costs can be measured.
pub trait Passes {
    /// What can go wrong.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Runs one pass of a model and everything a server does around it, and says what it took.
    ///
    /// # Errors
    /// The device's.
    fn time(&mut self, role: Role, shape: &Shape) -> Result<Duration, Self::Error>;
}

/// One visit that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// Whose pass.
    pub role: Role,
    /// Which.
    pub shape: Shape,
    /// Is it the anchor, which is measured again and again to see whether the machine changes?
    pub anchor: bool,
}

/// One visit that was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Visit {
    /// What was visited.
    pub stop: Stop,
    /// Seconds of each timed pass.
    pub seconds: Vec<f64>,
}

/// How much is spent on a visit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// Timed passes go on until they add up to this…
    pub visit: Duration,
    /// …but there are at least so many…
    pub least: u32,
    /// …and at most so many.
    pub most: u32,
    /// Rounds go on until the timed passes of all visits add up to this.
    pub all: Duration,
}

/// Visits of each shape: what samples are dealt out for, so that a machine which is slower for some seconds spoils a minority of
/// them. Where passes are long there are fewer, where there is time more: a machine whose speed changes over a minute is then
/// seen at all of its speeds.
const USUAL_ROUNDS: usize = 6;
/// The fewest visits of each shape, and the most.
pub const ROUNDS: (usize, usize) = (2, 60);
/// Visits between two visits of the anchors.
const ANCHOR_EVERY: usize = 10;
/// Share of the time budget that goes into timed passes; the rest is for warm-up and what evicts caches.
const TIMED_SHARE: f64 = 0.45;

/// The order of visits: as many rounds of all shapes as may be made, each shuffled by the seed, with both models' first shapes as
/// anchors before every tenth visit. The same for the same shapes and seed.
pub fn schedule(target: &[Shape], draft: &[Shape], seed: u64) -> Vec<Stop> {
    let of = |role, shapes: &[Shape]| {
        shapes.iter().map(move |&shape| Stop { role, shape, anchor: false }).collect::<Vec<_>>()
    };
    let all: Vec<Stop> = [of(Role::Target, target), of(Role::Draft, draft)].concat();
    let anchor = |(role, shapes): (Role, &[Shape])| {
        let first = shapes.iter().find(|s| s.kind == Kind::Decode).or(shapes.first())?;
        Some(Stop { role, shape: *first, anchor: true })
    };
    let anchors: Vec<Stop> = [(Role::Target, target), (Role::Draft, draft)].into_iter().filter_map(anchor).collect();
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
    /// What the visits of a schedule may take of a budget, so that there is time for the usual number of rounds.
    pub fn within(budget: Duration, scheduled: usize) -> Effort {
        let visits = (scheduled / ROUNDS.1 * USUAL_ROUNDS).max(1);
        let all = budget.mul_f64(TIMED_SHARE);
        Effort { visit: all / visits as u32, least: 2, most: 8, all }
    }

    /// How many visits of a schedule of this length there will be, when so many took so many seconds: whole rounds.
    fn expected(&self, done: usize, timed_s: f64, scheduled: usize) -> usize {
        let round = scheduled / ROUNDS.1;
        let needed = (done as f64 * self.all.as_secs_f64() / timed_s.max(1e-9)).ceil() as usize;
        needed.clamp(round * ROUNDS.0, scheduled).next_multiple_of(round.max(1))
    }
}

/// Why measuring ended early.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError<E: std::error::Error + 'static, K> {
    /// A pass failed.
    #[error("the {} pass of {} requests × {} new tokens at context {} failed: {cause}", stop.role.name(), stop.shape.requests, stop.shape.new, stop.shape.context)]
    Pass {
        /// Which.
        stop: Stop,
        /// The device's words.
        cause: E,
    },
    /// Whoever keeps the visits failed.
    #[error("a visit could not be kept")]
    Keep(K),
    /// Somebody asked it to end.
    #[error("interrupted")]
    Interrupted,
}

/// How far a measuring goes before it ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Until {
    /// Until a round ends and the effort is spent.
    Spent,
    /// Until this share of all visits is made, as it seems, and never within the first round: what is there can be fitted.
    Share(f64),
}

/// Makes the visits that are not among `done`, which must be the first ones, until the effort is spent or the share of it that is
/// asked for. Each is handed to `keep` as it ends, with its number from 0 and how many there will be, as it seems.
///
/// # Errors
/// See [`MeasureError`]. What was handed over before stays good.
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
    // Not timed: what the shape before left in caches, and on a GPU a graph that is captured now.
    passes.time(stop.role, &stop.shape)?;
    let mut seconds = Vec::new();
    let mut spent = Duration::ZERO;
    while seconds.len() < effort.least as usize || (seconds.len() < effort.most as usize && spent < effort.visit) {
        let took = passes.time(stop.role, &stop.shape)?;
        spent += took;
        // A clock too coarse for the pass must not give a time of zero, of which no relative error exists.
        seconds.push(took.as_secs_f64().max(1e-9));
    }
    Ok(seconds)
}

/// The times of each shape of a model, in the order in which they were first visited; anchors do not count twice.
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

/// Relative change of a model's anchor between the first and the last third of its visits; `None` with fewer than three.
pub fn drift(visits: &[Visit], role: Role) -> Option<f64> {
    let of = |v: &Visit| crate::assess::median(v.seconds.clone());
    let times: Vec<f64> = visits.iter().filter(|v| v.stop.role == role && v.stop.anchor).map(of).collect();
    let third = times.len() / 3;
    (third > 0).then(|| {
        let (first, last) = (times[..third].to_vec(), times[times.len() - third..].to_vec());
        crate::assess::median(last) / crate::assess::median(first) - 1.0
    })
}

#[cfg(test)]
#[path = "measure_tests.rs"]
mod tests;
