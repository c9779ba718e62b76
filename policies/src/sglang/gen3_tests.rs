//! Tests of the policy `sglang-gen3`: its rules against results computed by hand, and the whole policy against a second
//! implementation of SGLang's code.

use super::*;
use crate::testing::{Batch, CONTEXT, outcome};
use foretoken_sim::Drafts;
use proptest::prelude::*;

fn slot(batch_size: u32, candidates: &[u32]) -> Slot {
    Slot { batch_size, candidates: candidates.to_vec(), ..Slot::default() }
}

fn built(params: &SglangGen3, max_num_seqs: u32) -> Slots {
    params.check().unwrap();
    Slots::new(params, &PolicyContext { max_num_seqs, max_draft_len: 32, ..CONTEXT })
}

/// The draft length that the policy proposes for a batch of `requests` decoding requests.
fn proposed(policy: &mut Slots, requests: usize) -> u32 {
    let batch = Batch::new(&vec![100; requests], &vec![8; requests]);
    let mut plan = DraftPlan { draft_len: vec![0; requests], ..DraftPlan::default() };
    policy.propose(&batch.view(), &mut plan);
    plan.draft_len[0]
}

/// Runs a step with `requests` requests, in which at most `accepted` draft tokens of each request are accepted. Returns
/// the draft length of the step.
fn step(policy: &mut Slots, requests: usize, accepted: u32) -> u32 {
    let len = proposed(policy, requests);
    let drafts = Drafts::default();
    policy.observe(&outcome(&drafts, &vec![len; requests], &vec![accepted.min(len); requests]));
    len
}

#[test]
fn the_default_table_starts_at_three_or_in_the_middle() {
    let mut policy = built(&SglangGen3::default(), 256);
    assert_eq!(policy.limits().depth, 3);
    assert_eq!([1, 7, 8, 31, 32, 60, 61, 64, 200].map(|n| proposed(&mut policy, n)), [3, 3, 3, 1, 1, 1, 0, 0, 0]);
    let averages: Vec<f64> = policy.slots.iter().map(|s| s.ema).collect();
    assert_eq!(averages, [2.0, 2.0, 0.0, -1.0]);
}

/// docs/model.md 1.3, rules (i) and (ii): while a range of batch sizes (a slot) drafts 0 tokens, its average accepted
/// length stays, batches still count towards the interval between decisions, and each decision tries the next candidate
/// length.
#[test]
fn a_slot_at_zero_probes_every_interval() {
    let mut policy = built(&SglangGen3::default(), 256);
    let lengths: Vec<u32> = (0..45).map(|_| step(&mut policy, 40, 0)).collect();
    // The decision after batch 15 falls from draft length 1 to 0 (average accepted length 0). Then the length
    // alternates every 5 batches, because each decision at length 0 tries length 1.
    let expected: Vec<u32> = (0..45).map(|n| if n < 15 || (n / 5) % 2 == 0 { 1 } else { 0 }).collect();
    assert_eq!(lengths, expected);
}

#[test]
fn a_slot_with_zero_alone_never_drafts() {
    let mut policy = built(&SglangGen3::default(), 256);
    assert!((0..100).all(|_| step(&mut policy, 100, 0) == 0));
    assert_eq!((policy.slots[3].ema, policy.slots[3].batches), (-1.0, 100));
}

/// docs/model.md 1.3, rule (ii): a range of batch sizes (a slot) that starts at draft length 0 has an average accepted
/// length of −1. When it first tries the next candidate length, this average is replaced.
#[test]
fn the_first_probe_starts_the_average_afresh() {
    let params =
        SglangGen3 { slots: vec![slot(1, &[0, 4, 6])], initial_steps: 0, warmup_batches: 0, ..SglangGen3::default() };
    let mut policy = built(&params, 256);
    (0..5).for_each(|_| assert_eq!(step(&mut policy, 1, 0), 0));
    assert_eq!((policy.slots[0].steps(), policy.slots[0].ema), (4, 3.0));
}

