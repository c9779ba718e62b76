//! The workloads and settings that the criterion and the instruction-count benches simulate.

use super::*;

/// An acceptance source in which each draft token is right with probability 0.8. Which tokens are right is drawn before
/// the run, so that a benchmark measures only the engine.
pub struct Coin {
    /// Bitmap with one bit for each draft token: 1 if the draft token is right, 0 if it is wrong. The bitmaps of the
    /// requests follow one another.
    words: Vec<u64>,
    /// For each request: the index in `words` of the first word of its bitmap.
    first: Vec<usize>,
    ranks: RankLaw,
}

impl Coin {
    /// Draws which draft tokens are right, for the requests of a workload, with at most `max_draft_len` draft tokens in
    /// a round (a request's draft tokens of one step).
    fn of(workload: &Workload, max_draft_len: u32) -> Coin {
        let mut coin = Coin { words: Vec::new(), first: Vec::new(), ranks: RankLaw::default() };
        let right = threshold(0.8);
        for (id, &output_len) in workload.output_len.iter().enumerate() {
            coin.first.push(coin.words.len());
            let luck = Luck::new(1, Stream::Right, id as u64);
            for word in 0..u64::from(output_len + max_draft_len).div_ceil(64) {
                let pairs = (0..32).map(|pair| (pair, luck.bits(word * 32 + pair)));
                coin.words.push(pairs.fold(0, |word, (pair, bits)| {
                    let (one, other) = ((bits & 0xFFFF_FFFF) < right, (bits >> 32) < right);
                    word | u64::from(one) << (2 * pair) | u64::from(other) << (2 * pair + 1)
                }));
            }
        }
        coin
    }
}

impl AcceptanceSource for Coin {
    fn start(&self, request: RequestTruth, max_draft_len: u32, out: &mut TruthRow) {
        let positions = (request.output_len + max_draft_len) as usize;
        out.reset(positions, 1);
        let words = positions.div_ceil(64);
        out.depth_mut(0)[..words].copy_from_slice(&self.words[self.first[request.id as usize]..][..words]);
    }

    fn confidence(&self, _: RequestTruth, _: u32, _: u32, _: Option<bool>, _: u64) -> f32 {
        1.0
    }

    fn rank_if_wrong(&self, _: RequestTruth, _: u32) -> u32 {
        2
    }

    fn ranks(&self) -> &RankLaw {
        &self.ranks
    }
}

/// The latency model that gives the true time of a target pass: 11 ms, 55 µs per processed token, 0.3 µs per token of
/// context. Draft passes take no time.
pub fn target() -> Linear {
    Linear::new(Coefficients { alpha_s: 0.3e-6, gamma_s: 55e-6, delta_s: 11e-3 })
}

struct Fixed(u32);

impl SpecPolicy for Fixed {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.0).as_in_vllm(&[])
    }

    fn propose(&mut self, _: &BatchView, plan: &mut DraftPlan) {
        plan.fill(self.0);
    }
}

/// No drafter for draft length 0, and otherwise a policy that always drafts `k` tokens.
pub fn speculation(k: u32) -> Speculation {
    if k == 0 { Speculation::Off } else { Speculation::Policy(Box::new(Fixed(k))) }
}

/// What a benchmark simulates: requests, the engine's settings, and which draft tokens are right.
pub struct Yardstick {
    workload: Workload,
    config: EngineConfig,
    coin: Coin,
}

impl Yardstick {
    /// `n` requests with 512 prompt tokens and 256 output tokens each; Poisson arrivals at `rate` requests a second.
    pub fn new(n: u64, rate: f64) -> Yardstick {
        Yardstick::poisson(n, rate, 512, 256)
    }

    /// `n` requests with `prompt_len` prompt tokens and `output_len` output tokens each; Poisson arrivals at `rate`
    /// requests a second.
    pub fn poisson(n: u64, rate: f64, prompt_len: u32, output_len: u32) -> Yardstick {
        let luck = Luck::new(1, Stream::Arrivals, 0);
        let mut at = 0.0;
        let requests = (0..n).map(|i| {
            at += -(1.0 - luck.unit(i)).ln() / rate;
            Request::new(Time::from_s(at), prompt_len, output_len)
        });
        Yardstick::of(requests.collect())
    }

    /// `batch` requests that arrive at time 0, each with 16 prompt tokens and `output` output tokens.
    #[allow(dead_code, reason = "some of the benches that share this file use it")]
    pub fn burst(batch: usize, output: u32) -> Yardstick {
        let mut y = Yardstick::of((0..batch).map(|_| Request::new(Time::ZERO, 16, output)).collect());
        y.config.num_gpu_blocks = 1 << 16;
        y
    }

    fn of(workload: Workload) -> Yardstick {
        let config = EngineConfig {
            max_num_seqs: 256,
            max_num_batched_tokens: 2048,
            block_size: 16,
            num_gpu_blocks: 8192,
            prefix_caching: false,
            draft_prefill: false,
            max_draft_len: 4,
            draft_at: Some(DraftAt::StepStart),
            // These settings switch three rules of vLLM 0.33 off: KV blocks are not reserved for the whole sequence, no
            // KV slots are reserved for draft tokens, and an admitted request with one token left to compute gets no
            // padding tokens.
            scheduler_reserve_full_isl: Some(false),
            num_lookahead_tokens: Some(0),
            max_num_new_slots_for_drafting: Some(0),
            pad_admissions: Some(false),
            ..EngineConfig::default()
        };
        Yardstick { coin: Coin::of(&workload, config.max_draft_len), workload, config }
    }

    /// `n` requests as in [`new`](Yardstick::new), but served under all rules of vLLM 0.33.
    #[allow(dead_code, reason = "some of the benches that share this file use it")]
    pub fn full(n: u64, rate: f64) -> Yardstick {
        let config = EngineConfig { max_draft_len: 4, ..EngineConfig::default() };
        Yardstick { config, ..Yardstick::new(n, rate) }
    }

    /// The requests of the benchmark.
    #[allow(dead_code, reason = "some of the benches that share this file use it")]
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// The source that decides which draft tokens are right.
    #[allow(dead_code, reason = "some of the benches that share this file use it")]
    pub fn coin(&self) -> &Coin {
        &self.coin
    }

    /// Runs the whole simulation with draft length `k`, 0 for autoregressive.
    pub fn run(&self, k: u32, skip_stretches: bool) -> Run {
        let config = EngineConfig { skip_stretches, ..self.config.clone() };
        let simulation = Simulation {
            workload: &self.workload,
            arrivals: Arrivals::Open,
            config: &config,
            draft: &Linear::new(Coefficients::FREE),
            target: &target(),
            context_reads: ContextReads::Once,
            drafting: Drafting::Autoregressive,
            noise_cv: 0.0,
            acceptance: &self.coin,
            seed: 1,
            slo_tpot_s: f64::INFINITY,
            keep_steps: false,
            keep_lives: false,
            interrupt: &AtomicBool::new(false),
        };
        simulation.run(speculation(k))
    }
}
