//! Simulates a live run on the event clock.

use super::pace::{Pace, Paced};
use super::watch::Watched;
use crate::serve::tape::{Head, Told, retell};
use foretoken_policies::PolicySpec;
use foretoken_profiler::Role;
use foretoken_run::setting::Setting;
use foretoken_sim::event_clock::{EventClock, World};
use foretoken_sim::executor::DecisionTime;
use foretoken_sim::live::StepTrace;
use foretoken_sim::{AcceptanceSource, Outcome, Request, Serving, SpecPolicy, Time, Workload};
use std::sync::atomic::AtomicBool;

/// The live run to simulate, and the costs that predict it.
#[derive(Clone, Copy)]
pub struct Replay<'a> {
    /// The world: engine and belief, with the live run's requests.
    pub setting: &'a Setting,
    /// The world whose costs predict passes.
    pub costs: &'a Setting,
    /// The machine's pace during the live run.
    pub pace: &'a Pace,
    /// The head of the live run's tape.
    pub head: &'a Head,
    /// The policy's settings.
    pub spec: &'a PolicySpec,
}

/// The steps and records of a simulated run.
pub struct Simulated {
    /// The simulated steps.
    pub steps: Vec<StepTrace>,
    /// The records of requests and steps.
    pub told: Told,
}

impl Replay<'_> {
    /// Simulates the run with this acceptance; all passes take `slower` times as long.
    pub fn run(&self, acceptance: &dyn AcceptanceSource, slower: f64) -> Simulated {
        let (setting, head) = (self.setting, self.head);
        let policy: Option<Box<dyn SpecPolicy>> = setting.policy(self.spec);
        let plain = policy.is_none();
        let config = setting.engine(!plain);
        let (draft, target) = self.costs.costs();
        let paced = |model, role| Paced { model, role, pace: self.pace, slower };
        let (draft, target) = (paced(draft, Role::Draft), paced(target, Role::Target));
        let (context_reads, drafting, noise_cv) = self.costs.reads();
        let world = World {
            draft: &draft,
            target: &target,
            context_reads,
            drafting,
            acceptance,
            overhead: Time::ZERO,
            decision_time: DecisionTime::default(),
            noise_cv,
            seed: setting.seed(),
            max_draft_len: if plain { 0 } else { config.max_draft_len },
            // The live device runs each step at once; it queues no step.
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
        let served = serving.run(Watched::new(clock, plain, Time::from_s(head.overhead_s)), policy);
        let steps = served.executor.into_steps();
        let outcomes = served.run.records.outcome.iter().zip(0u32..);
        let rejected: Vec<u32> = outcomes.filter(|(o, _)| **o == Outcome::Rejected).map(|(_, id)| id).collect();
        let tail = crate::serve::tape::Tail { ending: crate::serve::tape::TapeEnding::Done, rejected };
        let told = retell(head, &steps, Some(&tail));
        Simulated { steps, told }
    }
}

/// The requests of a live run. Fields that the tape lacks are taken from the experiment's own workload, of which the
/// run served the requests from `first` on.
pub fn requests_of(head: &Head, own: &Workload, first: u32) -> Workload {
    let there = |i: usize| first as usize + i;
    let request = |i: usize| Request {
        category: head.category[i],
        slo_tpot_s: own.slo_tpot_s.get(there(i)).copied().filter(|s| s.is_finite()),
        recording: own.recording.get(there(i)).copied().filter(|&r| r != u32::MAX),
        ..Request::new(head.arrival[i], head.prompt_len[i], head.output_len[i])
    };
    let mut workload: Workload = (0..head.arrival.len()).map(request).collect();
    workload.categories.clone_from(&own.categories);
    workload.recordings.clone_from(&own.recordings);
    workload.hazards.clone_from(&own.hazards);
    workload
}
