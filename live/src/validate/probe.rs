//! Probes: a few fixed passes of both models, timed before, between and after the live runs of a piece. They alone
//! decide whether the machine kept its speed.

use crate::serve::{Failed, Timed};
use foretoken_profiler::{Kind, Passes, Role, Setup, Shape, grid, uninterrupted_mean};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// A pass that is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// The role of the pass.
    pub role: Role,
    /// The shape of the pass.
    pub shape: Shape,
}

impl std::fmt::Display for Probed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Shape { requests, new, context, .. } = self.shape;
        write!(f, "{} {requests} x {new} at {context}", self.role.name())
    }
}

/// The result of a probe: the mean time of each probed pass in seconds, without interrupted samples, as in a profile.
/// The mean is used because serving on a machine that is slow for a while takes the sum of its passes' times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Seconds, in the order of the probed passes.
    pub seconds: Vec<f64>,
}

/// Number of probes in a piece: before, between and after its live runs.
pub const PROBES: usize = 3;
/// Time for each probed pass in a probe, including the passes run before it, as in a profile. If other tenants share a
/// cache, the median over 20 ms of passes differs by 6 % from the median of the seconds around it, over a quarter of a
/// second by 4 %.
const EACH: Duration = Duration::from_millis(80);
/// Fewest and most samples of each pass. With fewer, interrupted ones cannot be recognised.
const TIMES: (usize, usize) = (5, 400);
/// A pass that takes longer than this is not timed again: with a large model a single pass takes seconds.
const LONG: Duration = Duration::from_secs(1);
/// Number of samples of one pass in a row, after one that is not counted, as in a profile's visits.
const IN_A_ROW: usize = 3;
/// New tokens per request in the probed verify pass: three drafts and the token before them.
const VERIFIED: u32 = 4;

/// Chooses the passes to probe, from the shapes that a profile measures. They are the nearest to these: a decode pass
/// of one request with `context` tokens, a decode and a verify pass of `requests` such requests, a prompt of `prompt`
/// tokens, and a draft's decode pass.
///
/// A prompt is included because prompts may take most of the time, and a busy neighbour slows them differently from
/// decodes.
pub fn probed(setup: &Setup, requests: u32, context: u32, prompt: u32) -> Vec<Probed> {
    let nearest = |role: Role, wanted: Shape| {
        let room = if role == Role::Target { &setup.target_room } else { &setup.draft_room };
        let shapes = grid(role, room, setup.density).into_iter().filter(|s| s.kind == wanted.kind);
        let off = |s: &Shape| {
            let Shape { requests, new, context, .. } = wanted;
            (s.requests.abs_diff(requests), s.new.abs_diff(new), s.context.abs_diff(context))
        };
        Some(Probed { role, shape: shapes.min_by_key(off)? })
    };
    let decode = |requests| Shape { kind: Kind::Decode, requests, new: 1, context };
    let all = [
        nearest(Role::Target, decode(1)),
        nearest(Role::Target, decode(requests)),
        nearest(Role::Target, Shape { kind: Kind::Verify, requests, new: VERIFIED, context }),
        nearest(Role::Target, Shape { kind: Kind::Prefill, requests: 1, new: prompt, context: 0 }),
        nearest(Role::Draft, decode(requests)),
    ];
    let mut once: Vec<Probed> = Vec::new();
    for probed in all.into_iter().flatten() {
        if !once.contains(&probed) {
            once.push(probed);
        }
    }
    once
}

/// Times the passes `probed` on a machine.
///
/// # Errors
/// A pass failed.
pub fn probe(machine: &mut dyn Timed, probed: &[Probed]) -> Result<Probe, Failed> {
    let mut found = Ok(Probe { seconds: Vec::new() });
    machine.time(&mut |passes| found = timed(passes, probed));
    found
}

/// Times the passes in turn, so that all see the same moments: the next pass is always the one with the least time so
/// far.
fn timed(passes: &mut dyn Passes<Error = Failed>, probed: &[Probed]) -> Result<Probe, Failed> {
    let mut all = vec![(Duration::ZERO, Vec::new()); probed.len()];
    let wanted = |(spent, seconds): &(Duration, Vec<f64>)| {
        let (few, most) = (seconds.len() < TIMES.0, seconds.len() >= TIMES.1);
        (few && *spent < LONG) || (!most && *spent < EACH)
    };
    while let Some((_, at)) = (0..all.len()).filter(|&at| wanted(&all[at])).map(|at| (all[at].0, at)).min() {
        let (begun, Probed { role, shape }) = (Instant::now(), probed[at]);
        // This pass is not counted, because the pass before has left its own data in the caches.
        let mut spent = passes.time(role, &shape)?;
        for _ in 0..IN_A_ROW {
            let took = passes.time(role, &shape)?;
            spent += took;
            // A clock too coarse for the pass must not give a time of zero, because times are divided.
            all[at].1.push(took.as_secs_f64().max(1e-9));
            if spent > LONG {
                break;
            }
        }
        all[at].0 += begun.elapsed().max(spent);
    }
    Ok(Probe { seconds: all.iter().map(|(_, seconds)| uninterrupted_mean(seconds)).collect() })
}

/// The times of each probed pass in seconds, probe by probe.
pub fn by_pass<'a>(probes: impl IntoIterator<Item = &'a Probe>) -> Vec<Vec<f64>> {
    let mut of: Vec<Vec<f64>> = Vec::new();
    for probe in probes {
        of.resize(of.len().max(probe.seconds.len()), Vec::new());
        of.iter_mut().zip(&probe.seconds).for_each(|(all, &seconds)| all.push(seconds));
    }
    of
}

