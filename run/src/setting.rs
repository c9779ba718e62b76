//! A [`Setting`]: everything that is the same for all policies of a comparison, for one combination of swept values and
//! one seed. It has the workload, the true costs, the hidden acceptance (which draft tokens are right) and the linear
//! cost model that policies get.

mod streaming;

use crate::content;
use crate::fleet::Replicas;
use crate::golden;
use crate::plan::Variant;
use crate::rejection::{Limit, limits};
use crate::server::Server;
use crate::spec::document::Path;
use crate::spec::experiment::{Experiment, SloSpec};
use crate::spec::problem::{Problem, Result};
use crate::spec::read::trace_problem;
use foretoken_policies::{Belief, PolicySpec};
use foretoken_profiler::hardware::LatencySpec;
use foretoken_sim::config::BadConfig;
use foretoken_sim::metrics::{Pieces, Slo};
use foretoken_sim::{
    AcceptanceSource, Arrivals, ContextReads, Drafting, Ending, EngineConfig, LatencyModel, Online, Pair, PassShape,
    Patience, Run, SchedulingPolicy, Simulation, SpecPolicy, Speculation, Summary, Workload,
};
use foretoken_traces::{Built, Drawn};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

/// The workload, server and bounds that all policies of one comparison share.
pub struct Setting {
    /// The requests of the run: arrival times, lengths, categories and more. Empty if the requests are drawn one at a
    /// time.
    pub workload: Workload,
    /// The source that draws the requests one at a time; `None` if all requests are in memory.
    drawn: Option<Drawn>,
    /// Notes for the user, such as requests of the trace that were left out, and engine settings that differ from those
    /// of the engine version.
    pub notes: Vec<String>,
    /// Warnings that the linear cost model for policies fits the true costs badly. They belong to the results of
    /// policies that use this model.
    pub belief_notes: Vec<String>,
    arrivals: Arrivals,
    server: Server,
    /// The fleet's replicas and their router; `None` without `[fleet]`.
    fleet: Option<Replicas>,
    slo: SloSpec,
}

impl Setting {
    pub fn new(variant: &Variant, seed: u64) -> Result<Setting> {
        let e = &variant.experiment;
        let unloaded = unloaded_tpot_s(&*e.hardware.target.build());
        let built = foretoken_traces::build(&e.workload, seed, Some(unloaded))
            .map_err(|err| trace_problem(&variant.document(), &err))?;
        Setting::of(variant, seed, built, None)
    }

    fn of(variant: &Variant, seed: u64, mut built: Built, drawn: Option<Drawn>) -> Result<Setting> {
        let e = &variant.experiment;
        let asked = e.live.as_ref().map(|live| (&live.prompts, live.time_scale));
        let asked = asked.or_else(|| e.observe.as_ref().map(|observe| (&observe.prompts, observe.time_scale)));
        if let Some((prompts, time_scale)) = asked {
            crate::workload::shape_workload(prompts, time_scale, &mut built.workload);
        }
        let document = &variant.document();
        crate::recorded::assign(&e.acceptance.source, document, &mut built.workload, seed, &mut built.notes)?;
        let plain = variant.engine(false)?;
        let size = match &drawn {
            Some(drawn) => (drawn.requests as u64, drawn.longest_output),
            None => (built.workload.len() as u64, built.workload.output_len.iter().copied().max().unwrap_or(0)),
        };
        crate::room::check(variant, size, &plain)?;
        let mut notes = built.notes;
        notes.extend(content::note(e, variant.filled.calibrated));
        let overridden = e.engine.overridden();
        // An experiment with a calibrated profile sets the engine as on the observed server. Then the note names only
        // settings that the user replaced with `--set`.
        let of_user = |key: &&str| {
            let key = Path::of(&format!("engine.{key}"));
            !variant.filled.calibrated || variant.document().is_overridden(&key)
        };
        let overridden: Vec<&str> = overridden.into_iter().filter(of_user).collect();
        if !overridden.is_empty() {
            let (version, keys) = (e.engine.version.name(), overridden.join(", "));
            notes.push(format!("the engine differs from {version}: set by hand are {keys}"));
        }
        if e.live.is_some() && e.engine.clone().as_on_a_device() {
            let say = "the file has [live]: drafts are made at the start of a step, and steps are synchronous, as on a device";
            notes.push(format!("{say}; {} does not do this", e.engine.version.name()));
        }
        let mut belief_notes = Vec::new();
        let server = Server::new(variant, seed, &built.workload, plain, &mut belief_notes)?;
        let fleet = Replicas::of(variant, &server, seed, &built.workload, &mut belief_notes)?;
        let (workload, arrivals) = (built.workload, built.arrivals);
        notes.extend(golden::notes(e, &workload.categories, &server));
        notes.extend(hybrid_hits(e, &server, workload.shares_prefixes()));
        let setting = Setting { workload, drawn, notes, belief_notes, arrivals, server, fleet, slo: e.slo.clone() };
        setting.check(variant)?;
        Ok(setting)
    }

