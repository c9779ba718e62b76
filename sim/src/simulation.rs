//! Simulated runs of a workload with engine settings, true pass times and acceptance, and a policy. A simulation has
//! three forms: a whole run in one call, a replica of a fleet, or a server.

use crate::acceptance::AcceptanceSource;
use crate::config::{BadConfig, EngineConfig};
use crate::engine::{ByOracle, ByPolicy, Drafter, Ending, Engine, NoDraft, Order, Rules, Source, SpeculativeConfig};
use crate::event_clock::{EventClock, World};
use crate::executor::DecisionTime;
use crate::host::Host;
use crate::latency::{ContextReads, DraftDevice, Drafting, LatencyModel};
use crate::metrics::{InOrder, RequestRecords};
use crate::online::{Online, OnlineEngine, OutputLog};
use crate::oracle::OraclePolicy;
use crate::patience::Patience;
use crate::policy::SpecPolicy;
use crate::replica::{Rank, Replica, RoutedEngine};
use crate::serving::{Run, Serving};
use crate::time::Time;
use crate::workload::{Arrivals, Request, Workload};
use std::borrow::Cow;
use std::sync::atomic::AtomicBool;

/// The part of a simulation that decides the draft lengths: nothing, a policy or an oracle.
pub enum Speculation {
    /// No drafter: the engine decodes one token for each request in each step (invariant 7 of INVARIANTS.md).
    Off,
    /// A policy, which sees only what a server sees.
    Policy(Box<dyn SpecPolicy>),
    /// An oracle: it sees the hidden truth (which draft tokens are right, true pass times), as no server can.
    Oracle(Box<dyn OraclePolicy>),
}

impl Speculation {
    /// Whether an engine may give the id of an ended request to a later request ([`SpecPolicy::ids_may_return`]).
    pub fn ids_may_return(&self) -> bool {
        match self {
            Speculation::Policy(policy) => policy.ids_may_return(),
            Speculation::Off | Speculation::Oracle(_) => true,
        }
    }

    /// Checks that the engine can run with these settings.
    ///
    /// # Errors
    /// vLLM would not start with these settings, the scheduler could never make a step, or an oracle has a draft model
    /// on its own device.
    pub fn check(&self, config: &EngineConfig, drafting: Drafting) -> Result<(), BadConfig> {
        if matches!(self, Speculation::Oracle(_)) && config.draft_device == DraftDevice::Own {
            let why =
                "bounds count the draft's passes behind the target's, so they do not bound a draft on its own device";
            return Err(BadConfig { key: "draft_device", why: why.into() });
        }
        let (most, parallel) = (config.max_draft_len, drafting == Drafting::Parallel);
        let speculation = match self {
            Speculation::Off => SpeculativeConfig::default(),
            Speculation::Policy(policy) => SpeculativeConfig::of_policy(&**policy, most, parallel),
            Speculation::Oracle(oracle) => SpeculativeConfig::of_oracle(&**oracle, most, parallel),
        };
        Rules::of(config, &speculation).map(|_| ())
    }
}

