//! Tests every policy on the CPU device. Greedy output must equal the output without speculation token for token, with
//! chunked prefill, rollback and preemption. A replay with the recorded times must repeat the run byte for byte:
//! schedules, decisions and token counts. The models are small and have random weights. Two draft models are tested.
//! One is the target in lower precision; its draft tokens are nearly always right. The other is the target's first
//! layer alone; its draft tokens are hardly ever right.

use crate::setup::NeverRight;
use foretoken_kernels::cpu::Cpu;
use foretoken_kernels::device::Device;
use foretoken_kernels::executor::{Acceptance, Capacity, DeviceExecutor, Live, Needs, Pair, Waiting};
use foretoken_kernels::model::LlamaShape;
use foretoken_kernels::weights::{Dtype, RandomWeights, TensorData, Weights};
use foretoken_policies::{Belief, PolicyContext, PolicySpec};
use foretoken_sim::acceptance::AcceptanceSpec;
use foretoken_sim::live::{RecordedRounds, Recorder, ReplayClock, StepTrace};
use foretoken_sim::*;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// Policies that no device can run, with the reason. All other policies must run.
const NOT_LIVE: [(&str, &str); 7] = [
    ("oracle-goodput", "sees a truth that only the event clock has"),
    ("oracle-tree", "sees a truth that only the event clock has"),
    ("knows-rates", "knows the law of acceptance, which a device has not"),
    ("knows-confidences", "knows the law of acceptance, which a device has not"),
    ("knows-lengths", "knows the law of acceptance, which a device has not"),
    ("one-step-ahead", "knows the law of acceptance, which a device has not"),
    ("oracle-length", "sees a truth that only the event clock has"),
];

/// What a policy saw and decided in each step, as text.
type Decisions = Arc<Mutex<Vec<String>>>;

/// A policy, and the list into which it writes its decisions. The policy is `None` for a run without speculation.
type Built = (Option<Box<dyn SpecPolicy>>, Decisions);

/// A policy that writes its decisions and observations into `decisions`.
struct NotingPolicy {
    policy: Box<dyn SpecPolicy>,
    decisions: Decisions,
}

impl Around for NotingPolicy {
    fn inner(&self) -> &dyn SpecPolicy {
        &*self.policy
    }

    fn inner_mut(&mut self) -> &mut dyn SpecPolicy {
        &mut *self.policy
    }

    fn around_propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        self.policy.propose(batch, plan);
        self.decisions.lock().unwrap().push(format!("{batch:?} {plan:?}"));
    }

    fn around_observe(&mut self, o: &StepOutcome) {
        let (ids, times) = (o.ids, (o.draft_time, o.verify_time));
        let said = format!("{ids:?} {:?} {:?} {:?} {times:?}", o.drafted, o.verified, o.accepted);
        self.decisions.lock().unwrap().push(said);
        self.policy.observe(o);
    }
}

/// Random weights ten times as large as usual, so that attention and the distribution of next tokens are far from
/// uniform.
struct Strong(RandomWeights);

impl Weights for Strong {
    fn tensor(&self, name: &str) -> TensorData<'_> {
        match self.0.tensor(name) {
            TensorData::Random { luck, scale, dtype } => TensorData::Random { luck, scale: 10.0 * scale, dtype },
            other => other,
        }
    }

    fn dtype(&self) -> Dtype {
        self.0.dtype
    }
}

fn shape() -> LlamaShape {
    LlamaShape {
        vocab: 97,
        max_positions: 512,
        ..foretoken_kernels::model::LlamaShape {
            layers: 2,
            hidden: 48,
            heads: 4,
            kv_heads: 2,
            head_dim: 12,
            intermediate: 80,
            ..foretoken_kernels::model::preset("vicuna-68m").unwrap()
        }
    }
}

#[derive(Default)]
struct Kept {
    outputs: Vec<(u32, Vec<u32>)>,
    steps: Vec<StepTrace>,
}

impl Recorder for Kept {
    fn step(&mut self, step: &StepTrace) {
        self.steps.push(step.clone());
    }

