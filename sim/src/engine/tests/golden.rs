//! Small simulations whose results were computed by hand, to the picosecond.

use super::fixture::{Erratic, Fixture, Steady, YARDSTICK};
use crate::*;

fn requests(list: &[(f64, u32, u32)]) -> Workload {
    list.iter().map(|&(at, p, o)| Request::new(Time::from_s(at), p, o)).collect()
}

fn fixed(f: &Fixture, k: u32) -> Run {
    f.with(|s| s.run(Speculation::Policy(Box::new(Steady(k)))))
}

fn pass(context: u64, batched: u64) -> Time {
    Linear::new(YARDSTICK).pass(PassShape { requests: 1, batched, context, pairs: 0 })
}

#[test]
fn one_request_alone() {
    let f = Fixture::new(requests(&[(1.0, 100, 4)]));
    let run = f.plain();
    let prefill = pass(0, 100);
    let decodes = [pass(100, 1), pass(101, 1), pass(102, 1)];
    assert_eq!(run.records.first_token[0], Time::from_s(1.0) + prefill);
    assert_eq!(run.records.finish[0], Time::from_s(1.0) + prefill + decodes.into_iter().sum());
    assert_eq!((run.totals.steps, run.totals.emitted, run.records.emitted[0]), (4, 4, 4));
}

#[test]
fn a_second_prompt_rides_with_the_first_ones_decode() {
    let f = Fixture::new(requests(&[(0.0, 100, 3), (0.001, 50, 1)]));
    let steps = f.plain().steps;
    let shapes: Vec<_> = steps.iter().map(|s| (s.batch_size, s.chunks, s.chunk_tokens, s.context, s.emitted)).collect();
    assert_eq!(shapes, [(0, 1, 100, 0, 1), (1, 1, 50, 100, 2), (1, 0, 0, 101, 1)]);
    assert_eq!(steps[1].verify_time, pass(100, 51));
}

#[test]
fn the_token_budget_splits_a_prompt_after_the_decodes() {
    let mut f = Fixture::new(requests(&[(0.0, 100, 9), (0.001, 250, 1)]));
    f.config.max_num_batched_tokens = 101;
    let chunks: Vec<_> = f.plain().steps.iter().map(|s| (s.batch_size, s.chunk_tokens)).collect();
    // (Decode requests, prompt tokens) of the first four steps, with a token budget of 101. From the second step on,
    // one token goes to the decode request, and 100 tokens are left for the prompt of 250 tokens. The last chunk has 50
    // tokens.
    assert_eq!(chunks[..4], [(0, 100), (1, 100), (1, 100), (1, 50)]);
}

#[test]
fn without_chunking_a_prompt_waits_for_a_whole_budget() {
    let mut f = Fixture::new(requests(&[(0.0, 50, 4), (0.0, 50, 4), (0.001, 109, 1), (0.002, 10, 1), (0.003, 110, 1)]));
    f.config.max_num_batched_tokens = 110;
    f.config.max_model_len = 110;
    f.config.chunked_prefill = Some(false);
    let run = f.plain();
    // (Decode requests, prompt tokens) of each step, with a budget of 110 tokens. Head-of-line blocking: the prompt of
    // 109 tokens does not fit beside two decode requests, and the prompt of 10 tokens, which would fit, waits for it.
    let chunks: Vec<_> = run.steps.iter().map(|s| (s.batch_size, s.chunk_tokens)).collect();
    assert_eq!(chunks, [(0, 100), (2, 0), (2, 0), (2, 0), (0, 109), (0, 10)]);
    assert_eq!(run.records.outcome[4], Outcome::Rejected);
}

#[test]
fn v0_prefills_first_and_apart() {
    let mut f = Fixture::new(requests(&[(0.0, 100, 4), (0.001, 50, 2), (0.002, 60, 1)]));
    f.config.version = Version::V0;
    f.config.max_model_len = 2048;
    let shapes: Vec<_> = f.plain().steps.iter().map(|s| (s.batch_size, s.chunks, s.chunk_tokens)).collect();
    assert_eq!(shapes, [(0, 1, 100), (0, 2, 110), (2, 0, 0), (1, 0, 0), (1, 0, 0)]);
}

