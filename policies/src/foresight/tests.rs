//! Tests of the policy `foresight`: choices of draft tokens computed by hand, what the policy learns, and what each
//! on-off setting turns off.

use super::*;
use crate::foresight::ranked::Ranked;
use crate::testing::{BELIEF, Batch, CONTEXT, Run, outcome};
use foretoken_sim::{ChunkTotals, Coefficients, Time};

fn running(params: Foresight, context: &PolicyContext) -> Running {
    Running::new(params, context)
}

#[test]
fn sure_tokens_are_drafted_and_doubtful_ones_are_not() {
    let batch = Batch::new(&[100; 2], &[8; 2]);
    let mut run = Run::of(&Foresight { calibrate: false, ..Foresight::default() }, &CONTEXT);
    let step = run.step(&batch, |i, _| if i == 0 { 0.99 } else { 0.002 }, &[8, 0]);
    assert!(step.draft_len[0] > 3 && step.draft_len[1] <= 1, "{:?}", step.draft_len);
    assert!(step.verify_len[0] == step.draft_len[0] && step.verify_len[1] == 0, "{:?}", step.verify_len);
}

/// If the next step verifies the draft tokens, this step's prompt is not expected in the next step. So after one step
/// with a prompt, the expected time of verification is hardly longer than without the prompt.
#[test]
fn the_next_step_is_expected_to_have_the_usual_prompts() {
    let behind = PolicyContext { draft_at: foretoken_sim::DraftAt::StepEnd, ..CONTEXT };
    let mut quiet = Batch::new(&[100; 8], &[8; 8]);
    let mut costs = Costs::new(&behind, Foresight::default().costs());
    for step in 0..200 {
        quiet.step = step;
        costs.begin(&quiet.view());
    }
    let without = costs.verify_s(8);
    let mut busy = quiet.clone();
    busy.step = 200;
    busy.prefill = ChunkTotals { chunks: 1, tokens: 1000, context: 0, pairs: 500_500 };
    // The prompt ends in this step, so after the step no prompt waits or is unfinished. The next step is then expected
    // to have few prompt tokens.
    costs.begin(&BatchView { num_running: 8, ..busy.view() });
    let after = costs.verify_s(8);
    assert!(after > without, "one step of 200 had a prompt");
    // The steps without a prompt that came before outweigh the one step with a prompt, which has about a hundredth of
    // the weight of all past steps.
    assert!(after - without < 0.1 * 1000.0 * BELIEF.target.gamma_s, "{after} {without}");
    let known = PolicyContext { draft_at: foretoken_sim::DraftAt::StepStart, ..CONTEXT };
    let mut costs = Costs::new(&known, Foresight::default().costs());
    costs.begin(&busy.view());
    assert!(costs.verify_s(8) - without > 0.9 * 1000.0 * BELIEF.target.gamma_s, "the step's own prompts are known");
}

/// Prompts fill every step, so a draft token takes the place of a prompt's token, which a later step computes. It costs
/// its share of a full step of both models, which is more than the time by which a pass grows with it.
#[test]
fn in_a_full_step_a_draft_token_costs_its_share() {
    let behind = PolicyContext { draft_at: foretoken_sim::DraftAt::StepEnd, ..CONTEXT };
    let budget = u64::from(behind.max_num_batched_tokens);
    let mut full = Batch::new(&[100; 8], &[8; 8]);
    full.prefill = ChunkTotals { chunks: 1, tokens: budget - 8, context: 0, pairs: 0 };
    let mut costs = Costs::new(&behind, Foresight::default().costs());
    for step in 0..200 {
        full.step = step;
        costs.begin(&BatchView { num_running: 9, num_waiting: 1, ..full.view() });
    }
    let each = (costs.verify_s(16) - costs.verify_s(8)) / 8.0;
    let share_of = |model: Coefficients| model.gamma_s + model.delta_s / budget as f64;
    let share = share_of(BELIEF.target) + share_of(BELIEF.draft);
    assert!((each / share - 1.0).abs() < 1e-6, "{each} {share}");
    assert!(each > BELIEF.target.gamma_s, "{each}");
}

