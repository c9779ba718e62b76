//! Tests of the engine on the CPU device. With speculation, the engine must emit the tokens of plain decoding. If an
//! acceptance source of the simulator decides which draft tokens are accepted (`Acceptance::Declared`), the engine must
//! have the steps of a simulation. Runs that cannot be served must be refused.

use crate::common::{self, Strong, shape};
use crate::serving::{self, Fixed, Recorded, Scenario, config, policies, workload};
use foretoken_kernels::cpu::Cpu;
use foretoken_kernels::executor::{
    Acceptance, CannotServe, Capacity, DeviceExecutor, Live, Needs, Pair, RandomPrompts, Waiting,
};
use foretoken_kernels::model::LlamaShape;
use foretoken_kernels::weights::{Dtype, RandomWeights};
use foretoken_sim::acceptance::AcceptanceSpec;
use foretoken_sim::engine::Ending;
use foretoken_sim::live::MarkKind;
use foretoken_sim::*;
use itertools::Itertools;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn speculation_emits_the_autoregressive_tokens() {
    let scenario = Scenario::new();
    let (_, plain) = scenario.serve(&config(), None, Acceptance::Greedy);
    assert_eq!(plain.outputs.len(), scenario.workload.len());
    for tight in [false, true] {
        let config = if tight { EngineConfig { num_gpu_blocks: 18, ..config() } } else { config() };
        for policy in policies() {
            let said = format!("{policy:?}, tight {tight}");
            let (run, recorded) = scenario.serve(&config, Some(policy), Acceptance::Greedy);
            let t = &run.totals;
            println!("{said}: {} steps, {} of {}, {} preemptions", t.steps, t.accepted(), t.verified, t.preemptions);
            assert_eq!(recorded.outputs, plain.outputs, "{said}");
            assert!(t.accepted() > 0 && t.accepted() < t.verified, "{said}");
            assert_eq!(t.preemptions > 0, tight, "{said}");
        }
    }
}

/// With prefix caching, the target and the draft model run over a shared prefix once. The test checks that fewer prompt
/// tokens run, and that every output token stays the same.
#[test]
fn prefix_caching_saves_prefill_and_changes_no_token() {
    let mut scenario = Scenario::new();
    let shared = common::prompt(64, 77);
    let mut workload = Workload { prefix_block: 16, ..Workload::default() };
    // Of the eight prompts, four share their first 64 tokens, two share only the first 32 of these tokens, and two
    // share none. Requests 0 to 3 arrive 1 ps before requests 4 to 7.
    for (id, prompt) in scenario.prompts.iter_mut().enumerate() {
        let blocks = [4, 0, 2, 4, 0, 2, 4, 4][id];
        prompt.splice(..0, shared[..16 * blocks].iter().copied());
        let mut request = Request::new(Time(id as u64 / 4), prompt.len() as u32, scenario.workload.output_len[id]);
        request.prefix = (1..=blocks as u64).collect();
        workload.push(request);
    }
    scenario.workload = workload;
    let without = EngineConfig { num_gpu_blocks: 60, ..config() };
    let (plain, said) = scenario.serve(&without, None, Acceptance::Greedy);
    for tight in [false, true] {
        // If `tight` is true, the KV pool is small, and the scheduler admits a request as soon as there are blocks for
        // its first chunk, without waiting for blocks for its whole prompt. Together the requests outgrow the pool, so
        // some are preempted.
        let with = EngineConfig {
            prefix_caching: true,
            num_gpu_blocks: if tight { 22 } else { 60 },
            scheduler_reserve_full_isl: Some(!tight),
            ..config()
        };
        for policy in policies().into_iter().map(Some).chain([None]) {
            let said_here = format!("{policy:?}, tight {tight}");
            let (run, recorded) = scenario.serve(&with, policy, Acceptance::Greedy);
            assert_eq!(recorded.outputs, said.outputs, "{said_here}");
            let cached: u32 = run.records.cached_tokens.iter().sum();
            assert!(cached >= 64, "{cached} tokens cached: {said_here}");
            assert_eq!(run.totals.preemptions > 0, tight, "{said_here}");
            if !tight {
                assert_eq!(run.totals.prefill_tokens + u64::from(cached), plain.totals.prefill_tokens, "{said_here}");
            }
        }
    }
}

