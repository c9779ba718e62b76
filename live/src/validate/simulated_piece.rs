//! Simulates the live run of a piece on the event clock, which jumps from event to event. There are several
//! simulations, with different acceptance and pass costs.

use super::machine_speed::{Pace, Paced};
use super::shifted_acceptance::ShiftedAcceptance;
use super::trace_recorder::TraceRecorder;
use crate::serve::tape::{Head, Tail, Tape, TapeEnding, rebuild_records};
use foretoken_policies::PolicySpec;
use foretoken_profiler::Role;
use foretoken_run::setting::Setting;
use foretoken_servers::compare::live_runs::{Missed, PieceRuns, Records};
use foretoken_servers::compare::token_flow;
use foretoken_sim::event_clock::{EventClock, World};
use foretoken_sim::executor::DecisionTime;
use foretoken_sim::live::{RecordedRounds, ReplayClock, StepTrace};
use foretoken_sim::metrics::{Slo, overload_of};
use foretoken_sim::{AcceptanceSource, Ending, Host, Outcome, Request, Serving, SpecPolicy, Time, Workload};
use std::sync::atomic::AtomicBool;

/// Factor by which all passes take longer in an additional simulation. This simulation shows how latencies change if
/// pass times are wrong by 3 %.
const NUDGE: f64 = 1.03;

/// Simulates a piece several times: with the acceptance of draft tokens that its live run recorded, and with the
/// modelled acceptance. A further simulation with the recorded acceptance has passes that are 3 % longer. If `learned`
/// is given, another simulation has the costs of `learned`, which are fitted to other runs. Also replays the run with
/// its recorded pass times, and compares the tokens of the steps. `tapes` are the tapes of the live run and of its
/// repeat. `first` is the id of the piece's first request in the workload.
pub fn simulate_piece(replay: &Replay, learned: Option<&Setting>, tapes: &[Tape], first: u32, slo: Slo) -> PieceRuns {
    let (setting, tape) = (replay.setting, &tapes[0]);
    let model = ShiftedAcceptance { whole: setting.acceptance(), first };
    let mut acceptance = RecordedRounds::new(setting.workload.len(), &model);
    tape.steps.iter().for_each(|step| acceptance.add(step));
    let recorded = replay.run(&acceptance, 1.0);
    let misses = acceptance.misses();
    let nudged = replay.run(&acceptance, NUDGE);
    let modelled = replay.run(&model, 1.0);
    let learned = learned.map(|costs| Replay { costs, ..*replay }.run(&acceptance, 1.0));
    let live: Vec<Records> = tapes.iter().map(Tape::records).collect();
    let seen = if tape.complete() { Time::MAX } else { tape.last() };
    PieceRuns {
        flow: token_flow::compare(&tape.steps, &recorded.steps),
        missed: Missed { other_round: misses.other_round, invented: misses.invented, looks: misses.looks },
        replay_parted: replay.parted(tape, &acceptance),
        overload: overload_of(&live[0].requests, seen).filter(|_| tape.head.clients.is_none()),
        recorded: recorded.records,
        modelled: modelled.records,
        nudged: nudged.records,
        learned: learned.map(|run| run.records),
        live,
        slo,
        own_tpot_s: setting.workload.slo_tpot_s.clone(),
    }
}

/// The live run to simulate, and the costs that predict it.
#[derive(Clone, Copy)]
pub struct Replay<'a> {
    /// The live run's engine settings and requests, and the costs by which its policy decided.
    pub setting: &'a Setting,
    /// The setting whose pass costs decide how long the passes of the simulation take. Nothing else of this setting is
    /// used; the policy decides by the costs of `setting`.
    pub costs: &'a Setting,
    /// The machine's pace during the live run: the factor by which passes took longer than usual.
    pub pace: &'a Pace,
    /// The head of the live run's tape (log): the facts known before its first step, such as its requests.
    pub head: &'a Head,
    pub spec: &'a PolicySpec,
}

struct SimulatedRun {
    /// The steps, in the format of a live run's log (tape).
    steps: Vec<StepTrace>,
    /// The records of requests and steps. They are computed from the simulated steps in the same way as from the steps
    /// of a live run's tape (log).
    records: Records,
}

