//! What a run did, step by step: enough to tell it again request by request without having been there.
//!
//! The same record is made of a live run and of a simulated one, by the same [`Watched`](super::watch::Watched) executor, so
//! that the two can be compared field by field.

mod file;
mod retell;

pub use file::{TapeReader, TapeWriter, read_tape};
pub use retell::{Told, retell};

use foretoken_sim::{Arrivals, PassShape, Time, Workload};
use serde::{Deserialize, Serialize};

/// The layout of the file; a reader refuses any other.
pub const SCHEMA_VERSION: u32 = 1;

/// What is known before the first step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// [`SCHEMA_VERSION`]
    pub schema_version: u32,
    /// The policy's label.
    pub policy: String,
    /// The seed of the cell.
    pub seed: u64,
    /// What ran it, in words.
    pub device: String,
    /// Clients of a closed loop; `None` when requests arrive by themselves.
    pub clients: Option<u32>,
    /// Arrival of each request on the run's clock; ignored in a closed loop.
    pub arrival: Vec<Time>,
    /// Prompt tokens of each.
    pub prompt_len: Vec<u32>,
    /// Output tokens each is to emit.
    pub output_len: Vec<u32>,
    /// Category of each.
    pub category: Vec<u16>,
    /// `engine.max_model_len`
    pub max_model_len: u32,
}

impl Head {
    /// Of a workload.
    pub fn new(policy: String, seed: u64, device: String, arrivals: Arrivals, workload: &Workload, most: u32) -> Head {
        Head {
            schema_version: SCHEMA_VERSION,
            policy,
            seed,
            device,
            clients: match arrivals {
                Arrivals::Open => None,
                Arrivals::Closed { clients } => Some(clients),
            },
            arrival: workload.arrival.clone(),
            prompt_len: workload.prompt_len.clone(),
            output_len: workload.output_len.clone(),
            category: workload.category.clone(),
            max_model_len: most,
        }
    }

    /// How requests came in.
    pub fn arrivals(&self) -> Arrivals {
        self.clients.map_or(Arrivals::Open, |clients| Arrivals::Closed { clients })
    }

    /// Output tokens a request really emits: the model's length bounds it.
    pub fn stop_at(&self, request: usize) -> u32 {
        self.output_len[request].min(self.max_model_len.saturating_sub(self.prompt_len[request]))
    }
}

/// One forward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pass {
    /// New tokens.
    pub batched: u64,
    /// Tokens of KV read.
    pub context: u64,
    /// Query-key pairs.
    pub pairs: u64,
    /// How long it took.
    pub time: Time,
}

impl Pass {
    /// A pass of this shape.
    pub fn new(shape: PassShape, time: Time) -> Pass {
        Pass { batched: shape.batched, context: shape.context, pairs: shape.pairs, time }
    }

    /// Its shape.
    pub fn shape(&self) -> PassShape {
        PassShape { batched: self.batched, context: self.context, pairs: self.pairs }
    }
}

/// What one decode request did in a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The request.
    pub request: u32,
    /// Output tokens it had emitted: where the round starts.
    pub start: u32,
    /// The most it was allowed to draft.
    pub limit: u32,
    /// Draft tokens (a tree's depth).
    pub drafted: u32,
    /// Of them verified.
    pub verified: u32,
    /// Of them accepted, before the trim at the output's end.
    pub accepted: u32,
    /// Nodes drafted and kept of a tree; zeros for a chain.
    pub nodes: (u32, u32),
    /// What the policy was told of each drafted token, when it looks: the draft's probability of it.
    pub confidence: Vec<f32>,
    /// The same for the entropy of the draft's distribution, nats.
    pub entropy: Vec<f32>,
    /// KL(target ‖ draft) at the positions verified up to the first wrong one, nats.
    pub divergence: Vec<f32>,
}

/// A piece of a prompt that ran in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// The request.
    pub request: u32,
    /// Tokens in KV before it.
    pub computed: u32,
    /// New tokens.
    pub tokens: u32,
    /// Does it end the prompt, so that an output token comes of it?
    pub last: bool,
}

/// One step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its index.
    pub step: u64,
    /// When scheduling for it began.
    pub start: Time,
    /// When its target pass ended: the instant of the tokens it emitted.
    pub end: Time,
    /// Its draft passes, in order.
    pub draft: Vec<Pass>,
    /// Its target pass.
    pub verify: Pass,
    /// Time since the last step (or the last wait) in neither pass: scheduler and policy.
    pub host: Time,
    /// Requests running, prefilling ones included.
    pub running: u32,
    /// Requests waiting after scheduling.
    pub waiting: u32,
    /// Its decode requests, in running order.
    pub rounds: Vec<Round>,
    /// Its prefill chunks.
    pub chunks: Vec<Piece>,
}

impl Step {
    /// Time of all draft passes.
    pub fn draft_time(&self) -> Time {
        self.draft.iter().map(|p| p.time).sum()
    }
}

/// What is known after the last step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tail {
    /// How it ended.
    pub ending: TapeEnding,
    /// Requests that could never fit.
    pub rejected: Vec<u32>,
    /// When it ended.
    pub end: Time,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TapeEnding {
    /// Every request has ended.
    Done,
    /// Asked to stop.
    Interrupted,
    /// The device failed, with what it said.
    Failed(String),
}

/// A whole tape in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Tape {
    /// What was known before.
    pub head: Head,
    /// The steps.
    pub steps: Vec<Step>,
    /// What was known after; `None` when the process was killed.
    pub tail: Option<Tail>,
}

impl Tape {
    /// Did every request end?
    pub fn complete(&self) -> bool {
        self.tail.as_ref().is_some_and(|t| t.ending == TapeEnding::Done)
    }
}
