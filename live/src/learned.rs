//! Costs of passes that are fitted to live runs. The tape (the log) of a live run has the shape and time of each pass.
//!
//! Unlike a profile, these costs include effects of earlier passes, such as on caches, as they occur in serving. They
//! cover only the shapes that were served.

use crate::serve::tape::{Pass, Tape, passes, span};
use foretoken_profiler::hardware::LatencySpec;
use foretoken_profiler::{
    CALIBRATED_VERSION, Calibrated, CalibratedModel, FitError, ProbedPass, Role, Served, ServedPass,
};
use foretoken_sim::{Coefficients, ContextReads, HostLaw, Pair, Time};
use std::collections::BTreeSet;

/// The cost of draft passes in runs without draft passes: zero.
const FREE: LatencySpec = LatencySpec::Linear(Coefficients::FREE);

/// The timed passes of live runs, and the host time between the passes.
#[derive(Clone, Debug, Default)]
pub struct Learned {
    /// The timed passes of the target in live runs: their shapes and times.
    pub target: Served,
    /// The timed passes of the draft model in live runs: their shapes and times.
    pub draft: Served,
    /// Host time in seconds, summed over the steps: the time between passes, without the time in which the engine waits
    /// for arrivals and without the time that the recording of the steps takes.
    host_s: f64,
    /// Number of steps over which `host_s` is summed.
    steps: u64,
    /// The draft lengths that occurred, in tokens: for each step with decode requests, the largest number of draft
    /// tokens of a request.
    lengths: BTreeSet<u32>,
}

impl Learned {
    /// Adds the passes, the host time and the draft lengths of a run. `longer(role, tokens)` is the factor by which
    /// passes of the model `role` over `tokens` new tokens took longer than usual during the run. Pass times are
    /// divided by this factor; host times are not.
    pub fn add(&mut self, tape: &Tape, longer: impl Fn(Role, u64) -> f64) {
        let mut last_end = Time::ZERO;
        for step in &tape.steps {
            let Some(ran) = passes(step, last_end) else { continue };
            last_end = span(step).map_or(last_end, |(_, end)| end);
            let requests = (step.rounds.len() + step.chunks.len()) as u64;
            let served = |role, pass: Pass, prompts: bool| ServedPass {
                shape: pass.shape,
                requests,
                prompts,
                seconds: pass.time.as_s() / longer(role, pass.shape.batched),
            };
            let with_prompts = step.chunks.iter().any(|c| c.draft_tokens > 0);
            for (i, pass) in ran.draft.iter().enumerate() {
                self.draft.add(served(Role::Draft, *pass, i == 0 && with_prompts));
            }
            self.target.add(served(Role::Target, ran.target, !step.chunks.is_empty()));
            self.host_s += ran.host.as_s();
            self.steps += 1;
            self.lengths.extend(step.rounds.iter().map(|r| r.drafted).max());
        }
    }

    /// Adds the passes, host time and draft lengths that `other` has collected from further live runs.
    pub fn extend(&mut self, other: &Learned) {
        self.target.extend(&other.target);
        self.draft.extend(&other.draft);
        self.host_s += other.host_s;
        self.steps += other.steps;
        self.lengths.extend(&other.lengths);
    }

    /// Returns the number of steps of all live runs that were added.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns the fitted costs of the passes of both models. The context of a pass counts once per request. If no
    /// draft pass was recorded, draft passes cost nothing. `None` if there is no step.
    pub fn costs(&self) -> Option<Pair<LatencySpec>> {
        let spec = |served: &Served| served.table().map(LatencySpec::Measured);
        Some(Pair { target: spec(&self.target)?, draft: spec(&self.draft).unwrap_or(FREE) })
    }

    /// Makes a calibrated profile from the passes. `device` is the name of the device that ran them. `probes` are
    /// passes of fixed shapes that show the device's speed during the runs. `fitted_to` are the digests of the runs'
    /// tapes.
    pub fn calibrated(
        &self,
        device: String,
        probes: Vec<ProbedPass>,
        fitted_to: Vec<String>,
    ) -> Result<Calibrated, FitError> {
        let model = |served: &Served| -> Result<CalibratedModel, FitError> {
            let cost = served.table().ok_or(FitError::TooFew(0))?;
            Ok(CalibratedModel { cost: LatencySpec::Measured(cost), belief: served.line()?, range: served.range() })
        };
        let drafted = !self.draft.is_empty();
        let mut warnings = Vec::new();
        if !drafted {
            warnings
                .push("nothing was drafted in these runs: what drafts cost is not known, and counts as nothing".into());
        }
        let free = || CalibratedModel { cost: FREE, belief: Coefficients::FREE, range: self.draft.range() };
        Ok(Calibrated {
            calibrated_version: CALIBRATED_VERSION,
            foretoken: env!("CARGO_PKG_VERSION").into(),
            server: device,
            distrust: None,
            warnings,
            step_overhead_s: self.host_s / self.steps.max(1) as f64,
            host: HostLaw::default(),
            noise_cv: self.target.noise_cv(),
            draft_lengths: self.lengths.iter().copied().collect(),
            separated: drafted,
            context_reads: ContextReads::Once,
            probes,
            fitted_to,
            target: model(&self.target)?,
            draft: if drafted { model(&self.draft)? } else { free() },
        })
    }
}

#[cfg(test)]
pub mod testing {
    //! Tapes of live runs on a test machine with known costs.

    use crate::serve::tape::{End, Head, Tail, Tape, TapeEnding};
    use foretoken_sim::live::{Mark, MarkKind, Round, StepTrace};
    use foretoken_sim::{Arrivals, Luck, Pair, PassShape, Stream, Time, Workload};

