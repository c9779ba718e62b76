//! What a search with the host time of a measured server found.

use serde::Serialize;

/// The recommended drafting policy and plain decoding, searched again with the host time of a measured server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WithHost {
    /// The swept values of the searches as text; empty if nothing is swept.
    pub at: String,
    /// Name of the server from which the host time is taken.
    pub source: String,
    /// The label of the drafting policy that costs the least without host time.
    pub policy: String,
    /// The fewest replicas with this policy and host time, and the mean end-to-end latency on them.
    pub drafting: Fewest,
    /// The fewest replicas with plain decoding and host time, and the mean end-to-end latency on them.
    pub plain: Fewest,
    /// Does plain decoding need fewer replicas with host time, or as many and less time?
    pub turns: bool,
    /// The seed of both searches.
    pub seed: u64,
}

/// The fewest replicas that carry the load, and how long requests take on them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fewest {
    /// The fewest replicas; `None` if the most that may be tried do not carry the load.
    pub replicas: Option<u32>,
    /// Mean end-to-end latency on these replicas, seconds.
    pub e2e_mean_s: Option<f64>,
}

impl Fewest {
    /// Fewer replicas, or as many on which requests take less time.
    pub(super) fn is_better_than(&self, other: &Fewest) -> bool {
        let number = |of: &Fewest| of.replicas.unwrap_or(u32::MAX);
        match number(self).cmp(&number(other)) {
            std::cmp::Ordering::Equal => self.e2e_mean_s.zip(other.e2e_mean_s).is_some_and(|(own, of)| own < of),
            order => order.is_lt(),
        }
    }

    fn in_words(&self) -> String {
        let time = self.e2e_mean_s.map_or(String::new(), |s| format!(" ({s:.2} s a request)"));
        match self.replicas {
            None => "more replicas than may be tried".to_owned(),
            Some(1) => format!("1 replica{time}"),
            Some(n) => format!("{n} replicas{time}"),
        }
    }
}

impl WithHost {
    pub fn in_words(&self) -> String {
        format!(
            "With the host time of a measured server ({}) {} needs {} and no drafting {} (seed {}).",
            self.source,
            self.policy,
            self.drafting.in_words(),
            self.plain.in_words(),
            self.seed
        )
    }

    /// A note for an answer that host time does not turn around.
    pub fn stays(&self) -> String {
        let at = if self.at.is_empty() { String::new() } else { format!("{}: ", self.at) };
        format!("{at}no host time is counted. {} The answer stays.", self.in_words())
    }
}
