//! What a router is, and what it sees.

use crate::report_board::{Report, Signals};
use foretoken_sim::{RequestId, Time};

/// Sends each request to a replica.
pub trait Router {
    /// Chooses the replica of a request, by index into `replicas`, which are never empty.
    fn route(&mut self, request: &Asked, replicas: &[Seen]) -> usize;

    /// A replica has emitted a request's first token at `at`.
    fn first_token(&mut self, _id: RequestId, _replica: usize, _at: Time) {}

    /// A request has ended, finished or rejected.
    fn ended(&mut self, _id: RequestId, _replica: usize, _end: Ended) {}
}

/// What a router has seen of a request when it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// When it ended.
    pub at: Time,
    /// Number of output tokens.
    pub emitted: u32,
    /// Number of pieces in which they came: one for each step that emitted.
    pub pieces: u32,
}

/// What is known of a request when it comes.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The request.
    pub id: RequestId,
    /// When it was sent.
    pub now: Time,
    /// Prompt length, tokens.
    pub prompt_len: u32,
    /// Its category, an index into the workload's names.
    pub category: u16,
    /// Ids of the prefix blocks that it may share with others; full blocks from the start of the prompt.
    pub prefix: &'a [u64],
    /// Tokens in a prefix block.
    pub prefix_block: u32,
    /// Its bound on time per output token, seconds; infinity for none.
    pub tpot_s: f64,
}

/// What a router sees of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// Requests that the router has sent there and that have not ended.
    pub in_flight: u32,
    /// Requests that the router has ever sent there.
    pub sent: u64,
    /// The newest report of the replica's load that has arrived; `None` before the first.
    pub report: Option<Report>,
    /// Number of reports that have arrived.
    pub reports: u64,
}

/// What a router needs to learn. What it does not need costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Does it count the requests in flight, or learn from ends?
    pub ends: bool,
    /// Does it learn of first tokens?
    pub first_tokens: bool,
    /// Does it read the replicas' reports?
    pub reports: bool,
}

/// What a router is built from.
#[derive(Clone, Copy, Debug)]
pub struct RouterContext<'a> {
    /// Number of replicas.
    pub replicas: usize,
    /// The seed of a run's draws.
    pub seed: u64,
    /// Tokens in a KV block of each replica.
    pub block_size: &'a [u32],
    /// The run's bounds on time to first token and time per output token, seconds; infinity for none.
    pub slo_s: [f64; 2],
    /// The true number of steps of each request's answer if all drafts of the longest length are made; only for a
    /// router that [sees hidden truth](crate::RouterSpec::sees_hidden_truth), empty for all others.
    pub true_steps: &'a [u32],
}

/// What a router's settings say about it.
pub trait RouterDefinition {
    /// One sentence: what it does.
    fn summary(&self) -> &'static str;

    /// Where the rule comes from.
    fn source(&self) -> &'static str;

    /// What it must learn.
    fn needs(&self) -> Needs;

    /// How often its program asks replicas for their load, and how late the answer comes.
    fn usual_signals(&self) -> Signals {
        Signals::default()
    }

    /// Does it look for prefixes that requests share?
    fn reads_prefixes(&self) -> bool {
        false
    }

    /// Does it see what no router could know?
    fn sees_hidden_truth(&self) -> bool {
        false
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// A setting is outside its range: its key, and what is wrong.
    fn check(&self) -> Result<(), (&'static str, String)> {
        Ok(())
    }

    /// The router.
    fn build(&self, context: &RouterContext) -> Box<dyn Router>;
}
