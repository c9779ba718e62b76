//! Everything fixed before a policy acts, for one combination of swept values and one seed: the workload, the true
//! costs, the hidden acceptance, the policies' belief. All policies of a comparison share one setting.

use crate::believed::Believed;
use crate::plan::Variant;
use crate::profiled::Watched;
use crate::rejection::{Limit, limits};
use foretoken_hardware::LatencySpec;
use foretoken_policies::{Belief, PolicyContext, PolicySpec};
use foretoken_profiler::{Range, Role};
use foretoken_sim::config::BadConfig;
use foretoken_sim::metrics::Slo;
use foretoken_sim::{
    AcceptanceSource, Arrivals, ContextReads, DraftKv, Drafting, Ending, EngineConfig, LatencyModel, Pair, PassShape,
    Patience, Run, SchedulingPolicy, Simulation, SpecPolicy, Speculation, Summary, Workload,
};
use foretoken_spec::document::Path;
use foretoken_spec::experiment::SloSpec;
use foretoken_spec::problem::{Problem, Result};
use foretoken_spec::read::trace_problem;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

/// What the policies of one comparison share.
pub struct Setting {
    /// The requests.
    pub workload: Workload,
    /// Notes: requests that were left out of the trace, and engine settings that differ from the release.
    pub notes: Vec<String>,
    /// Warnings that the linear belief fits the true costs badly, for the results of policies that use the belief.
    pub belief_notes: Vec<String>,
    arrivals: Arrivals,
    plain: EngineConfig,
    with_drafter: EngineConfig,
    draft: Box<dyn LatencyModel>,
    target: Box<dyn LatencyModel>,
    context_reads: ContextReads,
    drafting: Drafting,
    noise_cv: f64,
    /// The ranges that the profile of the costs covers, for (target, draft); `None` without a profile.
    ranges: Option<(Range, Range)>,
    acceptance: Box<dyn AcceptanceSource>,
    belief: Believed,
    slo: SloSpec,
    keep_steps: bool,
    seed: u64,
}

impl Setting {
    /// Builds the setting of a variant and a seed.
    ///
    /// # Errors
    /// The workload cannot be built or needs too much memory, a recording is missing, a setting of the acceptance is
    /// wrong, the model does not fit into the GPU's memory, no linear belief fits the true costs, priorities are asked
    /// for and no request has one, or the engine would not start with a policy.
    pub fn new(variant: &Variant, seed: u64) -> Result<Setting> {
        let e = &variant.experiment;
        let (target, draft) = (e.hardware.target.build(), e.hardware.draft.build());
        let mut built = foretoken_traces::build(&e.workload, seed, Some(unloaded_tpot_s(&*target)))
            .map_err(|err| trace_problem(&variant.document(), &err))?;
        let asked = e.live.as_ref().map(|live| (&live.prompts, live.time_scale));
        let asked = asked.or_else(|| e.observe.as_ref().map(|observe| (&observe.prompts, observe.time_scale)));
        if let Some((prompts, time_scale)) = asked {
            crate::workload::shape_workload(prompts, time_scale, &mut built.workload);
        }
        let document = &variant.document();
        crate::recorded::assign(&e.acceptance.source, document, &mut built.workload, seed, &mut built.notes)?;
        let plain = variant.engine(false)?;
        crate::room::check(variant, &built.workload, &plain)?;
        let acceptance = e.acceptance.build(seed, &built.workload).map_err(|err| {
            variant.document().problem_at(&Path::of(&format!("acceptance.{}", err.key)), err.to_string())
        })?;
        let mut notes = built.notes;
        let overridden = e.engine.overridden();
        // The experiment of a calibration sets the rules that its server followed. A note is needed only on settings
        // that the user changed.
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
        let belief = Believed::new(&e.belief, &e.hardware, seed, &mut belief_notes)?;
        let setting = Setting {
            workload: built.workload,
            notes,
            belief_notes,
            arrivals: built.arrivals,
            plain,
            with_drafter: variant.engine(true)?,
            draft,
            target,
            context_reads: e.hardware.context_reads,
            drafting: e.hardware.drafting,
            noise_cv: e.hardware.noise_cv,
            ranges: variant.filled.ranges,
            acceptance,
            belief,
            slo: e.slo.clone(),
            keep_steps: e.output.steps,
            seed,
        };
        setting.check(variant)?;
        Ok(setting)
    }

