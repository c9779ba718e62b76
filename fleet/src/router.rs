//! The trait of routers, and what a router sees of requests and replicas.

use crate::report_board::{Report, Signals};
use foretoken_sim::{RequestId, Time};

/// A routing policy: chooses the replica of each request.
pub trait Router {
    /// Chooses the replica of a request. Returns an index into `replicas`, which is never empty.
    fn route(&mut self, request: &Asked, replicas: &[Seen]) -> usize;

    /// Called for each request whose first token was emitted, before the router's next choice. `at` is the time of the
    /// first token. Only called for routers that [need](Needs) first tokens.
    fn first_token(&mut self, _id: RequestId, _replica: usize, _at: Time) {}

    /// Called when a replica has joined the fleet; its index is larger than all others. Only called for routers that
    /// [scale](About::scales).
    fn joined(&mut self) {}

    /// Called when the replica with this index has left the fleet. All larger indices of replicas fall by one. Only
    /// called for routers that [scale](About::scales).
    fn left(&mut self, _replica: usize) {}

    /// Called after a request has finished or was rejected. Routers that [need](Needs) neither ends nor first tokens
    /// may get no calls.
    fn ended(&mut self, _id: RequestId, _replica: usize, _end: Ended) {}
}

/// What a router knows of a request when the request has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// When the request ended.
    pub at: Time,
    /// Number of output tokens that the request emitted.
    pub emitted: u32,
    /// Number of chunks in which the tokens came: one for each step that emitted tokens; at least 1.
    pub pieces: u32,
}

/// What a router knows of a request that it must route.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The request's index in the workload.
    pub id: RequestId,
    /// When the request was sent.
    pub now: Time,
    /// Prompt length, tokens.
    pub prompt_len: u32,
    /// The request's category, an index into the workload's names of categories.
    pub category: u16,
    /// Ids of the prompt's full prefix blocks, from its start. Requests with equal leading ids share a prefix.
    pub prefix: &'a [u64],
    /// Number of tokens in a prefix block.
    pub prefix_block: u32,
    /// The request's bound on time per output token, seconds; infinity for none.
    pub tpot_s: f64,
}

/// What a router knows of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// Requests that the router sent to the replica and that have not ended. Ended requests stay counted if the router
    /// [needs](Needs) neither ends nor first tokens, unless the run may end early by its latency bounds.
    pub in_flight: u32,
    /// All requests that the router has sent to the replica.
    pub sent: u64,
    /// The newest report of the replica's load that has arrived; `None` before the first.
    pub report: Option<Report>,
    /// Number of the replica's load reports that have arrived.
    pub reports: u64,
}

/// The information that a router uses. The simulation does not compute information that the router does not use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Does the router use the number of requests in flight, or the times at which requests end?
    pub ends: bool,
    /// Does the router use the times of first tokens?
    pub first_tokens: bool,
    /// Does the router use the replicas' load reports?
    pub reports: bool,
}

/// What a router knows of the run when it is built.
#[derive(Clone, Copy, Debug)]
pub struct RouterContext<'a> {
    /// Number of replicas.
    pub replicas: usize,
    /// Seed of the router's random draws: the seed of the run.
    pub seed: u64,
    /// For each replica, the number of tokens in a KV block.
    pub block_size: &'a [u32],
    /// The run's bounds [on time to first token, on time per output token], seconds; infinity for none.
    pub slo_s: [f64; 2],
    /// For each request, the number of steps that its answer truly takes if every step drafts `max_draft_len` tokens.
    /// Empty, except for a router that [sees the hidden truth](crate::RouterSpec::sees_hidden_truth).
    pub true_steps: &'a [u32],
}

/// What a router says of itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct About {
    /// One sentence on how the router chooses.
    pub summary: &'static str,
    /// The program or publication from which the routing rule is taken.
    pub source: &'static str,
    /// The information that the router uses.
    pub needs: Needs,
    /// The load signals of the original program: how often it queries the replicas' loads, and how late the answers
    /// arrive.
    pub usual_signals: Signals,
    /// Does the router use prefixes that requests share?
    pub reads_prefixes: bool,
    /// Does the router use what no real router could know, such as a request's true number of steps?
    pub sees_hidden_truth: bool,
    /// Can replicas join and leave while the router runs?
    pub scales: bool,
}

/// Describes a router and builds it; implemented by the router's settings.
pub trait RouterDefinition {
    /// What the router says of itself.
    fn about(&self) -> About;

    /// Checks the settings of the router.
    ///
    /// # Errors
    /// A setting is outside its range. The error is its key, and what is wrong.
    fn check(&self) -> Result<(), (&'static str, String)> {
        Ok(())
    }

    /// Builds the router with these settings.
    fn build(&self, context: &RouterContext) -> Box<dyn Router>;
}