/// A block drafter makes all tokens in one pass, so drafting gains more for a request that is alone.
#[test]
fn a_block_drafter_gains_more_for_a_request_that_is_alone() {
    let gain = |drafting| {
        let mut context = CONTEXT;
        context.belief.drafting = drafting;
        let mut costs = Costs::new(&context, Foresight::default().costs());
        costs.begin(&Batch::new(&[100; 4], &[8; 4]).view());
        alone_gain(&costs, &Odds::new(8, true, true), 8)
    };
    assert!(gain(Drafting::Parallel) > gain(Drafting::Autoregressive));
}

/// A prompt in the step makes the step slower by the same time at every draft length. If the price of a second is the
/// rate of the decodes alone, the prompt does not change it. The step's own ratio of tokens to seconds falls. So a
/// policy that takes this ratio as the price drafts more.
#[test]
fn a_prompt_does_not_make_drafts_look_cheap() {
    let mut dear = CONTEXT;
    dear.belief.draft.delta_s = 2.5e-3;
    let profile = dear.belief;
    let dear = PolicyContext { profile: &profile, ..dear };
    let mut batch = Batch::new(&[100; 4], &[8; 4]);
    batch.prefill = ChunkTotals { chunks: 1, tokens: 1500, context: 0, pairs: 1500 * 750 };
    let passes = |price| {
        let params = Foresight { price, calibrate: false, ..Foresight::default() };
        Run::of(&params, &dear).step(&batch, |_, _| 0.75, &[0; 4]).passes
    };
    assert!(passes(PriceOfTime::Decode) < passes(PriceOfTime::Step));
}

#[test]
fn without_confidences_it_finds_the_best_length_of_counts() {
    let params = Foresight { confidences: false, ..Foresight::default() };
    let mut run = Run::of(&params, &CONTEXT);
    let batch = Batch::new(&[100; 4], &[8; 4]);
    for _ in 0..400 {
        run.step(&batch, |_, _| 0.5, &[0; 4]);
    }
    let after = run.step(&batch, |_, _| 0.5, &[0; 4]);
    assert_eq!(after.draft_len, [0; 4], "nothing was accepted for 400 steps");
    let mut run = Run::of(&params, &CONTEXT);
    for _ in 0..400 {
        run.step(&batch, |_, _| 0.5, &[8; 4]);
    }
    assert_eq!(run.step(&batch, |_, _| 0.5, &[8; 4]).draft_len, [8; 4], "everything was accepted for 400 steps");
}

#[test]
fn it_probes_when_it_drafts_nothing() {
    let mut run = Run::of(&Foresight { confidences: false, probe_every: 10, ..Foresight::default() }, &CONTEXT);
    let batch = Batch::new(&[100; 4], &[8; 4]);
    for _ in 0..600 {
        run.step(&batch, |_, _| 0.5, &[0; 4]);
    }
    let drafted: u32 = (0..100).map(|_| run.step(&batch, |_, _| 0.5, &[0; 4]).draft_len[0]).sum();
    assert_eq!(drafted, 10);
}

/// Draft passes take half and target passes 1.5 times the start-up times. The policy learns both factors from the times
/// of steps.
#[test]
fn costs_are_corrected_by_the_times_of_steps() {
    let mut p = running(Foresight::default(), &CONTEXT);
    let mut batch = Batch::new(&[100; 4], &[8; 4]);
    for step in 0..300 {
        batch.step = step;
        let mut plan = DraftPlan { draft_len: vec![0; 4], ..DraftPlan::default() };
        p.propose(&batch.view(), &mut plan);
        let mut drafts = Drafts::default();
        drafts.reset(4, 8);
        drafts.passes = 2;
        drafts.draft_len.fill(2);
        let passes_s = BELIEF.draft.pass_s(400.0, 4.0) * 2.0;
        let verify_s = BELIEF.target.pass_s(400.0, 12.0);
        p.observe(&StepOutcome {
            ids: &[0, 1, 2, 3],
            draft_time: Time::from_s(passes_s / 2.0),
            verify_time: Time::from_s(verify_s * 1.5),
            ..outcome(&drafts, &[2; 4], &[1; 4])
        });
    }
    let (target, draft) = p.costs.slower();
    assert!((target - 1.5).abs() < 0.02 && (draft - 0.5).abs() < 0.02, "target {target}, draft {draft}");
}

