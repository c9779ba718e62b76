//! One piece: what the device did, once or twice, and what the simulator says of it.

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

/// By how much passes are lengthened to see what a small error of theirs does to latencies.
const NUDGE: f64 = 1.03;

/// What recorded acceptance was asked for and did not hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missed {
    /// Bits that another round had revealed.
    pub other_round: u64,
    /// Bits that nobody had revealed: the model's.
    pub invented: u64,
    /// Confidences and the like: the model's.
    pub looks: u64,
}

/// A piece. Both of its live parts serve the same requests at the same instants, so that it is simulated once: from the first.
pub struct Beside {
    /// Live, and live again.
    pub live: Vec<Told>,
    /// Simulated with the acceptance that the first part revealed.
    pub recorded: Told,
    /// Simulated with the experiment's acceptance.
    pub modelled: Told,
    /// As recorded, with passes that take a little longer.
    pub nudged: Told,
    /// As recorded, on costs that other live runs tell; `None` where none do.
    pub learned: Option<Told>,
    /// The token flow with recorded acceptance against the live one.
    pub flow: Flow,
    /// What the recorded acceptance did not hold.
    pub missed: Missed,
    /// Did a replay of the first part on its own recorded times repeat every decision and token? `None`: it did; else where not.
    pub replay_parted: Option<String>,
    /// Did the first part fall behind its arrivals?
    pub overload: Option<Overload>,
    /// The bounds that its requests are held to.
    slo: Slo,
    /// Their own limits.
    own_tpot_s: Vec<f64>,
}

impl Beside {
    /// Simulates a piece, whose first request is the one of this number; also with costs that were `learned` of other runs.
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

    /// One of its runs, as numbers are drawn from it.
    pub fn part<'a>(&'a self, told: &'a Told) -> Part<'a> {
        Part { told, slo: self.slo, own_tpot_s: &self.own_tpot_s }
    }
}

impl Missed {
    /// Of several pieces together.
    pub fn joined(pieces: impl IntoIterator<Item = Missed>) -> Missed {
        pieces.into_iter().fold(Missed::default(), |all, one| Missed {
            other_round: all.other_round + one.other_round,
            invented: all.invented + one.invented,
            looks: all.looks + one.looks,
        })
    }
}

impl Replay<'_> {
    /// Runs the engine and the policy again on the very times that were recorded: schedule, decisions and tokens must be the
    /// same, step by step. Says where they are not.
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
            // A recording that stops early is left where it stops.
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
