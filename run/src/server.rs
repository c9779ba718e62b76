//! One simulated server: an engine with its settings, the true costs of passes, the hidden acceptance, and the linear
//! cost model that policies get. A fleet may have several kinds of servers.

use crate::believed::Believed;
use crate::plan::Variant;
use crate::profiled::LargestPass;
use crate::spec::document::Path;
use crate::spec::experiment::{BeliefSpec, Experiment};
use crate::spec::problem::{Problem, Result};
use foretoken_policies::{PolicyContext, PolicySpec, Truths};
use foretoken_profiler::hardware::{LatencySpec, Memory};
use foretoken_profiler::{Range, Role};
use foretoken_sim::acceptance::constant_rate;
use foretoken_sim::config::BadConfig;
use foretoken_sim::{
    AcceptanceSource, Arrivals, ContextReads, DraftDevice, DraftKv, Drafting, EngineConfig, LatencyModel, RequestTruth,
    Simulation, Speculation, TruthRow, Workload,
};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A simulated server, whose random draws come from one seed. Any policy can be run on it.
pub struct Server {
    pub(crate) plain: EngineConfig,
    pub(crate) with_drafter: EngineConfig,
    pub(crate) draft: Box<dyn LatencyModel>,
    pub(crate) target: Box<dyn LatencyModel>,
    pub(crate) context_reads: ContextReads,
    pub(crate) drafting: Drafting,
    pub(crate) noise_cv: f64,
    /// The largest passes that were timed for the profile that gives the server's costs, for (target, draft); `None`
    /// without a profile.
    ranges: Option<(Range, Range)>,
    pub(crate) acceptance: Box<dyn AcceptanceSource>,
    pub(crate) belief: Believed,
    /// The true values that the wrapper policies `true-*` give to the policies that they contain; `None` if the
    /// experiment has no policy `true-*`.
    truths: Option<OwnTruths>,
    pub(crate) keep_steps: bool,
    pub(crate) seed: u64,
    /// Names of the categories of requests, such as chat or code.
    categories: Vec<String>,
}

/// True costs and acceptance rates. The wrapper policies `true-*` give them to the policies that they contain, in place
/// of estimates.
struct OwnTruths {
    /// The true costs of passes, in the form in which policies get cost estimates.
    cost: Believed,
    /// The true acceptance rate of each request; `None` if acceptance is recorded and has no probabilities.
    rates: Option<Arc<[f64]>>,
}

impl OwnTruths {
    /// Computes the true costs of passes, and the true acceptance rate of each request of a workload for up to
    /// `longest` draft tokens in a step.
    fn new(
        variant: &Variant,
        seed: u64,
        workload: &Workload,
        acceptance: &dyn AcceptanceSource,
        longest: u32,
    ) -> Result<OwnTruths> {
        let cost = Believed::new(&BeliefSpec::default(), &variant.experiment.hardware, seed, &mut Vec::new())?;
        let rates = acceptance.of_run(longest).unwrap_or(acceptance).law().map(|law| {
            let rate = |id: u32| {
                let request = RequestTruth::of(workload, id);
                // The prefill gives output token 0, so the first draft token is for output position 1.
                constant_rate(longest.max(1), |depth| law.own_rate(request, 1 + depth, depth))
            };
            (0..workload.len() as u32).map(rate).collect()
        });
        Ok(OwnTruths { cost, rates })
    }
}

/// Is one of the policies of the experiment or of its fleet a wrapper `true-*`, which gives the policy inside it true
/// values in place of estimates?
fn wraps(e: &Experiment) -> bool {
    let kinds = e.fleet.iter().flat_map(|fleet| fleet.replicas.kinds());
    let of_kinds: Vec<PolicySpec> = kinds.filter_map(|kind| kind.policy).collect();
    e.policies.iter().chain(&of_kinds).any(|policy| policy.definition().wraps().is_some())
}