    /// Checks that the engine would start, for every policy.
    fn check(&self, variant: &Variant) -> Result<()> {
        let e = &variant.experiment;
        let at =
            |key: &str, message: String| variant.document().problem_at(&Path::of(&format!("engine.{key}")), message);
        if e.engine.scheduling_policy == SchedulingPolicy::Priority && self.workload.priority.is_empty() {
            let message = "engine.scheduling_policy = \"priority\", but no request has a priority";
            let help = "give the categories theirs: workload.priorities = { CATEGORY = 1 }; the least is served first";
            return Err(at("scheduling_policy", message.into()).help(help));
        }
        if let Some(policy) = e.policies.iter().find(|p| p.definition().needs_law())
            && self.acceptance.law().is_none()
        {
            let message = format!("`{}` needs the law of acceptance, and a recording has none", policy.label());
            let help =
                "give acceptance.source a law, such as `mixture` or `by-depth` with rates fitted to the recording";
            return Err(variant.document().problem_at(&Path::of("acceptance.source"), message).help(help));
        }
        for policy in &e.policies {
            let tries = policy.definition().tries(self.with_drafter.max_draft_len);
            for policy in tries.iter().chain([policy]) {
                self.starts(policy)
                    .map_err(|err| at(err.key, format!("engine.{}: {} ({})", err.key, err.why, policy.label())))?;
            }
        }
        Ok(())
    }

    /// Checks that the engine would start with a policy.
    ///
    /// # Errors
    /// The engine refuses its settings together with the policy's; see
    /// [`Speculation::check`](foretoken_sim::Speculation::check).
    pub fn starts(&self, policy: &PolicySpec) -> std::result::Result<(), BadConfig> {
        let speculation = self.speculation(policy);
        speculation.check(self.config(&speculation), self.drafting)
    }

    /// Runs one policy, or every candidate of a clairvoyant; returns the run and the policy that was run.
    /// `slo_tpot_s` is the run's TPOT bound, infinite when there is none.
    pub fn run(&self, policy: &PolicySpec, slo_tpot_s: f64, interrupt: &AtomicBool) -> (Run, PolicySpec) {
        self.run_keeping(policy, slo_tpot_s, interrupt, false)
    }