/// docs/model.md 1.3, rule (iii): the draft length falls to 0 if the average accepted length is at most 0.5 +
/// hysteresis. For other lengths the threshold is the length − 0.5 + hysteresis, which no average reaches for length 0.
#[test]
fn zero_is_reached_at_half_a_token() {
    for (average, length) in [(0.5, 0), (0.51, 1)] {
        let params = SglangGen3 {
            down_hysteresis: 0.0,
            up_hysteresis: 5.0,
            slots: vec![slot(1, &[0, 1])],
            ..SglangGen3::default()
        };
        let mut policy = built(&params, 256);
        policy.slots[0].ema = average;
        policy.slots[0].decide();
        assert_eq!(policy.slots[0].steps(), length);
    }
}

/// docs/model.md 1.3, rule (iv): a decision that moved to a shorter draft length does not move to a longer one, even if
/// the average accepted length asks for it.
#[test]
fn a_decision_goes_one_way() {
    let params = SglangGen3 { slots: vec![slot(1, &[1, 3])], down_hysteresis: 2.0, ..SglangGen3::default() };
    let mut policy = built(&params, 256);
    policy.slots[0].ema = 2.4;
    policy.slots[0].decide();
    assert_eq!(policy.slots[0].steps(), 1);
    policy.slots[0].decide();
    assert_eq!(policy.slots[0].steps(), 3);
}

/// docs/model.md 1.3, rule (v): a draft length that does not rise is at most the ceiling, `ceiling_coeff` times the
/// average accepted length.
#[test]
fn the_ceiling_caps_but_never_keeps_from_rising() {
    let decided = |initial_steps, ema| {
        let params = SglangGen3 {
            slots: vec![slot(1, &[1, 3, 5, 7])],
            initial_steps,
            ceiling_coeff: 1.5,
            down_hysteresis: -9.0,
            ..SglangGen3::default()
        };
        let mut policy = built(&params, 256);
        policy.slots[0].ema = ema;
        policy.slots[0].decide();
        policy.slots[0].steps()
    };
    // The ceiling (1.5 times the average accepted length, rounded up) cuts draft length 7 to ceil(1.5 x 2) = 3 and to
    // ceil(1.5 x 0.2) = 1. With an average of 2.6 the length rises from 3 to 5, although the ceiling is 4.
    assert_eq!([decided(7, 2.0), decided(7, 0.2), decided(3, 2.6), decided(5, 4.4)], [3, 1, 5, 5]);
    // The ceiling is at least 1, so it never cuts the draft length to 0. With the `down_hysteresis` of −9 the average
    // accepted length also stays above the threshold of length 0. So the length stays 1.
    let params = SglangGen3 {
        ceiling_coeff: 1.5,
        down_hysteresis: -9.0,
        slots: vec![slot(1, &[0, 1])],
        ..SglangGen3::default()
    };
    let mut policy = built(&params, 256);
    policy.slots[0].ema = 0.0;
    policy.slots[0].decide();
    assert_eq!(policy.slots[0].steps(), 1);
}

/// A range of batch sizes (a slot) keeps its average accepted length while other batch sizes run. If acceptance falls
/// meanwhile, the slot restarts with a draft length that was right earlier.
#[test]
fn a_slot_without_batches_keeps_a_stale_average() {
    let mut policy = built(&SglangGen3::default(), 256);
    (0..15).for_each(|_| assert_eq!(step(&mut policy, 1, 7), 3));
    (0..40).for_each(|_| assert!(step(&mut policy, 1, 7) > 3));
    let learned = (policy.slots[0].steps(), policy.slots[0].ema);
    assert_eq!(learned.0, 7);
    // For a long time all batches have 16 requests, which belong to another range of batch sizes (slot), and no draft
    // token is accepted.
    (0..500).for_each(|_| assert!(step(&mut policy, 16, 0) <= 3));
    assert_eq!((policy.slots[0].steps(), policy.slots[0].ema), learned);
    // Back at one request, this range of batch sizes (slot) drafts 7 tokens for five more batches, until its next
    // decision. Its old average accepted length then lets it fall to 5 only.
    let back: Vec<u32> = (0..10).map(|_| step(&mut policy, 1, 0)).collect();
    assert_eq!(back, [7, 7, 7, 7, 7, 5, 5, 5, 5, 5], "average {}", policy.slots[0].ema);
}

