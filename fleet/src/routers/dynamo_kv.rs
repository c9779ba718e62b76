//! Dynamo's KV router: the replica with the least cost in KV blocks, cached blocks deducted.

use super::checks;
use super::random::below;
use crate::prefix::{PrefixIndex, prefixes};
use crate::router::{About, Asked, Ended, Needs, Router, RouterContext, RouterDefinition, Seen};
use foretoken_sim::{Luck, RequestId, Stream, Time};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};

/// The replica with the least cost in KV blocks (Dynamo `lib/kv-router`, `DefaultWorkerSelector`; crate
/// `dynamo-kv-router` 1.6.1). The cost has two parts. The first is the prompt blocks that the replica would have to
/// prefill, this request's included, less the blocks of this prompt that it has cached. The second is the KV blocks
/// that its requests would hold. If several replicas have the least cost, one of them is drawn at random. A prompt
/// counts as cached if it was sent within `router_ttl_secs`, as in Dynamo with `--no-router-kv-events`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DynamoKv {
    /// Prefill blocks that each cached block of the prompt saves, ≥ 0.
    pub overlap_score_credit: f64,
    /// How fast the saving by cached blocks falls, ≥ 0. It falls with the number of prompt tokens that the replica has
    /// to prefill in excess of the replica with the fewest. 0: the saving does not fall.
    pub overlap_score_credit_decay: f64,
    /// Factor on the prefill part of the cost, ≥ 0.
    pub prefill_load_scale: f64,
    /// Blocks that each request in flight adds to the cost, beside the blocks that it holds, ≥ 0.
    pub decode_active_request_weight: f64,
    /// Temperature of the choice, ≥ 0. At 0 the replica with the least cost is chosen. Above 0 replicas are drawn at
    /// random, with probabilities that fall with their cost.
    pub router_temperature: f64,
    /// Seconds for which a prompt counts as cached after it was sent, > 0.
    pub router_ttl_secs: f64,
}

impl Default for DynamoKv {
    fn default() -> DynamoKv {
        DynamoKv {
            overlap_score_credit: 1.0,
            overlap_score_credit_decay: 0.0,
            prefill_load_scale: 1.0,
            decode_active_request_weight: 0.0,
            router_temperature: 0.0,
            router_ttl_secs: 120.0,
        }
    }
}

impl RouterDefinition for DynamoKv {
    fn about(&self) -> About {
        About {
            summary: "the least cost in KV blocks: prompts to prefill, less what is cached, and blocks held",
            source: "Dynamo, crate dynamo-kv-router 1.6.1, src/scheduling/selector/reference.rs",
            needs: Needs { ends: true, first_tokens: true, ..Needs::default() },
            reads_prefixes: true,
            ..About::default()
        }
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        checks::not_negative("overlap_score_credit", self.overlap_score_credit)?;
        checks::not_negative("overlap_score_credit_decay", self.overlap_score_credit_decay)?;
        checks::not_negative("prefill_load_scale", self.prefill_load_scale)?;
        checks::not_negative("decode_active_request_weight", self.decode_active_request_weight)?;
        checks::not_negative("router_temperature", self.router_temperature)?;
        checks::positive("router_ttl_secs", self.router_ttl_secs)
    }

    fn build(&self, context: &RouterContext) -> Box<dyn Router> {
        Box::new(KvRouter {
            settings: self.clone(),
            seed: context.seed,
            block_size: context.block_size[0],
            each: 1,
            workers: (0..context.replicas).map(|_| Worker::default()).collect(),
            cached: PrefixIndex::new(context.replicas),
            expires: VecDeque::new(),
            expiry: HashMap::new(),
            requests: HashMap::new(),
            matched: Vec::new(),
            costs: Vec::new(),
        })
    }
}