    /// The same, with the lives of requests split into parts (docs/model.md 14.1), which makes the loop slower.
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
        let tries = policy.definition().tries(self.with_drafter.max_draft_len);
        for tried in tries {
            let run = self.run_as_it_is(&tried, slo_tpot_s, interrupt, lives);
            if run.ending != Ending::Done {
                return (run, tried);
            }
            let cost = self.cost(&run);
            // Strictly better: of equal candidates the first one, with the shortest drafts, is kept.
            if best.as_ref().is_none_or(|b| cost < b.0) {
                best = Some((cost, run, tried));
            }
        }
        match best {
            None => (self.run_as_it_is(policy, slo_tpot_s, interrupt, lives), policy.clone()),
            Some((_, mut run, tried)) => {
                run.warnings.push(format!("the best in hindsight was {} (seed {})", tried.label(), self.seed));
                (run, tried)
            }
        }
    }

    /// The cost that ranks a clairvoyant's candidates: mean E2E in open loops, time for all tokens in a closed loop
    /// (docs/model.md 14).
    fn cost(&self, run: &Run) -> f64 {
        let summary = self.summary(run, Slo::default());
        match self.arrivals {
            Arrivals::Open => summary.e2e.map_or(f64::INFINITY, |q| q.mean),
            Arrivals::Closed { .. } => 1.0 / summary.token_goodput_tok_s,
        }
    }

    /// Runs one policy until it is certain whether the counted requests keep their bounds. Of a clairvoyant's
    /// candidates, returns the first for which `carries` says yes, or the last one.
    pub fn find_out(
        &self,
        policy: &PolicySpec,
        slo_tpot_s: f64,
        patience: &Patience,
        interrupt: &AtomicBool,
        carries: impl Fn(&Run, &Patience) -> bool,
    ) -> (Run, Patience) {
        let tries = policy.definition().tries(self.with_drafter.max_draft_len);
        let mut found = None;
        for tried in if tries.is_empty() { vec![policy.clone()] } else { tries } {
            let speculation = self.speculation(&tried);
            let config = self.config(&speculation);
            let simulation = self.simulation(config, &*self.draft, &*self.target, slo_tpot_s, interrupt);
            let (run, patience) = simulation.find_out(speculation, patience.clone());
            let enough = carries(&run, &patience) || run.ending == Ending::Interrupted;
            found = Some((run, patience));
            if enough {
                break;
            }
        }
        found.expect("something is tried")
    }

    fn simulation<'s>(
        &'s self,
        config: &'s EngineConfig,
        draft: &'s dyn LatencyModel,
        target: &'s dyn LatencyModel,
        slo_tpot_s: f64,
        interrupt: &'s AtomicBool,
    ) -> Simulation<'s> {
        Simulation {
            workload: &self.workload,
            arrivals: self.arrivals,
            config,
            draft,
            target,
            context_reads: self.context_reads,
            drafting: self.drafting,
            noise_cv: self.noise_cv,
            acceptance: &*self.acceptance,
            seed: self.seed,
            slo_tpot_s,
            keep_steps: self.keep_steps,
            keep_lives: false,
            interrupt,
        }
    }

    fn run_as_it_is(&self, policy: &PolicySpec, slo_tpot_s: f64, interrupt: &AtomicBool, lives: bool) -> Run {
        let speculation = self.speculation(policy);
        let config = self.config(&speculation);
        let (draft, target) = (Watched::new(&*self.draft), Watched::new(&*self.target));
        let (of_draft, of_target): (&dyn LatencyModel, &dyn LatencyModel) = match self.ranges.is_some() {
            true => (&draft, &target),
            false => (&*self.draft, &*self.target),
        };
        let simulation = self.simulation(config, of_draft, of_target, slo_tpot_s, interrupt);
        let mut run = Simulation { keep_lives: lives, ..simulation }.run(speculation);
        if let Some((of_target, of_draft)) = &self.ranges {
            run.warnings.extend(target.beyond(Role::Target, of_target));
            run.warnings.extend(draft.beyond(Role::Draft, of_draft));
        }
        run
    }

    /// The arrival process: a trace's instants, or clients in a closed loop.
    pub fn arrivals(&self) -> Arrivals {
        self.arrivals
    }

    /// Replaces the arrivals; everything else stays.
    pub fn set_arrivals(&mut self, arrivals: Arrivals) {
        self.arrivals = arrivals;
    }

    /// Replaces the requests. Random draws depend only on a request's number, so they stay.
    pub fn set_workload(&mut self, workload: Workload) {
        self.workload = workload;
    }

    /// The true costs of passes.
    pub fn costs(&self) -> Pair<&dyn LatencyModel> {
        Pair { target: &*self.target, draft: &*self.draft }
    }

    /// Replaces the true costs of passes. The policies' belief stays.
    pub fn set_costs(&mut self, costs: Pair<&LatencySpec>, reads: ContextReads) {
        self.target = costs.target.build();
        self.draft = costs.draft.build();
        self.context_reads = reads;
    }

    /// How the true verify pass reads context, how drafts are made, and the noise of a pass.
    pub fn reads(&self) -> (ContextReads, Drafting, f64) {
        (self.context_reads, self.drafting, self.noise_cv)
    }

    /// The seed of all draws of a run.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The engine's settings, with a drafter or without.
    pub fn engine(&self, drafting: bool) -> &EngineConfig {
        if drafting { &self.with_drafter } else { &self.plain }
    }

    /// Is a record of every step kept?
    pub fn keeps_steps(&self) -> bool {
        self.keep_steps
    }

    /// A policy as a server runs it; `None` is the plain engine.
    ///
    /// # Panics
    /// `spec` is an oracle, which sees what no server sees.
    pub fn policy(&self, spec: &PolicySpec) -> Option<Box<dyn SpecPolicy>> {
        match self.speculation(spec) {
            Speculation::Off => None,
            Speculation::Policy(policy) => Some(policy),
            Speculation::Oracle(_) => panic!("`{}` sees the hidden truth", spec.label()),
        }
    }

    /// The policies' belief about costs.
    pub fn belief(&self) -> &Belief {
        &self.belief.linear
    }

    /// The source of acceptance: which drafts are right.
    pub fn acceptance(&self) -> &dyn AcceptanceSource {
        &*self.acceptance
    }

    fn speculation(&self, policy: &PolicySpec) -> Speculation {
        policy.build(&PolicyContext {
            belief: self.belief.linear,
            profile: &self.belief.profile(&*self.draft, &*self.target, self.context_reads),
            max_draft_len: self.with_drafter.max_draft_len,
            max_num_seqs: self.with_drafter.max_num_seqs,
            max_num_batched_tokens: self.with_drafter.max_num_batched_tokens,
            seed: self.seed,
            staleness_steps: self.belief.staleness_steps,
            draft_at: self.with_drafter.drafts_at(),
            told: None,
        })
    }

    fn config(&self, speculation: &Speculation) -> &EngineConfig {
        if matches!(speculation, Speculation::Off) { &self.plain } else { &self.with_drafter }
    }

    /// The numbers of a run under the given bounds.
    pub fn summary(&self, run: &Run, slo: Slo) -> Summary {
        let own = &self.workload.slo_tpot_s;
        let numbers = Summary::new(&run.records, &run.totals, slo, own, run.usable_blocks, self.plain.block_size);
        match self.arrivals {
            Arrivals::Open => numbers.with_overload(&run.records),
            Arrivals::Closed { .. } => numbers,
        }
    }

    /// The limits that rejected the requests of a policy's run, each with the number of requests.
    pub fn limits(&self, policy: &PolicySpec, run: &Run) -> BTreeMap<Limit, u64> {
        limits(run, self.config(&self.speculation(policy)))
    }

    /// The error for a policy's run in which every request was rejected.
    pub fn nothing_fits(&self, policy: &PolicySpec, run: &Run) -> Box<Problem> {
        let all = self.workload.len();
        let shortest = self.workload.prompt_len.iter().min().copied().unwrap_or(0);
        let (what, fix) = match self.limits(policy, run).into_iter().max_by_key(|(_, requests)| *requests) {
            Some((limit, _)) => (limit.what, limit.fix),
            None => ("none arrived".to_owned(), "look at the workload".to_owned()),
        };
        let label = policy.label();
        Problem::bad_input(format!(
            "{label}: not one of {all} requests can ever fit: {what} (the shortest prompt has {shortest} tokens)"
        ))
        .help(fix)
    }

    /// The bounds of this comparison. `baseline_p90_tpot_s` is the baseline's P90 TPOT, if a bound is scaled from it.
    pub fn slo(&self, baseline_p90_tpot_s: Option<f64>) -> Slo {
        let scaled = self.slo.adaspec_scale.zip(baseline_p90_tpot_s).map(|(scale, p90)| scale * p90);
        Slo { ttft_s: self.slo.ttft_s, tpot_s: self.slo.tpot_s.or(scaled), e2e_s: self.slo.e2e_s }
    }
}