#[test]
fn speculation_emits_accepted_plus_one_and_charges_both_models() {
    let mut f = Fixture::new(requests(&[(0.0, 10, 8)]));
    f.rate = 1.0;
    let run = fixed(&f, 3);
    // The step of the prompt emits one token. The two steps with 3 draft tokens emit 4 and 3 tokens: the output of 8
    // tokens ends before the last token of the second step. All 3 draft tokens of this step still count as accepted.
    let rows: Vec<_> = run.steps.iter().map(|s| (s.drafted, s.accepted, s.emitted, s.draft_passes)).collect();
    assert_eq!(rows, [(0, 0, 1, 1), (3, 3, 4, 3), (3, 3, 3, 3)]);
    let draft = Linear::new(f.draft);
    let shape = |context, batched| draft.pass(PassShape { requests: 1, context, batched, pairs: 0 });
    assert_eq!(run.steps[0].draft_time, shape(0, 10));
    assert_eq!(run.steps[1].draft_time, shape(10, 1) + shape(11, 1) + shape(12, 1));
    assert_eq!(run.steps[1].verify_time, pass(10, 4));
    // All draft tokens of the first verifying step were accepted. The draft model has not processed the last one of
    // these, so the first draft pass of the next step processes two tokens.
    assert_eq!(run.steps[2].draft_time, shape(14, 2) + shape(15, 1) + shape(16, 1));
}

#[test]
fn rejected_drafts_are_rolled_back() {
    let mut f = Fixture::new(requests(&[(0.0, 10, 4)]));
    f.rate = 0.0;
    let run = fixed(&f, 3);
    let contexts: Vec<_> = run.steps.iter().map(|s| (s.context, s.emitted)).collect();
    assert_eq!(contexts, [(0, 1), (10, 1), (11, 1), (12, 1)]);
    assert_eq!((run.totals.drafted, run.totals.accepted()), (9, 0));
}

#[test]
fn the_model_length_caps_drafts_and_outputs() {
    let mut f = Fixture::new(requests(&[(0.0, 10, 100), (0.0, 20, 5), (0.0, 19, 5)]));
    f.rate = 1.0;
    f.config.max_model_len = 20;
    let run = fixed(&f, 8);
    assert_eq!(run.records.emitted[..3], [10, 0, 1]);
    assert_eq!(run.records.outcome[1], Outcome::Rejected);
    // With 10 tokens of context and `max_model_len` 20, positions up to 18 may be verified, so request 0 gets 8 draft
    // tokens. After this step there is room for one more token.
    let drafted: Vec<_> = run.steps.iter().map(|s| s.drafted).collect();
    assert_eq!(drafted, [0, 8]);
}

#[test]
fn the_pool_preempts_from_the_back_and_recomputes() {
    let mut f = Fixture::new(requests(&[(0.0, 32, 20), (0.0, 32, 20)]));
    // The pool has 2 blocks for each of the two prompts, one spare block, and the null block. That is too few for both
    // outputs, so the second request must be preempted.
    f.config.num_gpu_blocks = 6;
    f.config.prefix_caching = false;
    let run = f.plain();
    assert_eq!(run.records.preemptions, [0, 1]);
    assert_eq!(run.records.emitted, [20, 20]);
    assert!(run.records.finish[0] < run.records.finish[1]);
    // After its preemption the second request computes its 32 prompt tokens and its emitted tokens a second time.
    assert!(run.totals.prefill_tokens > 64);
    let preempting = run.steps.iter().find(|s| s.preempted > 0).unwrap();
    assert_eq!((preempting.chunks, preempting.batch_size), (0, 1));
    // With the prefix cache the preempted second request finds the first block of its prompt. The other block of its
    // prompt was handed out to the first request.
    f.config.prefix_caching = true;
    assert_eq!(f.plain().totals.prefill_tokens, run.totals.prefill_tokens - 16);
}

#[test]
fn a_request_that_outgrows_the_pool_is_rejected_and_the_rest_goes_on() {
    let mut f = Fixture::new(requests(&[(0.0, 32, 200), (0.0, 1000, 1), (0.0, 32, 10)]));
    f.config.num_gpu_blocks = 6;
    let run = f.plain();
    assert_eq!(run.records.outcome, [Outcome::Rejected, Outcome::Rejected, Outcome::Finished]);
}

