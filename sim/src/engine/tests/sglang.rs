//! SGLang's scheduler behind the engine. Its batches are held against SGLang's own (`tests/sglang/`); here are the
//! policies that SGLang lacks, and what is refused.

use super::fixture::Fixture;
use crate::config::{DraftKv, DraftMethod, DraftWeights, QueueOrder, SglangSettings};
use crate::*;

/// 40 requests in five groups with common prefixes, in a pool that is too small for all.
fn crowd(sglang: SglangSettings, overlap: bool) -> Fixture {
    let request = |i: u64| {
        let mut r = Request::new(Time(i * 2_000_000_000), 60 + 7 * (i as u32 % 11), 5 + 3 * (i as u32 % 13));
        r.prefix = vec![1000 + i % 5; 1].into_iter().chain([2000 + i % 2]).collect();
        r.priority = i as i32 % 3;
        r
    };
    let mut f = Fixture::new((0..40).map(request).collect());
    f.workload.prefix_block = 16;
    f.config = EngineConfig {
        version: Version::Sglang0_5_23,
        method: DraftMethod::Eagle3,
        draft_at: None,
        async_scheduling: Some(overlap),
        block_size: 4,
        num_gpu_blocks: 150,
        max_num_seqs: 12,
        sglang,
        ..EngineConfig::default()
    };
    f
}

#[test]
fn every_policy_gets_all_tokens_in_time_and_overlapped() {
    let orders = [QueueOrder::Fcfs, QueueOrder::Lpm, QueueOrder::Lof, QueueOrder::Hrrn, QueueOrder::DfsWeight];
    let mut preempted = 0;
    for (overlap, order) in [true, false].into_iter().flat_map(|overlap| orders.map(|order| (overlap, order))) {
        for (mixed, max_new_tokens) in [(true, None), (false, Some(60))] {
            let settings = SglangSettings {
                chunked_prefill_size: 64,
                enable_mixed_chunk: mixed,
                schedule_policy: order,
                schedule_conservativeness: 0.2,
                max_new_tokens,
                ..SglangSettings::default()
            };
            let f = crowd(settings, overlap);
            let asked: u64 = f.workload.output_len.iter().map(|&n| u64::from(n)).sum();
            for run in [f.plain(), f.erratic(5)] {
                assert!(run.rejected.is_empty());
                assert_eq!(run.totals.emitted, asked, "{overlap} {order:?} {mixed}");
                assert!(run.totals.peak_blocks <= 150);
                preempted += run.totals.preemptions;
            }
        }
    }
    assert!(preempted > 0, "no pressure, no test");
}

#[test]
fn overlap_changes_no_token_and_hides_host_time() {
    let time = |overlap: bool| {
        let mut f = crowd(SglangSettings::default(), overlap);
        f.config.num_gpu_blocks = 10_000;
        f.config.step_overhead_s = 0.002;
        let run = f.erratic(4);
        (run.records.emitted.clone(), run.records.finish.iter().max().copied())
    };
    let ((together, short), (apart, long)) = (time(true), time(false));
    assert_eq!(together, apart);
    assert!(short < long);
}

#[test]
fn a_refused_prompt_runs_as_one_token_and_its_client_gets_nothing() {
    for overlap in [true, false] {
        let mut f = crowd(SglangSettings::default(), overlap);
        f.config.num_gpu_blocks = 100;
        // 400 tokens of KV: prompts above 393 are refused; one of 393 leaves no room for an output.
        for (id, prompt) in [(3, 500), (4, 394), (20, 393)] {
            f.workload.prompt_len[id] = prompt;
        }
        for run in [f.plain(), f.erratic(5)] {
            let mut rejected = run.rejected.clone();
            rejected.sort_unstable();
            assert_eq!(rejected, [3, 4, 20].map(|id| (id, RejectReason::PromptOverPool)));
            for id in [3, 4] {
                assert!(run.records.first_scheduled[id] < run.records.finish[id], "it runs");
                assert_eq!((run.records.emitted[id], run.records.outcome[id]), (1, Outcome::Rejected));
            }
            assert_eq!(run.records.outcome.iter().filter(|&&o| o == Outcome::Finished).count(), 37);
        }
    }
}