    /// Returns (seconds of a target pass, seconds of a draft pass) for a pass of `shape`, on an invented test machine.
    pub fn law(shape: PassShape) -> Pair<f64> {
        let (b, c) = (shape.batched as f64, shape.context as f64);
        Pair { target: 2e-4 + 4e-5 * b + 1e-7 * c, draft: 1e-5 + 5e-6 * b + 1e-8 * c }
    }

    /// A tape of `steps` steps. A step has 1 to 8 requests of equal context, and 0 to `drafts` draft tokens for each
    /// request, none of which is accepted. All passes take `slower` times as long as on the test machine.
    pub fn tape(seed: u64, steps: u64, drafts: u64, slower: f64) -> Tape {
        let luck = Luck::new(seed, Stream::Profile, 3);
        let mut now = 0.0;
        let mut mark = |kind, shape: PassShape, seconds: f64| {
            let begin = Time::from_s(now);
            now += slower * seconds;
            Mark { kind, begin, end: Time::from_s(now), device: Time::ZERO, shape }
        };
        let none = PassShape::default();
        let step = |i: u64| {
            let (n, context) = (1 + luck.bits(3 * i) % 8, 20 + luck.bits(3 * i + 1) % 400);
            let drafted = if drafts == 0 { 0 } else { luck.bits(3 * i + 2) % (drafts + 1) };
            let shape =
                |new: u64| PassShape { requests: 1, batched: n * new, context: n * context, pairs: n * new * context };
            let mut marks = vec![mark(MarkKind::Round, none, 0.0)];
            marks.extend((1..=drafted).map(|d| mark(MarkKind::Draft(d as u32), shape(1), law(shape(1)).draft)));
            marks.push(mark(MarkKind::Verify, shape(1 + drafted), law(shape(1 + drafted)).target));
            let round = |request| Round {
                request,
                start: 1,
                context: context as u32,
                drafted: drafted as u32,
                verified: drafted as u32,
                accepted: 0,
                nodes: 0,
            };
            StepTrace { step: i, marks, rounds: (0..n as u32).map(round).collect(), ..StepTrace::default() }
        };
        let head = Head::new("a policy".into(), 1, "a test".into(), Arrivals::Open, &Workload::default());
        let end = End::Tail(Tail { ending: TapeEnding::Done, rejected: vec![] });
        Tape { head, steps: (0..steps).map(step).collect(), end }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{law, tape};
    use super::*;
    use foretoken_sim::PassShape;

    #[test]
    fn costs_learned_from_a_run_predict_its_law() {
        let mut learned = Learned::default();
        learned.add(&tape(1, 4000, 4, 1.0), |_, _| 1.0);
        assert_eq!(learned.steps(), 4000);
        let profile = learned.calibrated("a test".into(), vec![], vec![]).unwrap();
        assert_eq!(profile.check(), Ok(()));
        assert_eq!((profile.separated, profile.draft_lengths.as_slice()), (true, &[0, 1, 2, 3, 4][..]));
        assert!(profile.warnings.is_empty() && profile.noise_cv < 0.02, "{profile:?}");
        let (target, draft) = (profile.target.cost.build(), profile.draft.cost.build());
        for (batched, context) in [(1, 50), (8, 2000), (20, 800), (40, 3000)] {
            let shape = PassShape { requests: 1, batched, context, pairs: batched * 100 };
            let off = target.pass(shape).as_s() / law(shape).target - 1.0;
            assert!(off.abs() < 0.03, "{batched} {context}: {off}");
            if batched <= 8 {
                let off = draft.pass(shape).as_s() / law(shape).draft - 1.0;
                assert!(off.abs() < 0.03, "draft, {batched} {context}: {off}");
            }
        }
        assert!((profile.target.belief.gamma_s / 4e-5 - 1.0).abs() < 0.02, "{:?}", profile.target.belief);
    }

    #[test]
    fn times_are_divided_by_the_pace() {
        let (mut usual, mut paced, mut slow) = (Learned::default(), Learned::default(), Learned::default());
        usual.add(&tape(1, 500, 2, 1.0), |_, _| 1.0);
        paced.add(&tape(1, 500, 2, 1.25), |_, _| 1.25);
        slow.add(&tape(1, 500, 2, 1.25), |_, _| 1.0);
        let seconds = |learned: &Learned| {
            let shape = PassShape { requests: 1, batched: 8, context: 1000, pairs: 8000 };
            learned.costs().unwrap().target.build().pass(shape).as_s()
        };
        assert!((seconds(&paced) / seconds(&usual) - 1.0).abs() < 1e-6);
        assert!((seconds(&slow) / seconds(&usual) - 1.25).abs() < 1e-6);
    }

    #[test]
    fn a_run_without_drafts_has_a_free_draft_and_a_warning() {
        let mut learned = Learned::default();
        assert!(learned.costs().is_none() && learned.calibrated("a test".into(), vec![], vec![]).is_err());
        learned.add(&tape(1, 500, 0, 1.0), |_, _| 1.0);
        let profile = learned.calibrated("a test".into(), vec![], vec![]).unwrap();
        assert!(!profile.separated && profile.warnings[0].contains("nothing was drafted"), "{:?}", profile.warnings);
        assert_eq!(profile.check(), Ok(()));
        let mut both = learned.clone();
        both.add(&tape(2, 500, 3, 1.0), |_, _| 1.0);
        assert_eq!(both.calibrated("a test".into(), vec![], vec![]).unwrap().draft_lengths, [0, 1, 2, 3]);
    }
}
