//! `nightjar-like`: one bandit per batch size over the draft lengths from 0 up. A step that drafts after a step without
//! draft tokens is charged extra.
//!
//! Source: Nightjar (arXiv 2512.22420) and the planner of its vLLM extension; docs/model.md 7.8. Each batch size has
//! its own count of steps. These steps are cut into blocks of doubling length, and each block into bins. The length of
//! a bin is the square root of the block's length. Bin b of a block explores with probability 1/√b: it draws one
//! length, all with equal probability, and uses it for the whole bin. The other bins run the length with the least time
//! per token,
//!
//! `1 / (tokens per second and request) + [the last step had no drafts, this one has] · C_switch / k`
//!
//! where k is the draft length and the bracket is 1 if true, else 0. C_switch is the time in which the draft model
//! processes the context tokens that it skipped. Parts that could not be confirmed are our own, hence "-like".

use crate::bandits::bandit::{Mean, has_room, played, tokens_per_s};
use crate::definition::{About, BadParameter, Beliefs, Check, Definition, PolicyContext};
use foretoken_sim::{
    BatchView, Candidate, DraftLimits, DraftPlan, Explanation, Luck, Memory, SpecPolicy, Speculation, StepOutcome,
    Stream,
};
use serde::{Deserialize, Serialize};

/// Settings of the policy `nightjar-like`, which has one bandit over draft lengths for each batch size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NightjarLike {
    /// Most draft tokens of a request in a step, 1 to 32. A value above the engine's `max_draft_len` is cut to it.
    pub k_max: u32,
    /// Number of neighbouring batch sizes that have one common bandit, at least 1.
    pub bucket: u32,
    /// Number of decisions in a row without drafts, while requests wait, after which the draft model's weights are
    /// given up (`engine.draft_weights`); 0 for never. They come back once no request waits.
    pub offload: u32,
}

impl Default for NightjarLike {
    fn default() -> Self {
        NightjarLike { k_max: 5, bucket: 2, offload: 0 }
    }
}

impl Definition for NightjarLike {
    fn about(&self) -> About {
        About {
            summary: "a bandit per batch size over lengths from 0, counting what it costs to start drafting again",
            source: "Nightjar (arXiv 2512.22420) Eq. 4 and its ADA-BINGREEDY planner",
            sees: "batch size and what the draft has not seen; accepted counts and the times of past steps",
            differences: "the artefact weighs lengths with priors made for its hardware and forces 0 over 20 \
                          requests at more than 2 a second: left out. Nor is a change of load tested for. The cost \
                          of starting again comes from the believed model, not from a measured table; k_max is our \
                          own, and so is the rule of offload: its constants were not readable",
        }
    }

    fn beliefs(&self) -> Beliefs {
        Beliefs { cost: true, ..Beliefs::default() }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("nightjar-like");
        check.length("k_max", self.k_max)?;
        check.that("bucket", self.bucket > 0, || "must be at least 1 batch size".into())
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(Running::new(*self, context)))
    }
}

/// The position of one bucket of neighbouring batch sizes in its sequence of steps. The steps are cut into blocks, and
/// each block into bins.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Clock {
    /// Number of steps in the current block. The steps of a bucket of batch sizes are cut into blocks, and blocks into
    /// bins.
    block: u64,
    /// Number of the current bin in its block, from 1. A block of steps is cut into bins.
    bin: u64,
    /// Number of the current step in its bin, from 1. A bin is a run of steps with one decision whether to explore.
    step: u64,
    /// The draft length that the present bin of steps runs, if it explores; `None` if it does not explore.
    exploring: Option<u32>,
}

/// The policy `nightjar-like` while the engine runs: its settings, and what it keeps from step to step.
struct Running {
    k_max: u32,
    bucket: usize,
    /// Seconds in which the draft model processes one context token that it skipped, by the policy's own cost formula
    /// (belief).
    catch_up_s: f64,
    luck: Luck,
    /// For each bucket (neighbouring batch sizes with a common bandit): its position in its blocks and bins of steps.
    clocks: Vec<Clock>,
    /// Mean tokens per second and request, by bucket of batch sizes and by draft length (`k_max` + 1 entries a bucket).
    rewards: Vec<Mean>,
    /// True if draft length 0 was chosen in the last step in which a request could draft.
    was_off: bool,
    /// Number of decisions in a row without drafts.
    off: u32,
    /// Number of such decisions after which the weights may go; 0 for never.
    offload: u32,
    /// For each draft length, at the last decision: the seconds that a request needs per token. If the step before
    /// drafted nothing, they include the time in which the draft model processes the context that it skipped. Infinite
    /// for a length without samples. Empty if the present bin (run of steps) explores.
    losses: Vec<f64>,
}