    fn ended(&mut self, id: u32, output: &[u32]) {
        self.outputs.push((id, output.to_vec()));
    }
}

/// The draft model of the test. The target is in f32.
#[derive(Clone, Copy, Debug)]
enum Draft {
    /// The draft model is the target in bf16, so its draft tokens are nearly always right.
    Close,
    /// The draft model is the target's first layer alone, so its draft tokens are hardly ever right.
    Far,
}

/// A load with its engine settings, and the draft model. The load has sixteen requests with prompts of several chunks;
/// some requests arrive while others run. The KV pool is small enough for preemptions.
struct Server {
    workload: Workload,
    prompts: Vec<Vec<u32>>,
    config: EngineConfig,
    draft: Draft,
}

impl Server {
    fn new(draft: Draft) -> Server {
        let lengths = [(20, 40), (70, 25), (5, 60), (33, 1), (16, 30), (100, 33), (47, 50), (9, 60)];
        let request = |i: u64| {
            let (prompt, output) = lengths[i as usize % 8];
            Request::new(Time::from_s(i.saturating_sub(7) as f64 * 4e-4), prompt, output)
        };
        let tokens = |id: u32, n: u32| (0..n).map(|i| (i * i * 31 + i * 17 + id * 53) % 97).collect();
        Server {
            draft,
            workload: (0..16).map(request).collect(),
            prompts: (0..16).map(|i| tokens(i, lengths[i as usize % 8].0)).collect(),
            config: EngineConfig {
                draft_at: Some(DraftAt::StepStart),
                max_num_seqs: 8,
                max_num_batched_tokens: 72,
                num_gpu_blocks: 22,
                max_model_len: 300,
                prefix_caching: false,
                ..EngineConfig::default()
            },
        }
    }

    /// Builds the policy from its settings, and wraps it so that its decisions are recorded. The policy in the result
    /// is `None` for the engine without speculation. An oracle (a policy that knows which draft tokens are right)
    /// cannot run on a device, so it is returned as the error.
    fn build(&self, spec: &PolicySpec) -> Result<Built, Box<dyn OraclePolicy>> {
        let belief = Belief {
            draft: Coefficients { alpha_s: 1e-9, gamma_s: 3e-6, delta_s: 2e-5 },
            target: Coefficients { alpha_s: 2e-8, gamma_s: 1e-5, delta_s: 4e-4 },
            context_reads: ContextReads::Once,
            drafting: Drafting::Autoregressive,
        };
        let context = PolicyContext {
            belief,
            profile: &belief,
            max_draft_len: self.config.max_draft_len,
            max_num_seqs: self.config.max_num_seqs,
            max_num_batched_tokens: self.config.max_num_batched_tokens,
            seed: 3,
            staleness_steps: 0,
            draft_at: foretoken_sim::DraftAt::StepStart,
            categories: &[],
            told: None,
            truths: None,
            own_rates: None,
        };
        let decisions = Decisions::default();
        match spec.build(&context) {
            Speculation::Off => Ok((None, decisions)),
            Speculation::Policy(policy) => {
                let watched = NotingPolicy { policy, decisions: decisions.clone() };
                Ok((Some(Box::new(watched)), decisions))
            }
            Speculation::Oracle(oracle) => Err(oracle),
        }
    }

    fn serving<'a>(&'a self, interrupt: &'a AtomicBool) -> Serving<'a> {
        Serving {
            workload: &self.workload,
            arrivals: Arrivals::Open,
            config: &self.config,
            slo_tpot_s: 2e-3,
            keep_steps: true,
            interrupt,
        }
    }

