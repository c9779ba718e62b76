//! Tests of the policy `sglang-throughput`: the acceptance rates of positions and the table of step times against
//! results computed by hand, and the whole policy against a second implementation of SGLang's code.

use super::*;
use crate::testing::{BELIEF, Batch, CONTEXT, any_belief, close, outcome};
use foretoken_sim::Drafts;
use proptest::prelude::*;
use std::collections::{HashMap, VecDeque};

fn built(params: &SglangThroughput, context: &PolicyContext) -> BestScore {
    params.check().unwrap();
    BestScore::new(params, context)
}

fn proposed(policy: &mut BestScore, requests: usize) -> u32 {
    let batch = Batch::new(&vec![100; requests], &vec![8; requests]);
    let mut plan = DraftPlan { draft_len: vec![0; requests], ..DraftPlan::default() };
    policy.propose(&batch.view(), &mut plan);
    plan.draft_len[0]
}

#[test]
fn rates_are_unconditional_and_deeper_ones_are_extrapolated() {
    let drafts = Drafts::default();
    let mut tracker = Tracker::new(2, 5);
    assert_eq!(tracker.expected_tokens(1), None);
    // Each of four requests has 3 verified draft tokens. The first draft token was accepted for 3 of the requests, the
    // second for 1, the third for 1.
    tracker.take_in(&outcome(&drafts, &[3, 3, 3, 3], &[3, 1, 0, 1]), 3);
    assert_eq!(tracker.expected_tokens(3), Some(1.0 + 0.75 + 0.25 + 0.25));
    // Draft positions 3 and 4 have no measured acceptance rate. The rates before them are continued: p3 = p2 (0.25 /
    // 0.75)^(1/2), p4 = p3 (p3 / 0.75)^(1/3).
    let p3 = 0.25 * (1.0f64 / 3.0).sqrt();
    let p4 = p3 * (p3 / 0.75).cbrt();
    assert!(close(tracker.expected_tokens(5).unwrap(), 2.25 + p3 + p4));
    // The window of acceptance rates holds two verify batches (steps with verified draft tokens); this third one
    // removes the first.
    tracker.take_in(&outcome(&drafts, &[1], &[1]), 1);
    assert!(!tracker.warm(3) && tracker.warm(1));
    tracker.take_in(&outcome(&drafts, &[1], &[0]), 1);
    assert_eq!(tracker.expected_tokens(1), Some(1.5));
    // If only the first draft position has an acceptance rate, the second position is assumed to have the same rate. If
    // the first rate is 0, the rates of all further positions are 0.
    tracker.clear_from(1);
    assert_eq!(tracker.expected_tokens(2), Some(2.0));
    (0..2).for_each(|_| tracker.take_in(&outcome(&drafts, &[1], &[0]), 1));
    assert_eq!(tracker.expected_tokens(4), Some(1.0));
}

#[test]
fn a_request_that_could_not_draft_a_position_does_not_count_there() {
    let mut tracker = Tracker::new(1, 3);
    tracker.take_in(&outcome(&Drafts::default(), &[2, 0, 1], &[1, 0, 1]), 3);
    assert_eq!(tracker.expected_tokens(2), Some(1.0 + 1.0 + 0.0));
    assert!(tracker.warm(2) && !tracker.warm(3));
}

#[test]
fn costs_are_looked_up_at_the_next_profiled_size() {
    let params = SglangThroughput { max_profile_run_batch_size: Some(32), ..SglangThroughput::default() };
    let policy = built(&params, &CONTEXT);
    // docs/model.md 12: a decode step of B requests with draft length S has S draft passes, then one target pass over B
    // (S + 1) tokens.
    let seconds = |b: f64, s: u32| {
        let (d, t, c) = (BELIEF.draft, BELIEF.target, 2048.0);
        let draft: f64 = (0..s).map(|j| d.alpha_s * b * (c + f64::from(j)) + d.gamma_s * b + d.delta_s).sum();
        draft + t.alpha_s * b * c + t.gamma_s * b * f64::from(s + 1) + t.delta_s
    };
    for (batch, size, steps) in [(1, 1.0, 7), (9, 10.0, 5), (31, 32.0, 3), (60, 32.0, 1)] {
        let at = policy.table.at(batch, steps).unwrap();
        assert!(close(at, seconds(size, steps)), "{batch} requests, {steps} steps: {at}");
    }
    // Draft lengths that are not candidates of the batch size's slot (its range of batch sizes) are not timed, so the
    // table has no time for them.
    assert_eq!([policy.table.at(9, 7), policy.table.at(32, 5), policy.table.at(1, 2)], [None; 3]);
}

