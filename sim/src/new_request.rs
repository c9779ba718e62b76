//! A request at its admission, as policies see it.

use crate::workload::RequestId;

/// A request that is scheduled for the first time, as a server sees it. Its output length is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewRequest {
    /// Id of the request.
    pub id: RequestId,
    /// Number of tokens of its prompt.
    pub prompt_len: u32,
    /// Number of its prompt tokens that were found in the prefix cache.
    pub num_cached_tokens: u32,
    /// The most tokens that it may emit: its client's limit where the workload has one, and at most the model's longest
    /// length minus the prompt.
    pub max_tokens: u32,
    /// Its category, as [`BatchView::category`](crate::BatchView::category) gives it.
    pub category: Option<u16>,
    /// Number of requests in the running list, including requests in prefill and this one.
    pub num_running: u32,
    /// Number of waiting requests.
    pub num_waiting: u32,
}