    fn live(&self, policy: Option<Box<dyn SpecPolicy>>, acceptance: Acceptance<'_>) -> (Run, Kept) {
        let mut cpu = Cpu::new(1).unwrap();
        let needs = Needs::of(policy.as_deref(), &acceptance).unwrap();
        let weights = |dtype| Strong(RandomWeights { seed: 5, dtype });
        let (target, draft) = (weights(Dtype::F32), weights(Dtype::Bf16));
        let layers = match self.draft {
            Draft::Close => shape().layers,
            Draft::Far => 1,
        };
        let draft_shape = LlamaShape { layers, ..shape() };
        let capacity = Capacity::of(&self.config, needs);
        let mut pair = Pair::load(&mut cpu, (&shape(), &target), Some((&draft_shape, &draft)), capacity).unwrap();
        let interrupt = AtomicBool::new(false);
        let mut kept = Kept::default();
        let run = cpu.session(|cpu| {
            let live = Live {
                config: &self.config,
                workload: &self.workload,
                prompts: &self.prompts,
                acceptance,
                recorder: &mut kept,
                waiting: Waiting::default(),
                interrupt: &interrupt,
            };
            let executor = DeviceExecutor::new(cpu, &mut pair, policy.as_deref(), live).unwrap();
            let served = self.serving(&interrupt).run(executor, policy);
            assert!(served.error.is_none());
            served.run
        });
        kept.outputs.sort();
        (run, kept)
    }

    /// Replays a run with its recorded step times. `acceptance` decides which draft tokens are accepted.
    fn replay(
        &self,
        policy: Option<Box<dyn SpecPolicy>>,
        steps: &[StepTrace],
        acceptance: &dyn AcceptanceSource,
    ) -> Run {
        let max_draft_len = if policy.is_some() { self.config.max_draft_len } else { 0 };
        let clock = ReplayClock::new(steps, acceptance, max_draft_len, self.workload.len());
        let served = self.serving(&AtomicBool::new(false)).run(clock, policy);
        assert_eq!(served.error, None);
        served.run
    }
}

/// All results of a run as text, so that a comparison of two runs leaves nothing out.
fn bytes(run: &Run) -> String {
    format!("{run:?}")
}

#[test]
fn every_policy_is_exact_and_can_be_replayed() {
    every_policy(Draft::Close);
}

#[test]
fn every_policy_is_exact_with_a_draft_that_is_hardly_ever_right() {
    every_policy(Draft::Far);
}

fn every_policy(draft: Draft) {
    let server = Server::new(draft);
    let (_, plain) = server.live(None, Acceptance::Greedy);
    assert_eq!(plain.outputs.len(), server.workload.len());
    let (mut refused, mut preemptions, mut chunked, mut rejected) = (Vec::new(), 0, 0, 0);
    for spec in PolicySpec::all() {
        let label = spec.label();
        let (Ok((policy, decided)), Ok((again, decided_again))) = (server.build(&spec), server.build(&spec)) else {
            refused.push(spec.name());
            continue;
        };
        let speculates = policy.is_some();
        let (run, kept) = server.live(policy, Acceptance::Greedy);
        assert_eq!(kept.outputs, plain.outputs, "{label} emits other tokens");
        let t = &run.totals;
        println!(
            "{label:24} {:4} steps, {} of {} accepted, {} preempted",
            t.steps,
            t.accepted(),
            t.verified,
            t.preemptions
        );
        assert_eq!(run.ending, engine::Ending::Done, "{label}");
        preemptions += t.preemptions;
        rejected += t.verified - t.accepted();
        chunked += run.steps.iter().filter(|s| s.chunks > 0 && s.batch_size > 0).count();

        let mut recorded = RecordedRounds::new(server.workload.len(), &NeverRight);
        kept.steps.iter().for_each(|s| recorded.add(s));
        let replayed = server.replay(again, &kept.steps, &recorded);
        assert!(recorded.misses().none(), "{label}: {:?}", recorded.misses());
        assert!(bytes(&replayed) == bytes(&run), "{label}: the replay differs");
        let (live, replay) = (decided.lock().unwrap(), decided_again.lock().unwrap());
        let first = live.iter().zip(replay.iter()).position(|(a, b)| a != b);
        assert!(first.is_none() && live.len() == replay.len(), "{label}: decision {first:?} differs");
        assert_eq!(live.is_empty(), !speculates, "{label}");
    }
    assert_eq!(refused, NOT_LIVE.map(|(name, _)| name), "{NOT_LIVE:?}");
    assert!(preemptions > 0 && chunked > 0 && rejected > 0, "the setup is too comfortable to prove anything");
}

