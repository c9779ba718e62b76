//! Consistent hashing: a hash of the prompt's beginning chooses the replica on a ring, unless this replica has too many
//! requests in flight.

use super::checks;
use super::least_requests::least;
use crate::prefix::beginning;
use crate::router::{About, Asked, Needs, Router, RouterContext, RouterDefinition, Seen};
use foretoken_sim::luck::mix;
use serde::{Deserialize, Serialize};

/// Consistent hashing with bounded load (SMG 1.13 `policies/prefix_hash.rs`). A hash of the prompt's first tokens
/// points at a replica on a ring. If this replica is overloaded, the replica with the fewest requests in flight is
/// taken. A replica is overloaded if it has more than `load_factor` times the mean number of requests in flight, and
/// more than `balance_abs_threshold` requests above the mean. SMG's keys at the boundaries of a cache
/// (`cache_boundaries`) are left out. The hash function differs from SMG's, so a prefix may go to another replica than
/// in SMG; the rule is the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PrefixHash {
    /// Number of the prompt's first tokens that are hashed, at least 1.
    pub prefix_token_count: u32,
    /// Most requests in flight of a replica, as a multiple of the mean over replicas, > 0.
    pub load_factor: f64,
    /// A replica may always have this number of requests in flight above the mean over replicas, even if `load_factor`
    /// allows fewer.
    pub balance_abs_threshold: u32,
    /// Number of points of each replica on the hash ring, 1 to 10,000. More points spread prefixes more evenly.
    pub virtual_nodes: u32,
}

/// Most points of a replica on the ring. More make prefixes no more even, and all points are kept in memory.
const MOST_NODES: u32 = 10_000;

impl Default for PrefixHash {
    fn default() -> PrefixHash {
        PrefixHash { prefix_token_count: 256, load_factor: 1.25, balance_abs_threshold: 10, virtual_nodes: 150 }
    }
}

impl RouterDefinition for PrefixHash {
    fn about(&self) -> About {
        About {
            summary: "a hash ring over the beginning of the prompt, with bounded load",
            source: "SMG 1.13, src/policies/prefix_hash.rs",
            needs: Needs { ends: true, ..Needs::default() },
            usual_signals: checks::smg_signals(),
            reads_prefixes: true,
            ..About::default()
        }
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        checks::positive("prefix_token_count", self.prefix_token_count.into())?;
        checks::positive("load_factor", self.load_factor)?;
        checks::at_most("virtual_nodes", self.virtual_nodes, MOST_NODES)
    }

    fn build(&self, context: &RouterContext) -> Box<dyn Router> {
        let nodes = 0..u64::from(self.virtual_nodes);
        let points = (0..context.replicas).flat_map(|r| nodes.clone().map(move |node| (point(r as u64, node), r)));
        let mut ring: Vec<(u64, usize)> = points.collect();
        ring.sort_unstable();
        Box::new(Ring { ring, settings: self.clone() })
    }
}

/// The position on the hash ring of a replica's virtual node.
pub(super) fn point(replica: u64, node: u64) -> u64 {
    mix(mix(replica + 1) ^ node)
}

struct Ring {
    /// Positions of all virtual nodes, ascending, with their replicas.
    ring: Vec<(u64, usize)>,
    settings: PrefixHash,
}

impl Router for Ring {
    fn route(&mut self, request: &Asked, replicas: &[Seen]) -> usize {
        let key = beginning(request, self.settings.prefix_token_count);
        let at = self.ring.partition_point(|(point, _)| *point < key) % self.ring.len();
        bounded(replicas, self.ring[at].1, &self.settings)
    }
}

/// Returns the replica `home` if its requests in flight are within the limit. The limit is the larger of `load_factor`
/// times the mean over all replicas and the mean plus `balance_abs_threshold`; the mean includes the new request. If
/// `home` is above the limit, returns the replica with the fewest requests in flight. If this replica is above the
/// limit too, returns `home`.
pub(super) fn bounded(replicas: &[Seen], home: usize, settings: &PrefixHash) -> usize {
    let total: u64 = replicas.iter().map(|r| u64::from(r.in_flight)).sum();
    let mean = (total + 1) as f64 / replicas.len() as f64;
    let most = (mean * settings.load_factor).max(mean + f64::from(settings.balance_abs_threshold));
    let fits = |r: &Seen| total == 0 || f64::from(r.in_flight) <= most;
    if fits(&replicas[home]) || !replicas.iter().any(fits) {
        return home;
    }
    least(replicas.iter().map(|r| if fits(r) { r.in_flight } else { u32::MAX }))
}
