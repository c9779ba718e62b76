//! A small scenario for tests: eight requests, a target and a draft model that often agree, and policies that draft
//! chains of fixed lengths or trees.

use crate::common::{Strong, prompt, shape};
use foretoken_kernels::cpu::Cpu;
use foretoken_kernels::device::Device;
use foretoken_kernels::executor::{Acceptance, Capacity, DeviceExecutor, Live, Needs, Pair, Prompts, Waiting};
use foretoken_kernels::forward::{Limits, Llama};
use foretoken_kernels::model::LlamaShape;
use foretoken_kernels::paged::{Batch, Logits};
use foretoken_kernels::weights::{Dtype, RandomWeights};
use foretoken_sim::live::{Recorder, StepTrace};
use foretoken_sim::*;
use std::sync::atomic::AtomicBool;

/// A recorder that stores the output of each request with the request's id, and the records of all steps.
#[derive(Default)]
pub struct Recorded {
    pub outputs: Vec<(u32, Vec<u32>)>,
    pub steps: Vec<StepTrace>,
}

impl Recorder for Recorded {
    fn step(&mut self, step: &StepTrace) {
        self.steps.push(step.clone());
    }

    fn ended(&mut self, id: u32, output: &[u32]) {
        self.outputs.push((id, output.to_vec()));
    }
}

/// A policy that drafts chains of `k` tokens. If it has a `growth` (a rule for growing trees), it drafts trees of depth
/// `k` instead. It drafts only in steps whose number is a multiple of `every`.
#[derive(Clone, Debug)]
pub struct Fixed {
    pub k: u32,
    pub growth: Option<Growth>,
    /// Most tokens of a draft tree that the policy verifies; 0 for a policy that drafts chains.
    pub tokens: u32,
    pub every: u64,
    /// Number of the first step in which the policy drafts trees. In earlier steps it drafts chains, even if it has a
    /// `growth`.
    pub from_step: u64,
}

impl Fixed {
    pub fn chain(k: u32) -> Fixed {
        Fixed { k, growth: None, tokens: 0, every: 1, from_step: 0 }
    }
}

impl SpecPolicy for Fixed {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::tree(self.k, self.tokens)
    }

    fn wants(&self) -> Wants {
        Wants::CONFIDENCE
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        if batch.step.is_multiple_of(self.every) {
            plan.fill(self.k);
        }
        if let Some(growth) = self.growth.as_ref().filter(|_| batch.step >= self.from_step) {
            plan.shape = DraftShape::Tree(growth.clone());
        }
    }

    fn select(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        if drafts.in_trees() {
            let mut order = Vec::new();
            (0..batch.len()).for_each(|i| drafts.trees[i].keep_best(batch.limit[i], &mut order));
        }
    }
}

/// Returns three policies that draft chains and two policies that draft trees.
pub fn policies() -> Vec<Fixed> {
    let tree = |growth| Fixed { growth: Some(growth), tokens: 20, ..Fixed::chain(4) };
    let trees = [Growth::Expansion([2, 2, 1].into()), Growth::Beam { topk: 3 }].map(tree);
    [1, 4, 6].map(Fixed::chain).into_iter().chain(trees).collect()
}

pub fn config() -> EngineConfig {
    EngineConfig {
        draft_at: Some(DraftAt::StepStart),
        max_num_seqs: 8,
        max_num_batched_tokens: 64,
        num_gpu_blocks: 40,
        max_model_len: 300,
        prefix_caching: false,
        max_draft_len: 6,
        ..EngineConfig::default()
    }
}

pub fn workload() -> (Workload, Vec<Vec<u32>>) {
    let lengths = [(20, 40), (70, 25), (5, 60), (33, 1), (16, 30), (100, 33), (47, 50), (9, 80)];
    let requests = lengths.iter().map(|&(p, o)| Request::new(Time::ZERO, p, o)).collect();
    (requests, (0..).zip(lengths).map(|(i, (p, _))| prompt(p as usize, i)).collect())
}

pub struct Scenario {
    pub workload: Workload,
    pub prompts: Vec<Vec<u32>>,
}

impl Scenario {
    pub fn new() -> Scenario {
        let (workload, prompts) = workload();
        Scenario { workload, prompts }
    }

