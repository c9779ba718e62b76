//! The setup of the tests of fleets: requests, engines with linear costs, and a policy with a fixed draft length.

use foretoken_fleet::{
    EngineLimits, Fleet, FleetRun, Growing, HandOff, Link, Role, RouterContext, RouterSpec, Scaling, SharedBy, Signals,
    SplitFleet, SplitRule, Splitting,
};
use foretoken_sim::acceptance::{AcceptanceSpec, RankLaw, Rates};
use foretoken_sim::{
    AcceptanceSource, Arrivals, BatchView, Coefficients, ContextReads, DraftLimits, DraftPlan, Drafting, EngineConfig,
    Linear, Luck, Replica, Request, RequestTruth, Run, Simulation, SpecPolicy, Speculation, Stream, Time, TruthRow,
    Workload,
};
use std::sync::atomic::AtomicBool;

/// A policy that drafts `.0` tokens for every request in every step.
struct Fixed(u32);

impl SpecPolicy for Fixed {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.0)
    }

    fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
        plan.fill(self.0);
    }
}

/// The acceptance of requests that were taken from another workload, in which they have other numbers (ids).
pub struct Renumbered<'a> {
    pub original: &'a dyn AcceptanceSource,
    /// For each request of this workload, its number (id) in the other workload.
    pub numbers: Vec<u32>,
}

impl AcceptanceSource for Renumbered<'_> {
    fn start(&self, request: RequestTruth, max_draft_len: u32, out: &mut TruthRow) {
        self.original.start(RequestTruth { id: self.numbers[request.id as usize], ..request }, max_draft_len, out);
    }

    fn confidence(&self, request: RequestTruth, start: u32, depth: u32, right: Option<bool>, path: u64) -> f32 {
        self.original.confidence(
            RequestTruth { id: self.numbers[request.id as usize], ..request },
            start,
            depth,
            right,
            path,
        )
    }

    fn rank_if_wrong(&self, request: RequestTruth, position: u32) -> u32 {
        self.original.rank_if_wrong(RequestTruth { id: self.numbers[request.id as usize], ..request }, position)
    }

    fn ranks(&self) -> &RankLaw {
        self.original.ranks()
    }
}

pub struct Setup {
    pub workload: Workload,
    pub arrivals: Arrivals,
    pub config: EngineConfig,
    pub acceptance: Box<dyn AcceptanceSource>,
    pub noise_cv: f64,
    pub slo_s: [f64; 2],
    /// How often the replicas report their loads to the routers, and how late the reports arrive.
    pub signals: Signals,
    pub keep_steps: bool,
    draft: Linear,
    target: Linear,
}

impl Setup {
    pub fn new(workload: Workload) -> Setup {
        let spec = AcceptanceSpec { source: Rates::Constant { rate: 0.7 }, ..AcceptanceSpec::default() };
        Setup {
            acceptance: spec.build(3, &workload).unwrap(),
            workload,
            arrivals: Arrivals::Open,
            config: EngineConfig { max_num_seqs: 16, num_gpu_blocks: 2000, ..EngineConfig::default() },
            noise_cv: 0.0,
            slo_s: [0.5, 0.05],
            signals: Signals { interval_s: 0.05, delay_s: 0.01 },
            keep_steps: false,
            draft: Linear::new(Coefficients { alpha_s: 3e-9, gamma_s: 1e-6, delta_s: 1e-3 }),
            target: Linear::new(Coefficients { alpha_s: 0.3e-6, gamma_s: 55e-6, delta_s: 11e-3 }),
        }
    }

    pub fn simulation<'a>(&'a self, interrupt: &'a AtomicBool, seed: u64) -> Simulation<'a> {
        Simulation {
            workload: &self.workload,
            arrivals: self.arrivals,
            config: &self.config,
            draft: &self.draft,
            target: &self.target,
            context_reads: ContextReads::Once,
            drafting: Drafting::Autoregressive,
            noise_cv: self.noise_cv,
            acceptance: &*self.acceptance,
            seed,
            slo_tpot_s: f64::INFINITY,
            keep_steps: self.keep_steps,
            keep_lives: false,
            interrupt,
        }
    }

    /// Runs a single engine, without a fleet, with draft length `k`.
    pub fn alone(&self, k: u32) -> Run {
        self.simulation(&AtomicBool::new(false), 1).run(speculation(k))
    }

    /// Runs a fleet without scaling. Replica i drafts `lengths[i]` tokens.
    pub fn fleet(&self, router: &RouterSpec, lengths: &[u32], seed: u64) -> FleetRun {
        self.fleet_of(router, lengths, seed, |replica| replica)
    }

