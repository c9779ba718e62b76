//! A device with the target and the draft loaded. It serves one run after the other.

use crate::models::Model;
use crate::processor;
use foretoken_kernels::cpu::Cpu;
use foretoken_kernels::cuda::Cuda;
use foretoken_kernels::device;
use foretoken_kernels::executor::{Acceptance, CannotServe, Capacity, DeviceExecutor, Live, Pair, Prompts, Waiting};
use foretoken_kernels::forward::LoadError;
use foretoken_run::spec::live::{self as spec, Device, LiveAcceptance, LiveSpec, WeightSource};
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_sim::live::Recorder;
use foretoken_sim::{AcceptanceSource, Run, Serving, SpecPolicy};

/// The two models that an experiment names, before they are loaded onto a device.
pub struct Models {
    pub target: Model,
    pub draft: Model,
}

/// Seed of the target's random weights; the draft has the next seed. Pass times do not depend on the seed.
const WEIGHT_SEED: u64 = 1;

impl Models {
    /// Finds the target and the draft that the `[live]` table of an experiment names.
    pub fn find(live: &LiveSpec) -> Result<Models> {
        let random = |which: u64| (live.weights == WeightSource::Random).then_some(WEIGHT_SEED + which);
        Ok(Models {
            target: Model::find("live.target", &live.target, random(0))?,
            draft: Model::find("live.draft", &live.draft, random(1))?,
        })
    }
}

/// The inputs of one run that a device serves.
pub struct Job<'a> {
    /// The engine's part of the run: workload, arrivals and engine settings.
    pub serving: Serving<'a>,
    /// The policy; `None`: no speculation.
    pub policy: Option<Box<dyn SpecPolicy>>,
    pub prompts: &'a dyn Prompts,
    /// Whether the models or the acceptance source `declared` decide which draft tokens are accepted.
    pub acceptance: LiveAcceptance,
    /// An acceptance source of the simulator. It decides which draft tokens are accepted if `acceptance` is `Declared`,
    /// and is not used otherwise.
    pub declared: &'a dyn AcceptanceSource,
    /// Seed of the random draws of sampled acceptance.
    pub seed: u64,
    /// Receives the record of every step.
    pub recorder: &'a mut dyn Recorder,
}

/// The result of serving a job, which is one live run.
pub struct Served {
    /// The results of the run. If the device failed, these are the results of the part before the failure.
    pub run: Run,
    /// The device's error as text, if the run failed.
    pub error: Option<String>,
}

/// A device that serves runs. It is a trait, so that tests can use a device that fails.
pub trait Machine {
    fn name(&self) -> &str;

    fn serve(&mut self, job: Job) -> std::result::Result<Served, CannotServe>;

    /// Runs both models a few times, so that threads and caches are warm before the first step.
    fn warm_up(&mut self) -> std::result::Result<(), String>;
}

/// Converts the `acceptance` setting of the experiment's `[live]` table (what decides which draft tokens are accepted)
/// to the executor's type.
pub fn acceptance<'a>(setting: LiveAcceptance, declared: &'a dyn AcceptanceSource, seed: u64) -> Acceptance<'a> {
    match setting {
        LiveAcceptance::Greedy => Acceptance::Greedy,
        LiveAcceptance::Sampled { temperature } => Acceptance::Sampled { temperature: temperature as f32, seed },
        LiveAcceptance::Declared => Acceptance::Declared(declared),
    }
}

/// Loads the models onto the device that the `[live]` table names.
pub fn open(live: &LiveSpec, models: &Models, capacity: Capacity) -> Result<Box<dyn Machine>> {
    match Device::parse(&live.device).map_err(Problem::bad_input)? {
        Device::Cpu => Ok(Box::new(Loaded::load(cpu(live)?, models, capacity, waiting(live))?)),
        Device::Cuda(n) => Ok(Box::new(Loaded::load(cuda(n)?, models, capacity, waiting(live))?)),
    }
}

/// Opens the CPU with the settings of the `[live]` table. Returns the device and its name.
pub(super) fn cpu(live: &LiveSpec) -> Result<(Cpu, String)> {
    let cpu = processor::open(live.threads, live.instructions)?;
    let name = format!("cpu, {} threads, {}", cpu.threads(), cpu.level().name());
    Ok((cpu, name))
}

/// Opens the GPU with number `n`. Returns the device and its name.
pub(super) fn cuda(n: u32) -> Result<(Cuda, String)> {
    let cuda = crate::gpu::open(n)?;
    let name = format!("cuda:{n}, {}", cuda.name());
    Ok((cuda, name))
}

/// Converts the `waiting` setting of the experiment's `[live]` table (whether the thread spins or sleeps until the next
/// arrival) to the executor's type.
pub(super) fn waiting(live: &LiveSpec) -> Waiting {
    match live.waiting {
        spec::Waiting::Spin => Waiting::Spin,
        spec::Waiting::Sleep => Waiting::Sleep,
    }
}

/// A device onto which a target and a draft are loaded.
pub(super) struct Loaded<D: device::Device> {
    pub(super) device: D,
    /// Target and draft, loaded onto the device.
    pub(super) pair: Pair<D>,
    name: String,
    waiting: Waiting,
}

impl<D: device::Device> Loaded<D> {
    /// Loads the target and the draft onto `device`. `name` is the device's name.
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