impl Variant {
    /// The engine's settings, with the values that the file leaves to the hardware filled in. A drafter's weights
    /// leave less memory for KV.
    ///
    /// # Errors
    /// The GPU's memory has no room for KV blocks beside the weights.
    pub fn engine(&self, drafting: bool) -> Result<EngineConfig> {
        let hardware = &self.experiment.hardware;
        let mut config = self.experiment.engine.clone();
        if self.experiment.live.is_some() {
            // A simulation beside a live run follows the live run's order.
            config.as_on_a_device();
        }
        if self.derived.draft_kv
            && let (Some(target), Some(draft)) = (hardware.target.memory(), hardware.draft.memory())
        {
            config.draft_kv = DraftKv::EqualSplit { ratio: draft.kv_bytes_token / target.kv_bytes_token };
        }
        if self.derived.num_gpu_blocks
            && let Some(mut memory) = hardware.target.memory()
        {
            if drafting {
                memory.kv_bytes -= weight_bytes(&hardware.draft);
            }
            config.num_gpu_blocks = memory.kv_blocks(config.block_size);
            config.check().map_err(|_| self.does_not_fit())?;
        }
        Ok(config)
    }

    fn does_not_fit(&self) -> Box<Problem> {
        let problem =
            self.document().problem_at(&Path::of("hardware.target"), "the weights leave no room for KV on this GPU");
        problem.help("raise tensor_parallel, choose a larger GPU, or give engine.num_gpu_blocks")
    }
}

/// Bytes of a model's weights; 0 when its latency model does not name a model.
fn weight_bytes(spec: &LatencySpec) -> f64 {
    match spec {
        LatencySpec::Roofline(r) => r.shape().map_or(0.0, |shape| shape.work().weight_bytes),
        _ => 0.0,
    }
}

/// Time of a decode pass of one request alone with an empty context: AdaServe's SLO ratios multiply it.
fn unloaded_tpot_s(target: &dyn LatencyModel) -> f64 {
    target.pass(PassShape { requests: 1, batched: 1, context: 0, pairs: 1 }).as_s()
}
