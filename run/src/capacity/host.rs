//! What a search with the host time of a measured server found.

use serde::Serialize;

/// The policy with the highest capacity and plain decoding, searched again with the host time of a measured server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WithHost {
    /// The swept values of the searches as text; empty if nothing is swept.
    pub at: String,
    /// Name of the server from which the host time is taken.
    pub source: String,
    /// The label of the drafting policy that carries most without host time.
    pub policy: String,
    /// The capacity of this policy with host time, requests per second; `None` if no rate is carried.
    pub drafting_req_s: Option<f64>,
    /// The capacity of plain decoding with host time, requests per second; `None` if no rate is carried.
    pub plain_req_s: Option<f64>,
    /// Does plain decoding carry more with host time, although the policy carries more without it?
    pub turns: bool,
    /// The seed of both searches.
    pub seed: u64,
}
