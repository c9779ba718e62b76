use super::*;
use crate::shapes::{Density, grid};
use crate::testing::{line, room};
use std::convert::Infallible;

/// A machine with linear costs. A draft pass takes a tenth of the time of a target pass. The machine becomes slower:
/// pass number n takes 1 + `slope` · n times its usual time.
struct Machine {
    passes: u64,
    slope: f64,
    /// The number of the pass that fails, from 1. 0 if no pass fails.
    breaks_at: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("out of memory")]
struct OutOfMemory;

impl Passes for Machine {
    type Error = OutOfMemory;

    fn time(&mut self, role: Role, shape: &Shape) -> Result<Duration, OutOfMemory> {
        self.passes += 1;
        if self.passes == self.breaks_at {
            return Err(OutOfMemory);
        }
        let share = if role == Role::Draft { 0.1 } else { 1.0 };
        Ok(Duration::from_secs_f64(line(shape) * share * (1.0 + self.slope * self.passes as f64)))
    }
}

fn machine() -> Machine {
    Machine { passes: 0, slope: 0.0, breaks_at: 0 }
}

fn stops(seed: u64) -> Vec<Stop> {
    let shapes = Role::EACH.map(|role| grid(role, &room(), Density::Quick));
    schedule(shapes.as_ref().map(Vec::as_slice), seed)
}

fn effort(stops: &[Stop]) -> Effort {
    Effort::within(Duration::from_secs(10), stops.len())
}