/// All inputs of a simulated run that are fixed before a policy acts.
#[derive(Clone, Copy)]
pub struct Simulation<'a> {
    /// The requests to serve.
    pub workload: &'a Workload,
    /// Whether requests arrive at their own times, when a client's last request has ended, or in sessions.
    pub arrivals: Arrivals,
    /// The engine's settings.
    pub config: &'a EngineConfig,
    /// The latency model that gives the true time of a draft pass.
    pub draft: &'a dyn LatencyModel,
    /// The latency model that gives the true time of a target pass.
    pub target: &'a dyn LatencyModel,
    /// Whether a verify pass truly reads a request's context once, or once for each verified position.
    pub context_reads: ContextReads,
    /// Whether the draft model makes a request's draft tokens of a step in one pass for each token, or in one pass for
    /// all.
    pub drafting: Drafting,
    /// Coefficient of variation of the random noise on each pass time (log-normal, mean 1); 0 for no noise.
    pub noise_cv: f64,
    /// The source that decides which draft tokens are right.
    pub acceptance: &'a dyn AcceptanceSource,
    /// Seed of the noise, and of the draws that decide whether a draft model on its own device guesses correctly what
    /// the target accepts. The acceptance source has its own seed.
    pub seed: u64,
    /// The run's TPOT limit that policies see, seconds; infinity for none. A request's own limit takes precedence.
    pub slo_tpot_s: f64,
    /// Whether to keep a record of every step.
    pub keep_steps: bool,
    /// Whether to record the parts of the requests' latency (waiting, prompts, draft passes, …; see
    /// [`Totals::lives`](crate::Totals::lives)). This changes no other result.
    pub keep_lives: bool,
    /// Set this flag to end the run early.
    pub interrupt: &'a AtomicBool,
}

impl<'a> Simulation<'a> {
    /// Runs the whole workload. Panics on a configuration that [`Speculation::check`] refuses.
    pub fn run(&self, speculation: Speculation) -> Run {
        self.serve(speculation, None).0
    }

    /// Runs until it is certain whether enough requests meet their latency bounds. Returns the results so far, and
    /// `patience` with its counts of requests that met or missed their bounds. Panics on the same configurations as
    /// [`run`](Simulation::run).
    pub fn find_out(&self, speculation: Speculation, patience: Patience) -> (Run, Patience) {
        let (run, patience) = self.serve(speculation, Some(patience));
        (run, patience.expect("it was given one"))
    }

    fn serve(&self, speculation: Speculation, patience: Option<Patience>) -> (Run, Option<Patience>) {
        let most = self.config.max_draft_len;
        match speculation {
            Speculation::Off => self.with(NoDraft, 0, patience),
            Speculation::Policy(policy) => self.with(ByPolicy(policy), most, patience),
            Speculation::Oracle(oracle) => self.with(ByOracle(oracle), most, patience),
        }
    }

    /// Like [`run`](Simulation::run), with the requests of `requests`, which are taken one at a time as they arrive.
    /// From [`workload`](Simulation::workload) only the categories and the size of prefix blocks are used. The records
    /// do not stay in memory: `give` gets them in pieces, and the returned run has no records. The run ends early if
    /// `give` returns false. Panics also if requests come in sessions, or if `speculation` does not allow that later
    /// requests take the [ids](Speculation::ids_may_return) of ended requests.
    pub fn stream(
        &self,
        speculation: Speculation,
        requests: &mut dyn Iterator<Item = Request>,
        give: &mut dyn FnMut(RequestRecords) -> bool,
    ) -> Run {
        let (most, records) = (self.config.max_draft_len, InOrder::new(give));
        match speculation {
            Speculation::Off => self.streams(NoDraft, 0, requests, records),
            Speculation::Policy(policy) => self.streams(ByPolicy(policy), most, requests, records),
            Speculation::Oracle(oracle) => self.streams(ByOracle(oracle), most, requests, records),
        }
    }