#[test]
fn a_full_queue_turns_the_last_or_the_least_urgent_request_away() {
    let away = |priority: bool, most: Option<u32>| {
        let mut f = crowd(SglangSettings { max_queued_requests: most, ..SglangSettings::default() }, true);
        f.config.max_num_seqs = 2;
        f.workload.arrival.fill(Time::ZERO);
        f.config.scheduling_policy = if priority { SchedulingPolicy::Priority } else { SchedulingPolicy::Fcfs };
        let run = f.plain();
        assert!(run.rejected.iter().all(|&(_, reason)| reason == RejectReason::QueueFull));
        let ids: Vec<_> = run.rejected.iter().map(|&(id, _)| id).collect();
        assert_eq!(
            ids.len() as u32 + run.records.outcome.iter().map(|&o| u32::from(o == Outcome::Finished)).sum::<u32>(),
            40
        );
        ids
    };
    assert!(away(false, None).is_empty());
    assert_eq!(away(false, Some(10)), (10..40).collect::<Vec<_>>());
    // Of 40 requests 14 have priority 0: ten of these stay, the first ones.
    let ids = away(true, Some(10));
    assert_eq!((ids.len(), (0..30).step_by(3).all(|id| !ids.contains(&id))), (30, true));
}

/// A run that takes its requests one at a time looks for new ones as rarely as a run that knows all.
#[test]
fn a_streamed_run_looks_for_requests_as_rarely() {
    for arrivals in [Arrivals::Open, Arrivals::Closed { clients: 3 }] {
        let waits = [1, 20].map(|scheduler_recv_interval| {
            let settings = SglangSettings { scheduler_recv_interval, ..SglangSettings::default() };
            let mut f = crowd(settings, true);
            f.config.num_gpu_blocks = 3000;
            let mut sent = (0..40).map(|id| f.workload.get(id));
            f.with(|s| {
                let s = Simulation { arrivals, keep_steps: false, keep_lives: true, ..s };
                let whole = s.run(Speculation::Off).records;
                let mut pieces = Vec::new();
                let mut give = |records| {
                    pieces.push(records);
                    true
                };
                s.stream(Speculation::Off, &mut sent, &mut give);
                assert_eq!(pieces, [whole]);
                (0..40).map(|id| pieces[0].first_token[id] - pieces[0].arrival[id]).max()
            })
        });
        assert!(waits[1] > waits[0], "{arrivals:?} {waits:?}");
    }
}

#[test]
fn what_sglang_lacks_and_what_is_not_built_is_refused_by_name() {
    let refusal = |change: fn(&mut EngineConfig)| {
        let mut f = crowd(SglangSettings::default(), true);
        change(&mut f.config);
        Speculation::Off.check(&f.config, f.drafting).unwrap_err().to_string()
    };
    let says = |change: fn(&mut EngineConfig), what: &str| {
        let said = refusal(change);
        assert!(said.starts_with(what), "{said}");
    };
    says(|c| c.chunked_prefill = Some(true), "engine.chunked_prefill: SGLang has no such setting");
    says(|c| c.draft_at = Some(DraftAt::StepEnd), "engine.draft_at: SGLang has no such setting");
    says(
        |c| (c.sliding_window, c.window_groups) = (128, 2),
        "engine.sliding_window: sliding windows are not simulated",
    );
    says(|c| c.state_blocks = 3, "engine.state_blocks: recurrent states");
    says(|c| c.draft_kv = DraftKv::Separate { blocks: 9 }, "engine.draft_kv: a pool of the draft model's own");
    let weights = |c: &mut EngineConfig| {
        c.draft_weights = Some(DraftWeights { blocks: 4, bytes: 1e9, link_bytes_s: 1e10 });
    };
    says(weights, "engine.draft_weights: weights that leave");
    says(|c| c.sglang.chunked_prefill_size = 3, "engine.sglang.chunked_prefill_size: 3 is below the page of 4 tokens");
    says(|c| c.sglang.max_new_tokens = Some(0), "engine.sglang.max_new_tokens: must be at least 1");
    says(|c| c.sglang.max_queued_requests = Some(0), "engine.sglang.max_queued_requests: must be at least 1");
    says(|c| c.sglang.tlru_tail = 0, "engine.sglang.tlru_tail: must be at least 1");
    says(|c| c.sglang.schedule_conservativeness = -1.0, "engine.sglang.schedule_conservativeness: must be");
}

#[test]
fn a_block_drafter_makes_its_block_in_one_pass() {
    let last = |method: DraftMethod| {
        let mut f = crowd(SglangSettings::default(), true);
        f.config.method = method;
        let run = f.with(|s| s.run(Speculation::Policy(Box::new(super::fixture::Steady(5)))));
        run.records.finish.iter().max().copied()
    };
    assert!(last(DraftMethod::Dflash) < last(DraftMethod::Eagle3));
}
