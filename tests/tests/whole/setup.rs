//! Helpers of the whole-system tests: Poisson workloads, an acceptance source in which no draft token is right, a
//! simulated run in one call.

use foretoken_policies::{Belief, PolicyContext};
use foretoken_sim::acceptance::RankLaw;
use foretoken_sim::luck::{Luck, Stream};
use foretoken_sim::*;
use std::sync::LazyLock;
use std::sync::atomic::AtomicBool;

/// An acceptance source in which no draft token is right.
pub struct NeverRight;

impl AcceptanceSource for NeverRight {
    fn start(&self, request: RequestTruth, max_draft_len: u32, out: &mut TruthRow) {
        out.reset((request.output_len + max_draft_len) as usize, 1);
    }

    fn confidence(&self, _: RequestTruth, _: u32, _: u32, _: Option<bool>, _: u64) -> f32 {
        0.5
    }

    fn rank_if_wrong(&self, _: RequestTruth, _: u32) -> u32 {
        u32::MAX
    }

    fn ranks(&self) -> &RankLaw {
        static LAW: LazyLock<RankLaw> = LazyLock::new(RankLaw::default);
        &LAW
    }
}

/// `n` equal requests at a Poisson rate of `rate` per second.
pub fn poisson(n: u64, rate: f64, prompt_len: u32, output_len: u32, seed: u64) -> Workload {
    let luck = Luck::new(seed, Stream::Arrivals, 0);
    let mut at = 0.0;
    let requests = (0..n).map(|i| {
        at -= (1.0 - luck.unit(i)).ln() / rate;
        Request::new(Time::from_s(at), prompt_len, output_len)
    });
    requests.collect()
}

/// The settings of a simulated run. The default costs and limits are stated in `experiments/bench-poisson.toml`.
pub struct Setup<'a> {
    pub workload: &'a Workload,
    pub arrivals: Arrivals,
    pub config: EngineConfig,
    pub target: Coefficients,
    pub draft: Coefficients,
    pub acceptance: &'a dyn AcceptanceSource,
    pub keep_steps: bool,
}

impl<'a> Setup<'a> {
    pub fn new(workload: &'a Workload) -> Setup<'a> {
        Setup {
            workload,
            arrivals: Arrivals::Open,
            config: EngineConfig {
                prefix_caching: false,
                draft_prefill: false,
                draft_at: Some(DraftAt::StepStart),
                ..EngineConfig::default()
            },
            target: Coefficients { alpha_s: 0.3e-6, gamma_s: 55e-6, delta_s: 11e-3 },
            draft: Coefficients::FREE,
            acceptance: &NeverRight,
            keep_steps: false,
        }
    }

    pub fn run(&self, speculation: Speculation) -> Run {
        self.with(|simulation| simulation.run(speculation))
    }

    /// Runs the simulation like [`run`](Setup::run). But the engine takes the requests from the workload one at a time,
    /// and forgets ended requests.
    pub fn stream(&self, speculation: Speculation) -> Run {
        let mut requests = (0..self.workload.len() as RequestId).map(|id| self.workload.get(id));
        let mut records = RequestRecords::default();
        let mut give = |piece| {
            records = piece;
            true
        };
        let run = self.with(|simulation| simulation.stream(speculation, &mut requests, &mut give));
        Run { records, ..run }
    }

    fn with(&self, run: impl FnOnce(Simulation) -> Run) -> Run {
        run(Simulation {
            workload: self.workload,
            arrivals: self.arrivals,
            config: &self.config,
            draft: &Linear::new(self.draft),
            target: &Linear::new(self.target),
            context_reads: ContextReads::Once,
            drafting: Drafting::Autoregressive,
            noise_cv: 0.0,
            acceptance: self.acceptance,
            seed: 1,
            slo_tpot_s: f64::INFINITY,
            keep_steps: self.keep_steps,
            keep_lives: false,
            interrupt: &AtomicBool::new(false),
        })
    }

    /// The pass costs that policies assume (their belief). Here they equal the true costs.
    pub fn belief(&self) -> Belief {
        Belief {
            draft: self.draft,
            target: self.target,
            context_reads: ContextReads::Once,
            drafting: Drafting::Autoregressive,
        }
    }

    /// Everything from which a policy is built (such as costs and limits), for these settings.
    pub fn context<'b>(&self, belief: &'b Belief, seed: u64) -> PolicyContext<'b> {
        PolicyContext {
            belief: *belief,
            profile: belief,
            max_draft_len: self.config.max_draft_len,
            max_num_seqs: self.config.max_num_seqs,
            max_num_batched_tokens: self.config.max_num_batched_tokens,
            seed,
            staleness_steps: 0,
            draft_at: foretoken_sim::DraftAt::StepStart,
            categories: &[],
            told: None,
            truths: None,
            own_rates: None,
        }
    }

    pub fn summary(&self, speculation: Speculation) -> Summary {
        let run = self.run(speculation);
        Summary::new(&run.records, &run.totals, Default::default(), &[], run.usable_blocks, self.config.block_size)
    }
}

/// (mean, standard error of the mean) of independent `values`.
pub fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, (variance / n).sqrt())
}
