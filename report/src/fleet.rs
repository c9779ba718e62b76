//! The replicas of a run's fleet, as figures and tables need them.

use foretoken_sim::metrics::{Flow, FlowBin, ReplicaSummary, Scaled};

/// The fleet of a run as its experiment states it.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetEntry {
    /// The name of the router, which chooses the replica of each request.
    pub router: String,
    /// The pool of each replica that serves from the start. A pool has the replicas of one role: `prefill`, `decode`,
    /// or `replica` for replicas that serve whole requests.
    pub pools: Vec<&'static str>,
}

/// What the replicas of a run's fleet did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetCell {
    pub each: Vec<ReplicaSummary>,
    /// The requests on each replica of the fleet over time.
    pub flows: Vec<Flow>,
    /// How the fleet grew and shrank; `None` for a fleet of a fixed size.
    pub scaled: Option<Scaled>,
}

impl FleetCell {
    /// How the fleet grew and shrank; `None` if the number of replicas never changed.
    pub fn changes(&self) -> Option<&Scaled> {
        self.scaled.as_ref().filter(|scaled| !scaled.decisions.is_empty())
    }

    /// The most replicas at a time, booting and draining ones included.
    pub fn most_at_a_time(&self) -> usize {
        let at_a_time = |scaled: &Scaled| scaled.over_time().iter().map(|row| row.1.iter().sum::<u32>()).max();
        self.changes().and_then(at_a_time).map_or(self.each.len(), |most| most as usize)
    }
}

impl FleetEntry {
    /// The pool (`prefill`, `decode` or `replica`) of the replica with index `replica`. Replicas that were ordered
    /// during the run are in the pool `replica`.
    pub fn pool(&self, replica: usize) -> &'static str {
        self.pools.get(replica).copied().unwrap_or("replica")
    }

    /// The pools of the fleet, in the order of their first replicas.
    pub fn each_pool(&self) -> Vec<&'static str> {
        let mut pools: Vec<&'static str> = Vec::new();
        for pool in &self.pools {
            if !pools.contains(pool) {
                pools.push(pool);
            }
        }
        pools
    }

    /// The fleet's replicas as text, such as `1 prefill and 3 decode replicas`.
    pub fn in_words(&self) -> String {
        let n = |pool: &str| self.pools.iter().filter(|other| **other == pool).count();
        let each: Vec<String> = self.each_pool().iter().map(|pool| format!("{} {pool}", n(pool))).collect();
        let s = if self.pools.len() == 1 { "" } else { "s" };
        match self.each_pool().as_slice() {
            ["replica"] => format!("{}{s}", each[0]),
            _ => format!("{} replica{s}", each.join(" and ")),
        }
    }

    /// A replica's name by its index, such as `decode 2`.
    pub fn name(&self, replica: usize) -> String {
        format!("{} {replica}", self.pool(replica))
    }
}

/// The share (0 to 1) of the replica's prompt tokens that were found in its prefix cache; `None` without prompts.
pub fn hit_rate(replica: &ReplicaSummary) -> Option<f64> {
    (replica.prompt_tokens > 0).then(|| replica.cached_tokens as f64 / replica.prompt_tokens as f64)
}

/// The share (0 to 1) of prompt tokens that were found in the prefix cache, in one bin of time; `None` without prompts.
pub fn hit_rate_of(bin: &FlowBin) -> Option<f64> {
    (bin.prompt_tokens > 0).then(|| bin.cached_tokens as f64 / bin.prompt_tokens as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_have_names_by_pool() {
        let fleet = FleetEntry { router: "random".into(), pools: vec!["prefill", "decode", "decode"] };
        assert_eq!([0, 2, 3].map(|r| fleet.name(r)), ["prefill 0", "decode 2", "replica 3"]);
        assert_eq!(fleet.each_pool(), ["prefill", "decode"]);
        assert_eq!(fleet.in_words(), "1 prefill and 2 decode replicas");
        let alike = FleetEntry { pools: vec!["replica"; 4], ..fleet };
        assert_eq!(alike.in_words(), "4 replicas");
    }

    #[test]
    fn hit_rates_count_tokens() {
        let replica = ReplicaSummary { prompt_tokens: 200, cached_tokens: 50, ..ReplicaSummary::default() };
        assert_eq!(hit_rate(&replica), Some(0.25));
        assert_eq!(hit_rate_of(&FlowBin::default()), None);
    }
}