/// In every second step draft passes take longer, because the policy decides after them whether to draft on. The extra
/// time is learned as the time of a decision.
#[test]
fn the_time_of_a_decision_is_learnt_apart_from_passes() {
    let mut costs = Costs::new(&CONTEXT, Foresight::default().costs());
    let mut batch = Batch::new(&[100; 4], &[8; 4]);
    let decision_s = 4e-4;
    for step in 0..2000 {
        batch.step = step;
        costs.begin(&batch.view());
        let mut drafts = Drafts::default();
        drafts.reset(4, 8);
        drafts.passes = 3;
        drafts.draft_len.fill(3);
        let asks = step.is_multiple_of(2);
        costs.asked_from(if asks { 2 } else { u32::MAX });
        // In every second step the policy decides twice whether to draft on: after the second and after the third draft
        // pass.
        let decisions_s = if asks { 2.0 * decision_s } else { 0.0 };
        let draft_s = 3.0 * BELIEF.draft.pass_s(400.0, 4.0) + decisions_s;
        let verify_s = BELIEF.target.pass_s(400.0, 16.0);
        costs.observe(&StepOutcome {
            ids: &[0, 1, 2, 3],
            draft_time: Time::from_s(draft_s),
            verify_time: Time::from_s(verify_s),
            ..outcome(&drafts, &[3; 4], &[1; 4])
        });
    }
    let found = costs.decision_s();
    assert!((found / decision_s - 1.0).abs() < 0.1, "{found}");
    assert!((costs.slower().1 - 1.0).abs() < 0.02, "{:?}", costs.slower());
}

/// Waiting requests raise the price of time only if prompts fill the steps and more requests could run.
#[test]
fn a_backlog_of_prompts_makes_time_dear() {
    let batch = Batch::new(&[100; 4], &[8; 4]);
    let full = ChunkTotals { chunks: 1, tokens: 1900, context: 0, pairs: 1 };
    let price = |prefill: ChunkTotals, num_running: u32, num_waiting: u32| {
        let view = BatchView { prefill, num_running, num_waiting, ..batch.view() };
        let mut backlog = crate::foresight::price::Backlog::default();
        backlog.begin(&view, 16, 2048);
        backlog.price(&view, 100.0, 1e-3)
    };
    // The price of a second is N / (n/g + N m) with N = 46 requests in the system, n = 4 decode requests, g = 100
    // tokens a second, and m = 0.001 s.
    assert!((price(full, 6, 40) - 46.0 / (0.04 + 0.046)).abs() < 1e-9);
    assert_eq!(price(full, 16, 40), 100.0, "running requests keep the others out");
    assert_eq!(price(full, 6, 0), 100.0, "none waits");
    assert_eq!(price(ChunkTotals { tokens: 300, ..full }, 6, 40), 100.0, "the step has room for prompts");
}

/// A depth at which no token was ever drafted is expected to have the chance of acceptance of the depth before it, so
/// that the policy tries it.
#[test]
fn depths_that_were_never_tried_follow_the_depth_before() {
    let mut odds = Odds::new(6, true, false);
    let mut drafts = Drafts::default();
    drafts.reset(1, 6);
    drafts.passes = 2;
    drafts.draft_len.fill(2);
    for _ in 0..2000 {
        odds.observe(&StepOutcome { ids: &[0], ..outcome(&drafts, &[2], &[2]) });
    }
    let (tried, untried) = (odds.at_depth(2), odds.at_depth(6));
    assert!(tried > 0.98 && (untried - tried).abs() < 1e-12, "{tried} {untried}");
}

/// A drafter makes all draft tokens of a request, a block, in one pass. If the length of the block is planned for the
/// tokens that are left after trimming (dropping tokens before verification), the policy drafts most of the longest
/// block. If it is planned as if all draft tokens were verified, the policy drafts nothing.
#[test]
fn a_block_is_planned_for_what_is_left_after_trimming() {
    let mut context = CONTEXT;
    context.belief.drafting = Drafting::Parallel;
    // A verified draft token is worth its time if it and all before it are accepted with a probability of about two
    // thirds or more.
    context.belief.target.gamma_s = context.belief.target.delta_s / 4.0;
    let profile = context.belief;
    let context = PolicyContext { profile: &profile, ..context };
    // All draft tokens of every second request are right, all others are wrong. So before drafting, a token is expected
    // to be accepted with a probability of about one half.
    let passes = |expect_trim| {
        let mut run = Run::of(&Foresight { expect_trim, ..Foresight::default() }, &context);
        let batch = Batch::new(&[100; 8], &[8; 8]);
        let accepted = [8, 0, 8, 0, 8, 0, 8, 0];
        let confidence = |i: usize, _| if i.is_multiple_of(2) { 0.99 } else { 0.01 };
        for _ in 0..600 {
            run.step(&batch, confidence, &accepted);
        }
        run.step(&batch, confidence, &accepted).draft_len[0]
    };
    let (with, without) = (passes(true), passes(false));
    assert!(with >= 4 && without == 0, "{with} {without}");
}

