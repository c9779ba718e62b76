//! Test machines with known pass costs, and profiles and visits that are computed from these costs.

use crate::assess::Timed;
use crate::measure::Visit;
use crate::profile::{DeviceInfo, ModelInfo, Profile};
use crate::setup::Setup;
use crate::shapes::{Density, Role, Room, Shape, grid};
use foretoken_sim::{ContextReads, Luck, Stream};

/// Limits on the sizes of the passes of a small test model.
pub fn room() -> Room {
    Room { max_positions: 512, kv_tokens: 16 * 512, max_batched: 512, max_requests: 32, graph_sizes: vec![] }
}

/// Seconds of a pass of shape `shape` on a machine with linear costs (α 0.1 µs per token of context, γ 50 µs per
/// batched token, δ 1 ms per pass).
pub fn line(shape: &Shape) -> f64 {
    let p = shape.pass(ContextReads::Once);
    1e-7 * p.context as f64 + 50e-6 * p.batched as f64 + 1e-3
}

/// Seconds of a pass of shape `shape` on a machine that pads the number of tokens to the next power of two. After
/// padding, a token costs 1 ms; a token of context costs 10 ns.
pub fn steps(shape: &Shape) -> f64 {
    let p = shape.pass(ContextReads::Once);
    1e-8 * p.context as f64 + 1e-3 * p.batched.next_power_of_two() as f64
}

/// Returns the times of every shape that a full profile times for the model `role`: ten times per shape, in two visits
/// of five. The times have relative noise of up to ±`noise`. If `noise` is above 0, one time in fifty is also ten times
/// too long.
pub fn timed(role: Role, cost: fn(&Shape) -> f64, noise: f64) -> Vec<Timed> {
    let luck = Luck::new(9, Stream::Noise, role as u64);
    let shapes = grid(role, &room(), Density::Full);
    let time = |i: usize, shape: Shape| {
        let sample = |n: u64| {
            let draws = luck.narrow(i as u64).narrow(n);
            let outlier = noise > 0.0 && draws.unit(1) < 0.02;
            cost(&shape) * (noise * 2.0 * (draws.unit(0) - 0.5)).exp() * if outlier { 10.0 } else { 1.0 }
        };
        Timed { shape, visits: (0..2).map(|v| (0..5).map(|s| sample(8 * v + s)).collect()).collect() }
    };
    shapes.into_iter().enumerate().map(|(i, shape)| time(i, shape)).collect()
}

/// A description of a model with the name `name`; its sizes are arbitrary.
pub fn model(name: &str) -> ModelInfo {
    ModelInfo {
        name: name.into(),
        weights: "random, seed 1".into(),
        dtype: "bf16".into(),
        parameters: 1000,
        vocab: 256,
        max_positions: 512,
    }
}

/// Returns the profile of a test machine. A pass takes the time `cost`, with relative noise of up to ±`noise`.
pub fn profile(cost: fn(&Shape) -> f64, noise: f64) -> Profile {
    let wall = std::time::Duration::from_millis(1500);
    setup().profile(&visits(cost, noise), wall, None, "2026-01-01T00:00:00Z".into()).unwrap()
}

/// Returns all planned visits of a measurement on a test machine, with five passes each. A pass takes the time `cost`,
/// with relative noise of up to ±`noise`.
pub fn visits(cost: fn(&Shape) -> f64, noise: f64) -> Vec<Visit> {
    let luck = Luck::new(9, Stream::Noise, 7);
    let visit = |(i, stop): (usize, crate::measure::Stop)| {
        let draws = luck.narrow(i as u64);
        let sample = |n| cost(&stop.shape) * (noise * 2.0 * (draws.unit(n) - 0.5)).exp();
        Visit { stop, seconds: (0..5).map(sample).collect() }
    };
    setup().stops().into_iter().enumerate().map(visit).collect()
}

/// The settings of a measurement on a test machine.
pub fn setup() -> Setup {
    Setup {
        foretoken: "0.0.0".into(),
        device: DeviceInfo {
            kind: "cpu".into(),
            name: "a test".into(),
            features: vec!["avx2".into()],
            cores: 2,
            threads: 2,
            speed: None,
            driver: None,
        },
        target: model("big"),
        draft: model("small"),
        target_room: room(),
        draft_room: room(),
        density: Density::Full,
        budget_s: 1.5,
        seed: 1,
    }
}
