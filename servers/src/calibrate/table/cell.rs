//! A row of a table of benchmark results.

/// How the requests of a row of the table of benchmark results arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CellLoad {
    /// A closed loop with this number of clients, each with one request at a time.
    Clients(u32),
    /// Requests arrive at this rate, per second, whether or not earlier ones have ended.
    Rate(f64),
}

impl CellLoad {
    /// The load of the row of benchmark results as text: `16 clients`, `3 requests/s`.
    pub fn in_words(self) -> String {
        match self {
            CellLoad::Clients(1) => "1 client".into(),
            CellLoad::Clients(n) => format!("{n} clients"),
            CellLoad::Rate(r) => format!("{} requests/s", crate::calibrate::loads::short(r)),
        }
    }
}

/// A row of a table of benchmark results: the results of one draft length at one load.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The number of the row's line in the table, from 1. For files of results: the number of the run among all runs.
    pub line: usize,
    /// Where the run stands in a load generator's file of results, for messages; `None` for a row of a table.
    pub from: Option<String>,
    /// How the requests of this row of benchmark results arrive: from a number of clients, or at a rate.
    pub load: CellLoad,
    /// Draft length with which this row of benchmark results was measured; 0 without speculation.
    pub k: u32,
    /// Mean prompt length of the requests of this row of benchmark results, tokens.
    pub input: f64,
    /// Mean output length of the requests of this row of benchmark results, tokens.
    pub output: f64,
    /// Number of requests that were sent for this row of benchmark results; `None` if the table does not say.
    pub requests: Option<u32>,
    /// The server's `max_num_seqs` when this row of benchmark results was measured; `None` if it is the value that
    /// the experiment states.
    pub max_num_seqs: Option<u32>,
    /// Measured output tokens per second of the whole server.
    pub tok_s: Option<f64>,
    /// Measured mean time to the first token, seconds.
    pub ttft_s: Option<f64>,
    /// Measured mean time per output token after the first, seconds.
    pub tpot_s: Option<f64>,
    /// How many draft tokens of a request were accepted in a step, without the bonus token. `None` if the table does
    /// not say, or if the draft length is 0.
    pub accepted: Option<Accepted>,
}

/// How many draft tokens of a request were accepted in a step: the mean, or the share by position.
#[derive(Clone, Debug, PartialEq)]
pub enum Accepted {
    /// Mean number of accepted draft tokens of a request in a step.
    Mean(f64),
    /// `[i]` is the share of rounds in which the draft token at position i + 1 was accepted.
    ByPosition(Vec<f64>),
}

impl Accepted {
    /// The mean number of accepted draft tokens of a request in a step.
    pub fn mean(&self) -> f64 {
        match self {
            Accepted::Mean(mean) => *mean,
            Accepted::ByPosition(shares) => shares.iter().sum(),
        }
    }
}
