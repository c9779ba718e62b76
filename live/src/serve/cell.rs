//! Runs one cell of a plan on the device: one policy with one seed, at one combination of swept values.

use super::machine::{Job, Machine, Served};
use super::monitor::Monitor;
use super::recorder::LiveRecorder;
use super::tape::{Head, Tail, TapeEnding};
use foretoken_policies::PolicySpec;
use foretoken_run::setting::Setting;
use foretoken_run::spec::live::LiveAcceptance;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::workload::first;
use foretoken_servers::compare::live_runs::HostTimes;
use foretoken_sim::{AcceptanceSource, Arrivals, Ending, Outcome, Run, Serving, Time, Workload};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// The inputs of a live run, without its policy.
pub struct Bench<'a> {
    /// The device with both models loaded, which runs the passes.
    pub machine: &'a mut dyn Machine,
    /// The workload, the engine's settings, and the pass costs by which policies decide.
    pub setting: &'a Setting,
    /// Whether the models or the acceptance source `declared` decide which draft tokens are accepted.
    pub acceptance: LiveAcceptance,
    /// An acceptance source of the simulator. It decides which draft tokens are accepted if `acceptance` is `Declared`,
    /// and is not used otherwise.
    pub declared: &'a dyn AcceptanceSource,
    pub prompts: &'a Vec<Vec<u32>>,
    /// The seed of the run's random draws.
    pub seed: u64,
    /// Another thread sets this flag to end the run early.
    pub interrupt: &'a AtomicBool,
}

/// A finished live run whose tape (log) was written.
pub struct Recorded {
    /// The results of the run. If the run ended early, these are the results of the part before its end.
    pub run: Run,
    /// How the live run ended: completely, by an interrupt of the user, or by a failure of the device.
    pub ending: TapeEnding,
    /// Statistics of the host time of the run's steps: the time in which the device runs no pass.
    pub host: HostTimes,
}

impl Bench<'_> {
    /// Serves the workload with the policy `spec`, and records the run in the file `tape`. `slo_tpot_s` is the TPOT
    /// bound that the policy sees, in seconds. `which` is a text for the progress line that says which of all runs this
    /// is, such as `[2 of 8]`. If the device fails during the run, the result is not an error: it says how the run
    /// ended.
    pub fn record(
        &mut self,
        spec: &PolicySpec,
        slo_tpot_s: f64,
        warm: Warm,
        tape: &Path,
        which: &str,
    ) -> Result<Recorded> {
        let (setting, label) = (self.setting, spec.label());
        let config = setting.engine(setting.policy(spec).is_some());
        let device = self.machine.name().to_owned();
        let head = Head {
            max_model_len: config.max_model_len,
            slo_tpot_s,
            overhead_s: warm.overhead_s,
            ..Head::new(label.clone(), self.seed, device, setting.arrivals(), &setting.workload)
        };
        let mut recorder = LiveRecorder::create(tape, &head, Monitor::new(&label, which))?;
        let requests = Requests { workload: &setting.workload, arrivals: setting.arrivals(), slo_tpot_s };
        let served = self.serve(spec, requests, setting.keeps_steps(), &mut recorder)?;
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

    /// Warms up the device, so that caches are warm and the clock frequency has risen. Runs both models a few times.
    /// Then serves the first `requests` requests in a closed loop of `max_num_seqs` clients. The warm-up run is
    /// recorded in the file `tape`, so that recording has its usual cost.
    pub fn warm_up(&mut self, spec: &PolicySpec, requests: u32, tape: &Path) -> Result<Warm> {
        self.machine.warm_up().map_err(|e| Problem::failed(format!("warming up: {e}")))?;
        let (setting, label) = (self.setting, spec.label());
        let workload = first(&setting.workload, requests as usize);
        if workload.is_empty() {
            return Ok(Warm::default());
        }
        let config = setting.engine(setting.policy(spec).is_some());
        let arrivals = Arrivals::Closed { clients: config.max_num_seqs };
        let head = Head {
            warming_up: true,
            ..Head::new(label.clone(), self.seed, self.machine.name().to_owned(), arrivals, &workload)
        };
        let mut recorder = LiveRecorder::create(tape, &head, Monitor::new(&label, "[warming up]"))?;
        let requests = Requests { workload: &workload, arrivals, slo_tpot_s: f64::INFINITY };
        let served = self.serve(spec, requests, false, &mut recorder)?;
        let host = recorder.finish(&Tail { ending: TapeEnding::Done, rejected: vec![] })?;
        if let Some(error) = served.error {
            return Err(Problem::failed(format!("{label}, while warming up: {error}")));
        }
        let last = served.run.records.finish.iter().filter(|&&t| t != Time::MAX).max().copied().unwrap_or_default();
        let rate = if last > Time::ZERO { workload.len() as f64 / last.as_s() } else { 0.0 };
        Ok(Warm { overhead_s: host.overhead_s.unwrap_or(0.0), rate })
    }

    /// Serves `requests` with the policy `policy` (`None`: no speculation).
    fn serve(
        &mut self,
        spec: &PolicySpec,
        requests: Requests,
        keep_steps: bool,
        recorder: &mut LiveRecorder,
    ) -> Result<Served> {
        let policy = self.setting.policy(spec);
        let serving = Serving {
            workload: requests.workload,
            arrivals: requests.arrivals,
            config: self.setting.engine(policy.is_some()),
            slo_tpot_s: requests.slo_tpot_s,
            keep_steps,
            interrupt: self.interrupt,
        };
        let served = self.machine.serve(Job {
            serving,
            policy,
            prompts: self.prompts,
            acceptance: self.acceptance,
            declared: self.declared,
            seed: self.seed,
            recorder,
        });
        served.map_err(|e| Problem::bad_input(format!("`{}` cannot run live: {e}", spec.label())))
    }
}

/// The requests of a run and how they arrive.
#[derive(Clone, Copy)]
struct Requests<'a> {
    workload: &'a Workload,
    arrivals: Arrivals,
    /// The TPOT bound that the policy sees, in seconds; infinite without a bound.
    slo_tpot_s: f64,
}

/// What was measured while the device was warmed up before a live run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Warm {
    /// Mean host time of a step, in seconds. It includes the time for recording the step; 0 if not measured.
    pub overhead_s: f64,
    /// Warm-up requests per second: their number divided by the time until the last one finished; 0 if none finished.
    pub rate: f64,
}

/// The file name of the tape (the log) of a live run in the results folder. It is made of three indices of the run: of
/// its variant, of its seed and of its policy (the baseline has 0).
pub fn tape_name(variant: usize, seed: usize, policy: usize) -> String {
    format!("v{variant}-s{seed}-p{policy}.tape")
}

/// The run that a tape (a log) belongs to, read from the tape's file name: the indices of its variant, its seed and its
/// policy (the baseline has 0). `None` for other file names.
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
    fn the_name_of_a_tape_gives_its_cell() {
        assert_eq!(cell_of_tape(&tape_name(1, 20, 3)), Some((1, 20, 3)));
        for other in ["p0-closed-1.tape", "v1-s2-p3.tape.bak", "v1-s2.tape", "v01-s2-p3.tape"] {
            assert_eq!(cell_of_tape(other), None, "{other}");
        }
    }
}