/// Serves the same requests with seven configurations of the engine; each must emit the tokens of plain decoding. The
/// configurations change the release of vLLM that the engine follows, what the draft model does with draft gaps
/// (context tokens that it has not run over), the token budget, the KV pools, and chunked prefill.
#[test]
fn every_setting_of_the_engine_emits_the_same_tokens() {
    let scenario = Scenario::new();
    let (_, plain) = scenario.serve(&config(), None, Acceptance::Greedy);
    let settings = [
        EngineConfig { version: Version::V0, max_num_batched_tokens: 300, ..config() },
        EngineConfig { draft_gap: DraftGap::AlwaysExtend, ..config() },
        EngineConfig { draft_gap: DraftGap::Permanent, ..config() },
        EngineConfig { budget_charge: BudgetCharge::Trimmed, max_num_batched_tokens: 24, ..config() },
        EngineConfig { draft_kv: DraftKv::EqualSplit { ratio: 1.0 }, num_gpu_blocks: 60, ..config() },
        EngineConfig { draft_kv: DraftKv::Separate { blocks: 30 }, ..config() },
        EngineConfig { chunked_prefill: Some(false), max_num_batched_tokens: 300, ..config() },
    ];
    for config in settings {
        // The policy drafts only in every third step. The other steps emit tokens over which the draft model has not
        // run.
        let policy = Fixed { every: 3, ..Fixed::chain(4) };
        let (run, recorded) = scenario.serve(&config, Some(policy), Acceptance::Greedy);
        assert_eq!(recorded.outputs, plain.outputs, "{config:?}");
        assert!(run.totals.accepted() > 0, "{config:?}");
    }
}

/// A run on real models in which an acceptance source decides (`Acceptance::Declared`) has the same steps as a
/// simulation: each step has equal numbers of requests, prompt tokens, draft tokens, accepted draft tokens and
/// preemptions. All requests arrive at once, so that the schedule does not depend on pass times.
#[test]
fn declared_acceptance_is_the_simulators() {
    let scenario = Scenario::new();
    let config = EngineConfig { num_gpu_blocks: 20, ..config() };
    let source = AcceptanceSpec::default().build(3, &scenario.workload).unwrap();
    for policy in policies() {
        let simulation = Simulation {
            workload: &scenario.workload,
            arrivals: Arrivals::Open,
            config: &config,
            draft: &Linear::new(Coefficients::FREE),
            target: &Linear::new(Coefficients { alpha_s: 0.0, gamma_s: 0.0, delta_s: 1e-3 }),
            context_reads: ContextReads::Once,
            drafting: Drafting::Autoregressive,
            noise_cv: 0.0,
            acceptance: &*source,
            seed: 1,
            slo_tpot_s: f64::INFINITY,
            keep_steps: true,
            keep_lives: false,
            interrupt: &AtomicBool::new(false),
        };
        let simulated = simulation.run(Speculation::Policy(Box::new(policy.clone())));
        let (live, recorded) = scenario.serve(&config, Some(policy.clone()), Acceptance::Declared(&*source));
        let counts = |run: &Run| {
            let numbers =
                |s: &StepRecord| (s.batch_size, s.chunk_tokens, s.drafted, s.verified, s.accepted, s.preempted);
            run.steps.iter().map(numbers).collect::<Vec<_>>()
        };
        assert_eq!(counts(&live), counts(&simulated), "{policy:?}");
        assert!(live.totals.preemptions > 0 && live.totals.accepted() > 0, "{policy:?}");
        let emitted: usize = recorded.outputs.iter().map(|(_, o)| o.len()).sum();
        assert_eq!(emitted as u32, scenario.workload.output_len.iter().sum::<u32>());
    }
}