/// If the acceptance in a live run is drawn from a declared acceptance source (such as constant rates) and does not
/// come from the models, a replay with this source repeats the run. This holds for policies that draft trees, too.
#[test]
fn declared_runs_can_be_replayed() {
    let server = Server::new(Draft::Far);
    let source = AcceptanceSpec::default().build(3, &server.workload).unwrap();
    for spec in PolicySpec::all().iter().filter(|s| !NOT_LIVE.iter().any(|(name, _)| *name == s.name())) {
        let build = || server.build(spec).map_err(|_| "an oracle").unwrap();
        let ((policy, decided), (again, decided_again)) = (build(), build());
        let (run, kept) = server.live(policy, Acceptance::Declared(&*source));
        let replayed = server.replay(again, &kept.steps, &*source);
        assert!(bytes(&replayed) == bytes(&run), "{}: the replay differs", spec.label());
        assert!(*decided.lock().unwrap() == *decided_again.lock().unwrap(), "{}: decisions differ", spec.label());
    }
}

/// A replay with another policy drafts tokens of which the recording of the run does not say whether they are right.
/// These missing facts are counted and reported.
#[test]
fn values_missing_from_a_recording_are_counted() {
    let server = Server::new(Draft::Close);
    let fixed = |k: u32| -> PolicySpec { serde_json::from_str(&format!(r#"{{"fixed": {{"k": {k}}}}}"#)).unwrap() };
    let build = |k| server.build(&fixed(k)).map_err(|_| "an oracle").unwrap().0;
    let (_, kept) = server.live(build(2), Acceptance::Greedy);
    let mut recorded = RecordedRounds::new(server.workload.len(), &NeverRight);
    kept.steps.iter().for_each(|s| recorded.add(s));
    // A replay with the recorded times fails: the run was recorded with 2 draft tokens per step, so it has no third
    // draft pass. The policy `fixed` with 4 draft tokens asks for this pass.
    let clock = ReplayClock::new(&kept.steps, &recorded, server.config.max_draft_len, server.workload.len());
    let served = server.serving(&AtomicBool::new(false)).run(clock, build(4));
    let error = served.error.unwrap().to_string();
    assert_eq!(served.run.ending, engine::Ending::Failed);
    assert!(error.contains("but it now asks for Draft(3)"), "{error}");
    // A simulation does not fail here. If the recording of a step does not say whether a draft token is right, the
    // simulation takes this fact from the recording of another step or from the acceptance source for missing facts,
    // and counts it.
    let simulation = Simulation {
        workload: &server.workload,
        arrivals: Arrivals::Open,
        config: &server.config,
        draft: &Linear::new(Coefficients::FREE),
        target: &Linear::new(Coefficients { alpha_s: 0.0, gamma_s: 0.0, delta_s: 1e-3 }),
        context_reads: ContextReads::Once,
        drafting: Drafting::Autoregressive,
        noise_cv: 0.0,
        acceptance: &recorded,
        seed: 1,
        slo_tpot_s: f64::INFINITY,
        keep_steps: false,
        keep_lives: false,
        interrupt: &AtomicBool::new(false),
    };
    let run = simulation.run(Speculation::Policy(build(4).unwrap()));
    let misses = recorded.misses();
    println!("{misses:?} of {} verified", run.totals.verified);
    assert_eq!(run.ending, engine::Ending::Done);
    assert!(misses.other_round > 0 && misses.invented > 0 && misses.looks == 0, "{misses:?}");
    // Where the recording says nothing, the acceptance source for missing facts decides; in this test it says that no
    // draft token is right. So every accepted token comes from the recording. This run also uses the recording of other
    // steps, so more than a quarter of the verified tokens are accepted.
    assert!(run.totals.accepted() > run.totals.verified / 4);
}
