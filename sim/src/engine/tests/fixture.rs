//! Small simulations for tests: independent acceptance, linear costs, and policies with fixed or random lengths.

use crate::acceptance::{AcceptanceSpec, PromptLookup, RankLaw, Rates};
use crate::engine::{ByPolicy, Drafter, Engine, NoDraft, Order, Rules, SpeculativeConfig};
use crate::event_clock::{EventClock, World};
use crate::executor::DecisionTime;
use crate::host::{SpeculatingSeconds, WithoutGraph};
use crate::luck::{Luck, Stream, threshold};
use crate::*;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Wraps an event clock so that it works like an executor with real memory: the engine computes no steps in one go, and
/// gives ids to KV blocks.
struct Addressed<'a>(EventClock<'a>);

impl<'a> AroundExecutor for Addressed<'a> {
    type Inner = EventClock<'a>;
    type Error = std::convert::Infallible;

    fn inner(&self) -> &EventClock<'a> {
        &self.0
    }

    fn inner_mut(&mut self) -> &mut EventClock<'a> {
        &mut self.0
    }
}

/// A policy with a fixed draft length.
pub struct Steady(pub u32);

impl SpecPolicy for Steady {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.0).as_in_vllm(&[])
    }

    fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
        plan.fill(self.0);
    }
}

/// An acceptance source in which each draft token is right with probability `rate`, independently.
pub struct Coin {
    pub rate: f64,
    pub seed: u64,
    pub ranks: RankLaw,
}

impl AcceptanceSource for Coin {
    fn start(&self, request: RequestTruth, max_draft_len: u32, out: &mut TruthRow) {
        let positions = (request.output_len + max_draft_len) as usize;
        out.reset(positions, 1);
        let luck = Luck::new(self.seed, Stream::Right, request.id.into());
        for n in (0..positions).filter(|&n| u64::from(luck.half(n as u64)) < threshold(self.rate)) {
            out.set(0, n);
        }
    }

    fn confidence(&self, r: RequestTruth, start: u32, depth: u32, right: Option<bool>, _: u64) -> f32 {
        let luck = Luck::new(self.seed, Stream::Confidence, r.id.into());
        let u = luck.unit(u64::from(start + depth)) as f32 * 0.5;
        if right == Some(true) { 0.5 + u } else { 0.01 + u }
    }

    fn rank_if_wrong(&self, r: RequestTruth, position: u32) -> u32 {
        self.ranks.at(Luck::new(self.seed, Stream::Rank, r.id.into()).unit(position.into()))
    }

    fn ranks(&self) -> &RankLaw {
        &self.ranks
    }
}

/// Most tokens of a draft tree of an [`Erratic`] policy in its wild form, in which it drafts trees and breaks limits.
pub const WILD_TREE: u32 = 30;

/// A policy that makes random choices, keyed by the step: it chooses draft lengths, stops drafting, and drops draft
/// tokens before verification, within its limit. In its wild form it also drafts trees, leaves requests out of steps,
/// proposes more than is allowed, and refuses to draft for some requests.
pub struct Erratic {
    pub limit: u32,
    pub seed: u64,
    pub step: u64,
    pub wild: bool,
    /// Buffer in which the nodes of a tree are sorted when the policy selects nodes.
    pub order: Vec<u32>,
}

impl Erratic {
    pub fn new(limit: u32, wild: bool) -> Erratic {
        Erratic { limit, seed: 9, step: 0, wild, order: Vec::new() }
    }

    /// How the draft trees of this step grow, drawn at random; `None` if the draft tokens of this step form chains (one
    /// guess for each position).
    fn growth(&self) -> Option<Growth> {
        let width = |what: u64| 1 + self.draw(what, 3);
        match self.draw(200, 3) {
            _ if !self.wild || self.limit == 0 => None,
            0 => None,
            1 => Some(Growth::Beam { topk: width(201) }),
            _ => Some(Growth::Expansion([width(202), width(203), 1].into())),
        }
    }

    fn draw(&self, what: u64, below: u32) -> u32 {
        let luck = Luck::new(self.seed, Stream::Policy, self.step);
        (luck.bits(what) % u64::from(below.max(1))) as u32
    }
}

