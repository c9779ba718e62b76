//! A request as the scheduler sees it (vLLM's `request.py`). The comments give vLLM's names.

use crate::pool::Key;
use crate::workload::Ask;

#[derive(Clone, Debug, Default)]
pub struct Request {
    pub id: usize,
    pub ask: Ask,
    pub outputs: i64,
    /// `num_computed_tokens`: tokens of the request that are in KV.
    pub computed: i64,
    /// `spec_token_ids`: number of draft tokens that the request holds for its next step.
    pub spec: i64,
    /// `num_output_placeholders`: output tokens that the steps in flight give if all draft tokens are accepted.
    pub placeholders: i64,
    /// `num_in_flight_tokens`: tokens of the request in steps that were scheduled and have no output yet.
    pub in_flight: i64,
    /// `num_stale_output_tokens`: tokens that were in flight when the request was preempted.
    pub stale: i64,
    /// `is_prefill_chunk`: do the scheduled steps leave a part of the request's known tokens uncomputed?
    pub chunk: bool,
    pub preempted: bool,
    pub finished: bool,
    /// The KV blocks of the request, in the order of its tokens.
    pub table: Vec<usize>,
    /// Number of KV blocks at the start of `table` that are in the prefix cache.
    pub cached: i64,
    /// Did the scheduler pass the request over, and has it not admitted the request since (`deferred_waiting`)?
    pub deferred: bool,
}

impl Request {
    pub fn new(id: usize, ask: Ask) -> Request {
        Request { id, ask, ..Request::default() }
    }

    /// `num_tokens`: the request's prompt and output tokens that are known.
    pub fn tokens(&self) -> i64 {
        self.ask.prompt + self.outputs
    }

    /// The request's place in a queue sorted by priority; the smallest is first.
    pub fn rank(&self) -> (i64, i64, usize) {
        (self.ask.priority, self.ask.arrival, self.id)
    }

    /// All tokens of the request before position `end`, as the key of a cached KV block. Requests of one group have
    /// equal first tokens. All other tokens are unique.
    pub fn key(&self, end: i64) -> Key {
        let shared = if self.ask.group > 0 { self.ask.prefix.min(self.ask.prompt) } else { 0 };
        let token = |at: i64| match at < shared {
            true => self.ask.group << 24 | at as u64,
            false => (self.id as u64 + 256) << 24 | at as u64,
        };
        (0..end).map(token).collect()
    }
}
