//! One policy, one seed, on the device.

use super::host::HostTimes;
use super::machine::{Job, Machine};
use super::monitor::Monitor;
use super::recorder::LiveRecorder;
use super::spec::{LiveAcceptance, LiveSpec};
use super::tape::{Head, Tail, TapeEnding};
use crate::problem::{Problem, Result};
use crate::setting::Setting;
use foretoken_kernels::executor::CannotServe;
use foretoken_policies::PolicySpec;
use foretoken_sim::{Arrivals, Ending, Outcome, Run, Serving, Workload};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// What the cells of a setting share.
pub struct Bench<'a> {
    /// What serves.
    pub machine: &'a mut dyn Machine,
    /// The world: workload, engine, policies' belief.
    pub setting: &'a Setting,
    /// What decides which drafts are right.
    pub acceptance: LiveAcceptance,
    /// The prompt of each request.
    pub prompts: &'a Vec<Vec<u32>>,
    /// The seed of the cell.
    pub seed: u64,
    /// Set from outside to end early.
    pub interrupt: &'a AtomicBool,
}

/// A run that was recorded.
pub struct Recorded {
    /// The run, or the part of it before it ended early.
    pub run: Run,
    /// How it ended.
    pub ending: TapeEnding,
    /// What the host took of its steps.
    pub host: HostTimes,
}

impl Bench<'_> {
    /// Serves the workload under a policy and records it in the file `tape`. `slo_tpot_s` is the bound shown to the policy.
    pub fn record(&mut self, spec: &PolicySpec, slo_tpot_s: f64, tape: &Path, which: &str) -> Result<Recorded> {
        let (setting, label) = (self.setting, spec.label());
        let policy = setting.policy(spec);
        let config = setting.engine(policy.is_some());
        let device = self.machine.name().to_owned();
        let head = Head::new(
            label.clone(),
            self.seed,
            device,
            setting.arrivals(),
            &setting.workload,
            config.max_model_len,
        );
        let mut recorder = LiveRecorder::create(tape, &head, Monitor::new(&label, which))?;
        let serving = Serving {
            workload: &setting.workload,
            arrivals: setting.arrivals(),
            config,
            slo_tpot_s,
            keep_steps: setting.keeps_steps(),
            interrupt: self.interrupt,
        };
        let served = self.machine.serve(Job {
            serving,
            policy,
            prompts: self.prompts,
            acceptance: self.acceptance,
            declared: setting.acceptance(),
            seed: self.seed,
            recorder: &mut recorder,
        });
        let served = served.map_err(|e| cannot(&label, &e))?;
        let ending = match (served.error, served.run.ending) {
            (Some(error), _) => TapeEnding::Failed(error),
            (None, Ending::Done) => TapeEnding::Done,
            (None, Ending::Interrupted) => TapeEnding::Interrupted,
            (None, other) => TapeEnding::Failed(format!("the run ended as {other:?}")),
        };
        let outcomes = served.run.records.outcome.iter().zip(0u32..);
        let rejected = outcomes.filter(|(o, _)| **o == Outcome::Rejected).map(|(_, id)| id).collect();
        let host = recorder.finish(&Tail { ending: ending.clone(), rejected })?;
        Ok(Recorded { run: served.run, ending, host })
    }

    /// Serves the first requests in a closed loop and keeps nothing: caches fill, clocks rise.
    pub fn warm_up(&mut self, spec: &PolicySpec, requests: u32) -> Result<()> {
        self.machine.warm_up().map_err(|e| Problem::failed(format!("warming up: {e}")))?;
        let workload = first(&self.setting.workload, requests as usize);
        if workload.is_empty() {
            return Ok(());
        }
        let policy = self.setting.policy(spec);
        let config = self.setting.engine(policy.is_some());
        let serving = Serving {
            workload: &workload,
            arrivals: Arrivals::Closed { clients: config.max_num_seqs },
            config,
            slo_tpot_s: f64::INFINITY,
            keep_steps: false,
            interrupt: self.interrupt,
        };
        let served = self.machine.serve(Job {
            serving,
            policy,
            prompts: self.prompts,
            acceptance: self.acceptance,
            declared: self.setting.acceptance(),
            seed: self.seed,
            recorder: &mut (),
        });
        match served.map_err(|e| cannot(&spec.label(), &e))?.error {
            Some(error) => Err(Problem::failed(format!("{}, while warming up: {error}", spec.label()))),
            None => Ok(()),
        }
    }
}

/// The first requests of a workload.
pub fn first(workload: &Workload, requests: usize) -> Workload {
    let n = workload.len().min(requests) as u32;
    let mut cut: Workload = (0..n).map(|id| workload.get(id)).collect();
    cut.categories.clone_from(&workload.categories);
    cut.recordings.clone_from(&workload.recordings);
    cut.prefix_block = workload.prefix_block;
    cut
}

fn cannot(label: &str, error: &CannotServe) -> Box<Problem> {
    Problem::bad_input(format!("`{label}` cannot run live: {error}"))
}

/// The tape of a cell, below a results folder.
pub fn tape_name(variant: usize, seed: usize, policy: usize) -> String {
    format!("v{variant}-s{seed}-p{policy}.tape")
}

/// The live table with what the command line says instead.
pub fn with_device(live: &LiveSpec, device: Option<&str>) -> LiveSpec {
    let mut live = live.clone();
    if let Some(device) = device {
        device.clone_into(&mut live.device);
    }
    live
}