#[test]
fn requests_without_room_are_left_out() {
    let mut policy = built(&SglangGen3::default(), 256);
    let drafts = Drafts::default();
    policy.observe(&outcome(&drafts, &[3, 0, 3], &[3, 0, 1]));
    assert_eq!((policy.slots[0].ema, policy.slots[0].batches), (0.8 * 2.0 + 0.2 * 2.0, 1));
    policy.observe(&outcome(&drafts, &[0, 0], &[0, 0]));
    policy.observe(&outcome(&drafts, &[], &[]));
    assert_eq!(policy.slots[0].batches, 1);
}

#[test]
fn bad_settings_are_named() {
    let bad = |f: fn(&mut SglangGen3)| {
        let mut p = SglangGen3::default();
        f(&mut p);
        let e = p.check().expect_err("refused");
        (e.key, e.why)
    };
    for (f, key, why) in [
        ((|p| p.slots.clear()) as fn(&mut SglangGen3), "slots", "at least one slot"),
        (|p| p.slots.reverse(), "slots", "sort the slots"),
        (|p| p.slots[1].candidates = vec![3, 1], "slots", "batch size 8: candidates [3, 1]"),
        (|p| p.slots[0].candidates.clear(), "slots", "batch size 1: candidates []"),
        (|p| p.slots[0].candidates.push(33), "slots", "from 0 to 32"),
        (|p| p.slots = vec![slot(1, &[3]), slot(8, &[3])], "slots", "use fixed"),
        (|p| p.slots[2].ema_alpha = Some(2.0), "slots", "batch size 32: ema_alpha: 2 is not a share"),
        (|p| p.ema_alpha = -0.1, "ema_alpha", "not a share"),
        (|p| p.update_interval = 0, "update_interval", "at least 1"),
        (|p| p.ceiling_coeff = f64::INFINITY, "ceiling_coeff", "not a factor"),
        (|p| p.down_hysteresis = f64::NAN, "down_hysteresis", "not a number"),
        (|p| p.initial_steps = 99, "initial_steps", "99"),
    ] {
        let (named, said) = bad(f);
        assert!(named == key && said.contains(why), "{named}: {said}");
    }
    assert_eq!(SglangGen3::default().check(), Ok(()));
}

/// A second implementation of a slot (a range of batch sizes), close to SGLang's code: the draft length itself is the
/// state, and every rule searches the list of candidates.
struct ByTheCode {
    candidates: Vec<u32>,
    rule: Rule,
    current_steps: u32,
    ema: f64,
    batch_count: u64,
}

impl ByTheCode {
    fn update(&mut self, accepted: &[u32]) {
        if accepted.is_empty() {
            return;
        }
        if self.current_steps > 0 {
            let mean = accepted.iter().sum::<u32>() as f64 / accepted.len() as f64;
            self.ema = (1.0 - self.rule.ema_alpha) * self.ema + self.rule.ema_alpha * mean;
        }
        self.batch_count += 1;
        let (n, warmup) = (self.batch_count as i64, i64::from(self.rule.warmup_batches));
        if n > warmup && (n - warmup) % i64::from(self.rule.update_interval) == 0 {
            self.current_steps = self.target();
        }
    }