/// The latency models (pass times) of a server's target model and draft model for one run. They record the largest
/// passes, to warn of passes that are larger than all passes in the profile.
pub(crate) struct Models<'a> {
    draft: LargestPass<'a>,
    target: LargestPass<'a>,
}

impl Server {
    /// Builds the server of a variant for a workload. `plain` are the engine's settings without a drafter. Adds
    /// warnings about the cost estimates that policies get to `belief_notes`.
    pub fn new(
        variant: &Variant,
        seed: u64,
        workload: &Workload,
        plain: EngineConfig,
        belief_notes: &mut Vec<String>,
    ) -> Result<Server> {
        let e = &variant.experiment;
        let acceptance = e.acceptance.build(seed, workload).map_err(|err| {
            variant.document().problem_at(&Path::of(&format!("acceptance.{}", err.key)), err.to_string())
        })?;
        let with_drafter = variant.engine(true)?;
        let truths = match wraps(e) {
            true => Some(OwnTruths::new(variant, seed, workload, &*acceptance, with_drafter.max_draft_len)?),
            false => None,
        };
        Ok(Server {
            truths,
            belief: Believed::new(&e.belief, &e.hardware, seed, belief_notes)?,
            plain,
            with_drafter,
            draft: e.hardware.draft.build(),
            target: e.hardware.target.build(),
            context_reads: e.hardware.context_reads,
            drafting: e.hardware.drafting,
            noise_cv: e.hardware.noise_cv,
            ranges: variant.filled.ranges,
            acceptance,
            keep_steps: e.output.steps,
            seed,
            categories: workload.categories.clone(),
        })
    }

    /// Checks that the simulated engine would start with `policy`.
    pub fn starts(&self, policy: &PolicySpec) -> std::result::Result<(), BadConfig> {
        let speculation = self.speculation(policy);
        speculation.check(self.config(&speculation), self.drafting)
    }

    /// Builds a policy or an oracle for this server; plain decoding gives `Speculation::Off`.
    pub(crate) fn speculation(&self, policy: &PolicySpec) -> Speculation {
        let true_cost = self.truths.as_ref().map(|truths| &truths.cost);
        let passes = true_cost.map(|cost| cost.profile(&*self.draft, &*self.target, self.context_reads));
        let truths = self.truths.as_ref().zip(passes.as_ref()).map(|(truths, passes)| Truths {
            line: truths.cost.linear,
            passes,
            own_rates: truths.rates.as_ref(),
        });
        policy.build(&PolicyContext {
            belief: self.belief.linear,
            profile: &self.belief.profile(&*self.draft, &*self.target, self.context_reads),
            max_draft_len: self.with_drafter.max_draft_len,
            max_num_seqs: self.with_drafter.max_num_seqs,
            max_num_batched_tokens: self.with_drafter.max_num_batched_tokens,
            seed: self.seed,
            staleness_steps: self.belief.staleness_steps,
            draft_at: self.with_drafter.drafts_at(),
            categories: &self.categories,
            told: None,
            truths,
            own_rates: None,
        })
    }

    /// The engine's settings for a run with `speculation`: with a drafter, or without one if speculation is off.
    pub(crate) fn config(&self, speculation: &Speculation) -> &EngineConfig {
        if matches!(speculation, Speculation::Off) { &self.plain } else { &self.with_drafter }
    }

