//! One policy, one seed, on the device.

use super::host::HostTimes;
use super::machine::{Job, Machine};
use super::monitor::Monitor;
use super::recorder::LiveRecorder;
use super::tape::{Head, Tail, TapeEnding};
use foretoken_kernels::executor::CannotServe;
use foretoken_policies::PolicySpec;
use foretoken_run::setting::Setting;
use foretoken_run::workload::first;
use foretoken_sim::{AcceptanceSource, Arrivals, Ending, Outcome, Run, Serving, Time};
use foretoken_spec::live::LiveAcceptance;
use foretoken_spec::problem::{Problem, Result};
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
    /// The source that is forced onto the passes when acceptance is declared.
    pub declared: &'a dyn AcceptanceSource,
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
    /// Serves the workload under a policy and records it in the file `tape`. `slo_tpot_s` is the bound shown to the policy,
    /// `which` says which run of how many.
    pub fn record(
        &mut self,
        spec: &PolicySpec,
        slo_tpot_s: f64,
        warm: Warm,
        tape: &Path,
        which: &str,
    ) -> Result<Recorded> {
        let (setting, label) = (self.setting, spec.label());
        let policy = setting.policy(spec);
        let config = setting.engine(policy.is_some());
        let device = self.machine.name().to_owned();
        let head = Head {
            max_model_len: config.max_model_len,
            slo_tpot_s,
            overhead_s: warm.overhead_s,
            ..Head::new(label.clone(), self.seed, device, setting.arrivals(), &setting.workload)
        };
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
            declared: self.declared,
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

    /// Serves the first requests in a closed loop: caches fill, clocks rise. It is recorded in the file `tape`, as what follows
    /// will be, so that keeping the record takes what it will take then.
    pub fn warm_up(&mut self, spec: &PolicySpec, requests: u32, tape: &Path) -> Result<Warm> {
        self.machine.warm_up().map_err(|e| Problem::failed(format!("warming up: {e}")))?;
        let (setting, label) = (self.setting, spec.label());
        let workload = first(&setting.workload, requests as usize);
        if workload.is_empty() {
            return Ok(Warm::default());
        }
        let policy = setting.policy(spec);
        let config = setting.engine(policy.is_some());
        let arrivals = Arrivals::Closed { clients: config.max_num_seqs };
        let head = Head {
            warming_up: true,
            ..Head::new(label.clone(), self.seed, self.machine.name().to_owned(), arrivals, &workload)
        };
        let mut recorder = LiveRecorder::create(tape, &head, Monitor::new(&label, "[warming up]"))?;
        let serving = Serving {
            workload: &workload,
            arrivals,
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
            declared: self.declared,
            seed: self.seed,
            recorder: &mut recorder,
        });
        let served = served.map_err(|e| cannot(&label, &e))?;
        let host = recorder.finish(&Tail { ending: TapeEnding::Done, rejected: vec![] })?;
        if let Some(error) = served.error {
            return Err(Problem::failed(format!("{label}, while warming up: {error}")));
        }
        let last = served.run.records.finish.iter().filter(|&&t| t != Time::MAX).max().copied().unwrap_or_default();
        let rate = if last > Time::ZERO { workload.len() as f64 / last.as_s() } else { 0.0 };
        Ok(Warm { overhead_s: host.overhead_s.unwrap_or(0.0), rate })
    }
}

/// What warming up showed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Warm {
    /// Host time between the passes of a step, seconds.
    pub overhead_s: f64,
    /// Requests a second.
    pub rate: f64,
}

fn cannot(label: &str, error: &CannotServe) -> Box<Problem> {
    Problem::bad_input(format!("`{label}` cannot run live: {error}"))
}

/// The tape of a cell, below a results folder.
pub fn tape_name(variant: usize, seed: usize, policy: usize) -> String {
    format!("v{variant}-s{seed}-p{policy}.tape")
}

/// The cell that a tape is of: variant, seed, policy. `None` for other files.
pub fn cell_of_tape(name: &str) -> Option<(usize, usize, usize)> {
    let mut parts = name.strip_suffix(".tape")?.split('-');
    let mut number = |letter: char| parts.next()?.strip_prefix(letter)?.parse().ok();
    let cell = (number('v')?, number('s')?, number('p')?);
    (tape_name(cell.0, cell.1, cell.2) == name).then_some(cell)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tapes_name_says_whose_it_is() {
        assert_eq!(cell_of_tape(&tape_name(1, 20, 3)), Some((1, 20, 3)));
        for other in ["p0-closed-1.tape", "v1-s2-p3.tape.bak", "v1-s2.tape", "v01-s2-p3.tape"] {
            assert_eq!(cell_of_tape(other), None, "{other}");
        }
    }
}