    /// Loads a target with f32 weights and a draft model with the same weights in bf16.
    pub fn pair(&self, cpu: &mut Cpu, capacity: Capacity) -> Pair<Cpu> {
        let [target, draft] = [Dtype::F32, Dtype::Bf16].map(|dtype| Strong(RandomWeights { seed: 5, dtype }));
        Pair::load(cpu, (&shape(), &target), Some((&shape(), &draft)), capacity).unwrap()
    }

    pub fn serve(&self, config: &EngineConfig, policy: Option<Fixed>, acceptance: Acceptance<'_>) -> (Run, Recorded) {
        let (run, error, recorded) = self.try_serve(config, policy, acceptance);
        assert_eq!(error, None);
        (run, recorded)
    }

    pub fn try_serve(
        &self,
        config: &EngineConfig,
        policy: Option<Fixed>,
        acceptance: Acceptance<'_>,
    ) -> (Run, Option<String>, Recorded) {
        let mut cpu = Cpu::new(1).unwrap();
        let needs = Needs::of(policy.as_ref().map(|p| p as &dyn SpecPolicy), &acceptance).unwrap();
        let mut pair = self.pair(&mut cpu, Capacity::of(config, needs));
        let mut recorded = Recorded::default();
        let interrupt = AtomicBool::new(false);
        let with = (acceptance, &self.prompts as &dyn Prompts);
        let (run, error) = self.run_to_the_end(&mut cpu, &mut pair, config, policy, with, &mut recorded, &interrupt);
        recorded.outputs.sort();
        (run, error, recorded)
    }

    #[allow(clippy::too_many_arguments, reason = "a test says everything")]
    pub fn run(
        &self,
        cpu: &mut Cpu,
        pair: &mut Pair<Cpu>,
        config: &EngineConfig,
        policy: Option<Fixed>,
        with: (Acceptance<'_>, &dyn Prompts),
        recorded: &mut Recorded,
        interrupt: &AtomicBool,
    ) -> Run {
        self.run_to_the_end(cpu, pair, config, policy, with, recorded, interrupt).0
    }

    #[allow(clippy::too_many_arguments, reason = "a test says everything")]
    fn run_to_the_end(
        &self,
        cpu: &mut Cpu,
        pair: &mut Pair<Cpu>,
        config: &EngineConfig,
        policy: Option<Fixed>,
        (acceptance, prompts): (Acceptance<'_>, &dyn Prompts),
        recorded: &mut Recorded,
        interrupt: &AtomicBool,
    ) -> (Run, Option<String>) {
        let policy = policy.map(|p| Box::new(p) as Box<dyn SpecPolicy>);
        cpu.session(|cpu| {
            let live = Live {
                config,
                workload: &self.workload,
                prompts,
                acceptance,
                recorder: recorded,
                waiting: Waiting::default(),
                interrupt,
            };
            let executor = DeviceExecutor::new(cpu, pair, policy.as_deref(), live).unwrap();
            let serving = Serving {
                workload: &self.workload,
                arrivals: Arrivals::Open,
                config,
                slo_tpot_s: f64::INFINITY,
                keep_steps: true,
                interrupt,
            };
            let served = serving.run(executor, policy);
            (served.run, served.error.map(|e| e.to_string()))
        })
    }
}

/// Returns the joint distribution of the first three tokens that a model samples after `prompt`. It is computed by
/// running the model over every possible prefix of these three tokens.
pub fn joint(shape: &LlamaShape, weights: &Strong, prompt: &[u32], temperature: f32) -> Vec<f64> {
    let mut cpu = Cpu::new(1).unwrap();
    let limits = Limits { kv_blocks: 2, max_rows: 32, max_logit_rows: 32 };
    let mut llama = Llama::load(&mut cpu, shape, weights, limits).unwrap();
    let vocab = shape.vocab as usize;
    let mut batch = Batch::default();
    let mut out = vec![1.0];
    for length in 0..3u32 {
        let mut longer = Vec::new();
        for (prefix, p) in out.iter().enumerate() {
            let digits = (0..length).rev().map(|d| (prefix / vocab.pow(d) % vocab) as u32);
            let tokens: Vec<u32> = prompt.iter().copied().chain(digits).collect();
            batch.clear();
            batch.push_chain(&tokens, 0, &[0, 1], Logits::Last);
            llama.forward(&mut cpu, &batch).unwrap();
            let mut probabilities = cpu.buffer(1, vocab).unwrap();
            cpu.softmax(llama.logits(), temperature, &mut probabilities).unwrap();
            longer.extend(probabilities.row(0).iter().map(|&q| p * f64::from(q)));
        }
        out = longer;
    }
    out
}
