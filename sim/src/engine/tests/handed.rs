//! Tests of requests that two engines share: one engine computes the prompt, the other engine the output. Each test has
//! one engine and plays the part of the other engine itself.

use super::fixture::{Fixture, Steady};
use crate::*;

const S: fn(f64) -> Time = Time::from_s;

fn part(id: RequestId, part: Part) -> Given {
    Given { part, ..Given::whole(id, Time::ZERO) }
}

/// Two requests with prompts of 64 tokens, and an engine with `blocks` usable KV blocks of 16 tokens.
fn fixture(blocks: u32, draft_at: DraftAt) -> Fixture {
    let mut f = Fixture::new((0..2).map(|_| Request::new(Time::ZERO, 64, 20)).collect());
    f.config.num_gpu_blocks = blocks + 1;
    f.config.block_size = 16;
    f.config.draft_at = Some(draft_at);
    f
}

/// What happened on a replica since the last call: the ids of the requests that ended, and the requests that got blocks
/// for KV from another engine, each with its number of blocks.
fn news(replica: &mut dyn Replica) -> (Vec<RequestId>, Vec<(RequestId, u32)>) {
    let (mut ended, mut reserved) = (Vec::new(), Vec::new());
    replica.take_ended(&mut RequestRecords::new(2), &mut ended);
    replica.take_reserved(&mut reserved);
    (ended.iter().map(|end| end.0).collect(), reserved.iter().map(|r| (r.id, r.blocks)).collect())
}

#[test]
fn a_prompt_keeps_its_blocks_until_they_are_released() {
    for draft_at in [DraftAt::StepStart, DraftAt::StepEnd] {
        fixture(20, draft_at).with(|s| {
            let mut replica = s.replica(Speculation::Policy(Box::new(Steady(3))));
            replica.give(part(0, Part::Prompt));
            replica.run_until(S(1.0), false);
            assert_eq!(news(&mut *replica), (vec![0], vec![]));
            let kept = replica.load().used_blocks;
            assert!((4..=5).contains(&kept), "64 tokens and lookahead slots: {kept}");
            assert_eq!(replica.load().emitted, 0, "no client gets the first token");
            replica.release(0, S(1.0));
            assert_eq!(replica.load().used_blocks, 0);
        });
    }
}

/// While a request waits for the KV of its prompt from another engine, it has blocks only for its prompt. It does not
/// run before this KV has arrived.
#[test]
fn a_held_request_runs_when_its_kv_is_there() {
    for draft_at in [DraftAt::StepStart, DraftAt::StepEnd] {
        fixture(20, draft_at).with(|s| {
            let mut replica = s.replica(Speculation::Policy(Box::new(Steady(3))));
            let index = replica.give(part(1, Part::Output));
            replica.run_until(S(1.0), false);
            assert_eq!(news(&mut *replica), (vec![], vec![(1, 4)]));
            let load = replica.load();
            assert_eq!((load.used_blocks, load.running, load.waiting, load.busy), (4, 0, 1, Time::ZERO));
            replica.kv_arrived(index, S(1.0), true);
            replica.run_until(S(9.0), false);
            assert_eq!(news(&mut *replica).0, [1]);
            assert!(replica.first_token(index).0 > S(1.0));
            assert_eq!((replica.load().emitted, replica.load().used_blocks), (20, 0));
        });
    }
}

/// A pool of 8 blocks. Requests 0 and 1 wait for KV from another engine, and their prompts fill the pool, so that no
/// block is left for their outputs. vLLM would hang. Here the later request gives its blocks back and computes its
/// prompt again.
#[test]
fn held_requests_that_block_each_other_go_on() {
    for draft_at in [DraftAt::StepStart, DraftAt::StepEnd] {
        fixture(8, draft_at).with(|s| {
            let mut replica = s.replica(Speculation::Policy(Box::new(Steady(3))));
            replica.give(part(0, Part::Output));
            replica.give(part(1, Part::Output));
            replica.run_until(S(1.0), false);
            assert_eq!(news(&mut *replica).1, [(0, 4), (1, 4)]);
            replica.kv_arrived(0, S(1.0), true);
            replica.kv_arrived(1, S(1.0), true);
            replica.run_until(S(99.0), false);
            assert_eq!(news(&mut *replica).0, [0, 1]);
            assert_eq!((replica.load().emitted, replica.load().used_blocks), (40, 0));
        });
    }
}

/// If the KV of a held request's prompt will not come from the other engine, the engine computes the prompt itself.
#[test]
fn a_held_request_can_compute_its_prompt_itself() {
    for draft_at in [DraftAt::StepStart, DraftAt::StepEnd] {
        fixture(20, draft_at).with(|s| {
            let mut replica = s.replica(Speculation::Off);
            replica.give(part(0, Part::Output));
            replica.run_until(S(1.0), false);
            replica.computes_here(0, S(1.0));
            replica.run_until(S(9.0), false);
            assert_eq!(news(&mut *replica).0, [0]);
            assert_eq!(replica.load().emitted, 20);
        });
    }
}
