//! A device with both models on it, ready to serve one policy after the other.

use crate::models::Model;
use crate::processor;
use foretoken_kernels::cpu::Cpu;
use foretoken_kernels::cuda::Cuda;
use foretoken_kernels::device;
use foretoken_kernels::executor::{Acceptance, CannotServe, Capacity, DeviceExecutor, Live, Pair, Prompts, Waiting};
use foretoken_kernels::forward::LoadError;
use foretoken_sim::live::Recorder;
use foretoken_sim::{AcceptanceSource, Run, Serving, SpecPolicy};
use foretoken_spec::live::{self as spec, Device, LiveAcceptance, LiveSpec, WeightSource};
use foretoken_spec::problem::{Problem, Result};

/// Both models, known by shape and weights.
pub struct Models {
    /// Verifies.
    pub target: Model,
    /// Drafts.
    pub draft: Model,
}

/// Seed of random weights: which they are decides nothing that is measured.
const WEIGHT_SEED: u64 = 1;

impl Models {
    /// Finds what the spec names.
    pub fn find(live: &LiveSpec) -> Result<Models> {
        let random = |which: u64| (live.weights == WeightSource::Random).then_some(WEIGHT_SEED + which);
        Ok(Models {
            target: Model::find("live.target", &live.target, random(0))?,
            draft: Model::find("live.draft", &live.draft, random(1))?,
        })
    }
}

/// One run to serve.
pub struct Job<'a> {
    /// What is served, and how.
    pub serving: Serving<'a>,
    /// Who decides; `None` is the plain engine.
    pub policy: Option<Box<dyn SpecPolicy>>,
    /// What is asked.
    pub prompts: &'a dyn Prompts,
    /// What decides which drafts are right.
    pub acceptance: LiveAcceptance,
    /// The source that is forced onto the passes when acceptance is declared.
    pub declared: &'a dyn AcceptanceSource,
    /// Seed of sampled acceptance.
    pub seed: u64,
    /// Who is told.
    pub recorder: &'a mut dyn Recorder,
}

/// What came of it.
pub struct Served {
    /// The run, or the part of it before it failed.
    pub run: Run,
    /// What failed, in words.
    pub error: Option<String>,
}

/// A device that serves. A trait, so that what happens around a run can be tested with a device that fails.
pub trait Machine {
    /// What it is, in words.
    fn name(&self) -> &str;

    /// Serves one run.
    ///
    /// # Errors
    /// What cannot be served on it.
    fn serve(&mut self, job: Job) -> std::result::Result<Served, CannotServe>;

    /// Runs both models a few times, so that the first step meets warm threads and caches.
    ///
    /// # Errors
    /// The device's, in words.
    fn warm_up(&mut self) -> std::result::Result<(), String>;
}

/// The acceptance as the executor takes it.
pub fn acceptance<'a>(of: LiveAcceptance, declared: &'a dyn AcceptanceSource, seed: u64) -> Acceptance<'a> {
    match of {
        LiveAcceptance::Greedy => Acceptance::Greedy,
        LiveAcceptance::Sampled { temperature } => Acceptance::Sampled { temperature: temperature as f32, seed },
        LiveAcceptance::Declared => Acceptance::Declared(declared),
    }
}

/// Puts the models on the device.
pub fn open(live: &LiveSpec, models: &Models, capacity: Capacity) -> Result<Box<dyn Machine>> {
    match Device::parse(&live.device).map_err(Problem::bad_input)? {
        Device::Cpu => Ok(Box::new(Loaded::load(cpu(live)?, models, capacity, waiting(live))?)),
        Device::Cuda(n) => Ok(Box::new(Loaded::load(cuda(n)?, models, capacity, waiting(live))?)),
    }
}

/// The processor, and what it is in words.
pub(super) fn cpu(live: &LiveSpec) -> Result<(Cpu, String)> {
    let cpu = processor::open(live.threads, live.instructions)?;
    let name = format!("cpu, {} threads, {}", cpu.threads(), cpu.level().name());
    Ok((cpu, name))
}

/// The GPU of this number, and what it is in words.
pub(super) fn cuda(n: u32) -> Result<(Cuda, String)> {
    let cuda = crate::gpu::open(n)?;
    let name = format!("cuda:{n}, {}", cuda.name());
    Ok((cuda, name))
}

/// How a server waits.
pub(super) fn waiting(live: &LiveSpec) -> Waiting {
    match live.waiting {
        spec::Waiting::Spin => Waiting::Spin,
        spec::Waiting::Sleep => Waiting::Sleep,
    }
}

/// A device and what serves on it.
pub(super) struct Loaded<D: device::Device> {
    /// The device.
    pub(super) device: D,
    /// The models on it.
    pub(super) pair: Pair<D>,
    name: String,
    waiting: Waiting,
}

impl<D: device::Device> Loaded<D> {
    /// Puts the models on a device.
    pub(super) fn load(
        (mut device, name): (D, String),
        models: &Models,
        capacity: Capacity,
        waiting: Waiting,
    ) -> Result<Loaded<D>> {
        let (target, draft) = (&models.target, &models.draft);
        let pair =
            Pair::load(&mut device, (&target.shape, &target.weights), Some((&draft.shape, &draft.weights)), capacity);
        let pair = pair.map_err(|e| match e {
            LoadError::Memory(e) => Problem::bad_input(format!("{} and {}: {e}", target.name, draft.name))
                .help("lower engine.num_gpu_blocks or engine.max_num_batched_tokens, or take smaller models"),
            LoadError::Device(e) => Problem::failed(format!("loading {} and {}: {e}", target.name, draft.name)),
        })?;
        Ok(Loaded { device, pair, name, waiting })
    }
}

impl<D: device::Device + Send> Machine for Loaded<D> {
    fn name(&self) -> &str {
        &self.name
    }

    fn serve(&mut self, job: Job) -> std::result::Result<Served, CannotServe> {
        let Job { serving, policy, prompts, acceptance: of, declared, seed, recorder } = job;
        let (pair, waiting) = (&mut self.pair, self.waiting);
        self.device.session(|device| {
            let live = Live {
                config: serving.config,
                workload: serving.workload,
                prompts,
                acceptance: acceptance(of, declared, seed),
                recorder,
                waiting,
                interrupt: serving.interrupt,
            };
            let executor = DeviceExecutor::new(device, pair, policy.as_deref(), live)?;
            let served = serving.run(executor, policy);
            Ok(Served { run: served.run, error: served.error.map(|e| e.to_string()) })
        })
    }

    fn warm_up(&mut self) -> std::result::Result<(), String> {
        self.pair.warm_up(&mut self.device, 3).map_err(|e| e.to_string())
    }
}