    fn target(&mut self) -> u32 {
        let below = |steps| self.candidates.iter().copied().filter(|&c| c < steps).max();
        let above = |steps| self.candidates.iter().copied().filter(|&c| c > steps).min();
        let old = self.current_steps;
        if old == 0 {
            let target = above(0).unwrap_or(0);
            if target > 0 && self.ema < 0.0 {
                self.ema = f64::from(target) - 1.0;
            }
            return target;
        }
        let mut target = old;
        while let Some(next) = below(target) {
            let threshold = if next == 0 { 0.5 } else { f64::from(next) - 0.5 } + self.rule.down_hysteresis;
            if self.ema > threshold {
                break;
            }
            target = next;
        }
        if target == old {
            while let Some(next) = above(target) {
                if self.ema <= f64::from(target) - 0.5 + self.rule.up_hysteresis {
                    break;
                }
                target = next;
            }
        }
        if self.rule.ceiling_coeff > 0.0 {
            let ceiling = ((self.ema * self.rule.ceiling_coeff).ceil()).max(1.0);
            if f64::from(target) > ceiling && target <= old {
                let kept = self.candidates.iter().copied().filter(|&c| c <= target && f64::from(c) <= ceiling).max();
                target = kept.unwrap_or(self.candidates[0]);
            }
        }
        target
    }
}

prop_compose! {
    fn any_slot()(
        candidates in prop::collection::btree_set(0u32..=7, 1..5),
        ema_alpha in prop::option::of(0.05f64..1.0),
        update_interval in prop::option::of(1u32..4),
        down_hysteresis in prop::option::of(-1.0f64..1.0),
        up_hysteresis in prop::option::of(-1.0f64..1.0),
        ceiling_coeff in prop::option::of(prop_oneof![Just(0.0), 0.5f64..2.0]),
    ) -> Slot {
        let candidates = candidates.into_iter().collect();
        Slot {
            candidates, ema_alpha, update_interval, down_hysteresis, up_hysteresis, ceiling_coeff, ..Slot::default()
        }
    }
}

proptest! {
    #[test]
    fn slots_do_what_sglangs_code_does(
        mut slots in prop::collection::vec(any_slot(), 1..4),
        initial_steps in 0u32..8,
        warmup_batches in 0u32..4,
        cuda_graph in any::<bool>(),
        batches in prop::collection::vec((1usize..24, prop::collection::vec(0u32..=7, 24)), 60),
    ) {
        const KEYS: [u32; 3] = [1, 7, 12];
        slots.iter_mut().zip(KEYS).for_each(|(s, key)| s.batch_size = key);
        let params = SglangGen3 { slots, initial_steps, warmup_batches, cuda_graph, ..SglangGen3::default() };
        prop_assume!(params.check().is_ok());
        let mut policy = built(&params, 20);
        let mut theirs: Vec<ByTheCode> = params.slots.iter().map(|s| {
            let current_steps = match s.candidates.contains(&initial_steps) {
                true => initial_steps,
                false => s.candidates[s.candidates.len() / 2],
            };
            let ema = f64::from(current_steps) - 1.0;
            let (candidates, rule) = (s.candidates.clone(), Rule::of(&params, s));
            ByTheCode { candidates, rule, current_steps, ema, batch_count: 0 }
        }).collect();
        for (requests, wanted) in &batches {
            // SGLang's captured CUDA-graph sizes: 1 to 8, then even sizes up to 20. A larger batch is not padded.
            let graph = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20];
            let size = graph.iter().copied().find(|&g| g >= *requests).filter(|_| cuda_graph).unwrap_or(*requests);
            let keys = &KEYS[..theirs.len()];
            let slot = keys.iter().rposition(|&key| key as usize <= size).unwrap_or(0);
            let len = theirs[slot].current_steps;
            prop_assert_eq!(proposed(&mut policy, *requests), len);
            let accepted: Vec<u32> = wanted[..*requests].iter().map(|&a| a.min(len)).collect();
            theirs[slot].update(&accepted);
            policy.observe(&outcome(&Drafts::default(), &vec![len; *requests], &accepted));
        }
    }
}
