//! Recurrent states, windows and compressors: the blocks of a running request that hold no tokens.

use super::fixture::{Fixture, Steady};
use crate::config::{DraftKv, DraftMethod};
use crate::*;

/// 32 requests of 400 prompt and 20 output tokens, at once, in a pool of 4,360 blocks of 16 tokens.
fn hybrid(state_blocks: u32) -> Fixture {
    let mut f = Fixture::new(vec![Request::new(Time::ZERO, 400, 20); 32].into_iter().collect());
    f.config =
        EngineConfig { state_blocks, num_gpu_blocks: 4360, method: DraftMethod::Dflash, ..EngineConfig::default() };
    f.config.max_draft_len = 15;
    f
}

fn run(f: &Fixture, k: u32) -> Run {
    match k {
        0 => f.plain(),
        k => f.with(|s| s.run(Speculation::Policy(Box::new(Steady(k))))),
    }
}

/// The most requests that ran in a step.
fn most(run: &Run) -> u32 {
    run.steps.iter().map(|s| s.batch_size + s.chunks).max().unwrap()
}

/// A state of Qwen3.5-27B takes 147 of these blocks (153.9 MB of 1.05 MB each).
#[test]
fn a_request_holds_a_state_for_each_token_of_its_longest_draft() {
    // By hand: 4,359 blocks can be used. A request of 420 tokens takes 27 of them and 147 · (1 + K).
    for (k, fits) in [(0, 25), (4, 5), (7, 3), (15, 1)] {
        let r = run(&hybrid(147), k);
        let preempted: u32 = r.steps.iter().map(|s| s.preempted).sum();
        assert_eq!((most(&r), preempted, r.rejected.len()), (fits, 0, 0), "K = {k}");
    }
    // Pages of 784 tokens, as vLLM has them: 88 blocks, of which a request takes 1 and 3 · (1 + K).
    for (k, fits) in [(0, 22), (4, 5), (7, 3), (15, 1)] {
        let mut f = hybrid(3);
        (f.config.block_size, f.config.num_gpu_blocks) = (784, 89);
        assert_eq!(most(&run(&f, k)), fits, "K = {k}");
    }
}

#[test]
fn without_states_nothing_changes() {
    let steps = |f: &Fixture, k| run(f, k).steps;
    let mut given = hybrid(0);
    given.config.request_blocks = 0;
    let plain = Fixture { config: EngineConfig { state_blocks: 0, ..hybrid(0).config }, ..hybrid(0) };
    for k in [0, 4] {
        assert_eq!(steps(&given, k), steps(&plain, k));
        assert_eq!(most(&run(&plain, k)), 32);
    }
}

#[test]
fn all_blocks_come_back() {
    for draft_kv in [DraftKv::None, DraftKv::Separate { blocks: 600 }] {
        for prefix_caching in [true, false] {
            let mut f = hybrid(100);
            f.config = EngineConfig { prefix_caching, draft_kv, request_blocks: 7, max_draft_len: 8, ..f.config };
            // A policy that drafts at random preempts and drops requests.
            assert_eq!(f.memory_after(true), (0, 0), "{draft_kv:?}");
            assert_eq!(f.memory_after(false), (0, 0), "{draft_kv:?}");
        }
    }
}

#[test]
fn ids_of_blocks_change_no_step() {
    let f = hybrid(147);
    let counted = f.with(|s| s.run(Speculation::Policy(Box::new(super::fixture::Erratic::new(5, false)))));
    assert_eq!(counted.steps, f.erratic_addressed(5).steps);
}

#[test]
fn a_pool_without_room_for_one_request_is_refused() {
    let mut f = hybrid(300);
    f.config.max_draft_len = 14;
    f.config.num_gpu_blocks = 4400;
    let speculation = Speculation::Policy(Box::new(Steady(14)));
    let said = speculation.check(&f.config, f.drafting).unwrap_err().to_string();
    assert!(said.contains("15 recurrent states, windows and compressors take 4500"), "{said}");
}

/// 32 requests of `prompt` and 200 tokens, at once, for a model of which every second layer has a window of 128 tokens.
fn sliding(prompt: u32, num_gpu_blocks: u32) -> Fixture {
    let mut f = Fixture::new(vec![Request::new(Time::ZERO, prompt, 200); 32].into_iter().collect());
    f.config = EngineConfig { sliding_window: 128, window_groups: 1, num_gpu_blocks, ..EngineConfig::default() };
    f.config.max_draft_len = 4;
    f
}

#[test]
fn layers_with_a_window_keep_its_tokens_alone() {
    // By hand: at its end a request of 2,000 + 200 tokens has 138 blocks in the layers that keep all, and up to 9 in
    // those with a window, which reaches into one block more than its 8. One request's prompt, which is computed in one
    // step, needs 126 in both groups until the next step.
    let held = |f: &Fixture| most(&f.plain());
    assert_eq!(held(&sliding(2000, 1 + 32 * 147 + 126)), 32);
    let tight = sliding(2000, 1 + 10 * 147);
    assert!((9..=10).contains(&held(&tight)), "{}", held(&tight));
    let keeps = EngineConfig { sliding_window: 1 << 20, ..tight.config.clone() };
    assert_eq!(held(&Fixture { config: keeps, ..tight }), 5);
    // Prompts that are shorter than the window take as much in both groups: 4 blocks each, of 160.
    assert_eq!(held(&sliding(60, 161)), 20);
}

#[test]
fn blocks_of_windows_come_back() {
    for prefix_caching in [true, false] {
        for async_scheduling in [Some(true), Some(false)] {
            let mut f = sliding(300, 700);
            f.config = EngineConfig { prefix_caching, async_scheduling, ..f.config };
            assert_eq!(f.memory_after(true), (0, 0));
            assert_eq!(f.memory_after(false), (0, 0));
            let counted = f.with(|s| s.run(Speculation::Policy(Box::new(super::fixture::Erratic::new(5, false)))));
            assert_eq!(counted.steps, f.erratic_addressed(5).steps);
        }
    }
}

#[test]
fn a_window_without_its_groups_is_refused() {
    let config = EngineConfig { sliding_window: 128, ..EngineConfig::default() };
    let said = config.check().unwrap_err().to_string();
    assert_eq!(said, "engine.sliding_window: engine.window_groups is missing, or 0: give both, or neither");
    let v0 = EngineConfig { window_groups: 1, version: Version::V0, ..config };
    let said = Speculation::Off.check(&v0, sliding(1, 2).drafting).unwrap_err().to_string();
    assert!(said.starts_with("engine.sliding_window"), "{said}");
}
