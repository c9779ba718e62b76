//! Compares our scheduler with schedules that were recorded from vLLM's own scheduler (`tests/vllm/README.md`).

use foretoken_sim::engine::{Order, Rules};
use foretoken_sim::{DeliverAt, SchedulingPolicy, Version};
use foretoken_tests::vllm::{Fixture, Recorded, replay, replay_by, rules};
use std::collections::BTreeMap;
use std::io::BufReader;
use std::sync::LazyLock;

type Fired = BTreeMap<String, u64>;

fn read(file: &[u8]) -> (Vec<Recorded>, Fired) {
    let mut fixture = Fixture::open(BufReader::new(zstd::Decoder::new(file).unwrap())).unwrap();
    let workloads = std::iter::from_fn(|| fixture.read().unwrap()).collect();
    (workloads, fixture.fired)
}

static V0_33: LazyLock<(Vec<Recorded>, Fired)> =
    LazyLock::new(|| read(include_bytes!("../../vllm/vllm-0.33.0.txt.zst")));
static V0_32: LazyLock<(Vec<Recorded>, Fired)> =
    LazyLock::new(|| read(include_bytes!("../../vllm/vllm-0.32.0.txt.zst")));
static CORE_0_33: LazyLock<(Vec<Recorded>, Fired)> =
    LazyLock::new(|| read(include_bytes!("../../vllm/core-0.33.0.txt.zst")));
static CORE_0_32: LazyLock<(Vec<Recorded>, Fired)> =
    LazyLock::new(|| read(include_bytes!("../../vllm/core-0.32.0.txt.zst")));
static V0: LazyLock<(Vec<Recorded>, Fired)> = LazyLock::new(|| read(include_bytes!("../../vllm/vllm-0.6.3.txt.zst")));

#[test]
fn our_scheduler_makes_every_recorded_step() {
    let all = [(&*V0_33, 400), (&*V0_32, 400), (&*V0, 100), (&*CORE_0_33, 400), (&*CORE_0_32, 400)];
    for ((workloads, _), least) in all {
        assert!(workloads.len() >= least, "{} workloads", workloads.len());
        let differ: Vec<String> =
            workloads.iter().filter_map(|w| Some(format!("line {}: {}", w.line, replay(w).err()?))).collect();
        assert!(differ.is_empty(), "{} of {} differ: {differ:#?}", differ.len(), workloads.len());
    }
}

/// Each rule of vLLM's scheduler, such as preemption, was applied at least 200 times in the recordings of vLLM 0.33,
/// and at least 200 times in the recordings of 0.32. So the recordings test each rule.
#[test]
fn every_rule_fired_often() {
    let rules = [
        "preemption", "self-preemption", "padded admission", "padded admission refused",
        "drafts cut by the token budget", "drafts cut by the input budget", "drafts cut by max_model_len",
        "eviction of a cached block", "partial hit", "watermark refused", "whole sequence refused", "threshold lifted",
        "priority victim already scheduled",
    ];
    for (_, fired) in [&*V0_33, &*V0_32] {
        for rule in rules {
            assert!(fired.get(rule).is_some_and(|&times| times >= 200), "{rule}: {:?}", fired.get(rule));
        }
    }
}

/// Each effect of the order in which the engine core calls the scheduler (such as a step without requests) occurred at
/// least 200 times in the recordings of the engine core, both of vLLM 0.33 and of 0.32. Two effects are required for
/// 0.33 only: skipped drafting, and drafting that delayed the next step. Each order of calls ran in at least 200
/// workloads of 0.33.
#[test]
fn every_order_of_calls_occurred_often() {
    let both = ["stale output", "extra step after an end", "empty schedule", "slept 1 ms"];
    let new = ["drafts skipped", "drafts delayed the next step"];
    for (rules, (_, fired)) in [(&both[..], &*CORE_0_33), (&both, &*CORE_0_32), (&new, &*CORE_0_33)] {
        for rule in rules {
            assert!(fired.get(*rule).is_some_and(|&times| times >= 200), "{rule}: {:?}", fired.get(*rule));
        }
    }
    let ran = |order| {
        let done = CORE_0_33.0.iter().filter(|w| w.derived.is_some());
        done.filter(|w| rules(w).unwrap().order == order).count()
    };
    assert!(ran(Order::StepEnd) >= 200 && ran(Order::Async) >= 200);
}

