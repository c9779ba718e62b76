//! Consistent hashing: a hash of the prompt's beginning chooses the replica on a ring, unless this replica has too many
//! requests in flight.

use super::checks;
use super::least_requests::least;
use crate::Signals;
use crate::prefix::beginning;
use crate::router::{Asked, Needs, Router, RouterContext, RouterDefinition, Seen};
use foretoken_sim::luck::mix;
use serde::{Deserialize, Serialize};

/// The replica that a hash of the prompt's first tokens points at on a ring, unless it is overloaded (SMG
/// `policies/prefix_hash.rs`): then the one with the fewest requests in flight. A replica is overloaded if it has more
/// than `load_factor` times the mean number of requests in flight. The hash function differs from SMG's, so a prefix
/// may go to another replica than in SMG; the rule is the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PrefixHash {
    /// Number of the prompt's first tokens that are hashed, at least 1.
    pub prefix_token_count: u32,
    /// Most requests in flight of a replica, as a multiple of the mean over replicas, > 0.
    pub load_factor: f64,
    /// Number of points of each replica on the hash ring, at least 1. More points spread prefixes more evenly.
    pub virtual_nodes: u32,
}

impl Default for PrefixHash {
    fn default() -> PrefixHash {
        PrefixHash { prefix_token_count: 256, load_factor: 1.25, virtual_nodes: 150 }
    }
}

impl RouterDefinition for PrefixHash {
    fn summary(&self) -> &'static str {
        "a hash ring over the beginning of the prompt, with bounded load"
    }

    fn source(&self) -> &'static str {
        "SMG, model_gateway/src/policies/prefix_hash.rs"
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
        checks::positive("prefix_token_count", self.prefix_token_count.into())?;
        checks::positive("load_factor", self.load_factor)?;
        checks::positive("virtual_nodes", self.virtual_nodes.into())
    }

    fn build(&self, context: &RouterContext) -> Box<dyn Router> {
        let nodes = 0..u64::from(self.virtual_nodes);
        let points = (0..context.replicas).flat_map(|r| nodes.clone().map(move |node| (point(r as u64, node), r)));
        let mut ring: Vec<(u64, usize)> = points.collect();
        ring.sort_unstable();
        Box::new(Ring { ring, tokens: self.prefix_token_count, load_factor: self.load_factor })
    }
}

/// The position on the hash ring of a replica's virtual node.
pub(super) fn point(replica: u64, node: u64) -> u64 {
    mix(mix(replica + 1) ^ node)
}

struct Ring {
    /// Positions of all virtual nodes, ascending, with their replicas.
    ring: Vec<(u64, usize)>,
    tokens: u32,
    load_factor: f64,
}

impl Router for Ring {
    fn route(&mut self, request: &Asked, replicas: &[Seen]) -> usize {
        let key = beginning(request, self.tokens);
        let at = self.ring.partition_point(|(point, _)| *point < key) % self.ring.len();
        bounded(replicas, self.ring[at].1, self.load_factor)
    }
}

/// Returns the replica `home` if its requests in flight are at most `factor` times the mean over all replicas; the mean
/// includes the new request. Else returns the replica with the fewest requests in flight, if it is within this limit,
/// and `home` if it is not.
pub(super) fn bounded(replicas: &[Seen], home: usize, factor: f64) -> usize {
    let total: u64 = replicas.iter().map(|r| u64::from(r.in_flight)).sum();
    let most = (total + 1) as f64 / replicas.len() as f64 * factor;
    let fits = |r: &Seen| total == 0 || f64::from(r.in_flight) <= most;
    if fits(&replicas[home]) || !replicas.iter().any(fits) {
        return home;
    }
    least(replicas.iter().map(|r| if fits(r) { r.in_flight } else { u32::MAX }))
}