#[test]
fn what_is_recorded_adds_up() {
    let scenario = Scenario::new();
    let (run, recorded) = scenario.serve(&config(), Some(Fixed::chain(3)), Acceptance::Greedy);
    let passes = |s: &live::StepTrace| s.marks.iter().filter(|m| matches!(m.kind, MarkKind::Draft(_))).count() as u32;
    assert_eq!(recorded.steps.len(), run.steps.len() + 1, "one more, for what follows the last step");
    let mut end = Time::ZERO;
    for (said, s) in recorded.steps.iter().zip(&run.steps) {
        assert_eq!((said.step, said.rounds.len() as u32, passes(said)), (s.step, s.batch_size, s.draft_passes));
        assert_eq!(said.rounds.iter().map(|r| r.accepted).sum::<u32>(), s.accepted);
        assert_eq!(said.confidence.len() as u32, s.drafted);
        assert!(said.confidence.iter().all(|c| (0.0..=1.0).contains(c)));
        let verify = said.marks.iter().rfind(|m| m.kind == MarkKind::Verify).unwrap();
        assert_eq!(verify.end, s.end);
        assert!(verify.device > Time::ZERO && verify.device <= verify.end - verify.begin);
        let busy: Time = said.marks.iter().map(|m| m.end - m.begin).sum();
        assert!(said.host(end) + busy >= s.end - end, "nothing is left out");
        end = s.end;
    }
}

