//! `cascade-like`: tests draft lengths from 0 up, each for a few steps, until utility falls. Utility is the gain in
//! tokens divided by the rise in cost, both against decoding without draft tokens. Then the tested length with the
//! greatest utility runs for longer; if no length pays, length 0 runs.
//!
//! Source: the abstract of "Utility-Driven Speculative Decoding for Mixture-of-Experts" (Cascade, arXiv 2506.20675).
//! Test phases are short. Set phases, which run the best length, are long. Utility below 1 turns speculation off. Three
//! things are our own, hence "-like" (docs/model.md 7.7): the constants, the growing pauses without speculation, and
//! testing from the shortest length up until utility falls. A vLLM fork scores lengths by accepted/(1 + 0.1 k), without
//! times. This policy does not use that score.

use crate::bandits::bandit::{cut, has_room};
use crate::definition::{About, BadParameter, Check, Definition, PolicyContext};
use foretoken_sim::{
    BatchView, Candidate, DraftLimits, DraftPlan, Explanation, MAX_SPEC_LEN, SpecPolicy, Speculation, StepOutcome,
};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Settings of the policy `cascade-like`, which tests draft lengths from 0 up and then runs the best one for longer.
/// All values are our own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CascadeLike {
    /// Draft lengths to test, each 1 to 32. Length 0 is always tested first.
    pub lengths: Vec<u32>,
    /// Number of steps for which each length is tested, at least 1.
    pub test_steps: u32,
    /// Number of steps for which the best length runs until the next test, at least 1.
    pub set_steps: u32,
    /// Most steps of one pause without speculation, as a multiple of `set_steps`, at least 1. While no length pays,
    /// tests and pauses alternate, and each pause is twice as long as the one before, up to this limit.
    pub most_back_off: u32,
}

impl Default for CascadeLike {
    fn default() -> Self {
        CascadeLike { lengths: vec![1, 2, 3, 4, 5], test_steps: 4, set_steps: 64, most_back_off: 16 }
    }
}

impl Definition for CascadeLike {
    fn about(&self) -> About {
        About {
            summary: "tests lengths by tokens gained over time lost, sets the best for a while, stops speculating \
                      where none pays",
            source: "Cascade (arXiv 2506.20675), abstract",
            sees: "accepted counts and the times of past steps",
            differences: "the paper decides per request for one request at a time; here for the batch. Its constants \
                          are not confirmed: phase lengths, the doubling back-off and climbing from the shortest \
                          length until utility falls are our own. What a trial's steps cost includes prompts that \
                          ride along",
        }
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        self.lengths.iter().copied().max().map(|longest| ("lengths", longest))
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("cascade-like");
        let lengths = &self.lengths;
        check.that("lengths", !lengths.is_empty() && lengths.iter().all(|k| (1..=MAX_SPEC_LEN).contains(k)), || {
            format!("{lengths:?} are not one or more draft lengths from 1 to {MAX_SPEC_LEN}")
        })?;
        for (key, value) in
            [("test_steps", self.test_steps), ("set_steps", self.set_steps), ("most_back_off", self.most_back_off)]
        {
            check.that(key, value > 0, || "must be at least 1".into())?;
        }
        Ok(())
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(Running::new(self, context.max_draft_len)))
    }
}

/// Sums over the steps in which one draft length is tested (a trial): number of steps, accepted and bonus tokens,
/// decode requests, and seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Trial {
    steps: u32,
    tokens: u64,
    requests: u64,
    seconds: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// A test phase: in `Test(i)` the steps draft `lengths[i]` tokens, to measure the utility of this length (gain in
    /// tokens over rise in cost).
    Test(usize),
    /// A set phase: in `Set(length, steps)`, the best length of the last tests runs for `steps` more steps.
    Set(u32, u32),
}

/// The policy `cascade-like` while the engine runs: its settings, and what it keeps from step to step.
struct Running {
    params: CascadeLike,
    /// The draft lengths to test, in rising order; the first is 0.
    lengths: Vec<u32>,
    phase: Phase,
    trial: Trial,
    /// Number of phases begun after the first: test phases, in which one length is tested, and set phases, in which the
    /// best length runs. It is also the id of the current trial (the test of one length). Outcomes of steps of earlier
    /// trials are ignored.
    trials: u64,
    /// Mean seconds of a step without draft tokens, from the newest test of length 0. It is the cost to which other
    /// lengths are compared.
    plain_s: f64,
    /// Utility (gain in tokens divided by the rise in cost) of each length tested since the last set phase, in the
    /// order of `lengths`. It is cleared at the end of the set phase that follows. In a set phase the best length runs.
    utility: Vec<f64>,
    /// Number of set phases (steps with the best tested length) in a row whose draft length was 0, so that nothing was
    /// drafted.
    disabled: u32,
    /// For each step whose outcome has not arrived, oldest first: the id of its trial (the test of one length). `None`
    /// for a step of a set phase, in which the best length runs, and for a step in which no request could draft.
    awaited: VecDeque<Option<u64>>,
}