#[test]
fn shared_prefixes_are_computed_once() {
    let mut w = Workload { prefix_block: 32, ..Workload::default() };
    for (at, ids) in [(0.0, vec![1, 2]), (1.0, vec![1, 2]), (2.0, vec![1, 9]), (3.0, vec![2, 1])] {
        let mut r = Request::new(Time::from_s(at), 70, 1);
        r.prefix = ids;
        w.push(r);
    }
    let f = Fixture::new(w);
    assert_eq!(f.plain().records.cached_tokens, [0, 64, 32, 0]);
}

#[test]
fn a_closed_loop_keeps_its_clients_busy() {
    let mut f = Fixture::new(requests(&[(0.0, 10, 5); 7]));
    f.arrivals = Arrivals::Closed { clients: 2 };
    let run = f.plain();
    assert!(run.steps.iter().all(|s| s.batch_size + s.chunks <= 2));
    assert_eq!(run.records.arrival[2], run.records.finish[0]);
    assert!((0..7).all(|i| run.records.finished(i)));
}

#[test]
fn trimming_frees_budget_for_prompts() {
    /// A policy that drafts 7 tokens and verifies none.
    struct Trims;
    impl SpecPolicy for Trims {
        fn limits(&self) -> DraftLimits<'_> {
            DraftLimits::chain(7)
        }
        fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
            plan.fill(7);
        }
        fn select(&mut self, _: &BatchView, drafts: &mut Drafts) {
            drafts.verify_len.fill(0);
        }
    }
    let mut f = Fixture::new(requests(&[(0.0, 10, 9), (0.001, 100, 1)]));
    f.config.max_num_batched_tokens = 20;
    f.config.max_num_seqs = 20;
    f.config.max_num_new_slots_for_drafting = Some(0);
    let chunks = |f: &Fixture| -> Vec<u64> {
        f.with(|s| s.run(Speculation::Policy(Box::new(Trims)))).steps.iter().map(|s| s.chunk_tokens).collect()
    };
    assert_eq!(chunks(&f)[..3], [10, 12, 12]);
    f.config.budget_charge = BudgetCharge::Trimmed;
    assert_eq!(chunks(&f)[..3], [10, 19, 19]);
}

#[test]
fn draft_gaps_cost_what_they_say() {
    /// A policy that drafts 2 tokens, but only in every third decode step.
    struct Sometimes(u64);
    impl SpecPolicy for Sometimes {
        fn limits(&self) -> DraftLimits<'_> {
            DraftLimits::chain(2)
        }
        fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
            plan.fill(if self.0 % 3 == 2 { 2 } else { 0 });
            self.0 += 1;
        }
    }
    let mut f = Fixture::new(requests(&[(0.0, 10, 12)]));
    f.rate = 0.0;
    let draft = Linear::new(f.draft);
    let shape = |context, batched| draft.pass(PassShape { requests: 1, context, batched, pairs: 0 });
    let times = |f: &Fixture| -> Vec<Time> {
        let run = f.with(|s| s.run(Speculation::Policy(Box::new(Sometimes(0)))));
        run.steps.iter().map(|s| s.draft_time).collect()
    };
    let (none, prompt) = (Time::ZERO, shape(0, 10));
    assert_eq!(times(&f)[..5], [prompt, none, none, shape(12, 3) + shape(13, 1), none]);
    f.config.draft_gap = DraftGap::AlwaysExtend;
    assert_eq!(times(&f)[..5], [prompt, none, shape(0, 1), shape(12, 2) + shape(13, 1), none]);
    f.config.draft_gap = DraftGap::Permanent;
    assert!(times(&f)[1..].iter().all(|&t| t == none));
}

#[test]
fn a_draft_pool_of_its_own_can_be_what_runs_out() {
    let mut f = Fixture::new(requests(&[(0.0, 32, 40), (0.0, 32, 40)]));
    f.config.draft_kv = DraftKv::Separate { blocks: 5 };
    f.config.scheduler_reserve_full_isl = Some(false);
    f.config.num_lookahead_tokens = Some(0);
    assert_eq!(f.plain().records.preemptions, [0, 0]);
    let speculative = f.with(|s| s.run(Speculation::Policy(Box::new(Erratic { seed: 1, ..Erratic::new(2, false) }))));
    assert!(speculative.records.preemptions[1] > 0);
    assert_eq!(speculative.records.emitted, [40, 40]);
}

