//! A device runs out of memory in the middle of a run. The steps before the failure must be recorded, and the failure
//! must be reported.

use super::machine::{Job, Machine, Models, Served, acceptance};
use super::refuse;
use super::run::run_on;
use super::tape::{TapeEnding, read_tape};
use foretoken_kernels::cpu::Cpu;
use foretoken_kernels::executor::{CannotServe, DeviceExecutor, Live, LiveError, Pair, Waiting};
use foretoken_run::cells::TAPES;
use foretoken_run::cells::{Folder, Mode};
use foretoken_run::plan::Plan;
use foretoken_run::setting::Setting;
use foretoken_run::spec::live as spec;
use foretoken_run::spec::problem::Exit;
use foretoken_sim::executor::{Executor, StepPlan};
use foretoken_sim::{AroundExecutor, Drafts};
use std::convert::Infallible;
use std::sync::atomic::AtomicBool;

#[derive(Debug)]
struct OutOfMemory;

impl std::fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("out of memory: 3 MiB were asked for and 1 MiB is free")
    }
}

impl std::error::Error for OutOfMemory {}

impl From<LiveError<Infallible>> for OutOfMemory {
    fn from(_: LiveError<Infallible>) -> OutOfMemory {
        OutOfMemory
    }
}

/// An executor that fails with [`OutOfMemory`] after `left` target passes.
struct FailsAfter<E> {
    inner: E,
    left: u64,
}

impl<E: Executor> AroundExecutor for FailsAfter<E>
where
    OutOfMemory: From<E::Error>,
{
    type Inner = E;
    type Error = OutOfMemory;

    fn inner(&self) -> &E {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut E {
        &mut self.inner
    }

    fn around_verify(&mut self, step: &StepPlan, drafts: &mut Drafts, accepted: &mut [u32]) -> Result<(), OutOfMemory> {
        self.left = self.left.checked_sub(1).ok_or(OutOfMemory)?;
        Ok(self.inner.verify(step, drafts, accepted)?)
    }
}

/// A CPU device that fails after `passes` target passes of a run that speculates.
struct SmallDevice {
    cpu: Cpu,
    pair: Pair<Cpu>,
    passes: u64,
}

impl Machine for SmallDevice {
    fn name(&self) -> &str {
        "a small device"
    }

    fn serve(&mut self, job: Job) -> Result<Served, CannotServe> {
        let Job { serving, policy, prompts, acceptance: of, declared, seed, recorder } = job;
        let live = Live {
            config: serving.config,
            workload: serving.workload,
            prompts,
            acceptance: acceptance(of, declared, seed),
            recorder,
            waiting: Waiting::default(),
            interrupt: serving.interrupt,
        };
        // The device does not fail in warm-up runs (which have no TPOT bound) and in runs without speculation.
        let enough = policy.is_none() || serving.slo_tpot_s.is_infinite();
        let left = if enough { u64::MAX } else { self.passes };
        let inner = DeviceExecutor::new(&mut self.cpu, &mut self.pair, policy.as_deref(), live)?;
        let served = serving.run(FailsAfter { inner, left }, policy);
        Ok(Served { run: served.run, error: served.error.map(|e| e.to_string()) })
    }

    fn warm_up(&mut self) -> Result<(), String> {
        self.pair.warm_up(&mut self.cpu, 1).map_err(|e| e.to_string())
    }
}

const EXPERIMENT: &str = r#"name = "fault"
policies = [{ autoregressive = {} }, { fixed = { k = 3 } }, { fixed = { k = 1 } }]

[hardware]
target = { linear = { alpha_s = 20e-9, gamma_s = 150e-6, delta_s = 300e-6 } }
draft = { linear = { alpha_s = 5e-9, gamma_s = 15e-6, delta_s = 40e-6 } }

[engine]
max_num_seqs = 4
max_num_batched_tokens = 64
num_gpu_blocks = 64
max_model_len = 128
prefix_caching = false

[workload]
arrivals = { poisson = { rate = 500.0 } }
lengths = { fixed = { prompt = 16, output = 12 } }
requests = 12

[acceptance.source]
mixture = {}

[slo]
tpot_s = 1.0

[live]
target = "tiny-target"
draft = "tiny-draft"
"#;

#[test]
fn a_device_that_runs_out_of_memory_loses_nothing_that_was_done() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.toml");
    std::fs::write(&file, EXPERIMENT).unwrap();
    let mut plan = Plan::load(&file, &[]).unwrap();
    plan.baseline_first();
    let live: spec::LiveSpec = plan.variants[0].experiment.live.clone().unwrap();
    let models = Models::find(&live).unwrap();
    let variant = &plan.variants[0];
    let room = refuse::check(&plan, variant, &Setting::new(variant, 1).unwrap(), &live, &models).unwrap();
    let mut cpu = Cpu::new(1).unwrap();
    let (target, draft) = (&models.target, &models.draft);
    let pair = Pair::load(&mut cpu, (&target.shape, &target.weights), Some((&draft.shape, &draft.weights)), room);
    let mut machine = SmallDevice { cpu, pair: pair.unwrap(), passes: 9 };
    let (folder, _) = Folder::open(dir.path().join("out"), &plan, Mode::Fresh).unwrap();
    let ran = run_on(&plan, &live, &folder, &AtomicBool::new(false), &models, &mut machine).unwrap();

    let problem = ran.ended.expect("it must be said");
    assert_eq!(problem.exit, Exit::Failed);
    assert!(problem.message().contains("fixed-3: the device failed") && problem.message().contains("out of memory"));
    let ended: Vec<&str> = ran.report.cells.iter().map(|c| c.ended.as_str()).collect();
    assert_eq!(ended.len(), 2, "the policy behind the one that failed is not begun");
    assert!(ended[0] == "done" && ended[1].starts_with("failed after"), "{ended:?}");
    let tape = read_tape(&folder.path().join(TAPES).join("v0-s0-p1.tape")).unwrap();
    let steps = tape.steps.iter().filter(|s| super::tape::span(s).is_some()).count();
    assert_eq!(steps, 9, "every step that was done is recorded");
    assert!(matches!(&tape.tail().unwrap().ending, TapeEnding::Failed(why) if why.contains("out of memory")));
}