    /// Runs the fleet as [`fleet`](Setup::fleet) does, with each replica wrapped by the function `around`.
    #[allow(clippy::needless_lifetimes, reason = "what is around a replica lives as long as it")]
    pub fn fleet_of<'a>(
        &'a self,
        router: &RouterSpec,
        lengths: &[u32],
        seed: u64,
        around: impl Fn(Box<dyn Replica + 'a>) -> Box<dyn Replica + 'a>,
    ) -> FleetRun {
        static NEVER: AtomicBool = AtomicBool::new(false);
        let replica = |(r, &k): (usize, &u32)| around(self.simulation(&NEVER, 1 + r as u64).replica(speculation(k)));
        let replicas = lengths.iter().enumerate().map(replica).collect();
        let context = RouterContext {
            replicas: lengths.len(),
            seed,
            block_size: &vec![self.config.block_size; lengths.len()],
            slo_s: self.slo_s,
            true_steps: &self.workload.output_len,
        };
        let router = (router.build(&context), router.needs());
        Fleet::new(&self.workload, replicas, router, self.signals, self.slo_s[1]).run(self.arrivals, &NEVER)
    }

    /// The run of a fleet that starts with `replicas` replicas of draft length 2, and that a rule scales. Each replica
    /// is wrapped by the function `around`, which gets its number.
    #[allow(clippy::needless_lifetimes, reason = "what is around a replica lives as long as it")]
    pub fn scaled<'a>(
        &'a self,
        router: &RouterSpec,
        (scaling, replicas): (&'a Scaling, usize),
        around: impl Fn(Box<dyn Replica + 'a>, usize) -> Box<dyn Replica + 'a> + 'a,
    ) -> FleetRun {
        static NEVER: AtomicBool = AtomicBool::new(false);
        let make = move |r: usize| around(self.simulation(&NEVER, 1 + r as u64).replica(speculation(2)), r);
        let context = RouterContext {
            replicas,
            seed: 3,
            block_size: &vec![self.config.block_size; replicas],
            slo_s: self.slo_s,
            true_steps: &self.workload.output_len,
        };
        let limits = EngineLimits {
            block_size: self.config.block_size,
            max_num_batched_tokens: self.config.max_num_batched_tokens,
            max_num_seqs: self.config.max_num_seqs,
            slo_s: self.slo_s,
        };
        let first = (0..replicas).map(&make).collect();
        let router = (router.build(&context), router.needs());
        let signals = Signals { interval_s: 0.05, delay_s: 0.01 };
        let mut fleet = Fleet::new(&self.workload, first, router, signals, self.slo_s[1]);
        fleet.grow(Growing { scaling, limits, make: Box::new(make) });
        fleet.run(self.arrivals, &NEVER)
    }
}

/// How a test's fleet shares requests between prefill and decode replicas: the replicas' roles, the rule, which replica
/// gets a request first, and the link.
#[derive(Clone, Debug)]
pub struct Shared {
    pub roles: Vec<Role>,
    pub rule: SplitRule,
    pub hand_off: HandOff,
    pub link: Link,
}

impl Shared {
    /// One prefill replica and one decode replica with an infinitely fast link. The prefill replica computes every
    /// prompt.
    pub fn two() -> Shared {
        let link = Link {
            bandwidth_gb_s: f64::INFINITY,
            latency_s: 0.0,
            shared_by: SharedBy::Fleet,
            kv_bytes_token: None,
            draft_kv: true,
            draft_kv_bytes_token: None,
        };
        Shared {
            roles: vec![Role::Prefill, Role::Decode],
            rule: SplitRule::Always,
            hand_off: HandOff::PrefillFirst,
            link,
        }
    }
}

/// Bytes of KV for one token in the tests: [of the target, of the draft model].
pub const TOKEN_BYTES: [f64; 2] = [100_000.0, 4_000.0];

impl Setup {
    /// Runs a fleet with prefill and decode replicas. Both groups have the same kind of router. Replica i drafts
    /// `lengths[i]` tokens and is wrapped by `around`.
    #[allow(clippy::needless_lifetimes, reason = "what is around a replica lives as long as it")]
    pub fn split_of<'a>(
        &'a self,
        router: &RouterSpec,
        lengths: &[u32],
        shared: &'a Shared,
        around: impl Fn(usize, Box<dyn Replica + 'a>) -> Box<dyn Replica + 'a>,
    ) -> FleetRun {
        static NEVER: AtomicBool = AtomicBool::new(false);
        let replica = |(r, &k): (usize, &u32)| around(r, self.simulation(&NEVER, 1 + r as u64).replica(speculation(k)));
        let replicas: Vec<_> = lengths.iter().enumerate().map(replica).collect();
        let prefill = shared.roles.iter().filter(|role| **role == Role::Prefill).count();
        let routing = [prefill, lengths.len() - prefill].map(|replicas| {
            let context = RouterContext {
                replicas,
                seed: 3,
                block_size: &vec![self.config.block_size; replicas],
                slo_s: self.slo_s,
                true_steps: &self.workload.output_len,
            };
            (router.build(&context), router.needs(), Signals { interval_s: 0.05, delay_s: 0.01 })
        });
        let draft_kv: Vec<bool> = lengths.iter().map(|&k| k > 0 && shared.link.draft_kv).collect();
        let splitting = Splitting {
            roles: &shared.roles,
            rule: &shared.rule,
            hand_off: shared.hand_off,
            link: &shared.link,
            block_size: self.config.block_size,
            token_bytes: TOKEN_BYTES,
            draft_kv: &draft_kv,
            token_budget: self.config.max_num_batched_tokens,
        };
        SplitFleet::new(&self.workload, replicas, splitting, routing, self.slo_s[1]).run(self.arrivals, &NEVER)
    }