    /// Checks that the engine would start with every policy, and that the experiment has what the policies need.
    fn check(&self, variant: &Variant) -> Result<()> {
        let e = &variant.experiment;
        let wrong =
            |key: &str, message: String| variant.document().problem_at(&Path::of(&format!("engine.{key}")), message);
        let have_priorities = self.drawn.as_ref().map_or(!self.workload.priority.is_empty(), Drawn::has_priorities);
        if e.engine.scheduling_policy == SchedulingPolicy::Priority && !have_priorities {
            let message = "engine.scheduling_policy = \"priority\", but no request has a priority";
            let help = "give the categories theirs: workload.priorities = { CATEGORY = 1 }; the least is served first";
            return Err(wrong("scheduling_policy", message.into()).help(help));
        }
        if let Some(policy) = e.policies.iter().find(|p| p.definition().needs_law())
            && self.server.acceptance.law().is_none()
        {
            let message = format!("`{}` needs the law of acceptance, and a recording has none", policy.label());
            let help =
                "give acceptance.source a law, such as `mixture` or `by-depth` with rates fitted to the recording";
            return Err(variant.document().problem_at(&Path::of("acceptance.source"), message).help(help));
        }
        for (i, policy) in e.policies.iter().enumerate() {
            content::check_categories(variant, i, policy, &self.workload.categories)?;
            let tries = policy.definition().tries(self.server.with_drafter.max_draft_len);
            for policy in tries.iter().chain([policy]) {
                self.starts(policy)
                    .map_err(|err| wrong(err.key, format!("engine.{}: {} ({})", err.key, err.why, policy.label())))?;
            }
        }
        Ok(())
    }

    /// Checks that the simulated engine would start with `policy`.
    pub fn starts(&self, policy: &PolicySpec) -> std::result::Result<(), BadConfig> {
        self.server.starts(policy)
    }

    /// Runs one policy. A clairvoyant policy runs every fixed length, and the best run is taken. Returns the run, and
    /// the policy that made it. `slo_tpot_s` is the TPOT bound in seconds; infinity for no bound.
    pub fn run(&self, policy: &PolicySpec, slo_tpot_s: f64, interrupt: &AtomicBool) -> (Run, PolicySpec) {
        self.run_keeping(policy, slo_tpot_s, interrupt, false)
    }

    /// Runs one policy as [`run`](Self::run) does, but also records the parts of each request's latency (docs/model.md
    /// 14.1), which makes the simulation slower.
    pub fn run_with_lives(&self, policy: &PolicySpec, slo_tpot_s: f64, interrupt: &AtomicBool) -> (Run, PolicySpec) {
        self.run_keeping(policy, slo_tpot_s, interrupt, true)
    }