impl Running {
    fn new(rule: NightjarLike, context: &PolicyContext) -> Running {
        let k_max = rule.k_max.min(context.max_draft_len);
        let buckets = context.max_num_seqs.div_ceil(rule.bucket).max(1) as usize;
        // The clock (the position among bins, which are runs of steps) starts at the end of a bin, so that the first
        // step begins a block of bins.
        let clock = Clock { block: 1, bin: 0, step: 1, exploring: None };
        Running {
            k_max,
            bucket: rule.bucket as usize,
            catch_up_s: context.belief.draft.gamma_s,
            luck: Luck::new(context.seed, Stream::Policy, 0),
            clocks: vec![clock; buckets],
            rewards: vec![Mean::default(); buckets * (k_max as usize + 1)],
            was_off: false,
            off: 0,
            offload: rule.offload,
            losses: Vec::with_capacity(k_max as usize + 1),
        }
    }

    fn bucket_of(&self, requests: usize) -> usize {
        ((requests - 1) / self.bucket).min(self.clocks.len() - 1)
    }

    fn rewards(&mut self, bucket: usize) -> &mut [Mean] {
        let lengths = self.k_max as usize + 1;
        &mut self.rewards[bucket * lengths..][..lengths]
    }

    /// Counts one more step of a bucket of neighbouring batch sizes, which has the index `bucket`. The bucket's steps
    /// are cut into blocks, and blocks into bins. At the start of a bin, a random draw from `luck` decides whether the
    /// bin explores, and with which draft length.
    fn tick(&mut self, bucket: usize, luck: Luck) {
        let lengths = self.k_max + 1;
        let clock = &mut self.clocks[bucket];
        let bin_steps = clock.block.isqrt().max(1);
        if clock.step >= bin_steps {
            clock.step = 0;
            clock.bin += 1;
            if (clock.bin - 1) * bin_steps >= clock.block {
                clock.block *= 2;
                clock.bin = 1;
            }
            let explores = luck.unit(0) < 1.0 / (clock.bin as f64).sqrt();
            clock.exploring = explores.then(|| (luck.unit(1) * f64::from(lengths)) as u32);
        }
        clock.step += 1;
    }

