//! llm-d's default scorers: cached share of the prompt, waiting queue, and free KV blocks.

use super::checks;
use super::random::below;
use crate::prefix::{PrefixIndex, prefixes};
use crate::router::{About, Asked, Needs, Router, RouterContext, RouterDefinition, Seen};
use serde::{Deserialize, Serialize};

/// The replica with the highest weighted sum of three scores, each from 0 to 1 (llm-d's endpoint picker,
/// `pkg/epp/config/loader/defaults.go` and the scorers that it names). The prefix score is the share of the prompt's
/// blocks that the replica may have cached. The queue score is 1 for the shortest waiting queue, 0 for the longest, and
/// linear between them. The KV score is the share of the replica's KV blocks that are free. If several replicas have
/// the highest sum, one of them is drawn at random. The router estimates what is cached from the prompts that it sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LlmDDefault {
    /// Weight of the share of the prompt that is cached, ≥ 0.
    pub prefix_weight: f64,
    /// Weight of the waiting queue's score, ≥ 0.
    pub queue_weight: f64,
    /// Weight of the score for free KV blocks (their share of all blocks of the replica), ≥ 0.
    pub kv_weight: f64,
    /// Largest number of blocks of a prompt, from its start, that are compared with cached blocks, at least 1.
    pub max_prefix_blocks: u32,
    /// Number of blocks that a replica is assumed to cache until it reports how many it has, at least 1.
    pub lru_capacity_per_server: u64,
}

impl Default for LlmDDefault {
    fn default() -> LlmDDefault {
        LlmDDefault {
            prefix_weight: 3.0,
            queue_weight: 2.0,
            kv_weight: 2.0,
            max_prefix_blocks: 256,
            lru_capacity_per_server: 31_250,
        }
    }
}

impl RouterDefinition for LlmDDefault {
    fn about(&self) -> About {
        About {
            summary: "the highest weighted score of cached prefix, waiting queue and free KV blocks",
            source: "llm-d-inference-scheduler 520af478, pkg/epp/config/loader/defaults.go, \
                     scorer/{prefix,queuedepth,kvcacheutilization}",
            needs: Needs { reports: true, ..Needs::default() },
            usual_signals: checks::llm_d_signals(),
            reads_prefixes: true,
            ..About::default()
        }
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        checks::not_negative("prefix_weight", self.prefix_weight)?;
        checks::not_negative("queue_weight", self.queue_weight)?;
        checks::not_negative("kv_weight", self.kv_weight)?;
        checks::positive("max_prefix_blocks", self.max_prefix_blocks.into())?;
        checks::positive("lru_capacity_per_server", self.lru_capacity_per_server as f64)
    }

    fn build(&self, context: &RouterContext) -> Box<dyn Router> {
        let settings = self.clone();
        let cached = Cached::new(context, self.max_prefix_blocks, self.lru_capacity_per_server);
        Box::new(Scorers { settings, cached, seed: context.seed, scores: Vec::new() })
    }
}

struct Scorers {
    settings: LlmDDefault,
    cached: Cached,
    seed: u64,
    scores: Vec<f64>,
}

impl Router for Scorers {
    fn route(&mut self, request: &Asked, replicas: &[Seen]) -> usize {
        let settings = &self.settings;
        let cached = self.cached.shares(request);
        let waiting = |r: &Seen| r.report.map_or(0, |report| report.load.waiting);
        let (least, most) = replicas.iter().map(waiting).fold((u32::MAX, 0), |(l, m), w| (l.min(w), m.max(w)));
        self.scores.clear();
        for (replica, share) in replicas.iter().zip(cached) {
            let queue = if most == least { 1.0 } else { f64::from(most - waiting(replica)) / f64::from(most - least) };
            let free = 1.0 - replica.report.map_or(0.0, |report| report.load.kv_use());
            // The terms are added in the order in which llm-d's default configuration lists the scorers, so that our
            // sum has the same rounding error.
            let score = settings.queue_weight * queue + settings.kv_weight * free + settings.prefix_weight * share;
            self.scores.push(score);
        }
        let best = best_of(&self.scores, self.seed, request);
        self.cached.sent(request, best, &replicas[best]);
        best
    }
}

/// The index of the replica with the highest score; a random draw decides a tie.
pub(super) fn best_of(scores: &[f64], seed: u64, request: &Asked) -> usize {
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let equals = scores.iter().filter(|score| **score == most).count();
    let pick = if equals == 1 { 0 } else { below(seed, request, 0, equals) };
    let best = scores.iter().enumerate().filter(|(_, score)| **score == most);
    best.map(|(i, _)| i).nth(pick).expect("a fleet has a replica")
}

/// llm-d's estimate of what each replica has cached (`approximateprefix`).
pub(super) struct Cached {
    index: PrefixIndex,
    block_size: u32,
    max_blocks: u32,
    capacity: u64,
    matched: Vec<u32>,
    shares: Vec<f64>,
}

impl Cached {
    pub(super) fn new(context: &RouterContext, max_blocks: u32, capacity: u64) -> Cached {
        let index = PrefixIndex::new(context.replicas);
        let block_size = context.block_size[0];
        Cached { index, block_size, max_blocks, capacity, matched: Vec::new(), shares: Vec::new() }
    }

    /// For each replica, the share (0 to 1) of the prompt's whole KV blocks that it may have cached. Only the first
    /// `max_blocks` blocks count. The share is 0 if the prompt does not fill a block.
    pub(super) fn shares(&mut self, request: &Asked) -> &[f64] {
        self.index.matched(prefixes(request), &mut self.matched);
        let total = (request.prompt_len / self.block_size).min(self.max_blocks);
        let share = |&blocks: &u32| {
            let blocks = (blocks * request.prefix_block / self.block_size).min(total);
            if total == 0 { 0.0 } else { f64::from(blocks) / f64::from(total) }
        };
        self.shares.clear();
        self.shares.extend(self.matched.iter().map(share));
        &self.shares
    }

    /// Adds the prefixes of a request to the estimated cache of the replica `to`, to which it was sent. Then cuts this
    /// cache to the number of KV blocks that the replica reported, or to `capacity` before its first report.
    pub(super) fn sent(&mut self, request: &Asked, to: usize, replica: &Seen) {
        let total = u64::from((request.prompt_len / self.block_size).min(self.max_blocks));
        let each = u64::from((request.prefix_block / self.block_size).max(1));
        let shared = prefixes(request).count().min((total / each) as usize);
        self.index.add(to, prefixes(request).take(shared), each, total - shared as u64 * each);
        let blocks = replica.report.map_or(0, |report| report.load.usable_blocks);
        self.index.cut(to, if blocks > 0 { blocks.into() } else { self.capacity });
    }
}