impl Replay<'_> {
    /// Simulates the run with the acceptance source `acceptance`. The time of a pass is the product of three numbers:
    /// the time that the costs give, the machine's pace, and `slower`.
    fn run(&self, acceptance: &dyn AcceptanceSource, slower: f64) -> SimulatedRun {
        let (setting, head) = (self.setting, self.head);
        let policy: Option<Box<dyn SpecPolicy>> = setting.policy(self.spec);
        let plain = policy.is_none();
        let config = setting.engine(!plain);
        let costs = self.costs.costs();
        let paced = |model, role| Paced { model, role, pace: self.pace, slower };
        let (draft, target) = (paced(costs.draft, Role::Draft), paced(costs.target, Role::Target));
        let (context_reads, drafting, noise_cv) = self.costs.reads();
        let world = World {
            draft: &draft,
            target: &target,
            context_reads,
            drafting,
            acceptance,
            overhead: Time::ZERO,
            host: Host::NONE,
            decision_time: DecisionTime::default(),
            noise_cv,
            seed: setting.seed(),
            max_draft_len: if plain { 0 } else { config.max_draft_len },
            // A live device runs each step as soon as it is scheduled. No step is queued behind another step.
            queues: false,
        };
        let clock = EventClock::new(world, setting.workload.len());
        let interrupt = AtomicBool::new(false);
        let serving = Serving {
            workload: &setting.workload,
            arrivals: head.arrivals(),
            config,
            slo_tpot_s: head.slo_tpot_s,
            keep_steps: false,
            interrupt: &interrupt,
        };
        let served = serving.run(TraceRecorder::new(clock, plain, Time::from_s(head.overhead_s)), policy);
        let steps = served.executor.into_steps();
        let outcomes = served.run.records.outcome.iter().zip(0u32..);
        let rejected: Vec<u32> = outcomes.filter(|(o, _)| **o == Outcome::Rejected).map(|(_, id)| id).collect();
        let tail = Tail { ending: TapeEnding::Done, rejected };
        let records = rebuild_records(head, &steps, Some(&tail));
        SimulatedRun { steps, records }
    }

    /// Runs the engine and the policy again, with the recorded pass times and acceptance. The schedule, the decisions
    /// and the tokens must equal the recorded ones in every step. Returns the first difference or an error, as text;
    /// `None` if there is no difference. The early end of a partial tape is no difference.
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
        let served = serving.run(TraceRecorder::new(clock, plain, Time::ZERO), policy);
        let (ending, error) = (served.run.ending, served.error.map(|e| e.to_string()));
        let flow = token_flow::compare(&tape.steps, &served.executor.into_steps());
        match (flow.parted, ending, error) {
            // The replay of a partial tape ends where the tape ends. This early end does not count as a difference.
            (Some(parting), _, _) if parting.what != token_flow::Difference::End => {
                Some(format!("step {}: {}", parting.step, parting.how))
            }
            (None, Ending::Done, None) => None,
            (_, _, Some(error)) if tape.complete() => Some(error),
            (Some(parting), _, _) if tape.complete() => Some(format!("step {}: {}", parting.step, parting.how)),
            _ => None,
        }
    }
}

/// The requests of a live run, read from the head of its tape (log). A tape does not have all fields of a request. The
/// missing fields come from `own`, the experiment's workload: the run's request `i` is request `first + i` of `own`.
pub fn requests_of(head: &Head, own: &Workload, first: u32) -> Workload {
    let number = |i: usize| first as usize + i;
    let request = |i: usize| Request {
        category: head.category[i],
        slo_tpot_s: own.slo_tpot_s.get(number(i)).copied().filter(|s| s.is_finite()),
        recording: own.recording.get(number(i)).copied().filter(|&r| r != u32::MAX),
        ..Request::new(head.arrival[i], head.prompt_len[i], head.output_len[i])
    };
    let mut workload: Workload = (0..head.arrival.len()).map(request).collect();
    workload.categories.clone_from(&own.categories);
    workload.recordings.clone_from(&own.recordings);
    workload.hazards.clone_from(&own.hazards);
    workload
}