#[test]
fn without_a_profiled_size_the_length_stays_and_a_warning_says_so() {
    let params = SglangThroughput { profile_run_batch_sizes: Some(vec![9]), ..SglangThroughput::default() };
    let mut policy = built(&params, &CONTEXT);
    for _ in 0..60 {
        assert_eq!(proposed(&mut policy, 2), 3);
        policy.observe(&outcome(&Drafts::default(), &[3, 3], &[0, 0]));
    }
    assert!(policy.warnings()[0].contains("profiled no batch size") && policy.explain().estimate.is_none());
}

#[test]
fn explain_lists_the_candidates_of_a_decision() {
    let mut policy = built(&SglangThroughput::default(), &CONTEXT);
    policy.explain();
    assert_eq!(policy.limits().depth, 3);
    for _ in 0..20 {
        proposed(&mut policy, 2);
        assert!(policy.explain().candidates.is_empty());
        policy.observe(&outcome(&Drafts::default(), &[3, 3], &[3, 3]));
    }
    // A decision about the draft length is due, so the limit is the longest candidate. All draft tokens were accepted,
    // so the longest candidate is chosen.
    assert_eq!((policy.limits().depth, proposed(&mut policy, 2)), (7, 7));
    let what: Vec<String> = policy.explain().candidates.into_iter().map(|c| c.what).collect();
    assert_eq!(what, ["1 steps", "3 steps", "5 steps", "7 steps"]);
    assert_eq!(policy.explain().estimate, Some(policy.explain().candidates[3].estimate));
}

#[test]
fn a_margin_keeps_the_present_length() {
    for (switch_hysteresis, steps) in [(0.0, 7), (10.0, 3)] {
        let mut policy = built(&SglangThroughput { switch_hysteresis, ..SglangThroughput::default() }, &CONTEXT);
        (0..20).for_each(|_| policy.observe(&outcome(&Drafts::default(), &[3, 3], &[3, 3])));
        assert_eq!(proposed(&mut policy, 2), steps);
    }
}

#[test]
fn bad_settings_are_named() {
    for (f, key) in [
        ((|p| p.slots.clear()) as fn(&mut SglangThroughput), "slots"),
        (|p| p.slots[0].candidates = vec![0, 1], "slots"),
        (|p| p.slots[0].candidates = vec![3, 1], "slots"),
        (|p| p.slots = vec![CandidateSlot { batch_size: 1, candidates: vec![3] }], "slots"),
        (|p| p.window_size = 0, "window_size"),
        (|p| p.window_size = u32::MAX, "window_size"),
        (|p| p.update_interval = 0, "update_interval"),
        (|p| p.switch_hysteresis = -0.1, "switch_hysteresis"),
        (|p| p.profile_run_seq_len = 0, "profile_run_seq_len"),
        (|p| p.profile_run_batch_sizes = Some(vec![0]), "profile_run_batch_sizes"),
        (|p| p.max_profile_run_batch_size = Some(0), "max_profile_run_batch_size"),
        (|p| p.initial_steps = 77, "initial_steps"),
    ] {
        let mut p = SglangThroughput::default();
        f(&mut p);
        assert_eq!(p.check().map_err(|e| e.key), Err(key));
    }
    assert_eq!(SglangThroughput::default().check(), Ok(()));
}

/// A second implementation of SGLang's controller, close to its code: queues of acceptance rates, a dictionary of step
/// times, lists of known rates.
struct ByTheCode<'a> {
    params: &'a SglangThroughput,
    windows: Vec<VecDeque<f64>>,
    costs: HashMap<(u32, u32), f64>,
    sizes: Vec<u32>,
    current_steps: u32,
    batch_count: u32,
}

impl<'a> ByTheCode<'a> {
    fn new(params: &'a SglangThroughput, belief: &crate::Belief, sizes: Vec<u32>) -> Self {
        let mut all: Vec<u32> = params.slots.iter().flat_map(|s| s.candidates.clone()).collect();
        all.sort_unstable();
        let first = &params.slots[0].candidates;
        let listed = all.contains(&params.initial_steps);
        let current_steps = if listed { params.initial_steps } else { first[first.len() / 2] };
        let mut code = ByTheCode {
            params,
            windows: vec![VecDeque::new(); *all.last().unwrap() as usize],
            costs: HashMap::new(),
            sizes,
            current_steps,
            batch_count: 0,
        };
        for &size in &code.sizes {
            for &steps in code.candidates(size) {
                let n = size as usize;
                let batch = Batch::new(&vec![params.profile_run_seq_len; n], &vec![steps; n]);
                let cost = belief.step_s(&batch.view(), &vec![steps; n], &vec![steps; n]);
                code.costs.insert((size, steps), cost);
            }
        }
        code
    }