    fn run_keeping(
        &self,
        policy: &PolicySpec,
        slo_tpot_s: f64,
        interrupt: &AtomicBool,
        lives: bool,
    ) -> (Run, PolicySpec) {
        let mut best: Option<(f64, Run, PolicySpec)> = None;
        let tries = policy.definition().tries(self.server.with_drafter.max_draft_len);
        for tried in tries {
            let run = self.run_as_it_is(&tried, slo_tpot_s, interrupt, lives);
            if run.ending != Ending::Done {
                return (run, tried);
            }
            let cost = self.cost(&run);
            // If several fixed draft lengths have equal costs, the first one is taken, which is the shortest.
            if best.as_ref().is_none_or(|b| cost < b.0) {
                best = Some((cost, run, tried));
            }
        }
        match best {
            None => (self.run_as_it_is(policy, slo_tpot_s, interrupt, lives), policy.clone()),
            Some((_, mut run, tried)) => {
                run.warnings.push(format!("the best in hindsight was {} (seed {})", tried.label(), self.server.seed));
                (run, tried)
            }
        }
    }

    /// The cost by which a clairvoyant policy, which takes the best in hindsight, chooses among fixed lengths
    /// (docs/model.md 14). In an open loop or in sessions: mean E2E. In a closed loop: seconds per output token, which
    /// is 1 / (output tokens of finished requests per second).
    fn cost(&self, run: &Run) -> f64 {
        let summary = self.summary(run, Slo::default());
        match self.arrivals {
            Arrivals::Open | Arrivals::Sessions => summary.e2e.map_or(f64::INFINITY, |q| q.mean),
            Arrivals::Closed { .. } => 1.0 / summary.token_goodput_tok_s,
        }
    }

    /// Runs one policy until it is certain whether more requests than `patience` allows miss their latency bounds. A
    /// clairvoyant policy runs fixed lengths one after another, until `carries` says that a run is good enough, or all
    /// lengths were run. Returns the last run, and what `patience` counted in it.
    pub fn find_out(
        &self,
        policy: &PolicySpec,
        slo_tpot_s: f64,
        patience: &Patience,
        interrupt: &AtomicBool,
        carries: impl Fn(&Run, &Patience) -> bool,
    ) -> (Run, Patience) {
        let tries = policy.definition().tries(self.server.with_drafter.max_draft_len);
        let mut found = None;
        for tried in if tries.is_empty() { vec![policy.clone()] } else { tries } {
            let (run, patience) = self.find_out_as_it_is(&tried, slo_tpot_s, patience.clone(), interrupt);
            let enough = carries(&run, &patience) || run.ending == Ending::Interrupted;
            found = Some((run, patience));
            if enough {
                break;
            }
        }
        found.expect("something is tried")
    }

    fn find_out_as_it_is(
        &self,
        policy: &PolicySpec,
        slo_tpot_s: f64,
        patience: Patience,
        interrupt: &AtomicBool,
    ) -> (Run, Patience) {
        let requests = (&self.workload, self.arrivals);
        if let Some(fleet) = &self.fleet {
            let asked = (policy, slo_tpot_s);
            let ran = fleet.run(&self.server, requests, asked, interrupt, (false, Some(patience)));
            return (ran.run, ran.patience.expect("it was given one"));
        }
        let (server, speculation) = (&self.server, self.server.speculation(policy));
        let (config, models) = (server.config(&speculation), server.models());
        server.simulation(requests, config, &models, slo_tpot_s, interrupt).find_out(speculation, patience)
    }

    fn run_as_it_is(&self, policy: &PolicySpec, slo_tpot_s: f64, interrupt: &AtomicBool, lives: bool) -> Run {
        let requests = (&self.workload, self.arrivals);
        if let Some(fleet) = &self.fleet {
            return fleet.run(&self.server, requests, (policy, slo_tpot_s), interrupt, (lives, None)).run;
        }
        let (server, speculation) = (&self.server, self.server.speculation(policy));
        let (config, models) = (server.config(&speculation), server.models());
        let simulation = server.simulation(requests, config, &models, slo_tpot_s, interrupt);
        let mut run = Simulation { keep_lives: lives, ..simulation }.run(speculation);
        run.warnings.extend(server.beyond(&models));
        run
    }