#[test]
fn what_cannot_be_served_is_refused_before_it_is_tried() {
    let refused = |config: EngineConfig, target: LlamaShape, draft: Option<LlamaShape>| {
        let needs = Needs { draft: true, ..Needs::default() };
        Pair::<Cpu>::check_shapes(&config, needs, &target, draft.as_ref()).unwrap_err().to_string()
    };
    let both = |config| refused(config, shape(), Some(shape()));
    assert!(both(EngineConfig { block_size: 32, ..config() }).contains("engine.block_size: 32 is not 16"));
    let separate = DraftKv::Separate { blocks: 30 };
    let cached = EngineConfig { prefix_caching: true, draft_kv: separate, ..config() };
    assert!(both(cached).contains("engine.prefix_caching: cached blocks hold no KV of a draft with a pool of its own"));
    assert!(both(EngineConfig { draft_prefill: false, ..config() }).contains("engine.draft_prefill"));
    assert!(both(EngineConfig { max_model_len: 513, ..config() }).contains("513 is more than the 512 positions"));
    let other = LlamaShape { vocab: 98, ..shape() };
    assert!(refused(config(), shape(), Some(other)).contains("97 tokens in its vocabulary and the draft 98"));
    assert!(refused(config(), shape(), None).contains("no draft model"));

    let lookup = serde_json::from_str::<AcceptanceSpec>(r#"{"source": {"prompt-lookup": {}}}"#).unwrap();
    let lookup = lookup.build(1, &workload().0).unwrap();
    let policy = Fixed::chain(2);
    let needs = |policy: &Fixed, acceptance: &Acceptance| Needs::of(Some(policy), acceptance);
    assert_eq!(needs(&policy, &Acceptance::Declared(&*lookup)), Err(CannotServe::PromptLookup));
    let sampled = |temperature| Acceptance::Sampled { temperature, seed: 1 };
    assert_eq!(needs(&policy, &sampled(0.0)), Err(CannotServe::Temperature(0.0)));
    assert_eq!(needs(&policies().pop().unwrap(), &sampled(1.0)), Err(CannotServe::SampledTrees));

    let scenario = Scenario::new();
    let refused = |prompts: Vec<Vec<u32>>, config: &EngineConfig| {
        let mut cpu = Cpu::new(1).unwrap();
        let mut pair =
            scenario.pair(&mut cpu, Capacity::of(&serving::config(), Needs { draft: true, ..Needs::default() }));
        let (recorder, interrupt) = (&mut (), &AtomicBool::new(false));
        let live = Live {
            config,
            workload: &scenario.workload,
            prompts: &prompts,
            acceptance: Acceptance::Greedy,
            recorder,
            waiting: Waiting::default(),
            interrupt,
        };
        DeviceExecutor::new(&mut cpu, &mut pair, Some(&policy), live).err().unwrap().to_string()
    };
    let mut prompts = scenario.prompts.clone();
    prompts[2].pop();
    assert_eq!(refused(prompts, &config()), "request 2: its prompt has 4 tokens where the workload says 5");
    let mut prompts = scenario.prompts.clone();
    prompts[1][3] = 97;
    assert_eq!(refused(prompts, &config()), "request 1: token 3 of its prompt is 97, but the vocabulary has 97");
    let mut sharing = Scenario::new();
    sharing.workload = Workload { prefix_block: 4, ..Workload::default() };
    for (id, prompt) in scenario.prompts.iter().enumerate() {
        let request = Request::new(Time::ZERO, prompt.len() as u32, scenario.workload.output_len[id]);
        sharing.workload.push(Request { prefix: if id == 2 || id == 7 { vec![9] } else { vec![] }, ..request });
    }
    let (_, error, _) = sharing.try_serve(&config(), Some(Fixed::chain(2)), Acceptance::Greedy);
    assert_eq!(error, None, "without a cache there are no lookups");
    let caching = EngineConfig { prefix_caching: true, ..config() };
    let mut cpu = Cpu::new(1).unwrap();
    let mut pair = scenario.pair(&mut cpu, Capacity::of(&caching, Needs { draft: true, ..Needs::default() }));
    let live = Live {
        config: &caching,
        workload: &sharing.workload,
        prompts: &sharing.prompts,
        acceptance: Acceptance::Greedy,
        recorder: &mut (),
        waiting: Waiting::default(),
        interrupt: &AtomicBool::new(false),
    };
    let said = DeviceExecutor::new(&mut cpu, &mut pair, Some(&policy), live).err().unwrap().to_string();
    assert!(said.contains("request 7: its prompt differs from request 2's within prefix block 9"), "{said}");
    let larger = EngineConfig { num_gpu_blocks: 41, ..config() };
    let said = refused(scenario.prompts.clone(), &larger);
    assert_eq!(said, "the models were loaded with room for 40 blocks of KV, but 41 are needed");
}

/// A prompt of at least `max_model_len` tokens is rejected. The run's records say that the request was rejected, and
/// all other requests are served.
#[test]
fn prompts_too_long_are_rejected() {
    let mut scenario = Scenario::new();
    scenario.workload.prompt_len[3] = 300;
    scenario.prompts[3].clear();
    let (run, recorded) = scenario.serve(&config(), Some(Fixed::chain(3)), Acceptance::Greedy);
    assert_eq!(run.records.outcome[3], Outcome::Rejected);
    assert_eq!((run.ending, recorded.outputs.len()), (Ending::Done, 7));
}

#[test]
fn the_wall_clock_waits_for_arrivals_and_can_be_interrupted() {
    let late = [Request::new(Time::ZERO, 4, 3), Request::new(Time::from_s(0.08), 4, 3)];
    let mut scenario = Scenario::new();
    scenario.workload = late.into_iter().chain([Request::new(Time::from_s(60.0), 4, 3)]).collect();
    let random = RandomPrompts { seed: 1, vocab: shape().vocab, workload: &scenario.workload };
    let mut cpu = Cpu::new(1).unwrap();
    let mut pair = scenario.pair(&mut cpu, Capacity::of(&config(), Needs::default()));
    let interrupt = AtomicBool::new(false);
    let mut recorded = Recorded::default();
    let begun = Instant::now();
    let run = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            interrupt.store(true, Ordering::Relaxed);
        });
        scenario.run(&mut cpu, &mut pair, &config(), None, (Acceptance::Greedy, &random), &mut recorded, &interrupt)
    });
    assert_eq!(run.ending, Ending::Interrupted);
    assert!(begun.elapsed() < Duration::from_secs(30), "it waited for the third request");
    assert!(run.records.first_scheduled[1] >= Time::from_s(0.08), "served before it arrived");
    assert_eq!(recorded.outputs.len(), 2);
}