/// Switches off one rule of our scheduler at a time. The replay must then differ from the recording.
#[test]
fn switching_off_any_rule_changes_a_schedule() {
    type Change = fn(&mut Rules);
    let new: [(&str, Change); 15] = [
        ("lookahead slots", |r| r.num_lookahead_tokens = 0),
        ("the input budget", |r| r.draft_slots = 0),
        ("padded admissions", |r| r.pad_admissions = 0),
        ("the prefill lookahead", |r| r.num_prefill_lookahead_tokens = 0),
        ("the hash lookahead", |r| r.num_hash_lookahead_tokens = 0),
        ("the admission limit", |r| r.max_num_active_seqs = u32::MAX),
        ("the watermark", |r| r.watermark_blocks = 0),
        ("skipped drafts", |r| r.can_skip_drafts = false),
        ("the table by batch size", |r| r.per_batch_size = None),
        ("caching of verified tokens", |r| r.cache_when_verified = false),
        ("the lone request's exception", |r| r.lift_threshold_when_alone = false),
        ("going on after a self-preemption", |r| r.goes_on_after_self_preemption = false),
        ("the adaptive threshold", |r| r.long_prefill_token_threshold_adaptive = false),
        ("the prefill interval", |r| r.prefill_schedule_interval = 1),
        ("priorities", |r| r.policy = SchedulingPolicy::Fcfs),
    ];
    let both: [(&str, Change); 2] = [
        ("the threshold", |r| r.long_prefill_token_threshold = 0),
        ("the whole sequence's reservation", |r| r.reserve_full_isl = false),
    ];
    let old: [(&str, Change); 2] = [
        ("the dropped last block", |r| r.drop_last_hit = false),
        ("that it paces no prefills", |r| r.prefill_schedule_interval = 4),
    ];
    let core: [(&str, Change); 7] = [
        ("the order of calls", |r| r.order = if r.order == Order::Async { Order::StepEnd } else { Order::Async }),
        ("delivery before drafting", |r| r.deliver_at = DeliverAt::Drafted),
        ("delivery after drafting", |r| r.deliver_at = DeliverAt::Sampled),
        ("the passes of the drafter", |r| r.draft_passes = Default::default()),
        ("one length for all", |r| r.one_length = false),
        ("that drafts are lost", |r| r.loses_drafts = false),
        ("that no request drafts near the end of a context", |r| r.draft_passes.ends_early = None),
    ];
    let v0: [(&str, Change); 5] = [
        ("v0's lookahead slots", |r| r.num_lookahead_tokens = 0),
        ("v0's watermark", |r| r.watermark_blocks = 0),
        ("v0's priorities", |r| r.policy = SchedulingPolicy::Fcfs),
        ("v0's drafts at its end", |r| r.max_model_len += 1),
        ("v0 itself", |r| r.version = Version::V0_32),
    ];
    let shows = |(workloads, _): &(Vec<Recorded>, Fired), (name, change): &(&str, Change)| {
        let differ = workloads.iter().filter(|w| w.derived.is_some()).filter(|w| {
            let mut rules = rules(w).unwrap();
            change(&mut rules);
            replay_by(w, rules).is_err()
        });
        assert!(differ.count() > 0, "without {name} nothing is different");
    };
    new.iter().chain(&both).for_each(|rule| shows(&V0_33, rule));
    old.iter().chain(&both).for_each(|rule| shows(&V0_32, rule));
    v0.iter().for_each(|rule| shows(&V0, rule));
    core.iter().for_each(|rule| shows(&CORE_0_33, rule));
}