    fn streams<D: Drafter<EventClock<'a>>>(
        &self,
        drafter: D,
        max_draft_len: u32,
        requests: &mut dyn Iterator<Item = Request>,
        mut records: InOrder,
    ) -> Run {
        let workload = self.without_requests(true);
        let (rules, clock) = self.rules_and_clock(&drafter, max_draft_len, 0);
        let notes = self.notes(rules.drafter);
        let Simulation { config, arrivals, slo_tpot_s, keep_steps, .. } = *self;
        let workload = Cow::Owned(workload);
        let mut engine = Engine::new(config, workload, arrivals, slo_tpot_s, rules, clock, drafter, keep_steps, ());
        let mut source = Source { requests, arrivals };
        let Ok(ending) = engine.run_streamed(&mut source, &mut records, self.interrupt);
        if ending == Ending::Done {
            records.finish();
        }
        let mut finished = engine.finish();
        finished.out.records = RequestRecords::default();
        let (mut run, _, _) = Run::of(finished, ending);
        run.warnings.extend(notes);
        run
    }

    /// A workload without requests that has the categories and the size of prefix blocks of the simulation's workload.
    /// `awaits_prefixes` says whether requests that share prefixes may come.
    fn without_requests(&self, awaits_prefixes: bool) -> Workload {
        Workload {
            categories: self.workload.categories.clone(),
            prefix_block: self.workload.prefix_block,
            awaits_prefixes,
            ..Workload::default()
        }
    }

    /// An engine to which a router gives requests while the engine runs. [`arrivals`](Simulation::arrivals) and
    /// [`interrupt`](Simulation::interrupt) are not used, because the router decides when requests come and when the
    /// run ends. Panics on the same configurations as [`run`](Simulation::run).
    pub fn replica(&self, speculation: Speculation) -> Box<dyn Replica + 'a> {
        self.rank(speculation)
    }

    /// As [`replica`](Simulation::replica), for an engine that may become a rank of a server.
    pub(crate) fn rank(&self, speculation: Speculation) -> Box<dyn Rank<'a> + 'a> {
        let most = self.config.max_draft_len;
        match speculation {
            Speculation::Off => self.fed(NoDraft, 0),
            Speculation::Policy(policy) => self.fed(ByPolicy(policy), most),
            Speculation::Oracle(oracle) => self.fed(ByOracle(oracle), most),
        }
    }

    /// An engine that serves clients, which send requests while it runs. Only the categories and the size of prefix
    /// blocks are taken from [`workload`](Simulation::workload); its requests are not served.
    /// [`arrivals`](Simulation::arrivals), [`interrupt`](Simulation::interrupt), [`keep_steps`](Simulation::keep_steps)
    /// and [`keep_lives`](Simulation::keep_lives) are not used. Panics on the same configurations as
    /// [`run`](Simulation::run).
    pub fn online(&self, speculation: Speculation) -> Box<dyn Online + 'a> {
        let most = self.config.max_draft_len;
        match speculation {
            Speculation::Off => self.serves(NoDraft, 0),
            Speculation::Policy(policy) => self.serves(ByPolicy(policy), most),
            Speculation::Oracle(oracle) => self.serves(ByOracle(oracle), most),
        }
    }

    fn serves<D: Drafter<EventClock<'a>> + 'a>(&self, drafter: D, max_draft_len: u32) -> Box<dyn Online + 'a> {
        // A server does not report the parts of latencies (waiting, prompts, draft passes, …), so they are not
        // recorded.
        let (rules, clock) = Simulation { keep_lives: false, ..*self }.rules_and_clock(&drafter, max_draft_len, 0);
        let (workload, watch) = (Cow::Owned(self.without_requests(true)), OutputLog::default());
        // A server reports every step. With records of steps, the engine computes no steps in one go.
        let keep_steps = true;
        let Simulation { config, slo_tpot_s, .. } = *self;
        let engine =
            Engine::new(config, workload, Arrivals::Open, slo_tpot_s, rules, clock, drafter, keep_steps, watch);
        Box::new(OnlineEngine::new(engine))
    }

    fn fed<D: Drafter<EventClock<'a>> + 'a>(&self, drafter: D, max_draft_len: u32) -> Box<dyn Rank<'a> + 'a> {
        let (rules, clock) = self.rules_and_clock(&drafter, max_draft_len, 0);
        let notes = self.notes(rules.drafter);
        let Simulation { workload, config, slo_tpot_s, keep_steps, .. } = *self;
        let own = Cow::Owned(self.without_requests(workload.shares_prefixes()));
        let engine = Engine::new(config, own, Arrivals::Open, slo_tpot_s, rules, clock, drafter, keep_steps, ());
        Box::new(RoutedEngine::new(engine, workload, notes))
    }

    fn with<D: Drafter<EventClock<'a>>>(
        &self,
        drafter: D,
        max_draft_len: u32,
        patience: Option<Patience>,
    ) -> (Run, Option<Patience>) {
        let (rules, clock) = self.rules_and_clock(&drafter, max_draft_len, self.workload.len());
        let serving = Serving {
            workload: self.workload,
            arrivals: self.arrivals,
            config: self.config,
            slo_tpot_s: self.slo_tpot_s,
            keep_steps: self.keep_steps,
            interrupt: self.interrupt,
        };
        let notes = self.notes(rules.drafter);
        let mut served = serving.with(rules, clock, drafter, patience);
        served.run.warnings.extend(notes);
        (served.run, served.patience)
    }

    /// The scheduler's rules that follow from the settings and the drafter, and a clock at zero with room for
    /// `requests` requests.
    fn rules_and_clock<D: Drafter<EventClock<'a>>>(
        &self,
        drafter: &D,
        max_draft_len: u32,
        requests: usize,
    ) -> (Rules, EventClock<'a>) {
        let parallel = self.drafting == Drafting::Parallel;
        let speculation = drafter.speculative_config(self.config.max_draft_len, parallel);
        let rules = Rules::of(self.config, &speculation).expect("the configuration was checked before");
        // Nodes of a tree are more than its depth, which the engine's limit bounds.
        let longest = speculation.num_speculative_tokens.min(self.config.max_draft_len);
        let world = World {
            draft: self.draft,
            target: self.target,
            context_reads: self.context_reads,
            // SGLang's block drafters make their block in one pass; vLLM's have passes of their own kind.
            drafting: match rules.sglang.is_some() && rules.parallel_drafting {
                true => Drafting::Parallel,
                false => self.drafting,
            },
            acceptance: self.acceptance.of_run(longest).unwrap_or(self.acceptance),
            overhead: Time::from_s(self.config.step_overhead_s),
            host: Host::of(&self.config.host),
            decision_time: DecisionTime {
                schedule: Time::ZERO,
                update: Time::from_s(self.config.step_overhead_s),
                propose: Time::from_s(self.config.decision_s.propose),
                keep_drafting: Time::from_s(self.config.decision_s.keep_drafting),
                select: Time::from_s(self.config.decision_s.select),
            },
            noise_cv: self.noise_cv,
            seed: self.seed,
            max_draft_len,
            queues: rules.order != Order::StepStart,
        };
        let mut clock = EventClock::new(world, requests);
        clock.count_guesses(drafter.guesses());
        if self.config.draft_device == DraftDevice::Own && rules.drafter {
            clock.draft_on_own_device(self.config.outcomes_guessed);
        }
        if rules.leaves_full_graphs {
            clock.leave_full_graphs(Time::from_s(self.config.piecewise_graph_s));
        }
        if self.keep_lives {
            clock.keep_ledger(requests);
        }
        (rules, clock)
    }

    /// Warnings to the user that follow from the settings alone. `drafts` says whether there is a drafter.
    fn notes(&self, drafts: bool) -> Vec<String> {
        let mut notes = Vec::new();
        if drafts
            && self.config.draft_prefill
            && self.acceptance.may_lack_proposals()
            && self.acceptance.drafts_without_match() == 0
        {
            notes.push(
                "prompt lookups run no draft model over prompts, but draft_prefill is on: its passes and gaps are charged"
                    .to_owned(),
            );
        }
        let block = self.config.block_size;
        let shared = self.workload.prefix_block;
        let divides = shared == 0 || shared.is_multiple_of(block) || block.is_multiple_of(shared);
        if self.config.prefix_caching && !divides {
            notes.push(format!(
                "the trace's prefix blocks of {} tokens do not divide into KV blocks of {block}: no prefix is shared",
                self.workload.prefix_block
            ));
        }
        notes
    }
}
