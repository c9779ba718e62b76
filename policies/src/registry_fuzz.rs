//! Extreme settings: settings that pass a policy's check must run on any batch that an engine may produce.

use crate::PolicySpec;
use crate::definition::{PolicyContext, Told};
use crate::testing::{Batch, CONTEXT, any_batch, any_belief};
use foretoken_sim::{NewRequest, RequestId, Speculation, StepOutcome, Time, scripted::Scripted};
use proptest::prelude::*;
use proptest::test_runner::TestRng;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Replaces about a third of the numbers in a policy's settings `value` by extreme ones, draws booleans anew, and
/// shortens about a quarter of the lists by their last entry.
fn mutate(value: &mut Value, rng: &mut TestRng) {
    let chance = rng.next_u32();
    let pick = |n: u32| chance % n;
    match value {
        Value::Object(map) => map.values_mut().for_each(|v| mutate(v, rng)),
        Value::Array(list) if pick(4) > 0 => list.iter_mut().for_each(|v| mutate(v, rng)),
        Value::Array(list) if !list.is_empty() => drop(list.pop()),
        Value::Bool(yes) => *yes = pick(2) == 0,
        Value::Number(n) if pick(3) == 0 => {
            *value = match n.is_u64() {
                true => {
                    let counts = [0u32, 1, 2, 3, 8, 31, 32, 33, 1000, u32::MAX];
                    json!(counts[(chance / 3) as usize % counts.len()])
                }
                false => {
                    let reals = [0.0, 1e-300, 1e-9, 0.3, 0.999, 1.0, 1.5, 40.0, 1e9, 1e300, -0.25, -1e300];
                    json!(reals[(chance / 3) as usize % reals.len()])
                }
            }
        }
        _ => {}
    }
}

/// The policy `policy` with some settings changed by [`mutate`]. `None` if the new settings cannot be read or the
/// policy's check refuses them.
fn extreme(policy: &PolicySpec, rng: &mut TestRng) -> Option<PolicySpec> {
    let mut value = serde_json::to_value(policy).expect("plain values");
    mutate(&mut value, rng);
    let policy: PolicySpec = serde_json::from_value(value).ok()?;
    policy.check().is_ok().then_some(policy)
}

/// Runs a policy on steps as the engine makes them. Requests join, leave for some steps and end; some steps have no
/// decode request. Returns false, without a step, for an oracle (a policy that knows more than a server can) and for a
/// policy that runs the engine without draft tokens.
fn run(policy: &PolicySpec, context: &PolicyContext, batches: &[Batch], rng: &mut TestRng) -> bool {
    let Speculation::Policy(mut policy) = policy.build(context) else { return false };
    let mut first_id = 0;
    for (step, batch) in batches.iter().enumerate() {
        assert!(
            policy.limits().depth <= context.max_draft_len,
            "{} of {}",
            policy.limits().depth,
            context.max_draft_len
        );
        let most = policy.limits().depth.max(policy.limits().tree_tokens);
        let prompt_len = 1 + rng.next_u32() % 20_000;
        policy.drafts_for_next(&NewRequest { prompt_len, num_cached_tokens: prompt_len / 3, ..NewRequest::default() });
        let mut batch = batch.clone();
        batch.step = step as u64;
        if rng.next_u32().is_multiple_of(3) {
            let ended = first_id..first_id + rng.next_u32() % 4;
            first_id = ended.end;
            ended.for_each(|id| policy.request_finished(id));
        }
        let ids = |i: usize| first_id + i as RequestId * 2;
        batch.ids = (0..batch.ids.len()).map(ids).collect();
        batch.limit.iter_mut().for_each(|l| *l = (*l).min(most));
        if rng.next_u32().is_multiple_of(5) {
            batch.truncate(0);
        }
        if !batch.ids.is_empty()
            && let Some(n) = policy.max_batch(&batch.view())
        {
            batch.truncate(n.clamp(1, batch.ids.len()));
        }
        let view = batch.view();
        let confidence = (0..view.len()).map(|_| {
            let certain = [1.0, 1e-9, 0.999_999_999_999];
            let say = |_| match rng.next_u32() % 8 {
                n @ 0..3 => certain[n as usize],
                _ => (f64::from(rng.next_u32()) + 1.0) / 4_294_967_297.0,
            };
            (0..=context.max_draft_len).map(say).collect()
        });
        let confidence = confidence.collect();
        let run = (0..view.len()).map(|_| rng.next_u32() % 6).collect();
        let mut script = Scripted { confidence, run, ..Scripted::default() };
        let mut accepted = Vec::new();
        let drafts = script.decide(&mut policy, &view, context.max_draft_len, &mut accepted);
        // In about one of six steps the draft and verify times are 0, as if the clock did not move.
        let time = if rng.next_u32().is_multiple_of(6) { Time::ZERO } else { Time::from_s(0.01) };
        policy.observe(&StepOutcome {
            ids: view.ids,
            drafted: &drafts.draft_len,
            verified: &drafts.verify_len,
            accepted: &accepted,
            drafts: &drafts,
            draft_time: time,
            verify_time: time,
        });
        policy.explain();
    }
    policy.warnings();
    true
}

#[test]
fn settings_that_pass_the_check_run() {
    let ran = RefCell::new(BTreeMap::new());
    proptest!(|(
        batches in prop::collection::vec(any_batch(6, 32), 1..25),
        belief in any_belief(),
        max_draft_len in 0u32..=32,
        max_num_seqs in prop_oneof![Just(1u32), Just(3), Just(64), Just(300)],
        max_num_batched_tokens in prop_oneof![Just(1u32), Just(7), Just(2048)],
        staleness_steps in 0u32..4,
        told in any::<bool>(),
        rng in any::<u8>().prop_perturb(|_, rng| rng),
    )| {
        let mut rng = rng;
        let told = told.then_some(Told { acceptance_rate: 0.7, prev_confidence: 0.6, contexts: &[900, 80] });
        let context = PolicyContext {
            belief, profile: &belief, max_draft_len, max_num_seqs, max_num_batched_tokens, staleness_steps, told, ..CONTEXT
        };
        for policy in PolicySpec::all().iter().cycle().take(3 * PolicySpec::all_names().len()) {
            let Some(policy) = extreme(policy, &mut rng) else { continue };
            let done = catch_unwind(AssertUnwindSafe(|| run(&policy, &context, &batches, &mut rng)));
            prop_assert!(done.is_ok(), "{}", policy.label());
            if done.unwrap() {
                *ran.borrow_mut().entry(policy.name()).or_insert(0) += 1;
            }
        }
    });
    let ran = ran.into_inner();
    println!("{ran:?}");
    for policy in PolicySpec::all().iter().filter(|p| matches!(p.build(&CONTEXT), Speculation::Policy(_))) {
        let n = ran.get(policy.name()).copied().unwrap_or(0);
        assert!(n > 0, "no mutant of {} passed the check and ran", policy.name());
    }
}