    /// Calls `serve` with an engine to which requests can be added while it runs, as for an HTTP server. The requests
    /// of the setting's own workload are not served. Prompts share prefixes in whole KV blocks.
    pub fn online<R>(
        &self,
        policy: &PolicySpec,
        slo_tpot_s: f64,
        interrupt: &AtomicBool,
        serve: impl FnOnce(&mut dyn Online) -> R,
    ) -> R {
        let (server, speculation) = (&self.server, self.server.speculation(policy));
        let (config, models) = (server.config(&speculation), server.models());
        let workload = Workload {
            categories: self.workload.categories.clone(),
            prefix_block: config.block_size,
            ..Workload::default()
        };
        let simulation = server.simulation((&workload, Arrivals::Open), config, &models, slo_tpot_s, interrupt);
        let mut engine = simulation.online(speculation);
        serve(&mut *engine)
    }

    /// How requests arrive: at the workload's times (open loop), by clients in a closed loop, or by users in sessions.
    pub fn arrivals(&self) -> Arrivals {
        self.arrivals
    }

    /// Sets how requests arrive (open loop, closed loop or sessions, which are conversations). Nothing else changes.
    pub fn set_arrivals(&mut self, arrivals: Arrivals) {
        self.arrivals = arrivals;
    }

    /// Sets the number of replicas of the fleet, which must have one kind of replicas. Does nothing without a fleet.
    pub fn set_replicas(&mut self, replicas: u32) {
        self.fleet.iter_mut().for_each(|fleet| fleet.set_number(replicas));
    }

    /// Replaces the requests. Random draws depend only on the seed and a request's id. So the new request with an id
    /// has the same draws as the old request with this id.
    pub fn set_workload(&mut self, workload: Workload) {
        (self.workload, self.drawn) = (workload, None);
    }

    /// The true cost models of target and draft passes.
    pub fn costs(&self) -> Pair<&dyn LatencyModel> {
        Pair { target: &*self.server.target, draft: &*self.server.draft }
    }

    /// Replaces the true cost models of passes, and whether the true verify pass reads context once per request or per
    /// verified position (`reads`). The linear cost model that policies get does not change.
    pub fn set_costs(&mut self, costs: Pair<&LatencySpec>, reads: ContextReads) {
        self.server.target = costs.target.build();
        self.server.draft = costs.draft.build();
        self.server.context_reads = reads;
    }

    /// (Does the true verify pass read context once per request or per verified position; do draft tokens need one
    /// draft pass each or one for all; coefficient of variation of the random noise in pass times).
    pub fn reads(&self) -> (ContextReads, Drafting, f64) {
        (self.server.context_reads, self.server.drafting, self.server.noise_cv)
    }

    pub fn seed(&self) -> u64 {
        self.server.seed
    }

    /// The simulated engine's settings: with a drafter if `drafting` is true, else without.
    pub fn engine(&self, drafting: bool) -> &EngineConfig {
        if drafting { &self.server.with_drafter } else { &self.server.plain }
    }

    /// Does the engine have a drafter when it runs this policy? False for plain decoding.
    pub fn drafts(&self, policy: &PolicySpec) -> bool {
        !matches!(self.server.speculation(policy), Speculation::Off)
    }

    /// Does a run record every step (`output.steps`)?
    pub fn keeps_steps(&self) -> bool {
        self.server.keep_steps
    }

    /// Builds a policy that a server can run; `None` for plain decoding, which has no drafter.
    pub fn policy(&self, spec: &PolicySpec) -> Option<Box<dyn SpecPolicy>> {
        match self.server.speculation(spec) {
            Speculation::Off => None,
            Speculation::Policy(policy) => Some(policy),
            Speculation::Oracle(_) => panic!("`{}` sees the hidden truth", spec.label()),
        }
    }

    /// The linear model of pass times that policies get.
    pub fn belief(&self) -> &Belief {
        &self.server.belief.linear
    }