/// A request is declined if its prompt costs the draft model more time than drafting for its output gains. None is
/// declined before some requests have ended, and every 64th that would be is let in.
#[test]
fn a_prompt_that_costs_more_than_drafting_gains_is_declined() {
    let mut door = Door::new(&Foresight::default());
    let mut costs = Costs::new(&CONTEXT, Foresight::default().costs());
    costs.begin(&Batch::new(&[100; 4], &[8; 4]).view());
    let mut drafts = Drafts::default();
    drafts.reset(1, 8);
    let request = |prompt_len: u32, num_cached_tokens: u32| NewRequest {
        prompt_len,
        num_cached_tokens,
        max_tokens: 10_000,
        ..NewRequest::default()
    };
    // A request emits 40 tokens, and drafting gains 0.25 tokens for each: 10 tokens. A second costs 100 tokens.
    door.begin(100.0, 0.25);
    let pays = |tokens: u32, costs: &Costs| 100.0 * costs.draft_prompt_s(tokens) < 10.0;
    let long = (1..).map(|i| i * 1000).find(|&tokens| !pays(tokens, &costs)).expect("some prompt is too long");
    let serve = |door: &mut Door| {
        (0..10).for_each(|_| door.observe(&StepOutcome { ids: &[0], ..outcome(&drafts, &[3], &[3]) }));
        door.finished();
    };
    (0..15).for_each(|_| serve(&mut door));
    assert!(door.lets_in(&request(long, 0), &costs), "too few requests have ended");
    (0..100).for_each(|_| serve(&mut door));
    assert!(door.lets_in(&request(long / 2, 0), &costs));
    assert!(door.lets_in(&request(long, long / 2), &costs), "the prefix cache has half");
    let let_in = (0..640).filter(|_| door.lets_in(&request(2 * long, 0), &costs)).count();
    assert_eq!(let_in, 10, "every 64th");
    // A server without drafts is worth more: none is let in.
    (0..1000).for_each(|_| door.begin(100.0, -0.1));
    assert!(!door.lets_in(&request(1, 0), &costs));
}

/// Between passes a token that is not drafted yet is worth the mean of what is left of it after selection. Half of all
/// tokens have the chance 0.95, the other half 0.05: with selection the next pass pays, without it it does not.
#[test]
fn a_token_that_may_be_dropped_is_worth_its_chance_to_be_good() {
    let passes = |trim: bool| {
        // A verified token costs about 0.6 tokens of time.
        let mut context = CONTEXT;
        context.belief.target.gamma_s = context.belief.target.delta_s / 5.0;
        let profile = context.belief;
        let context = PolicyContext { profile: &profile, ..context };
        let params = Foresight { trim, calibrate: false, weigh_asking: false, ..Foresight::default() };
        let mut run = Run::of(&params, &context);
        let batch = Batch::new(&[100; 8], &[8; 8]);
        // Which tokens are good changes with the depth, so that the chance of the next one is not known.
        let confidence = |i: usize, depth: usize| if (i + depth).is_multiple_of(2) { 0.95 } else { 0.05 };
        (0..300).for_each(|_| _ = run.step(&batch, confidence, &[1, 0, 1, 0, 1, 0, 1, 0]));
        run.step(&batch, confidence, &[1, 0, 1, 0, 1, 0, 1, 0]).passes
    };
    assert!(passes(true) > passes(false), "{} {}", passes(true), passes(false));
}