impl Running {
    fn new(params: &CascadeLike, max_draft_len: u32) -> Running {
        let mut with_none = params.lengths.clone();
        with_none.push(0);
        let lengths = cut(&with_none, max_draft_len);
        Running {
            utility: Vec::with_capacity(lengths.len()),
            lengths,
            params: params.clone(),
            phase: Phase::Test(0),
            trial: Trial::default(),
            trials: 0,
            plain_s: 0.0,
            disabled: 0,
            awaited: VecDeque::new(),
        }
    }

    fn begin(&mut self, phase: Phase) {
        self.phase = phase;
        self.trial = Trial::default();
        self.trials += 1;
    }

    /// Returns the draft length of the next step. A set phase (steps with the best length) counts its steps down. Its
    /// last step starts a new series of tests.
    fn next(&mut self) -> u32 {
        match self.phase {
            Phase::Test(i) => self.lengths[i],
            Phase::Set(k, left) if left > 1 => {
                self.phase = Phase::Set(k, left - 1);
                k
            }
            Phase::Set(k, _) => {
                self.utility.clear();
                self.begin(Phase::Test(0));
                k
            }
        }
    }

    /// Ends the trial (the test) of `lengths[tested]` and stores its utility (gain in tokens divided by the rise in
    /// cost). If there is a longer length, and utility rose or `tested` is 0 or 1, the trial of the next longer length
    /// begins. Otherwise a set phase begins, in which the best length runs. If the best length is 0 and the set phase
    /// before also had length 0, the new set phase is twice as long, up to `most_back_off` times `set_steps`.
    fn conclude(&mut self, tested: usize) {
        let t = self.trial;
        let step_s = t.seconds / f64::from(t.steps);
        if tested == 0 {
            self.plain_s = step_s;
        }
        let before = self.utility.last().copied();
        let gain = t.tokens as f64 / t.requests as f64;
        // Without draft tokens a request gains one token, and the step costs what a step without draft tokens costs. So
        // the utility of length 0 is 1.
        let now = if tested == 0 { 1.0 } else { gain / (step_s / self.plain_s) };
        self.utility.push(now);
        // The tests always go on after length 0 and after the next longer length, even if utility falls there, because
        // a still longer length may pay.
        let rises = tested < 2 || before.is_some_and(|before| now > before);
        if rises && tested + 1 < self.lengths.len() {
            return self.begin(Phase::Test(tested + 1));
        }
        let best =
            (0..self.utility.len()).fold(0, |best, i| if self.utility[i] > self.utility[best] { i } else { best });
        self.disabled = if best == 0 { self.disabled + 1 } else { 0 };
        let times =
            1u32.checked_shl(self.disabled.saturating_sub(1)).unwrap_or(u32::MAX).min(self.params.most_back_off);
        self.begin(Phase::Set(self.lengths[best], self.params.set_steps.saturating_mul(times)));
    }
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.lengths.last().copied().unwrap_or(0))
    }

    /// A step in which no request can draft counts neither for a test phase (a length is tested) nor for a set phase
    /// (the best length runs).
    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        let testing = matches!(self.phase, Phase::Test(_)).then_some(self.trials);
        if !has_room(batch) {
            return self.awaited.push_back(None);
        }
        plan.fill(self.next());
        self.awaited.push_back(testing);
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        // `awaited` has an entry for each call of `propose`. A step without decode requests had no such call.
        if outcome.accepted.is_empty() {
            return;
        }
        let trial = self.awaited.pop_front().flatten();
        let seconds = (outcome.draft_time + outcome.verify_time).as_s();
        if let Phase::Test(tested) = self.phase
            && trial == Some(self.trials)
            && seconds > 0.0
        {
            let t = &mut self.trial;
            t.steps += 1;
            t.requests += outcome.accepted.len() as u64;
            t.tokens += outcome.accepted.iter().map(|&a| u64::from(a) + 1).sum::<u64>();
            t.seconds += seconds;
            if t.steps == self.params.test_steps {
                self.conclude(tested);
            }
        }
    }

    fn explain(&mut self) -> Explanation {
        let tested = self.lengths.iter().zip(&self.utility);
        Explanation {
            estimate: None,
            candidates: tested
                .map(|(k, &estimate)| Candidate { what: format!("k = {k}, its utility"), estimate })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Batch, CONTEXT, outcome};
    use foretoken_sim::{Drafts, Time};

    /// Runs `steps` steps with a batch of two requests. At draft length k, `gain(k)` are the accepted draft tokens of
    /// each request and `ms(k)` the milliseconds of the step. Returns the lengths chosen.
    fn play(p: &mut Running, steps: u32, gain: impl Fn(u32) -> [u32; 2], ms: impl Fn(u32) -> f64) -> Vec<u32> {
        let batch = Batch::new(&[100, 100], &[8, 8]);
        let drafts = Drafts::default();
        (0..steps)
            .map(|_| {
                let mut plan = DraftPlan { draft_len: vec![0, 0], ..DraftPlan::default() };
                p.propose(&batch.view(), &mut plan);
                let k = plan.draft_len[0];
                let verify_time = Time::from_s(ms(k) * 1e-3);
                p.observe(&StepOutcome { verify_time, ..outcome(&drafts, &[k, k], &gain(k)) });
                k
            })
            .collect()
    }

    fn running(lengths: &[u32]) -> Running {
        Running::new(&CascadeLike { lengths: lengths.to_vec(), test_steps: 2, set_steps: 3, most_back_off: 4 }, 8)
    }

    fn with(runs: &[(u32, usize)]) -> Vec<u32> {
        runs.iter().flat_map(|&(k, times)| vec![k; times]).collect()
    }

    /// Draft lengths 0 to 3 have the utilities (gain in tokens divided by the rise in cost) 1, 1.5/1.2 = 1.25, 2/1.3 =
    /// 1.538 and 2/1.4 = 1.429. The tests end at length 3, because its utility is lower. Then the best length, 2, runs
    /// for `set_steps` steps, and the tests start again.
    #[test]
    fn it_climbs_while_utility_rises_and_sets_the_best() {
        let mut p = running(&[1, 2, 3, 4]);
        let gain = |k: u32| [[0, 0], [0, 1], [1, 1], [1, 1], [1, 1]][k as usize];
        let ms = |k: u32| [10.0, 12.0, 13.0, 14.0, 15.0][k as usize];
        let cycle = with(&[(0, 2), (1, 2), (2, 2), (3, 2), (2, 3)]);
        assert_eq!(play(&mut p, 22, gain, ms), [cycle.clone(), cycle].concat());
        play(&mut p, 8, gain, ms);
        let utility: Vec<f64> = p.explain().candidates.iter().map(|c| c.estimate).collect();
        let expected = [1.0, 1.5 / 1.2, 2.0 / 1.3, 2.0 / 1.4];
        assert!(utility.iter().zip(expected).all(|(u, e)| (u - e).abs() < 1e-9) && utility.len() == 4, "{utility:?}");
    }

    /// If no length pays, each pause without speculation is twice as long as the one before, up to `most_back_off`
    /// times `set_steps`. The tests go on after length 1 even if its utility is low.
    #[test]
    fn it_backs_off_where_nothing_pays() {
        let mut p = running(&[1, 2]);
        let tests = [(0, 2), (1, 2), (2, 2)];
        let expected: Vec<u32> =
            [3, 6, 12, 12].iter().flat_map(|&rest| with(&[&tests[..], &[(0, rest)]].concat())).collect();
        let lens = play(&mut p, expected.len() as u32, |_| [0, 0], |k| 10.0 + f64::from(k));
        assert_eq!(lens, expected);
        // Once drafting pays, a set phase (steps with the best tested length) has `set_steps` steps (3) again.
        let lens = play(&mut p, 18, |k| [k, k], |_| 10.0);
        assert_eq!(lens, with(&[(0, 2), (1, 2), (2, 2), (2, 3), (0, 2), (1, 2), (2, 2), (2, 3)])[..18]);
        let mut late = running(&[1, 4]);
        let lens = play(&mut late, 9, |k| if k == 4 { [4, 4] } else { [0, 0] }, |_| 10.0);
        assert_eq!(lens, with(&[(0, 2), (1, 2), (4, 2), (4, 3)]));
    }

    /// Outcomes arrive three steps late. So the policy drafts with the length of a trial (the test of one length) for
    /// three more steps. Outcomes of these steps do not count for the next trial.
    #[test]
    fn late_outcomes_belong_to_their_trial() {
        let mut p = running(&[1]);
        let batch = Batch::new(&[100, 100], &[8, 8]);
        let drafts = Drafts::default();
        let mut on_their_way = VecDeque::new();
        let mut lens = Vec::new();
        for _ in 0..20 {
            let mut plan = DraftPlan { draft_len: vec![0, 0], ..DraftPlan::default() };
            p.propose(&batch.view(), &mut plan);
            lens.push(plan.draft_len[0]);
            on_their_way.push_back(plan.draft_len[0]);
            if on_their_way.len() > 3 {
                let k = on_their_way.pop_front().expect("there are four");
                p.observe(&StepOutcome { verify_time: Time::from_s(0.01), ..outcome(&drafts, &[k, k], &[k, k]) });
            }
        }
        assert_eq!(lens, with(&[(0, 5), (1, 5), (1, 3), (0, 5), (1, 2)]));
        assert_eq!(p.utility[0], 1.0);
    }

    #[test]
    fn bad_settings_are_named() {
        let key = |p: CascadeLike| p.check().expect_err("refused").key;
        assert_eq!(key(CascadeLike { lengths: vec![], ..CascadeLike::default() }), "lengths");
        assert_eq!(key(CascadeLike { lengths: vec![0, 1], ..CascadeLike::default() }), "lengths");
        assert_eq!(key(CascadeLike { set_steps: 0, ..CascadeLike::default() }), "set_steps");
        assert_eq!(Running::new(&CascadeLike::default(), CONTEXT.max_draft_len).limits().depth, 5);
    }
}
