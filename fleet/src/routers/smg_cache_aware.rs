//! SMG's cache-aware router. Chooses among the replicas to which the longest beginning of the prompt was sent before.
//! Chooses among all replicas if this beginning is too short, or if these replicas have too many requests in flight.

use super::checks;
use super::smg_expected_wait::{ExpectedWait, Scorer};
use crate::prefix::prefixes;
use crate::prefix_tree::PrefixTree;
use crate::router::{About, Asked, Needs, Router, RouterContext, RouterDefinition, Seen};
use foretoken_sim::Time;
use serde::{Deserialize, Serialize};

/// Chooses among the replicas to which the longest beginning of the prompt was sent: the one that drains soonest by the
/// score of `smg-least-load` with its default settings (SMG 1.13 `policies/cache_aware.rs`, the approximate tree of
/// tokens in pages of 16). If that beginning is at most `cache_threshold` of the prompt, all replicas are candidates.
/// An overloaded replica is not a candidate, unless all replicas are overloaded. A replica is overloaded if its
/// requests in flight are more than `balance_rel_threshold` times the mean, and exceed the mean by more than a margin.
/// The margin is 2 · √mean, rounded up, at least 4, and at most `balance_abs_threshold`. SMG cuts whole nodes of its
/// tree where this router cuts pages, and considers at most eight of the replicas that share a beginning. What SMG
/// leaves off by default is left out: limits on KV use, the choice by temperature, KV events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SmgCacheAware {
    /// If more than this share of the prompt, [0, 1], was sent to a replica before, only replicas that got it are
    /// candidates.
    pub cache_threshold: f64,
    /// Upper limit on the margin: the number of requests in flight above the mean that a replica may have even if
    /// `balance_rel_threshold` allows fewer.
    pub balance_abs_threshold: u32,
    /// A replica may always have this multiple of the mean number of requests in flight, even if the margin above the
    /// mean allows fewer; ≥ 0.
    pub balance_rel_threshold: f64,
    /// Most tokens in the tree of sent prompts, at least 1. A prefix counts once for every replica to which it was
    /// sent.
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
    fn about(&self) -> About {
        About {
            summary: "of the replicas that have seen most of the prompt the one that drains soonest, unless they are \
                      overloaded",
            source: "SMG 1.13, src/policies/cache_aware.rs",
            needs: Needs { ends: true, reports: true, ..Needs::default() },
            usual_signals: checks::smg_signals(),
            reads_prefixes: true,
            ..About::default()
        }
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        checks::share("cache_threshold", self.cache_threshold)?;
        checks::not_negative("balance_rel_threshold", self.balance_rel_threshold)?;
        checks::positive("max_tree_size", self.max_tree_size.into())?;
        checks::positive("eviction_interval_s", self.eviction_interval_s)
    }

    fn build(&self, context: &RouterContext) -> Box<dyn Router> {
        let every = Time::from_s(self.eviction_interval_s).max(Time(1));
        let scorer = Scorer::new(ExpectedWait::default(), context.seed, context.replicas);
        let (tree, holders) = (PrefixTree::default(), Vec::new());
        Box::new(CacheAware { settings: self.clone(), tree, scorer, every, next_cut: every, holders })
    }
}

struct CacheAware {
    settings: SmgCacheAware,
    /// The prefixes of the prompts that were sent; sizes are in tokens.
    tree: PrefixTree,
    scorer: Scorer,
    every: Time,
    next_cut: Time,
    /// Buffer: the replicas to which the longest known beginning of the prompt was sent.
    holders: Vec<usize>,
}

impl Router for CacheAware {
    fn route(&mut self, request: &Asked, replicas: &[Seen]) -> usize {
        if self.next_cut <= request.now {
            // Nothing was sent since the last request, so evictions after the first have nothing to evict.
            self.tree.cut(self.settings.max_tree_size.into());
            let missed = (request.now - self.next_cut).0 / self.every.0;
            self.next_cut += Time(self.every.0.saturating_mul(missed.saturating_add(1)));
        }
        let blocks = self.tree.longest(prefixes(request), &mut self.holders);
        let share = (blocks * request.prefix_block) as f32 / request.prompt_len.max(1) as f32;
        let all: Vec<usize> = (0..replicas.len()).collect();
        let candidates = match share > self.settings.cache_threshold as f32 {
            true => candidates(&self.holders, &all, replicas, &self.settings),
            false => all,
        };
        let best = self.scorer.choose(&candidates, request, replicas, 0);
        let shared = prefixes(request).count() as u64 * u64::from(request.prefix_block);
        let end = (u64::from(request.prompt_len) - shared) / PAGE * PAGE;
        self.tree.add(best, prefixes(request), request.prefix_block.into(), end);
        best
    }
}

/// Number of tokens in a page, a node of SMG's tree. Tokens at the end of a prompt that do not fill a page are not
/// stored.
const PAGE: u64 = 16;

/// SMG's least margin: a replica may have at least this number of requests in flight above the mean.
const LEAST_MARGIN: f64 = 4.0;

/// The replicas among which the load decides. `holders` are the replicas to which the prompt's beginning was sent.
/// Returns the replicas of `holders` that are not overloaded. If there are none, returns the replicas of `all` that are
/// not overloaded. If there are none either, returns `all`.
pub(super) fn candidates(holders: &[usize], all: &[usize], replicas: &[Seen], settings: &SmgCacheAware) -> Vec<usize> {
    let total: u64 = replicas.iter().map(|r| u64::from(r.in_flight)).sum();
    let mean = total as f64 / replicas.len() as f64;
    let swing = (2.0 * mean.sqrt()).ceil();
    let margin = f64::from(settings.balance_abs_threshold).min(swing.max(LEAST_MARGIN));
    // SMG stores this setting as a 32-bit float.
    let factor = f64::from(settings.balance_rel_threshold as f32);
    let fits = |r: &usize| {
        let load = f64::from(replicas[*r].in_flight);
        !(load > mean * factor && load > mean + margin)
    };
    let fitting = |of: &[usize]| of.iter().copied().filter(fits).collect::<Vec<usize>>();
    [fitting(holders), fitting(all)].into_iter().find(|some| !some.is_empty()).unwrap_or_else(|| all.to_vec())
}