struct KvRouter {
    settings: DynamoKv,
    seed: u64,
    block_size: u32,
    /// Number of KV blocks in a prefix block, the unit in which the workload says that prompts are equal.
    each: u64,
    workers: Vec<Worker>,
    /// For each worker, the prefixes that were sent to it within the last `router_ttl_secs`.
    cached: PrefixIndex,
    /// Times at which entries of `cached` may expire, as (time, worker, the prefix's hash), earliest first. If the
    /// prefix was sent to the worker again, `expiry` has a later time, and the entry of `cached` stays until that time.
    expires: VecDeque<(Time, usize, u64)>,
    /// For each (worker, hash of a prompt prefix): the time at which the prefix is removed from `cached`, unless it is
    /// sent to the worker again before.
    expiry: HashMap<(usize, u64), Time>,
    requests: HashMap<RequestId, Sent>,
    matched: Vec<u32>,
    costs: Vec<f64>,
}

/// Dynamo's counts for a worker (a replica).
#[derive(Default)]
struct Worker {
    /// Uncached prompt tokens of the worker's requests that have no first token yet.
    prefill_tokens: u64,
    /// For each prompt prefix, by its hash, the number of the worker's requests that begin with it.
    held: HashMap<u64, u32>,
    /// KV blocks that the worker's requests hold; a shared block counts once.
    blocks: u64,
    requests: u32,
}

/// What a request in flight adds to its worker's counts.
struct Sent {
    prefill_tokens: u64,
    prefixes: Vec<u64>,
    /// Number of KV blocks that the request shares with no other request.
    alone: u64,
}

/// The numbers from which the cost of sending a request to a replica is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Candidate {
    pub prefill_tokens: u64,
    /// KV blocks that the replica's requests would hold if the new request were sent to it.
    pub decode_blocks: u64,
    pub requests: u32,
    pub overlap_blocks: f64,
}

impl DynamoKv {
    /// The cost, in KV blocks, of sending a prompt of `tokens` tokens to the replica `candidate`. `least` is the
    /// smallest `prefill_tokens` of all replicas.
    pub(super) fn cost(&self, candidate: &Candidate, tokens: u32, block_size: u32, least: u64) -> f64 {
        let block = f64::from(block_size);
        let decay = match self.overlap_score_credit_decay > 0.0 {
            true => {
                let excess = candidate.prefill_tokens.saturating_sub(least) as f64 / block;
                let blocks = f64::from(tokens.div_ceil(block_size).max(1));
                1.0 / (1.0 + self.overlap_score_credit_decay * (excess / blocks))
            }
            false => 1.0,
        };
        let credit = self.overlap_score_credit * decay * candidate.overlap_blocks;
        let prefill = (candidate.prefill_tokens + u64::from(tokens)) as f64 / block;
        let prefill = self.prefill_load_scale * (prefill - credit).max(0.0);
        prefill + candidate.decode_blocks as f64 + self.decode_active_request_weight * f64::from(candidate.requests)
    }
}

impl Router for KvRouter {
    fn route(&mut self, request: &Asked, replicas: &[Seen]) -> usize {
        self.forget(request.now);
        self.each = u64::from((request.prefix_block / self.block_size).max(1));
        let each = self.each;
        let hashes: Vec<u64> = prefixes(request).collect();
        self.cached.matched(hashes.iter().copied(), &mut self.matched);
        let blocks = u64::from(request.prompt_len.div_ceil(self.block_size));
        let candidate = |(worker, &matched): (&Worker, &u32)| {
            let shared = hashes.iter().take_while(|hash| worker.held.contains_key(hash)).count() as u64;
            Candidate {
                prefill_tokens: worker.prefill_tokens,
                decode_blocks: worker.blocks + blocks.saturating_sub(shared * each),
                requests: worker.requests,
                overlap_blocks: (u64::from(matched) * each) as f64,
            }
        };
        let candidates: Vec<Candidate> = self.workers.iter().zip(&self.matched).map(candidate).collect();
        let least = candidates.iter().map(|c| c.prefill_tokens).min().unwrap_or(0);
        self.costs.clear();
        self.costs.extend(candidates.iter().map(|c| self.settings.cost(c, request.prompt_len, self.block_size, least)));
        let best = pick(&self.costs, self.settings.router_temperature, self.seed, request);
        debug_assert!(best < replicas.len());
        let cached_tokens = (candidates[best].overlap_blocks * f64::from(self.block_size)) as u64;
        self.send(request, best, hashes, cached_tokens, blocks);
        best
    }