impl SpecPolicy for Erratic {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::tree(self.draw(0, self.limit + 1), self.growth().map_or(0, |_| self.draw(204, WILD_TREE) + 1))
            .up_to(self.limit)
            .with_trees_up_to(if self.wild && self.limit > 0 { WILD_TREE } else { 0 })
    }

    fn wants(&self) -> Wants {
        Wants::CONFIDENCE
    }

    fn drafts_for_next(&mut self, _: &NewRequest) -> bool {
        !self.wild || self.draw(205, 4) > 0
    }

    fn max_batch(&mut self, batch: &BatchView) -> Option<usize> {
        self.wild.then(|| self.draw(206, 2 * batch.len() as u32) as usize)
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        if let Some(growth) = self.growth() {
            plan.shape = DraftShape::Tree(growth);
        }
        for i in 0..batch.len() {
            assert!(batch.draft_gap[i] <= batch.context[i]);
            plan.draft_len[i] = self.draw(i as u64 + 1, batch.limit[i] + 3);
        }
    }

    fn keep_drafting(&mut self, batch: &BatchView, drafts: &mut Drafts) -> Continue {
        for i in 0..batch.len() {
            if self.draw(1000 + 40 * i as u64 + u64::from(drafts.passes), 5) == 0 {
                drafts.stop(i);
            }
        }
        if self.draw(100 + u64::from(drafts.passes), 7) == 0 { Continue::Stop } else { Continue::Yes }
    }

    fn select(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        if drafts.in_trees() {
            for i in 0..batch.len() {
                let most = self.draw(5000 + i as u64, batch.limit[i] + 1);
                drafts.trees[i].keep_best(most, &mut self.order);
            }
            return;
        }
        for i in 0..drafts.verify_len.len() {
            drafts.verify_len[i] -= self.draw(5000 + i as u64, drafts.draft_len[i] + 1);
        }
    }

    fn observe(&mut self, o: &StepOutcome) {
        for i in 0..o.ids.len() {
            // For a tree, `limit` is the number of its tokens. The depth of a tree is limited by the engine's
            // `max_draft_len`.
            let longest = if o.drafts.in_trees() { 8 } else { self.limit };
            assert!(o.accepted[i] <= o.verified[i] && o.verified[i] <= o.drafted[i] && o.drafted[i] <= longest);
        }
        self.step += 1;
    }
}

/// An acceptance source of prompt lookup (draft tokens are copied from earlier text) with match rate `match_rate`. When
/// the first confidence is drawn, the source tabulates the distributions of confidences. This takes a while, so build
/// the source once.
pub fn lookups(match_rate: f64) -> Arc<dyn AcceptanceSource> {
    let source = Rates::PromptLookup(PromptLookup { match_rate, ..PromptLookup::default() });
    let spec = AcceptanceSpec { source, ..AcceptanceSpec::default() };
    spec.build(3, &Workload::default()).expect("good settings").into()
}

/// The inputs of a small simulation. The target's pass times follow the linear costs [`YARDSTICK`] until a test changes
/// them.
pub struct Fixture {
    pub workload: Workload,
    pub config: EngineConfig,
    pub arrivals: Arrivals,
    pub target: Coefficients,
    pub draft: Coefficients,
    pub rate: f64,
    pub drafting: Drafting,
    /// If set, the draft tokens come from a prompt lookup, and `rate` is not used.
    pub lookup: Option<Arc<dyn AcceptanceSource>>,
    pub keep_steps: bool,
}

pub const YARDSTICK: Coefficients = Coefficients { alpha_s: 0.3e-6, gamma_s: 55e-6, delta_s: 11e-3 };

impl Fixture {
    pub fn new(workload: Workload) -> Fixture {
        Fixture {
            workload,
            config: EngineConfig { max_num_seqs: 64, draft_at: Some(DraftAt::StepStart), ..EngineConfig::default() },
            arrivals: Arrivals::Open,
            target: YARDSTICK,
            draft: Coefficients { alpha_s: 3e-9, gamma_s: 1e-6, delta_s: 1e-3 },
            rate: 0.7,
            drafting: Drafting::Autoregressive,
            lookup: None,
            keep_steps: true,
        }
    }

    fn acceptance(&self) -> Arc<dyn AcceptanceSource> {
        let coin = || Arc::new(Coin { rate: self.rate, seed: 3, ranks: RankLaw::default() });
        self.lookup.clone().unwrap_or_else(|| coin())
    }

    pub fn with<R>(&self, f: impl FnOnce(Simulation) -> R) -> R {
        f(Simulation {
            workload: &self.workload,
            arrivals: self.arrivals,
            config: &self.config,
            draft: &Linear::new(self.draft),
            target: &Linear::new(self.target),
            context_reads: ContextReads::Once,
            drafting: self.drafting,
            noise_cv: 0.0,
            acceptance: &*self.acceptance(),
            seed: 1,
            slo_tpot_s: f64::INFINITY,
            keep_steps: self.keep_steps,
            keep_lives: true,
            interrupt: &AtomicBool::new(false),
        })
    }

    pub fn plain(&self) -> Run {
        self.with(|s| s.run(Speculation::Off))
    }

