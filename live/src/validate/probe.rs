//! Probes: timings of a few passes of fixed shapes of both models, made before, between and after the live runs of a
//! piece. Only probes decide whether the machine kept its speed during the piece.

use crate::serve::{Failed, Timed};
use foretoken_profiler::{Kind, Passes, Role, Setup, Shape, grid, uninterrupted_mean};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// A pass of fixed shape that every probe times, to see the machine's speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// The model, target or draft, that runs the pass.
    pub role: Role,
    pub shape: Shape,
}

impl std::fmt::Display for Probed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Shape { requests, new, context, .. } = self.shape;
        write!(f, "{} {requests} x {new} at {context}", self.role.name())
    }
}

/// The result of a probe, which times a few passes of fixed shapes: the mean time of each pass. Samples that an
/// interruption lengthened are left out, as in a profile. The time is a mean and not a median, because a server's time
/// is the sum of its pass times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Mean seconds of each pass that the probe times (to see the machine's speed), in the order of the list of probed
    /// passes.
    pub seconds: Vec<f64>,
}

/// Number of probes in a piece: before, between and after its two live runs.
pub const PROBES: usize = 3;
/// Time that a probe spends on each pass. A probe goes on longer while the pass has fewer than 5 samples ([`TIMES`]).
/// The time includes the pass that runs before each series of samples and gives no sample. If other virtual machines
/// share a cache, the median over 20 ms of passes differs by 6 % from the median over the seconds around it. The median
/// over a quarter of a second still differs by 4 %.
const EACH: Duration = Duration::from_millis(80);
/// (fewest, most) samples of each pass in a probe. With fewer samples, a sample that an interruption lengthened cannot
/// be recognised.
const TIMES: (usize, usize) = (5, 400);
/// After this time, a probe stops timing a pass even if the pass has fewer samples than wanted, because a pass of a
/// large model may take seconds.
const LONG: Duration = Duration::from_secs(1);
/// Number of timed samples of a pass that a probe takes in a row. One pass that is not counted runs before them, as in
/// a profile.
const IN_A_ROW: usize = 3;
/// New tokens per request in the verification pass that a probe times: the newest token and three draft tokens.
const VERIFIED: u32 = 4;

/// Chooses the passes that probes time, to see the machine's speed. From the shapes that a profile measures, it takes
/// the nearest shape to each of these five:
/// - the target's decode pass over one request with `context` tokens;
/// - the target's decode pass over `requests` requests with `context` tokens each;
/// - the target's verification pass over `requests` requests with `context` tokens each;
/// - the target's prefill pass over a prompt of `prompt` tokens;
/// - the draft model's decode pass over `requests` requests with `context` tokens each.
///
/// A prefill pass is included because prompts may take most of the time of a run. Other users of the machine slow down
/// prefill passes differently from decode passes.
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

/// Makes a probe of the machine's speed: times each of the passes `probed` on the machine.
pub fn probe(machine: &mut dyn Timed, probed: &[Probed]) -> Result<Probe, Failed> {
    let mut found = Ok(Probe { seconds: Vec::new() });
    machine.time(&mut |passes| found = timed(passes, probed));
    found
}

/// Times the passes in turns, so that a change of the machine's speed affects all passes. The next pass is always the
/// one on which the least time was spent so far.
fn timed(passes: &mut dyn Passes<Error = Failed>, probed: &[Probed]) -> Result<Probe, Failed> {
    let mut all = vec![(Duration::ZERO, Vec::new()); probed.len()];
    let wanted = |(spent, seconds): &(Duration, Vec<f64>)| {
        let (few, most) = (seconds.len() < TIMES.0, seconds.len() >= TIMES.1);
        (few && *spent < LONG) || (!most && *spent < EACH)
    };
    while let Some((_, at)) = (0..all.len()).filter(|&at| wanted(&all[at])).map(|at| (all[at].0, at)).min() {
        let (begun, Probed { role, shape }) = (Instant::now(), probed[at]);
        // The first of several equal passes in a row is not counted, because the caches hold the data of the pass
        // before.
        let mut spent = passes.time(role, &shape)?;
        for _ in 0..IN_A_ROW {
            let took = passes.time(role, &shape)?;
            spent += took;
            // A coarse clock may measure 0 s. Each time is therefore at least 1 ns, because times are divided by each
            // other.
            all[at].1.push(took.as_secs_f64().max(1e-9));
            if spent > LONG {
                break;
            }
        }
        all[at].0 += begun.elapsed().max(spent);
    }
    Ok(Probe { seconds: all.iter().map(|(_, seconds)| uninterrupted_mean(seconds)).collect() })
}

/// For each pass of fixed shape that the probes time: the list of the pass's times in all probes, in seconds.
pub fn by_pass<'a>(probes: impl IntoIterator<Item = &'a Probe>) -> Vec<Vec<f64>> {
    let mut times: Vec<Vec<f64>> = Vec::new();
    for probe in probes {
        times.resize(times.len().max(probe.seconds.len()), Vec::new());
        times.iter_mut().zip(&probe.seconds).for_each(|(all, &seconds)| all.push(seconds));
    }
    times
}

/// How much the machine's speed changed within a piece. `probes` are the piece's timings of passes of fixed shapes. For
/// each of these passes, the function divides the longest time by the shortest time, and subtracts 1. Returns the
/// largest of these numbers. `None` if a probe is missing or nothing is probed.
pub fn spread(probes: &[Probe]) -> Option<f64> {
    let passes = probes.first().map_or(0, |p| p.seconds.len());
    if probes.len() < PROBES || passes == 0 || probes.iter().any(|p| p.seconds.len() != passes) {
        return None;
    }
    let change = |pass: usize| {
        let all = probes.iter().map(|p| p.seconds[pass]);
        all.clone().fold(0.0, f64::max) / all.fold(f64::INFINITY, f64::min) - 1.0
    };
    Some((0..passes).map(change).fold(0.0, f64::max))
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
        // A pass that becomes slower and a pass that becomes faster both count. A change counts even if the speed
        // returns.
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
        // The prefill pass that probes time has at most as many tokens as a pass may have, even if prompts are longer.
        let few = probed(&setup(), 3, 10, 5000);
        assert_eq!((few[1].shape.requests, few[1].shape.context, few[3].shape.new), (2, 16, 256));
        // With one request, the two decode passes have the same shape. A probe times this shape only once.
        assert_eq!(probed(&setup(), 1, 200, 150).len(), 4);
    }

    /// A machine on which each pass takes 2 s. The `u32` is the number of passes that the machine ran.
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
        // The probe takes one sample of each of its five passes. One pass that is not counted runs before each sample.
        assert_eq!(machine.0, 10);
    }

    /// A machine of constant speed. A quarter of its passes are interrupted and take five times as long as the other
    /// passes.
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
        // `passes` also counts the passes that the machine runs before each series of samples. The times of these
        // passes are discarded.
        assert!(machine.passes >= 5 * (2 + TIMES.0) && machine.passes <= 5 * 2 * TIMES.1, "{}", machine.passes);
    }
}