    /// Runs [`split_of`](Setup::split_of) with the first router of [`routers`], and with replicas that are not wrapped.
    pub fn split(&self, lengths: &[u32], shared: &Shared) -> Run {
        self.split_of(&routers()[0], lengths, shared, |_, replica| replica).run
    }
}

pub fn speculation(k: u32) -> Speculation {
    if k == 0 { Speculation::Off } else { Speculation::Policy(Box::new(Fixed(k))) }
}

/// Sessions that start `gap_s` / 4 seconds apart. Each has `turns` turns of 40 new prompt tokens and 24 output tokens,
/// with `gap_s` seconds between turns.
pub fn conversations(sessions: u32, turns: u32, gap_s: f64) -> Workload {
    let at = |turn: u32, session: u32| f64::from(turn) * (gap_s + 1000.0) + f64::from(session) * gap_s / 4.0;
    let order = (0..turns).flat_map(|turn| (0..sessions).map(move |session| (turn, session)));
    let mut all: Workload = order
        .map(|(turn, session)| {
            let mut request = Request::new(Time::from_s(at(turn, session)), turn * 64 + 40, 24);
            request.prefix = (0..(turn + 1) * 4).map(|block| u64::from(session) << 32 | u64::from(block)).collect();
            request
        })
        .collect();
    all.prefix_block = 16;
    let next = |id: u32| if id + sessions < sessions * turns { id + sessions } else { u32::MAX };
    all.next_turn = (0..sessions * turns).map(next).collect();
    all.gap = vec![Time::from_s(gap_s); (sessions * turns) as usize];
    all
}

/// `n` Poisson arrivals at `rate` requests per second. A request has 1 to `longest` output tokens, and a prompt of 64
/// tokens and 1 to `longest` more. Half of the prompts begin with one of four shared texts of 64 tokens. Each request
/// has one of three categories.
pub fn requests(n: u32, rate: f64, longest: u32, seed: u64) -> Workload {
    let mut at = 0.0;
    let mut all: Workload = (0..n)
        .map(|i| {
            let luck = Luck::new(seed, Stream::Arrivals, i.into());
            at += -(1.0 - luck.unit(0)).ln() / rate;
            let length = |which| 1 + (luck.unit(which) * f64::from(longest)) as u32;
            let mut request = Request::new(Time::from_s(at), 64 + length(1), length(2));
            request.category = (luck.unit(3) * 3.0) as u16;
            if luck.unit(4) < 0.5 {
                let text = (luck.unit(5) * 4.0) as u64;
                request.prefix = (0..4).map(|block| 10 * (text + 1) + block).collect();
            }
            request
        })
        .collect();
    all.prefix_block = 16;
    all.categories = ["a", "b", "c"].map(str::to_owned).to_vec();
    all
}

/// All routers, with their default settings.
pub fn routers() -> Vec<RouterSpec> {
    RouterSpec::all()
}

/// Asserts that two runs are equal in the records of requests, the time series, the rejected requests, how the runs
/// ended, and the counts of steps and tokens. `what` names the case in the message.
pub fn assert_same(a: &Run, b: &Run, what: &str) {
    assert_eq!(a.records, b.records, "{what}");
    assert_eq!(a.series, b.series, "{what}");
    assert_eq!(a.rejected, b.rejected, "{what}");
    assert_eq!((a.ending, a.usable_blocks), (b.ending, b.usable_blocks), "{what}");
    let totals = |r: &Run| {
        let t = &r.totals;
        (t.steps, t.request_steps, t.busy, t.draft_time, t.verified, t.emitted, t.peak_blocks, t.batch_time)
    };
    assert_eq!(totals(a), totals(b), "{what}");
    assert_eq!(a.totals.verified_accepted, b.totals.verified_accepted, "{what}");
    assert_eq!(a.totals.lengths, b.totals.lengths, "{what}");
}