    fn first_token(&mut self, id: RequestId, replica: usize, _: Time) {
        if let Some(sent) = self.requests.get_mut(&id) {
            self.workers[replica].prefill_tokens -= std::mem::take(&mut sent.prefill_tokens);
        }
    }

    fn ended(&mut self, id: RequestId, replica: usize, _: Ended) {
        let Some(sent) = self.requests.remove(&id) else { return };
        let worker = &mut self.workers[replica];
        worker.prefill_tokens -= sent.prefill_tokens;
        worker.requests -= 1;
        worker.blocks -= sent.alone;
        for hash in sent.prefixes {
            let held = worker.held.get_mut(&hash).expect("the request holds it");
            *held -= 1;
            if *held == 0 {
                worker.held.remove(&hash);
                worker.blocks -= self.each;
            }
        }
    }
}

impl KvRouter {
    /// Removes the prefixes whose time to live has passed by `now`.
    fn forget(&mut self, now: Time) {
        while let Some(&(at, replica, hash)) = self.expires.front().filter(|entry| entry.0 <= now) {
            self.expires.pop_front();
            if self.expiry.get(&(replica, hash)) == Some(&at) {
                self.expiry.remove(&(replica, hash));
                self.cached.forget(replica, hash);
            }
        }
    }

    fn send(&mut self, request: &Asked, to: usize, prefixes: Vec<u64>, cached_tokens: u64, blocks: u64) {
        let each = self.each;
        let expires = request.now + Time::from_s(self.settings.router_ttl_secs);
        self.cached.add(to, prefixes.iter().copied(), each, 0);
        for &hash in &prefixes {
            self.expires.push_back((expires, to, hash));
            self.expiry.insert((to, hash), expires);
        }
        let worker = &mut self.workers[to];
        let prefill_tokens = u64::from(request.prompt_len).saturating_sub(cached_tokens);
        worker.prefill_tokens += prefill_tokens;
        worker.requests += 1;
        let alone = blocks.saturating_sub(prefixes.len() as u64 * each);
        worker.blocks += alone;
        for &hash in &prefixes {
            let held = worker.held.entry(hash).or_insert(0);
            worker.blocks += if *held == 0 { each } else { 0 };
            *held += 1;
        }
        self.requests.insert(request.id, Sent { prefill_tokens, prefixes, alone });
    }
}

/// The index of the chosen replica. At temperature 0 the replica with the least cost is chosen; a random draw decides a
/// tie. Above 0 a random draw by the [`softmax`] of the negative costs chooses.
pub(super) fn pick(costs: &[f64], temperature: f64, seed: u64, request: &Asked) -> usize {
    let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
    if temperature == 0.0 {
        let equals = costs.iter().filter(|cost| **cost == least).count();
        let which = if equals == 1 { 0 } else { below(seed, request, 0, equals) };
        let all = costs.iter().enumerate().filter(|(_, cost)| **cost == least);
        return all.map(|(i, _)| i).nth(which).expect("a fleet has a replica");
    }
    softmax(costs, temperature, Luck::new(seed, Stream::Router, request.id.into()).unit(0))
}

/// The index that a uniform `sample` draws from the softmax of the negative costs. Before the softmax, the costs are
/// divided by their range (greatest − least) and by `temperature`.
pub(super) fn softmax(costs: &[f64], temperature: f64, sample: f64) -> usize {
    let (least, most) = costs.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, m), &c| (l.min(c), m.max(c)));
    let weight = |cost: f64| if least == most { 1.0 } else { (-(cost - least) / ((most - least) * temperature)).exp() };
    let sum: f64 = costs.iter().map(|&cost| weight(cost)).sum();
    let mut so_far = 0.0;
    let at = costs.iter().position(|&cost| {
        so_far += weight(cost) / sum;
        sample <= so_far
    });
    at.unwrap_or(costs.len() - 1)
}