#[test]
fn a_v0_decode_step_is_of_all_running_requests_and_charges_no_drafts() {
    let mut f = Fixture::new(requests(&[(0.0, 16, 100); 40]));
    f.config.version = Version::V0;
    f.config.max_num_batched_tokens = 640;
    f.config.max_model_len = 640;
    f.config.max_draft_len = 20;
    let run = fixed(&f, 20);
    assert_eq!((run.steps[1].batch_size, run.steps[1].drafted), (40, 800));
    // v0 takes no tokens of the token budget for draft tokens. So the setting `trimmed` has no freed tokens to give to
    // prompts, and the steps are the same.
    f.config.budget_charge = BudgetCharge::Trimmed;
    assert_eq!(fixed(&f, 20).steps, run.steps);
}

/// v0 ends a request when its length is above `max_model_len`. v0 drafts for a request only if all its draft tokens
/// stay below `max_model_len`.
#[test]
fn a_v0_request_ends_one_token_beyond_the_models_length() {
    let mut f = Fixture::new(requests(&[(0.0, 10, 1000)]));
    f.config.version = Version::V0;
    f.config.max_model_len = 100;
    f.rate = 0.0;
    let run = fixed(&f, 3);
    assert_eq!(run.records.emitted, [91]);
    // A request of 97 tokens with 3 draft tokens would reach `max_model_len` = 100, so the last four steps draft
    // nothing.
    let drafted: Vec<_> = run.steps[run.steps.len() - 5..].iter().map(|s| s.drafted).collect();
    assert_eq!(drafted, [3, 0, 0, 0, 0]);
}

#[test]
fn a_v0_request_that_outgrew_the_pool_is_rejected_alone() {
    let mut f = Fixture::new(requests(&[(0.0, 100, 200), (0.0, 100, 5)]));
    f.config.version = Version::V0;
    f.config.max_model_len = 2048;
    f.config.prefix_caching = false;
    f.config.num_gpu_blocks = 11;
    assert_eq!(f.plain().records.outcome, [Outcome::Rejected, Outcome::Finished]);
}

/// v0 counts the block of the next token as a new block, even if the request already has this block. So v0 preempts a
/// request although the next token would fit.
#[test]
fn v0_preempts_where_the_next_token_would_still_fit_a_block() {
    let mut f = Fixture::new(requests(&[(0.0, 20, 9), (0.0, 20, 9)]));
    f.config.prefix_caching = false;
    f.config.num_gpu_blocks = 4;
    f.config.version = Version::V0;
    f.config.max_model_len = 2048;
    let preemptions = |f: &Fixture| f.plain().records.preemptions;
    assert_eq!(preemptions(&f), [0, 8], "in each of the first one's decode steps, and admitted again in between");
    // V1 needs a pool of 5 blocks in place of 4, because one block is the null block.
    (f.config.version, f.config.num_gpu_blocks) = (Version::V0_33, 5);
    assert_eq!(preemptions(&f), [0, 0]);
}

#[test]
fn cached_tokens_count_the_first_admission_only() {
    let mut f = Fixture::new(requests(&[(0.0, 100, 60); 3]));
    f.config.num_gpu_blocks = 18;
    let run = f.plain();
    assert!(run.totals.preemptions > 0);
    assert_eq!(run.records.cached_tokens, [0, 0, 0]);
}

#[test]
fn a_permanent_gap_survives_a_preemption() {
    /// A policy that drafts one token in the first decode step, and in each step after step 60 in which some request
    /// may draft.
    struct Once(bool);
    impl SpecPolicy for Once {
        fn limits(&self) -> DraftLimits<'_> {
            DraftLimits::chain(1)
        }
        fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
            plan.fill(u32::from(!self.0 || batch.limit.contains(&1) && batch.step > 60));
            self.0 = true;
        }
    }
    let mut f = Fixture::new(requests(&[(0.0, 32, 100), (0.0, 32, 100)]));
    f.config.num_gpu_blocks = 11;
    f.config.draft_gap = DraftGap::Permanent;
    f.rate = 0.0;
    let run = f.with(|s| s.run(Speculation::Policy(Box::new(Once(false)))));
    assert!(run.totals.preemptions > 0);
    assert!(run.steps.iter().skip(3).all(|s| s.drafted == 0), "no request drafts again");
}