    fn candidates(&self, batch_size: u32) -> &'a [u32] {
        let size = self.sizes.iter().copied().find(|&s| s >= batch_size).unwrap_or(batch_size);
        let slots = &self.params.slots;
        &slots.iter().rev().find(|s| s.batch_size <= size).unwrap_or(&slots[0]).candidates
    }

    fn expected(&self, steps: u32) -> Option<f64> {
        let mut rates: Vec<f64> = Vec::new();
        for k in 0..steps as usize {
            let window = &self.windows[k];
            let rate = if !window.is_empty() {
                window.iter().sum::<f64>() / window.len() as f64
            } else if rates.is_empty() {
                return None;
            } else if rates.len() == 1 {
                rates[0]
            } else if rates[0] <= 0.0 {
                0.0
            } else {
                let last = rates[rates.len() - 1];
                let alpha = (last / rates[0]).powf(1.0 / (rates.len() - 1) as f64);
                (last * alpha).min(last).max(0.0)
            };
            rates.push(rate);
        }
        Some(1.0 + rates.iter().sum::<f64>())
    }

    fn score(&self, batch_size: u32, steps: u32) -> Option<f64> {
        let size = self.sizes.iter().find(|&&s| s >= batch_size).or(self.sizes.last())?;
        Some(self.expected(steps)? / self.costs.get(&(*size, steps))?)
    }

    /// The candidate draft lengths for the batch size with their scores (expected tokens per second), as (length,
    /// score), if a decision is due; else nothing.
    fn activate(&mut self, batch_size: u32) -> Vec<(u32, f64)> {
        let full = |w: &VecDeque<f64>| w.len() == self.params.window_size as usize;
        let warmed = self.windows[..self.current_steps as usize].iter().all(full);
        if self.batch_count == 0 || !self.batch_count.is_multiple_of(self.params.update_interval) || !warmed {
            return Vec::new();
        }
        let scored = |&s: &u32| Some((s, self.score(batch_size, s)?));
        self.candidates(batch_size).iter().filter_map(scored).collect()
    }

    fn switch(&mut self, steps: u32) {
        if steps < self.current_steps {
            self.windows[steps as usize..].iter_mut().for_each(VecDeque::clear);
        }
        self.current_steps = steps;
    }

    fn verified(&mut self, accepted: &[u32]) {
        for k in 0..self.current_steps {
            let rate = accepted.iter().filter(|&&a| a > k).count() as f64 / accepted.len() as f64;
            let window = &mut self.windows[k as usize];
            window.push_back(rate);
            if window.len() > self.params.window_size as usize {
                window.pop_front();
            }
        }
        self.batch_count += 1;
    }
}

prop_compose! {
    fn any_params()(
        lists in prop::collection::vec(prop::collection::btree_set(1u32..=7, 1..4), 1..4),
        window_size in 1u32..5,
        update_interval in 1u32..4,
        initial_steps in 1u32..=7,
        profile_run_seq_len in 1u32..4000,
    ) -> SglangThroughput {
        let slots = lists.into_iter().zip([1, 5, 11]).map(|(list, batch_size)| {
            CandidateSlot { batch_size, candidates: list.into_iter().collect() }
        }).collect();
        SglangThroughput {
            slots, window_size, update_interval, initial_steps, profile_run_seq_len, ..SglangThroughput::default()
        }
    }
}

proptest! {
    #[test]
    fn decisions_are_those_of_sglangs_code(
        params in any_params(),
        belief in any_belief(),
        batches in prop::collection::vec((1usize..=16, prop::collection::vec(0u32..=7, 16)), 50),
    ) {
        prop_assume!(params.check().is_ok());
        let context = PolicyContext { belief, profile: &belief, max_num_seqs: 16, ..CONTEXT };
        let mut policy = built(&params, &context);
        let mut theirs = ByTheCode::new(&params, &belief, vec![1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16]);
        for (requests, wanted) in &batches {
            let scores = theirs.activate(*requests as u32);
            let len = proposed(&mut policy, *requests);
            let best = scores.iter().map(|s| s.1).fold(f64::NEG_INFINITY, f64::max);
            match scores.iter().find(|s| s.0 == len) {
                // The two implementations sum acceptance rates in different orders, so they may choose different draft
                // lengths if two scores tie.
                Some(&(_, score)) => prop_assert!(score >= best * (1.0 - 1e-9), "{len} for {scores:?}"),
                None => prop_assert!(scores.is_empty() && len == theirs.current_steps, "{len} for {scores:?}"),
            }
            theirs.switch(len);
            let accepted: Vec<u32> = wanted[..*requests].iter().map(|&a| a.min(len)).collect();
            theirs.verified(&accepted);
            policy.observe(&outcome(&Drafts::default(), &vec![len; *requests], &accepted));
        }
    }
}