fn run(machine: &mut Machine, stops: &[Stop], done: &mut Vec<Visit>, until: usize) -> bool {
    let interrupt = AtomicBool::new(false);
    let result = measure(machine, stops, (effort(stops), Until::Spent), done, &interrupt, |n, _, _| {
        interrupt.store(n + 1 == until, Ordering::Relaxed);
        Ok::<_, Infallible>(())
    });
    match result {
        Ok(()) => true,
        Err(MeasureError::Interrupted) => false,
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn every_shape_is_visited_in_every_round_in_an_order_of_the_seed() {
    let all = stops(1);
    assert_eq!(all, stops(1));
    assert_ne!(all, stops(2));
    let shapes: Vec<&Stop> = all.iter().filter(|s| !s.anchor).collect();
    let rounds: Vec<&[&Stop]> = shapes.chunks_exact(shapes.len() / ROUNDS.1).collect();
    assert_eq!(rounds.len(), ROUNDS.1);
    let sorted = |part: &[&Stop]| {
        let mut part: Vec<_> = part.iter().map(|s| (s.role, s.shape)).collect();
        part.sort();
        part
    };
    for pair in rounds.windows(2) {
        assert!(sorted(pair[0]) == sorted(pair[1]), "the same shapes");
        assert!(pair[0] != pair[1], "each round has an order of its own");
    }
    assert!(all[0].anchor);
    assert!(all.windows(2 + ANCHOR_EVERY + 1).all(|w| w.iter().any(|s| s.anchor)));
}

#[test]
fn an_interrupted_measurement_continues_with_the_same_result() {
    let stops = stops(3);
    let mut whole = Vec::new();
    assert!(run(&mut machine(), &stops, &mut whole, usize::MAX));
    let mut parts = Vec::new();
    assert!(!run(&mut machine(), &stops, &mut parts, 17));
    assert_eq!(parts.len(), 17);
    assert!(!run(&mut machine(), &stops, &mut parts, 40));
    assert!(run(&mut machine(), &stops, &mut parts, usize::MAX));
    assert_eq!(parts, whole);
    assert_eq!(collect(&parts, Role::Draft), collect(&whole, Role::Draft));
}

/// A measurement is made in twenty slices; each slice continues where the slice before ended. It makes the same visits
/// as an uninterrupted measurement.
#[test]
fn a_measurement_in_slices_equals_an_uninterrupted_one() {
    let stops = stops(3);
    let mut whole = Vec::new();
    assert!(run(&mut machine(), &stops, &mut whole, usize::MAX));
    let (mut sliced, mut steady) = (Vec::new(), machine());
    let round = stops.len() / ROUNDS.1;
    for slice in 1..=20 {
        let until = Until::Share(f64::from(slice) / 20.0);
        let kept = |_, _, _: &Visit| Ok::<_, Infallible>(());
        let never = AtomicBool::new(false);
        measure(&mut steady, &stops, (effort(&stops), until), &mut sliced, &never, kept).unwrap();
        // The estimate of the number of all visits becomes better with time. A slice that should end at 3/20 of all
        // visits, say, may therefore end too early or too late.
        let share = sliced.len() as f64 / whole.len() as f64;
        assert!(
            sliced.len() >= round && (slice < 5 || (share - f64::from(slice) / 20.0).abs() < 0.1),
            "{slice}: {share}"
        );
    }
    assert!(run(&mut steady, &stops, &mut sliced, usize::MAX));
    assert_eq!(sliced, whole);
}

#[test]
fn cheap_shapes_get_more_samples_and_none_gets_too_few() {
    let (stops, mut visits) = (stops(1), Vec::new());
    run(&mut machine(), &stops, &mut visits, usize::MAX);
    let effort = effort(&stops);
    for v in &visits {
        let (n, total) = (v.seconds.len(), v.seconds.iter().sum::<f64>());
        assert!((effort.least as usize..=effort.most as usize).contains(&n));
        assert!(n == effort.least as usize || total - v.seconds[0] < effort.visit.as_secs_f64(), "{v:?}");
    }
    let samples = |of: fn(&&Visit) -> bool| visits.iter().filter(of).map(|v| v.seconds.len()).min().unwrap();
    assert!(samples(|v| v.stop.role == Role::Draft && v.stop.anchor) > samples(|v| v.stop.shape.batched() >= 256));
    // The measurement makes only whole rounds. The time budget is spent during the last round.
    let rounds = visits.len() * ROUNDS.1 / stops.len();
    assert!((ROUNDS.0..ROUNDS.1).contains(&rounds), "{rounds} rounds");
    assert!(collect(&visits, Role::Target).iter().all(|t| t.visits.len() == rounds));
    let timed = |visits: &[Visit]| visits.iter().flat_map(|v| &v.seconds).sum::<f64>();
    let before = &visits[..visits.len() - stops.len() / ROUNDS.1];
    assert!(timed(&visits) >= effort.all.as_secs_f64() && timed(before) < effort.all.as_secs_f64());
}

#[test]
fn a_machine_that_slows_down_shows_at_the_anchor() {
    let (stops, mut visits) = (stops(1), Vec::new());
    run(&mut machine(), &stops, &mut visits, usize::MAX);
    assert!(drift(&visits, Role::Target).unwrap().abs() < 1e-6);
    let mut slowing = Machine { slope: 1e-4, ..machine() };
    visits.clear();
    run(&mut slowing, &stops, &mut visits, usize::MAX);
    let end = 1e-4 * slowing.passes as f64;
    for role in Role::BOTH {
        let drift = drift(&visits, role).unwrap();
        assert!(drift > 0.3 * end && drift < end, "{drift} of {end}");
    }
    assert_eq!(drift(&visits[..1], Role::Draft), None);
}

#[test]
fn a_pass_that_fails_is_named_and_finished_visits_are_kept() {
    let (stops, mut visits) = (stops(1), Vec::new());
    let mut broken = Machine { breaks_at: 100, ..machine() };
    let error = measure(
        &mut broken,
        &stops,
        (effort(&stops), Until::Spent),
        &mut visits,
        &AtomicBool::new(false),
        |_, _, _| Ok::<_, Infallible>(()),
    );
    let text = error.unwrap_err().to_string();
    assert!(text.ends_with("failed: out of memory") && text.contains("new tokens at context"), "{text}");
    assert!(!visits.is_empty() && visits.iter().map(|v| &v.stop).eq(&stops[..visits.len()]));
}

/// A machine on which the first two passes of each shape take longer, like a GPU that loads kernels and then records a
/// CUDA graph. The map counts the passes of each shape.
#[derive(Default)]
struct Recording(std::collections::BTreeMap<(Role, Shape), u32>);

impl Passes for Recording {
    type Error = OutOfMemory;

    fn warm_up_passes(&self) -> u32 {
        2
    }

    fn time(&mut self, role: Role, shape: &Shape) -> Result<Duration, OutOfMemory> {
        let before = self.0.entry((role, *shape)).or_default();
        *before += 1;
        Ok(Duration::from_secs_f64(if *before <= 2 { 1.0 } else { 1e-3 }))
    }
}

#[test]
fn passes_that_record_graphs_are_not_timed() {
    let stops = stops(1);
    let (mut done, interrupt) = (Vec::new(), AtomicBool::new(false));
    let until = (effort(&stops), Until::Share(0.1));
    measure(&mut Recording::default(), &stops, until, &mut done, &interrupt, |_, _, _| Ok::<_, Infallible>(()))
        .unwrap();
    assert!(done.len() > 10 && done.iter().flat_map(|v| &v.seconds).all(|&s| s == 1e-3));
}
