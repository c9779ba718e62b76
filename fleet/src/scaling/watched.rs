//! What a rule sees when it decides, and what it answers.

use crate::report_board::Report;
use foretoken_sim::Time;

/// What is known of the replicas' engines when a rule is built.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineLimits {
    /// Tokens in a KV block.
    pub block_size: u32,
    /// Most tokens in a step.
    pub max_num_batched_tokens: u32,
    /// Most running requests.
    pub max_num_seqs: u32,
    /// The run's bounds [on time to first token, on time per output token], seconds; infinity for none.
    pub slo_s: [f64; 2],
}

/// Counts since the start of the run, as the router in front of the replicas makes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests sent.
    pub sent: u64,
    /// Prompt tokens of the requests sent.
    pub prompt_tokens: u64,
    /// Requests that ended.
    pub ended: u64,
    /// Prompt tokens of the requests that ended.
    pub ended_prompt_tokens: u64,
    /// Output tokens of the requests that ended.
    pub output_tokens: u64,
}

/// What a rule sees when it decides.
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    /// Time of the decision.
    pub now: Time,
    /// The newest report of each serving replica that has arrived; `None` before a replica's first.
    pub reports: &'a [Option<Report>],
    /// For each serving replica its number since the start, which no other replica has.
    pub numbers: &'a [usize],
    /// Number of replicas that boot.
    pub booting: u32,
    /// The fewest replicas that may be wished for.
    pub min_replicas: u32,
    /// Counts of requests up to the decision.
    pub traffic: Traffic,
}

impl Watched<'_> {
    /// Number of replicas that serve.
    pub fn serving(&self) -> u32 {
        self.reports.len() as u32
    }

    /// Number of replicas that serve or boot.
    pub fn current(&self) -> u32 {
        self.serving() + self.booting
    }
}

/// A number of replicas that a rule wants, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Number of replicas that should serve or boot.
    pub replicas: u32,
    /// The reason, for the table of decisions.
    pub reason: String,
}

/// A rule at work in one run.
pub(crate) trait Decides {
    /// The wished number of replicas; `None` for no change.
    fn decide(&mut self, watched: &Watched) -> Option<Wish>;
}

/// A share above 0 and at most 1.
pub(super) fn share(key: &'static str, value: f64) -> Result<(), (&'static str, String)> {
    match value > 0.0 && value <= 1.0 {
        true => Ok(()),
        false => Err((key, format!("{value} is not a share above 0 and at most 1"))),
    }
}

/// A finite time above 0 (or at least 0, if `zero` is allowed).
pub(super) fn seconds(key: &'static str, value: f64, zero: bool) -> Result<(), (&'static str, String)> {
    match value.is_finite() && (value > 0.0 || zero && value == 0.0) {
        true => Ok(()),
        false => Err((key, format!("{value} is not a time {} 0 s", if zero { "of at least" } else { "above" }))),
    }
}
