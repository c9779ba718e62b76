//! Measures the host work of a step on real models at batch 32: the work of the engine and the executor before, between
//! and after the device's forward passes. Nearly all of a step is host work here, because the models are as small as
//! possible. The models' tokens do not decide which draft tokens are accepted: the simulator's default acceptance
//! source decides. The bench prints how many microseconds of a step four parts take: scheduler and policy; the
//! executor, which runs each pass, without the device's time; the device; and the recording of the step.

#![allow(missing_docs)]

use foretoken_kernels::cpu::Cpu;
use foretoken_kernels::device::Device;
use foretoken_kernels::executor::{Acceptance, Capacity, DeviceExecutor, Live, Needs, Pair, RandomPrompts, Waiting};
use foretoken_kernels::model::{LlamaShape, preset};
use foretoken_kernels::weights::{Dtype, RandomWeights};
use foretoken_sim::acceptance::AcceptanceSpec;
use foretoken_sim::live::{MarkKind, Recorder, StepTrace};
use foretoken_sim::*;
use std::sync::atomic::AtomicBool;

const BATCH: u32 = 32;

/// Microseconds that each part of a step took: scheduler and policy, executor, device, recording. Each list has one
/// entry per counted step. A step counts only if all [`BATCH`] requests decode and the step computes no prompt.
#[derive(Default)]
struct Parts {
    last_end: Time,
    host: Vec<f64>,
    around: Vec<f64>,
    device: Vec<f64>,
    recorded: Vec<f64>,
}

impl Recorder for Parts {
    fn step(&mut self, s: &StepTrace) {
        let us = |t: Time| t.as_s() * 1e6;
        let marks = |is_wanted: fn(&MarkKind) -> bool| s.marks.iter().filter(move |m| is_wanted(&m.kind));
        let passes = || marks(|k| matches!(k, MarkKind::Draft(_) | MarkKind::Verify));
        if s.rounds.len() as u32 == BATCH && s.chunks.is_empty() {
            let device: f64 = passes().map(|m| us(m.device)).sum();
            self.host.push(us(s.host(self.last_end)));
            self.around.push(passes().map(|m| us(m.end - m.begin)).sum::<f64>() - device);
            self.device.push(device);
            self.recorded.push(marks(|k| *k == MarkKind::Recorded).map(|m| us(m.end - m.begin)).sum());
        }
        self.last_end = passes().next_back().map_or(self.last_end, |m| m.end);
    }
}

/// A policy whose decisions take as long as the decisions of the slowest real policies. It drafts 4 tokens for every
/// request, and reads every request's confidence after every draft pass.
struct Looking;

impl SpecPolicy for Looking {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(4)
    }

    fn wants(&self) -> Wants {
        Wants::CONFIDENCE
    }

    fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
        plan.fill(4);
    }

    fn keep_drafting(&mut self, batch: &BatchView, drafts: &mut Drafts) -> Continue {
        let last_pass = drafts.passes as usize - 1;
        (0..batch.len()).filter(|&i| !drafts.is_stopped(i)).for_each(|i| {
            std::hint::black_box(drafts.confidence(i, last_pass));
        });
        Continue::Yes
    }
}

fn main() {
    let tiny = LlamaShape {
        layers: 1,
        hidden: 16,
        heads: 1,
        kv_heads: 1,
        head_dim: 16,
        intermediate: 16,
        vocab: 64,
        ..preset("tinyllama-1.1b").expect("a preset")
    };
    let config = EngineConfig {
        draft_at: Some(DraftAt::StepStart),
        max_num_seqs: BATCH,
        max_model_len: 2048,
        prefix_caching: false,
        num_gpu_blocks: 4096,
        ..EngineConfig::default()
    };
    let workload: Workload = (0..BATCH).map(|_| Request::new(Time::ZERO, 500, 1400)).collect();
    let prompts = RandomPrompts { seed: 1, vocab: tiny.vocab, workload: &workload };
    let source = AcceptanceSpec::default().build(1, &workload).expect("the default source");
    let acceptance = Acceptance::Declared(&*source);
    let needs = Needs::of(Some(&Looking), &acceptance).expect("it can be served");
    let mut cpu = Cpu::new(1).expect("a thread");
    let weights = RandomWeights { seed: 1, dtype: Dtype::Bf16 };
    let models = ((&tiny, &weights), Some((&tiny, &weights)));
    let mut pair = Pair::load(&mut cpu, models.0, models.1, Capacity::of(&config, needs)).expect("it fits");
    let interrupt = AtomicBool::new(false);
    let mut parts = Parts::default();
    cpu.session(|cpu| {
        let live = Live {
            config: &config,
            workload: &workload,
            prompts: &prompts,
            acceptance,
            recorder: &mut parts,
            waiting: Waiting::default(),
            interrupt: &interrupt,
        };
        let executor = DeviceExecutor::new(cpu, &mut pair, Some(&Looking), live).expect("it can be served");
        let serving = Serving {
            workload: &workload,
            arrivals: Arrivals::Open,
            config: &config,
            slo_tpot_s: f64::INFINITY,
            keep_steps: false,
            interrupt: &interrupt,
        };
        serving.run(executor, Some(Box::new(Looking)));
    });
    println!("{} steps of {BATCH} requests, 4 draft passes each; microseconds a step", parts.host.len());
    for (name, mut us) in [
        ("scheduler and policy", parts.host),
        ("executor around its passes", parts.around),
        ("device (tiny models)", parts.device),
        ("recording", parts.recorded),
    ] {
        us.sort_by(f64::total_cmp);
        let quantile = |q: f64| us[(q * (us.len() - 1) as f64) as usize];
        println!("{name:28} median {:7.2}   P90 {:7.2}   P99 {:7.2}", quantile(0.5), quantile(0.9), quantile(0.99));
    }
}
