//! Chooses the replica to which most of the prompt was sent before. Chooses the least loaded replica instead if load is
//! uneven, or if too little of the prompt was sent before.

use super::checks;
use crate::Signals;
use crate::prefix::{PrefixIndex, prefixes};
use crate::router::{Asked, Needs, Router, RouterContext, RouterDefinition, Seen};
use foretoken_sim::Time;
use serde::{Deserialize, Serialize};

/// The replica to which most of the prompt was sent before, if that is more than `cache_threshold` of the prompt; else
/// the least loaded one (SMG `policies/cache_aware.rs`, the approximate tree of tokens in pages of 16). If load is
/// uneven, always the least loaded one. Load is compared by requests in flight, then by requests ever sent, then by
/// number of the replica. A matched page belongs to the replica to which it was sent last; SMG updates this at every
/// sixteenth use only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SmgCacheAware {
    /// Share of the prompt that must match, [0, 1].
    pub cache_threshold: f64,
    /// Load is uneven if the fullest and the emptiest replica differ by more than this number of requests in flight,
    /// and `balance_rel_threshold` is exceeded, too.
    pub balance_abs_threshold: u32,
    /// Load is uneven if the fullest replica has more than this number times the emptiest one's requests in flight, and
    /// `balance_abs_threshold` is exceeded, too; ≥ 0.
    pub balance_rel_threshold: f64,
    /// Most tokens of a replica in the tree of sent prompts, at least 1.
    pub max_tree_size: u32,
    /// Seconds between two evictions, which cut the tree to `max_tree_size`, > 0.
    pub eviction_interval_s: f64,
}

impl Default for SmgCacheAware {
    fn default() -> SmgCacheAware {
        SmgCacheAware {
            cache_threshold: 0.5,
            balance_abs_threshold: 32,
            balance_rel_threshold: 1.1,
            max_tree_size: 10_000,
            eviction_interval_s: 30.0,
        }
    }
}

impl RouterDefinition for SmgCacheAware {
    fn summary(&self) -> &'static str {
        "the replica that has seen most of the prompt, unless load is uneven"
    }

    fn source(&self) -> &'static str {
        "SMG, model_gateway/src/policies/cache_aware.rs"
    }

    fn needs(&self) -> Needs {
        Needs { ends: true, ..Needs::default() }
    }

    fn usual_signals(&self) -> Signals {
        checks::smg_signals()
    }

    fn reads_prefixes(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        checks::share("cache_threshold", self.cache_threshold)?;
        checks::not_negative("balance_rel_threshold", self.balance_rel_threshold)?;
        checks::positive("max_tree_size", self.max_tree_size.into())?;
        checks::positive("eviction_interval_s", self.eviction_interval_s)
    }

    fn build(&self, context: &RouterContext) -> Box<dyn Router> {
        let every = Time::from_s(self.eviction_interval_s);
        Box::new(Trees { settings: self.clone(), seen: PrefixIndex::new(context.replicas), every, next_cut: every })
    }
}

struct Trees {
    settings: SmgCacheAware,
    /// For each replica (SMG calls it a worker), the prefixes of the prompts that were sent to it; sizes are in tokens.
    seen: PrefixIndex,
    every: Time,
    next_cut: Time,
}

impl Router for Trees {
    fn route(&mut self, request: &Asked, replicas: &[Seen]) -> usize {
        while self.next_cut <= request.now {
            (0..replicas.len()).for_each(|r| self.seen.cut(r, self.settings.max_tree_size.into()));
            self.next_cut += self.every;
        }
        let least = least_loaded(replicas);
        let best = match uneven(replicas, &self.settings) {
            true => least,
            false => {
                let (blocks, tenant) = self.seen.longest(prefixes(request));
                let share = matched_share(blocks, request);
                tenant.filter(|_| share > self.settings.cache_threshold as f32).unwrap_or(least)
            }
        };
        let shared = prefixes(request).count() as u64 * u64::from(request.prefix_block);
        let rest = u64::from(request.prompt_len) - shared;
        self.seen.add(best, prefixes(request), request.prefix_block.into(), rest);
        best
    }
}

/// The share of the request's prompt that its first `blocks` prefix blocks make up.
fn matched_share(blocks: u32, request: &Asked) -> f32 {
    (blocks * request.prefix_block) as f32 / request.prompt_len.max(1) as f32
}

/// The replica with the fewest requests in flight. Of equal replicas, the one to which the fewest requests were ever
/// sent; if these are equal too, the first.
pub(super) fn least_loaded(replicas: &[Seen]) -> usize {
    let key = |r: &usize| (replicas[*r].in_flight, replicas[*r].sent, *r);
    (0..replicas.len()).min_by_key(key).expect("a fleet has a replica")
}

/// Is the load uneven? True if the greatest number of requests in flight on a replica exceeds the least by more than
/// `balance_abs_threshold`, and also exceeds `balance_rel_threshold` times the least.
pub(super) fn uneven(replicas: &[Seen], settings: &SmgCacheAware) -> bool {
    let loads = || replicas.iter().map(|r| r.in_flight);
    let (least, most) = (loads().min().unwrap_or(0), loads().max().unwrap_or(0));
    most - least > settings.balance_abs_threshold
        && (most as f32) > (least as f32 * settings.balance_rel_threshold as f32)
}