/// A decision of 0.3 ms does not pay where confidences say nothing, and pays where they say all.
#[test]
fn decisions_are_made_where_confidences_pay_for_them() {
    let asked = |informs: bool| {
        let params = Foresight { calibrate: false, ..Foresight::default() };
        let Speculation::Policy(mut policy) = params.build(&CONTEXT) else { unreachable!() };
        let mut asked = 0;
        for step in 0..600u64 {
            let mut batch = Batch::new(&[100; 8], &[8; 8]);
            batch.step = step;
            // With information, each request's tokens are right up to a depth that its confidences show.
            let depth = |i: usize| (step as usize + 3 * i) % 9;
            let confidence = (0..8)
                .map(|i| {
                    (0..9)
                        .map(|at| match informs {
                            true if at < depth(i) => 0.99,
                            true => 0.01,
                            false => 0.6,
                        })
                        .collect()
                })
                .collect();
            let mut script = foretoken_sim::scripted::Scripted { confidence, ..Default::default() };
            let drafts = script.decide(&mut policy, &batch.view(), 8, &mut Vec::new());
            let accepted: Vec<u32> = (0..8).map(|i| drafts.verify_len[i].min(depth(i) as u32)).collect();
            asked += u32::from(step >= 300 && script.decisions > 0);
            let (passes, decisions_s) = (f64::from(drafts.passes), f64::from(script.decisions) * 3e-4);
            policy.observe(&StepOutcome {
                ids: &batch.ids,
                drafted: &drafts.draft_len,
                draft_time: Time::from_s(passes * BELIEF.draft.pass_s(800.0, 8.0) + decisions_s),
                verify_time: Time::from_s(BELIEF.target.pass_s(800.0, 24.0)),
                ..outcome(&drafts, &drafts.verify_len, &accepted)
            });
        }
        asked
    };
    assert!(asked(true) > 200 && asked(false) < 20, "{} {}", asked(true), asked(false));
}

#[test]
fn buckets_hold_what_was_added() {
    let mut ranked = Ranked::default();
    for survival in [0.9, 0.2, 0.95, 0.2001, 1.0, 0.0] {
        ranked.add(survival);
    }
    let mut seen = Vec::new();
    ranked.prefixes(|count, sum, least| seen.push((count, (sum * 1e4).round() as i64, ranked.is_kept(0.2, least))));
    assert_eq!(seen.first(), Some(&(0, 0, false)));
    assert_eq!(seen.last(), Some(&(6, 32501, true)));
    assert_eq!(seen[seen.len() - 2], (5, 32501, true));
    ranked.clear();
    assert_eq!(ranked.len(), 0);
}

#[test]
fn bad_settings_are_named() {
    let bad = |params: Foresight| params.check().map_err(|e| e.key);
    assert_eq!(bad(Foresight { price_factor: 0.0, ..Foresight::default() }), Err("price_factor"));
    assert_eq!(bad(Foresight { price_factor: f64::NAN, ..Foresight::default() }), Err("price_factor"));
    assert_eq!(bad(Foresight { correction: 1.5, ..Foresight::default() }), Err("correction"));
    assert_eq!(bad(Foresight { lateness: -1.0, ..Foresight::default() }), Err("lateness"));
    let without_price = Foresight { price: PriceOfTime::Step, lateness: 1.0, ..Foresight::default() };
    assert_eq!(bad(without_price), Err("lateness"));
    assert_eq!(bad(Foresight { probe_every: 0, ..Foresight::default() }), Err("probe_every"));
    assert_eq!(bad(Foresight::default()), Ok(()));
}

/// Behind a step, the first draft pass runs over the tokens that the step verified. So a verified token costs time of
/// the draft model, too; at the start of a step it does not.
#[test]
fn a_verified_token_costs_the_draft_model_time_behind_a_step() {
    let cost_of_one = |draft_at| {
        let mut costs = Costs::new(&PolicyContext { draft_at, ..CONTEXT }, Foresight::default().costs());
        let batch = Batch::new(&[100; 4], &[8; 4]);
        costs.begin(&batch.view());
        costs.verify_s(5) - costs.verify_s(4)
    };
    let (draft_s, target_s) = (BELIEF.draft.gamma_s, BELIEF.target.gamma_s);
    assert!((cost_of_one(foretoken_sim::DraftAt::StepStart) - target_s).abs() < 1e-12);
    assert!((cost_of_one(foretoken_sim::DraftAt::StepEnd) - target_s - draft_s).abs() < 1e-12);
}
