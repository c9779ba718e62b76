//! What a scaling rule sees when it decides, and what it answers.

use crate::report_board::Report;
use foretoken_sim::Time;

/// What a scaling rule knows of the replicas' engines when it is built.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineLimits {
    /// Number of tokens in a KV block.
    pub block_size: u32,
    /// The most tokens that a step may have.
    pub max_num_batched_tokens: u32,
    /// The most running requests of an engine.
    pub max_num_seqs: u32,
    /// The run's bounds [on time to first token, on time per output token], seconds; infinity for none.
    pub slo_s: [f64; 2],
}

/// Counts of requests and tokens since the start of the run, as the router in front of the replicas counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of requests sent since the start of the run.
    pub sent: u64,
    /// Sum of the prompt tokens of the requests sent since the start of the run.
    pub prompt_tokens: u64,
    /// Number of requests that have ended since the start of the run.
    pub ended: u64,
    /// Sum of the prompt tokens of the requests that have ended.
    pub ended_prompt_tokens: u64,
    /// Sum of the output tokens of the requests that have ended.
    pub output_tokens: u64,
}

/// What a scaling rule sees when it decides.
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    /// Time of the decision.
    pub now: Time,
    /// The newest load report of each serving replica that has arrived; `None` before a replica's first report.
    pub reports: &'a [Option<Report>],
    /// The number of each serving replica. Numbers count all replicas that the fleet ever had, from 0, in the order in
    /// which they were added; no number is used twice.
    pub numbers: &'a [usize],
    /// Number of replicas that boot.
    pub booting: u32,
    /// The fewest replicas that the rule may ask for.
    pub min_replicas: u32,
    /// Counts of the requests and tokens that were sent and that ended, from the start of the run to the decision.
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

/// The number of replicas that a scaling rule wants, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Number of replicas that should serve or boot.
    pub replicas: u32,
    /// The reason for this number as text. The run's results list each decision with its reason.
    pub reason: String,
}

/// A scaling rule at work in one run.
pub(crate) trait Decides {
    /// The number of replicas that the rule wants now; `None` if the number should not change.
    fn decide(&mut self, watched: &Watched) -> Option<Wish>;
}

/// Checks that the setting `key` is a share: above 0 and at most 1.
pub(super) fn share(key: &'static str, value: f64) -> Result<(), (&'static str, String)> {
    match value > 0.0 && value <= 1.0 {
        true => Ok(()),
        false => Err((key, format!("{value} is not a share above 0 and at most 1"))),
    }
}

/// Checks that the setting `key` is a finite number of seconds above 0, or at least 0 if `zero` is true.
pub(super) fn seconds(key: &'static str, value: f64, zero: bool) -> Result<(), (&'static str, String)> {
    match value.is_finite() && (value > 0.0 || zero && value == 0.0) {
        true => Ok(()),
        false => Err((key, format!("{value} is not a time {} 0 s", if zero { "of at least" } else { "above" }))),
    }
}