#[test]
fn an_endless_output_ends_at_the_models_length() {
    let mut f = Fixture::new(requests(&[(0.0, 10, u32::MAX)]));
    f.rate = 1.0;
    f.config.max_model_len = 200;
    let run = fixed(&f, 3);
    assert_eq!(run.records.emitted, [190]);
    assert!(run.steps[1..run.steps.len() - 1].iter().all(|s| s.accepted == 3), "truth reaches to the end");
}

#[test]
fn a_clock_that_runs_out_says_so() {
    let mut f = Fixture::new(requests(&[(0.0, 10, 5)]));
    f.target.delta_s = 1e8;
    assert_eq!(f.plain().ending, Ending::OutOfTime);
}

#[test]
fn a_long_prompt_is_cut_at_the_threshold_while_it_is_not_alone() {
    let chunks = |f: &Fixture| f.plain().steps.iter().map(|s| s.chunk_tokens).collect::<Vec<_>>();
    let mut f = Fixture::new(requests(&[(0.0, 100, 1), (0.0, 10, 2)]));
    f.config.long_prefill_token_threshold = 40;
    assert_eq!(chunks(&f), [50, 40, 20], "the other one is there for two steps");
    f.workload = requests(&[(0.0, 100, 1)]);
    assert_eq!(chunks(&f), [100]);
    // With `long_prefill_token_threshold_adaptive`, the threshold (most prompt tokens of a request in a step) is raised
    // to an equal share of the token budget: 128 / 2 = 64.
    f.workload = requests(&[(0.0, 100, 1), (0.0, 10, 2)]);
    f.config.max_num_batched_tokens = 128;
    f.config.long_prefill_token_threshold_adaptive = true;
    assert_eq!(chunks(&f), [74, 36]);
}

#[test]
fn admission_may_reserve_the_whole_sequence() {
    // The pool has nine blocks that requests can use, and the first prompt takes five. The other four blocks hold a
    // chunk of 30 tokens of the second prompt, but not the whole prompt of 90 tokens.
    let mut f = Fixture::new(requests(&[(0.0, 80, 3), (0.0, 90, 1)]));
    f.config.num_gpu_blocks = 10;
    f.config.max_num_batched_tokens = 110;
    f.config.scheduler_reserve_full_isl = Some(false);
    let second_starts = |f: &Fixture| f.plain().steps.iter().position(|s| s.chunk_tokens == 30 || s.chunk_tokens == 90);
    assert_eq!(second_starts(&f), None, "its first chunk of 30 rides in step 0 with the first prompt's 80");
    assert_eq!(f.plain().steps[0].chunks, 2);
    f.config.scheduler_reserve_full_isl = None;
    assert_eq!(f.plain().steps[0].chunks, 1, "as the release does");
    assert_eq!(second_starts(&f), Some(3), "it starts when the first one has ended");
}

#[test]
fn a_watermark_holds_blocks_back_while_something_runs() {
    let mut f = Fixture::new(requests(&[(0.0, 80, 3), (0.0, 64, 1)]));
    f.config.num_gpu_blocks = 10;
    assert_eq!(f.plain().steps[0].chunks, 2, "five blocks and four fit into nine");
    f.config.watermark = Some(0.1);
    assert_eq!(f.plain().steps[0].chunks, 1, "but not with one kept free");
    // The watermark (blocks that must stay free at an admission) does not apply if no request runs: the only request,
    // of 144 tokens, may use the whole pool of nine blocks.
    let mut alone = Fixture::new(requests(&[(0.0, 144, 1)]));
    alone.config = f.config;
    assert_eq!(alone.plain().records.outcome, [Outcome::Finished]);
}

#[test]
fn an_equal_split_gives_the_draft_its_share_of_the_blocks() {
    let mut f = Fixture::new(requests(&[(0.0, 10, 2)]));
    f.config.num_gpu_blocks = 301;
    f.config.draft_kv = DraftKv::EqualSplit { ratio: 0.5 };
    // With a drafter, the target and the draft model get 301 / 1.5 = 200 blocks each; one block of the target is the
    // null block. Without a drafter the target has all 301 blocks, one of them the null block.
    assert_eq!((fixed(&f, 1).usable_blocks, f.plain().usable_blocks), (199, 300));
}