    pub fn acceptance(&self) -> &dyn AcceptanceSource {
        &*self.server.acceptance
    }

    /// Latencies, rates and counts of a run. SLO attainment and SLO goodput are judged by the bounds `slo`; a request's
    /// own bound on TPOT takes precedence. In an open loop, the summary also has the run's overload, if there is any.
    pub fn summary(&self, run: &Run, slo: Slo) -> Summary {
        self.summary_of(run, &run.records, slo)
    }

    /// Latencies, rates and counts of a run, as [`summary`](Self::summary) computes them, but from the per-request
    /// records `records` in place of `run.records`.
    pub fn summary_of(&self, run: &Run, records: &dyn Pieces, slo: Slo) -> Summary {
        let own_bounds = &self.workload.slo_tpot_s;
        let numbers =
            Summary::new(records, &run.totals, slo, own_bounds, run.usable_blocks, self.server.plain.block_size);
        match self.arrivals {
            Arrivals::Open => numbers.with_overload(records),
            // In closed loops and sessions, clients wait for answers and send less to a slow server. So the length of
            // the queue does not show an overload.
            Arrivals::Closed { .. } | Arrivals::Sessions => numbers,
        }
    }

    /// The limits of the engine that the rejected requests of a run of `policy` exceeded, with the number of these
    /// requests for each limit.
    pub fn limits(&self, policy: &PolicySpec, run: &Run) -> BTreeMap<Limit, u64> {
        limits(run, self.server.config(&self.server.speculation(policy)))
    }

    /// The error for a policy's run in which no request finished, because none can ever fit.
    pub fn nothing_fits(&self, policy: &PolicySpec, run: &Run) -> Box<Problem> {
        let (requests, shortest) = match &self.drawn {
            Some(drawn) => (drawn.requests, drawn.shortest_prompt),
            None => (self.workload.len(), self.workload.prompt_len.iter().min().copied().unwrap_or(0)),
        };
        let (what, fix) = match self.limits(policy, run).into_iter().max_by_key(|(_, requests)| *requests) {
            Some((limit, _)) => (limit.what, limit.fix),
            None => ("none arrived".to_owned(), "look at the workload".to_owned()),
        };
        let label = policy.label();
        Problem::bad_input(format!(
            "{label}: not one of {requests} requests can ever fit: {what} (the shortest prompt has {shortest} tokens)"
        ))
        .help(fix)
    }

    /// The latency bounds (SLO) of this setting's runs. The TPOT bound may be a factor times `baseline_p90_tpot_s`, the
    /// P90 TPOT in seconds of an autoregressive run. `None` if the bound does not come from such a run.
    pub fn slo(&self, baseline_p90_tpot_s: Option<f64>) -> Slo {
        let scaled = self.slo.adaspec_scale.zip(baseline_p90_tpot_s).map(|(scale, p90)| scale * p90);
        Slo { ttft_s: self.slo.ttft_s, tpot_s: self.slo.tpot_s.or(scaled), e2e_s: self.slo.e2e_s }
    }
}

/// Time of a decode pass with one request and an empty context, seconds. AdaServe's bounds are multiples of this time.
fn unloaded_tpot_s(target: &dyn LatencyModel) -> f64 {
    target.pass(PassShape { requests: 1, batched: 1, context: 0, pairs: 1 }).as_s()
}
/// A note for hybrid models: with a drafter, vLLM may use no hit of the prefix cache.
fn hybrid_hits(e: &Experiment, server: &Server, shared: bool) -> Option<String> {
    let engine = &server.with_drafter;
    let open = shared && engine.prefix_caching && engine.state_blocks > 0 && !engine.drafts_end_prefix_hits;
    let speculates = e.policies.iter().any(|policy| !matches!(server.speculation(policy), Speculation::Off));
    (open && speculates).then(|| {
        "a hybrid model with a drafter: vLLM from 0.28 on may use no hit of the prefix cache then (vllm#54360); \
         engine.drafts_end_prefix_hits = true simulates it"
            .to_owned()
    })
}
