//! The results of one run of a load generator, in the form that the readers of all load generators return.

/// How the requests of a load generator's run arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// The load generator ran a closed loop with this number of clients.
    Clients(u32),
    /// The load generator sent requests at this rate, in requests per second.
    Rate(f64),
}

/// How many draft tokens of a request were accepted in a step, from the results of a load generator.
#[derive(Clone, Debug, PartialEq)]
pub enum Acceptance {
    /// Mean number of accepted draft tokens of a request in a step, without the target's own token.
    Mean(f64),
    /// `[i]` is the share of rounds in which the draft token at position i + 1 was accepted.
    ByPosition(Vec<f64>),
}

/// The results of a load generator's run: means over the requests that succeeded.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The number of the load generator's run in its file, from 1.
    pub number: usize,
    /// How the run's requests arrived: from a number of clients, or at a rate.
    pub load: Load,
    /// Number of requests of the run that succeeded; above 0.
    pub completed: u32,
    /// Number of requests of the run that failed, as far as the file says.
    pub failed: u64,
    /// Mean prompt length of the run's requests, tokens.
    pub input: f64,
    /// Mean output length of the run's requests, tokens.
    pub output: f64,
    /// Output tokens per second of the whole server during the run.
    pub tok_s: f64,
    /// Mean time to the first token of the run's requests, seconds; `None` if it was not measured.
    pub ttft_s: Option<f64>,
    /// Mean time per output token after the first of the run's requests, seconds; `None` if it was not measured.
    pub tpot_s: Option<f64>,
    /// Mean end-to-end latency of the run's requests, seconds; `None` if the file does not say.
    pub e2e_s: Option<f64>,
    /// How many draft tokens of a request were accepted in a step; `None` if the file does not say.
    pub accepted: Option<Acceptance>,
    /// Mean number of draft tokens of a request in a step; `None` if the file does not say.
    pub drafted: Option<f64>,
    /// What a simulation of the load generator's run cannot repeat, one sentence each.
    pub notes: Vec<String>,
}