    /// The latency models of target and draft for one run, to pass to [`simulation`](Server::simulation).
    pub(crate) fn models(&self) -> Models<'_> {
        Models { draft: LargestPass::new(&*self.draft), target: LargestPass::new(&*self.target) }
    }

    /// Prepares a simulated run of this server, and does not start it.
    pub(crate) fn simulation<'s>(
        &'s self,
        (workload, arrivals): (&'s Workload, Arrivals),
        config: &'s EngineConfig,
        models: &'s Models<'s>,
        slo_tpot_s: f64,
        interrupt: &'s AtomicBool,
    ) -> Simulation<'s> {
        let (draft, target): (&dyn LatencyModel, &dyn LatencyModel) = match self.ranges.is_some() {
            true => (&models.draft, &models.target),
            false => (&*self.draft, &*self.target),
        };
        Simulation {
            workload,
            arrivals,
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

    /// For each request the true number of steps if it drafts `max_draft_len` tokens in every decode step, or no tokens
    /// for plain decoding. Only routers that may know which draft tokens are right get these numbers.
    pub(crate) fn true_steps(&self, workload: &Workload, policy: &PolicySpec) -> Vec<u32> {
        let most = match self.speculation(policy) {
            Speculation::Off => 0,
            _ => self.with_drafter.max_draft_len,
        };
        let mut row = TruthRow::default();
        let acceptance = self.acceptance.of_run(most).unwrap_or(&*self.acceptance);
        (0..workload.len())
            .map(|i| {
                let output_len = workload.output_len[i];
                if most == 0 {
                    return output_len;
                }
                acceptance.start(RequestTruth::of(workload, i as u32), most, &mut row);
                let (mut emitted, mut steps) = (1, 1);
                while emitted < output_len {
                    emitted += 1 + row.run(emitted, most);
                    steps += 1;
                }
                steps
            })
            .collect()
    }

    /// Warnings about passes of a run that were larger than the passes that were timed for the profile.
    pub(crate) fn beyond(&self, models: &Models) -> impl Iterator<Item = String> {
        let warnings = self.ranges.as_ref().map(|(target, draft)| {
            [models.target.beyond(Role::Target, target), models.draft.beyond(Role::Draft, draft)]
        });
        warnings.into_iter().flatten().flatten()
    }
}

impl Variant {
    /// The engine's settings. If the file does not give them, the number of KV blocks, the blocks of recurrent states,
    /// windows and compressors, and the draft model's part of a KV block are derived from the hardware. If `drafting`
    /// is true, the drafter's weights leave less memory for KV blocks, unless the drafter has a device of its own. With
    /// `[live]`, the phases of a step have the order of a live run.
    pub fn engine(&self, drafting: bool) -> Result<EngineConfig> {
        let hardware = &self.experiment.hardware;
        let mut config = self.experiment.engine.clone();
        if self.experiment.live.is_some() {
            // With `[live]`, a step of the simulation does its work in the same order as a step of a live run.
            config.as_on_a_device();
        }
        let own_device = config.draft_device == DraftDevice::Own;
        let slides = self.derived.windows || config.window_groups > 0;
        let target_memory = hardware.target.memory().map(|m| if slides { m } else { m.without_windows() });
        if self.derived.draft_kv
            && !own_device
            && let (Some(target), Some(draft)) = (target_memory, hardware.draft.memory())
        {
            let ratio = draft.without_windows().kv_bytes_token / target.kv_bytes_token;
            config.draft_kv = DraftKv::EqualSplit { ratio };
        }
        if self.derived.frontend_s {
            config.frontend_s = hardware.target.frontend_s().unwrap_or_default();
        }
        if let Some(target) = target_memory {
            // The states of a draft model are in the target's pool too.
            let draft = if drafting && !own_device { hardware.draft.memory() } else { None };
            let both = |bytes: fn(&Memory) -> f64| bytes(&target) + draft.as_ref().map_or(0.0, bytes);
            if self.derived.state_blocks {
                config.state_blocks = target.blocks_of(both(|m| m.state_bytes), config.block_size);
            }
            if self.derived.request_blocks {
                config.request_blocks = target.blocks_of(both(|m| m.request_bytes), config.block_size);
            }
            if self.derived.windows {
                (config.sliding_window, config.window_groups) = (target.sliding_window, target.window_groups);
            }
        }
        if self.derived.num_gpu_blocks
            && let Some(mut memory) = target_memory
        {
            if drafting && !own_device {
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

/// Bytes of a model's weights; 0 if the pass costs name no model.
fn weight_bytes(spec: &LatencySpec) -> f64 {
    spec.machine().and_then(|r| r.shape().ok()).map_or(0.0, |shape| shape.work().weight_bytes)
}
