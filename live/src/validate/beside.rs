//! One piece of a validation: its live runs, and the simulations of the same requests.

use super::flow::{self, Flow};
use super::later::Later;
use super::numbers::Part;
use super::simulate::Replay;
use super::watch::Watched;
use crate::serve::tape::{Tape, Told};
use foretoken_run::setting::Setting;
use foretoken_sim::live::{RecordedRounds, ReplayClock};
use foretoken_sim::metrics::{Overload, Slo, overload_of};
use foretoken_sim::{AcceptanceSource, Ending, Serving, Time};
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicBool;

/// Factor by which passes are lengthened, to see how a small error of their times changes latencies.
const NUDGE: f64 = 1.03;

/// How often a simulation needed acceptance data that the recording lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missed {
    /// Acceptance bits taken from another round of the recording.
    pub other_round: u64,
    /// Acceptance bits that no round revealed; taken from the model.
    pub invented: u64,
    /// Confidences and similar values that no round revealed; taken from the model.
    pub looks: u64,
}

/// A piece. Both of its live runs serve the same requests at the same instants, so the piece is simulated once, from
/// the first.
pub struct Beside {
    /// The records of the first live run and of its repeat.
    pub live: Vec<Told>,
    /// Simulation with the acceptance that the first live run revealed.
    pub recorded: Told,
    /// Simulation with the experiment's acceptance.
    pub modelled: Told,
    /// As `recorded`, with passes lengthened by the factor `NUDGE`.
    pub nudged: Told,
    /// As `recorded`, with costs learned from the other cells' live runs; `None` without such costs.
    pub learned: Option<Told>,
    /// Token flow of `recorded` compared with the live run's.
    pub flow: Flow,
    /// Acceptance data that the recording lacks.
    pub missed: Missed,
    /// Where a replay of the first live run on its own times first differed; `None` if every decision and token was the
    /// same.
    pub replay_parted: Option<String>,
    /// Present if the first live run fell behind its arrivals.
    pub overload: Option<Overload>,
    /// The SLO bounds of the requests.
    slo: Slo,
    /// TPOT limits of single requests, in seconds.
    own_tpot_s: Vec<f64>,
}

impl Beside {
    /// Simulates a piece. `first` is the number of its first request in the workload. `learned` has the costs learned
    /// from other runs.
    pub fn of(replay: &Replay, learned: Option<&Setting>, tapes: &[Tape], first: u32, slo: Slo) -> Beside {
        let (setting, tape) = (replay.setting, &tapes[0]);
        let model = Later { of: setting.acceptance(), first };
        let mut acceptance = RecordedRounds::new(setting.workload.len(), &model);
        tape.steps.iter().for_each(|step| acceptance.add(step));
        let recorded = replay.run(&acceptance, 1.0);
        let misses = acceptance.misses();
        let nudged = replay.run(&acceptance, NUDGE);
        let modelled = replay.run(&model, 1.0);
        let learned = learned.map(|costs| Replay { costs, ..*replay }.run(&acceptance, 1.0));
        let live: Vec<Told> = tapes.iter().map(Tape::told).collect();
        let seen = if tape.complete() { Time::MAX } else { tape.last() };
        Beside {
            flow: flow::compare(&tape.steps, &recorded.steps),
            missed: Missed { other_round: misses.other_round, invented: misses.invented, looks: misses.looks },
            replay_parted: replay.parted(tape, &acceptance),
            overload: overload_of(&live[0].records, seen).filter(|_| tape.head.clients.is_none()),
            recorded: recorded.told,
            modelled: modelled.told,
            nudged: nudged.told,
            learned: learned.map(|run| run.told),
            live,
            slo,
            own_tpot_s: setting.workload.slo_tpot_s.clone(),
        }
    }

    /// One run of the piece, in the form from which numbers are computed.
    pub fn part<'a>(&'a self, told: &'a Told) -> Part<'a> {
        Part { told, slo: self.slo, own_tpot_s: &self.own_tpot_s }
    }
}

impl Missed {
    /// The sums over several pieces.
    pub fn joined(pieces: impl IntoIterator<Item = Missed>) -> Missed {
        pieces.into_iter().fold(Missed::default(), |all, one| Missed {
            other_round: all.other_round + one.other_round,
            invented: all.invented + one.invented,
            looks: all.looks + one.looks,
        })
    }
}

impl Replay<'_> {
    /// Replays the engine and the policy on the recorded times. Schedule, decisions and tokens must be the same in
    /// every step. Returns the first difference.
    fn parted(&self, tape: &Tape, acceptance: &dyn AcceptanceSource) -> Option<String> {
        let setting = self.setting;
        let policy = setting.policy(self.spec);
        let config = setting.engine(policy.is_some());
        let max_draft_len = if policy.is_some() { config.max_draft_len } else { 0 };
        let clock = ReplayClock::new(&tape.steps, acceptance, max_draft_len, setting.workload.len());
        let plain = policy.is_none();
        let interrupt = AtomicBool::new(false);
        let serving = Serving {
            workload: &setting.workload,
            arrivals: tape.head.arrivals(),
            config,
            slo_tpot_s: tape.head.slo_tpot_s,
            keep_steps: false,
            interrupt: &interrupt,
        };
        let served = serving.run(Watched::new(clock, plain, Time::ZERO), policy);
        let (ending, error) = (served.run.ending, served.error.map(|e| e.to_string()));
        let again = flow::compare(&tape.steps, &served.executor.into_steps());
        match (again.parted, ending, error) {
            // If the recording stops early, so does the replay.
            (Some(parting), _, _) if parting.what != flow::Difference::End => {
                Some(format!("step {}: {}", parting.step, parting.how))
            }
            (None, Ending::Done, None) => None,
            (_, _, Some(error)) if tape.complete() => Some(error),
            (Some(parting), _, _) if tape.complete() => Some(format!("step {}: {}", parting.step, parting.how)),
            _ => None,
        }
    }
}