/// If a pass fails in the middle of a run, the run ends with an error. The steps before this pass are recorded.
#[test]
fn a_failing_pass_keeps_what_was_done() {
    let scenario = Scenario::new();
    // From step 8 on the policy drafts trees, but its declared limits are for chains. So no scratch blocks (KV blocks
    // for draft trees only) were allocated, and the run fails.
    let lying = Fixed { growth: Some(Growth::Expansion([90, 40].into())), from_step: 8, tokens: 0, ..Fixed::chain(2) };
    let (run, error, recorded) = scenario.try_serve(&config(), Some(lying), Acceptance::Greedy);
    assert!(error.unwrap().contains("draft narrower trees"));
    assert_eq!((run.ending, run.steps.len()), (Ending::Failed, 8));
    assert_eq!(recorded.steps.len(), 9);
    let emitted: u32 = run.records.emitted.iter().sum();
    assert_eq!(u64::from(emitted), run.totals.emitted);
}

/// With speculation and sampling, the first three emitted tokens have the target's joint distribution and not the draft
/// model's (χ² test).
#[test]
fn sampling_keeps_the_targets_distribution() {
    const N: usize = 12_000;
    const VOCAB: usize = 5;
    let scenario = Scenario::new();
    let small = LlamaShape { vocab: VOCAB as u32, ..shape() };
    let workload: Workload = (0..N).map(|_| Request::new(Time::ZERO, 6, 3)).collect();
    let prompts = vec![vec![1, 2, 0, 4, 3, 1]; N];
    let (seeds, temperature) = ([5, 6], 1.5);
    let config = EngineConfig { max_num_seqs: 32, num_gpu_blocks: 80, ..config() };
    let acceptance = Acceptance::Sampled { temperature, seed: 9 };
    let needs = Needs::of(Some(&Fixed::chain(2)), &acceptance).unwrap();
    let mut cpu = Cpu::new(1).unwrap();
    let weights = seeds.map(|seed| Strong(RandomWeights { seed, dtype: Dtype::F32 }));
    let capacity = Capacity::of(&config, needs);
    let mut pair = Pair::load(&mut cpu, (&small, &weights[0]), Some((&small, &weights[1])), capacity).unwrap();
    let mut recorded = Recorded::default();
    let sampling = Scenario { workload, ..scenario };
    let policy = Some(Fixed::chain(2));
    let interrupt = AtomicBool::new(false);
    let with = (acceptance, &prompts as &dyn foretoken_kernels::executor::Prompts);
    let run = sampling.run(&mut cpu, &mut pair, &config, policy, with, &mut recorded, &interrupt);
    let rate = run.totals.accepted() as f64 / run.totals.verified as f64;
    assert!((0.05..0.95).contains(&rate), "acceptance {rate} tries one side only");

    let mut seen = vec![0.0; VOCAB.pow(3)];
    for (_, o) in &recorded.outputs {
        seen[o.iter().fold(0, |cell, &t| cell * VOCAB + t as usize)] += 1.0;
    }
    let [own, drafts] = weights.map(|w| {
        let p = serving::joint(&small, &w, &prompts[0], temperature);
        let chi: f64 = p.iter().zip_eq(&seen).map(|(p, n)| (n - p * N as f64).powi(2) / (p * N as f64)).sum();
        chi
    });
    // The allowed χ² is the mean plus five standard deviations of χ² with 124 degrees of freedom.
    let limit = 124.0 + 5.0 * (2.0f64 * 124.0).sqrt();
    println!("χ² {own:.0} against the target, {drafts:.0} against the draft, limit {limit:.0}, acceptance {rate:.2}");
    assert!(own < limit && drafts > limit);
}