    pub fn erratic(&self, limit: u32) -> Run {
        self.with(|s| s.run(Speculation::Policy(Box::new(Erratic::new(limit, false)))))
    }

    /// Runs an [`Erratic`] policy in its wild form, in which it also drafts trees and proposes more than is allowed.
    /// The policy drafts at most `limit` tokens in a chain for a request.
    pub fn wild(&self, limit: u32) -> Run {
        self.with(|s| s.run(Speculation::Policy(Box::new(Erratic::new(limit, true)))))
    }

    /// The rules of the engine with an [`Erratic`] policy that drafts at most `limit` tokens. If `wild`, the policy
    /// also drafts trees and breaks limits. If `limit` is `None`, these are the rules without a drafter.
    fn rules(&self, limit: Option<u32>, wild: bool) -> Rules {
        let (parallel, most) = (self.drafting == Drafting::Parallel, self.config.max_draft_len);
        let speculation = limit.map_or_else(SpeculativeConfig::default, |limit| {
            SpeculativeConfig::of_policy(&Erratic::new(limit, wild), most, parallel)
        });
        Rules::of(&self.config, &speculation).unwrap()
    }

    /// The order of a step's phases with an [`Erratic`] policy that drafts at most `limit` tokens. If `wild`, the
    /// policy also drafts trees and breaks limits. If `limit` is `None`, this is the order without a drafter.
    pub fn order(&self, limit: Option<u32>, wild: bool) -> Order {
        self.rules(limit, wild).order
    }

    fn world<'a>(
        &self,
        (draft, target, acceptance): (&'a Linear, &'a Linear, &'a dyn AcceptanceSource),
        order: Order,
    ) -> World<'a> {
        World {
            draft,
            target,
            context_reads: ContextReads::Once,
            drafting: self.drafting,
            acceptance,
            overhead: Time::ZERO,
            host: Host::NONE,
            decision_time: DecisionTime::default(),
            noise_cv: 0.0,
            seed: 1,
            max_draft_len: self.config.max_draft_len,
            queues: order != Order::StepStart,
        }
    }

    /// Runs an [`Erratic`] policy with draft limit `limit` on an executor that needs the ids of blocks, as an executor
    /// with real memory does.
    pub fn erratic_addressed(&self, limit: u32) -> Run {
        let (draft, target, acceptance) = (Linear::new(self.draft), Linear::new(self.target), self.acceptance());
        let world = self.world((&draft, &target, &*acceptance), self.order(Some(limit), false));
        let serving = Serving {
            workload: &self.workload,
            arrivals: self.arrivals,
            config: &self.config,
            slo_tpot_s: f64::INFINITY,
            keep_steps: true,
            interrupt: &AtomicBool::new(false),
        };
        let clock = Addressed(EventClock::new(world, self.workload.len()));
        serving.run(clock, Some(Box::new(Erratic::new(limit, false)))).run
    }

    /// Number of KV blocks still held after a whole run: (in the target's pool, in the draft model's own pool).
    pub fn memory_after(&self, speculate: bool) -> (u32, u32) {
        let (draft, target) = (Linear::new(self.draft), Linear::new(self.target));
        let acceptance = self.acceptance();
        let world = self.world((&draft, &target, &*acceptance), self.order(speculate.then_some(5), true));
        let clock = EventClock::new(world, self.workload.len());
        let rules = self.rules(speculate.then_some(5), true);
        match speculate {
            true => self.memory_by(rules, clock, ByPolicy(Box::new(Erratic::new(5, true)))),
            false => self.memory_by(rules, clock, NoDraft),
        }
    }

    fn memory_by<'a, D: Drafter<EventClock<'a>>>(
        &'a self,
        rules: Rules,
        clock: EventClock<'a>,
        drafter: D,
    ) -> (u32, u32) {
        let (config, workload, arrivals) = (&self.config, &self.workload, self.arrivals);
        let mut e =
            Engine::new(config, Cow::Borrowed(workload), arrivals, f64::INFINITY, rules, clock, drafter, false, ());
        let Ok(_) = e.run(&AtomicBool::new(false));
        (e.scheduler.kv_cache_manager().used(), e.scheduler.kv_cache_manager().draft_used())
    }
}

/// A law of host time (scheduler, Python, launches) in which every part takes time: about `s` seconds for a step, and
/// less for each request and token.
pub fn host_law(s: f64) -> HostLaw {
    HostLaw {
        request_s: s / 8.0,
        token_s: s / 64.0,
        speculating: SpeculatingSeconds { step_s: s, request_s: s / 4.0, token_s: s / 16.0 },
        without_graph: WithoutGraph { above: 2, step_s: s, speculating_s: 2.0 * s },
    }
}