/// Largest relative change of a pass between the probes of a piece: the longest mean over the shortest, minus 1. `None`
/// if a probe is missing.
pub fn spread(probes: &[Probe]) -> Option<f64> {
    let passes = probes.first().map_or(0, |p| p.seconds.len());
    if probes.len() < PROBES || passes == 0 || probes.iter().any(|p| p.seconds.len() != passes) {
        return None;
    }
    let of = |pass: usize| {
        let all = probes.iter().map(|p| p.seconds[pass]);
        all.clone().fold(0.0, f64::max) / all.fold(f64::INFINITY, f64::min) - 1.0
    };
    Some((0..passes).map(of).fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_profiler::{Density, DeviceInfo, ModelInfo, Room};
    use foretoken_sim::{Luck, Stream};

    fn probes(seconds: &[[f64; 2]]) -> Vec<Probe> {
        seconds.iter().map(|s| Probe { seconds: s.to_vec() }).collect()
    }

    #[test]
    fn the_spread_is_of_the_pass_that_changed_most() {
        let spread_of = |seconds: &[[f64; 2]]| spread(&probes(seconds)).map(|s| (s * 1e6).round() / 1e6);
        assert_eq!(spread_of(&[[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]]), Some(0.0));
        assert_eq!(spread_of(&[[1.0, 2.0], [1.04, 2.0], [1.02, 2.2]]), Some(0.1));
        // Neither the order matters, nor that the machine came back to its speed.
        assert_eq!(spread_of(&[[1.0, 2.0], [1.2, 2.0], [1.0, 2.0]]), Some(0.2));
        assert_eq!(spread_of(&[[1.2, 2.0], [1.0, 2.0], [1.2, 2.0]]), Some(0.2));
        assert_eq!(spread_of(&[[1.0, 2.0], [1.0, 2.0]]), None);
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&vec![Probe { seconds: vec![] }; 3]), None);
    }

    fn setup() -> Setup {
        let room =
            Room { max_positions: 512, kv_tokens: 8 * 512, max_batched: 256, max_requests: 8, graph_sizes: vec![] };
        let model = ModelInfo {
            name: "m".into(),
            weights: "random".into(),
            dtype: "f32".into(),
            parameters: 1,
            vocab: 2,
            max_positions: 512,
        };
        let device = DeviceInfo {
            kind: "cpu".into(),
            name: "a test".into(),
            features: vec![],
            cores: 1,
            threads: 1,
            speed: None,
            driver: None,
        };
        Setup {
            foretoken: "0".into(),
            device,
            target: model.clone(),
            draft: model,
            target_room: room.clone(),
            draft_room: room,
            density: Density::Full,
            budget_s: 1.0,
            seed: 1,
        }
    }

    #[test]
    fn probed_passes_are_the_nearest_shapes_that_fit() {
        let all = probed(&setup(), 8, 200, 150);
        let said: Vec<String> = all.iter().map(ToString::to_string).collect();
        let (decodes, verify) = (["target 1 x 1 at 256", "target 8 x 1 at 256"], "target 8 x 4 at 64");
        assert_eq!(said, [&decodes[..], &[verify, "target 1 x 128 at 0", "draft 8 x 1 at 256"]].concat());
        // A prompt longer than a pass is split into chunks.
        let few = probed(&setup(), 3, 10, 5000);
        assert_eq!((few[1].shape.requests, few[1].shape.context, few[3].shape.new), (2, 16, 256));
        // With one client two of the passes are the same, and are probed once.
        assert_eq!(probed(&setup(), 1, 200, 150).len(), 4);
    }

    /// A machine whose passes take seconds.
    struct Slow(u32);

    impl Passes for Slow {
        type Error = Failed;

        fn time(&mut self, _: Role, _: &Shape) -> Result<Duration, Failed> {
            self.0 += 1;
            Ok(Duration::from_secs(2))
        }
    }

    #[test]
    fn a_large_model_is_probed_once() {
        let mut machine = Slow(0);
        let all = probed(&setup(), 8, 200, 150);
        assert_eq!(timed(&mut machine, &all).unwrap().seconds, [2.0; 5]);
        // Each sample follows one that is not counted.
        assert_eq!(machine.0, 10);
    }

    /// A machine of constant speed that is interrupted in some passes.
    struct Interrupted {
        passes: usize,
        luck: Luck,
    }

    impl Passes for Interrupted {
        type Error = Failed;

        fn time(&mut self, role: Role, _: &Shape) -> Result<Duration, Failed> {
            self.passes += 1;
            let slow = if self.luck.unit(self.passes as u64) < 0.25 { 5 } else { 1 };
            Ok(Duration::from_micros(slow * if role == Role::Target { 1000 } else { 100 }))
        }
    }

    #[test]
    fn passes_that_were_interrupted_do_not_count() {
        let all = probed(&setup(), 8, 200, 150);
        let mut machine = Interrupted { passes: 0, luck: Luck::new(1, Stream::Noise, 0) };
        let found = timed(&mut machine, &all).unwrap();
        let off = found.seconds.iter().zip([1e-3, 1e-3, 1e-3, 1e-3, 1e-4]).map(|(s, expected)| s / expected - 1.0);
        assert!(off.clone().all(|off| off.abs() < 1e-9), "{found:?}");
        // Including the passes that are not counted.
        assert!(machine.passes >= 5 * (2 + TIMES.0) && machine.passes <= 5 * 2 * TIMES.1, "{}", machine.passes);
    }
}