    /// Computes `losses`: the seconds per token of each draft length, if the step pays `switch_s` seconds for starting
    /// to draft. Returns the length with the least loss, the shorter length on a tie; `None` if no length was run in
    /// this bucket of batch sizes.
    fn best(&mut self, bucket: usize, switch_s: f64) -> Option<u32> {
        self.losses.clear();
        let lengths = self.k_max as usize + 1;
        let mut best = None;
        for (k, reward) in self.rewards[bucket * lengths..][..lengths].iter().enumerate() {
            let switch = if k > 0 { switch_s / k as f64 } else { 0.0 };
            let loss = if reward.count > 0 { 1.0 / reward.value + switch } else { f64::INFINITY };
            self.losses.push(loss);
            if loss < best.map_or(f64::INFINITY, |b: usize| self.losses[b]) {
                best = Some(k);
            }
        }
        best.map(|k| k as u32)
    }
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.k_max)
    }

    fn keeps_weights(&mut self, memory: &Memory) -> bool {
        let short = memory.num_waiting > 0;
        !short || memory.loaded && (self.offload == 0 || self.off < self.offload)
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        if !has_room(batch) {
            return;
        }
        let bucket = self.bucket_of(batch.len());
        self.tick(bucket, self.luck.narrow(batch.step));
        // Starting to draft costs time only if the draft model skipped context tokens. If it runs in every step
        // (`always_extend`), it skips none.
        let switch_s = match self.was_off && !batch.always_extend {
            true => self.catch_up_s * batch.draft_gap.iter().map(|&g| f64::from(g)).sum::<f64>(),
            false => 0.0,
        };
        self.losses.clear();
        let k = match self.clocks[bucket].exploring {
            Some(k) => k,
            None => self.best(bucket, switch_s).unwrap_or(self.k_max),
        };
        self.was_off = k == 0;
        self.off = if k == 0 { self.off + 1 } else { 0 };
        plan.fill(k);
    }

    /// Adds the step's reward (tokens per second and request) to the draft length that the step ran. A request limit
    /// may have cut this length below the chosen length.
    fn observe(&mut self, outcome: &StepOutcome) {
        if let Some(reward) = tokens_per_s(outcome) {
            let requests = outcome.accepted.len();
            let bucket = self.bucket_of(requests);
            let k = played(outcome).min(self.k_max) as usize;
            self.rewards(bucket)[k].add(reward / requests as f64);
        }
    }

    fn explain(&mut self) -> Explanation {
        let losses = self.losses.iter().enumerate().filter(|(_, l)| l.is_finite());
        Explanation {
            estimate: None,
            candidates: losses
                .map(|(k, &estimate)| Candidate { what: format!("k = {k}, seconds a token"), estimate })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{BELIEF, Batch, CONTEXT, outcome};
    use foretoken_sim::{Drafts, Time};
    use itertools::Itertools;

    fn running() -> Running {
        Running::new(NightjarLike::default(), &CONTEXT)
    }

    fn choose(p: &mut Running, batch: &Batch) -> u32 {
        let mut plan = DraftPlan { draft_len: vec![0; batch.ids.len()], ..DraftPlan::default() };
        p.propose(&batch.view(), &mut plan);
        plan.draft_len[0]
    }

    fn seen(p: &mut Running, requests: usize, k: u32, seconds: f64) {
        let (drafts, zeros) = (Drafts::default(), vec![0; requests]);
        p.observe(&StepOutcome { verify_time: Time::from_s(seconds), ..outcome(&drafts, &vec![k; requests], &zeros) });
    }

    /// Steps are cut into blocks, and blocks into bins. Blocks of 1, 2, 4, 8, 16 steps have bins of 1, 1, 2, 2, 4
    /// steps. Checks (length of block, bin) of each step.
    #[test]
    fn bins_and_blocks() {
        let mut p = running();
        let times: Vec<(u64, u64)> = (0..31)
            .map(|step| {
                p.tick(0, p.luck.narrow(step));
                (p.clocks[0].block, p.clocks[0].bin)
            })
            .collect();
        let block = |length: u64, bin: u64| (0..length).map(move |s| (length, s / bin + 1));
        let expected: Vec<(u64, u64)> =
            [(1, 1), (2, 1), (4, 2), (8, 2), (16, 4)].into_iter().flat_map(|(l, b)| block(l, b)).collect();
        assert_eq!(times, expected);
    }

    /// Steps are cut into blocks of bins. The first bin of a block always explores; bin b explores with probability
    /// 1/√b.
    #[test]
    fn bins_explore_less_and_less() {
        let mut counts = [[0u32; 2]; 5];
        let mut drawn = [0u32; 6];
        for seed in 0..4000 {
            let mut p = Running::new(NightjarLike::default(), &PolicyContext { seed, ..CONTEXT });
            for step in 0..31 {
                p.tick(0, p.luck.narrow(step));
                let clock = p.clocks[0];
                if clock.block == 16 && clock.step == 1 {
                    counts[clock.bin as usize][usize::from(clock.exploring.is_some())] += 1;
                    clock.exploring.into_iter().for_each(|k| drawn[k as usize] += 1);
                }
            }
        }
        assert_eq!(counts[1], [0, 4000]);
        for (bin, count) in counts.iter().enumerate().skip(2) {
            let (p, share) = (1.0 / (bin as f64).sqrt(), f64::from(count[1]) / 4000.0);
            // The tolerance for the share of bins (runs of steps) that explore is four standard errors of a share of
            // 4,000 draws.
            assert!((share - p).abs() < 4.0 * (p * (1.0 - p) / 4000.0).sqrt(), "bin {bin}: {share}");
        }
        let (all, each) = (drawn.iter().sum::<u32>(), drawn.iter().map(|&d| f64::from(d)));
        assert!(each.into_iter().all(|d| (d / f64::from(all) - 1.0 / 6.0).abs() < 0.02), "{drawn:?}");
    }

    /// Losses by hand, as time per token: 20 ms at draft length 0, 19 ms at length 2, 18 ms at length 4. Starting to
    /// draft again with length k costs C_switch / k more, where C_switch is the time for the context that the draft
    /// model skipped.
    #[test]
    fn starting_to_draft_again_is_charged() {
        let mut p = running();
        for (k, ms) in [(0, 20.0), (2, 19.0), (4, 18.0)] {
            seen(&mut p, 2, k, ms * 1e-3);
        }
        assert_eq!(p.best(0, 0.0), Some(4));
        // Lengths 0, 2 and 4 take 20, 19 + 3/2 and 18 + 3/4 ms a token if C_switch (the time to start drafting again)
        // is 3 ms, and 20, 19 + 12/2 and 18 + 12/4 ms if it is 12 ms.
        assert_eq!(p.best(0, 3e-3), Some(4));
        assert_eq!(p.best(0, 12e-3), Some(0));
        let expected = [0.020, f64::INFINITY, 0.019 + 0.006, f64::INFINITY, 0.018 + 0.003, f64::INFINITY];
        assert!(p.losses.iter().zip_eq(expected).all(|(&l, e)| l == e || (l - e).abs() < 1e-12), "{:?}", p.losses);
        assert_eq!(p.explain().candidates.len(), 3);
        // `choose` computes C_switch, the time to start drafting again: 6,000 context tokens that the draft model
        // skipped, at 2 µs each, are 12 ms.
        p.clocks[0] = Clock { block: 1 << 20, bin: 9, step: 1, exploring: None };
        let mut batch = Batch::new(&[4000, 4000], &[8, 8]);
        batch.gap = vec![3000, 3000];
        assert_eq!(BELIEF.draft.gamma_s, 2e-6);
        assert_eq!(choose(&mut p, &batch), 4, "it was drafting");
        p.was_off = true;
        assert_eq!(choose(&mut p, &batch), 0);
        batch.always_extend = true;
        assert_eq!(choose(&mut p, &batch), 4, "the draft was kept up");
    }

    /// Each bucket of batch sizes has its own rewards (tokens per second and request). A reward counts for the draft
    /// length that ran, not for the chosen length.
    #[test]
    fn batch_sizes_are_told_apart() {
        let mut p = running();
        seen(&mut p, 2, 3, 0.01);
        seen(&mut p, 3, 1, 0.01);
        seen(&mut p, 1000, 5, 0.01);
        assert_eq!(
            (p.best(0, 0.0), p.best(1, 0.0), p.best(2, 0.0), p.best(31, 0.0)),
            (Some(3), Some(1), None, Some(5))
        );
        assert_eq!(p.rewards(1)[1], Mean { count: 1, value: 100.0 });
        let cannot = Batch::new(&[100], &[0]);
        assert_eq!((choose(&mut p, &cannot), p.clocks[0].bin), (0, 0));
    }

    /// Weights go after a number of decisions without drafts, only while requests wait, and come back when none does.
    #[test]
    fn weights_are_given_up_under_memory_pressure() {
        let mut p = Running::new(NightjarLike { offload: 3, ..NightjarLike::default() }, &CONTEXT);
        let keeps = |p: &mut Running, loaded, num_waiting| {
            p.keeps_weights(&Memory { loaded, num_running: 4, num_waiting, free_blocks: 0, weight_blocks: 9 })
        };
        p.off = 2;
        assert!(keeps(&mut p, true, 5));
        p.off = 3;
        assert!(!keeps(&mut p, true, 5) && keeps(&mut p, true, 0));
        assert!(!keeps(&mut p, false, 1) && keeps(&mut p, false, 0));
        p.offload = 0;
        assert!(keeps(&mut p, true, 5));
    }

    #[test]
    fn bad_settings_are_named() {
        let key = |p: NightjarLike| p.check().expect_err("refused").key;
        assert_eq!(key(NightjarLike { k_max: 0, ..NightjarLike::default() }), "k_max");
        assert_eq!(key(NightjarLike { bucket: 0, ..NightjarLike::default() }), "bucket");
    }
}
