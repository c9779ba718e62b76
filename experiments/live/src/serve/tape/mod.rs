//! What a run did, step by step: enough to tell it again request by request without having been there.

mod facts;
mod file;
mod retell;

pub use facts::{Pass, passes, span};
pub use file::{TapeError, TapeWriter, read_intact, read_tape};
pub use retell::{Told, retell};

use foretoken_intact::frames::{Cut, Damage};
use foretoken_sim::live::StepTrace;
use foretoken_sim::{Arrivals, Time, Workload};
use serde::{Deserialize, Serialize};

/// What is known before the first step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// The policy's label.
    pub policy: String,
    /// Is it of warming up, before the run that will take its place?
    pub warming_up: bool,
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
    /// The TPOT bound shown to the policy, seconds; infinite without one.
    pub slo_tpot_s: f64,
    /// Host time between the passes of a step, measured while warming up, seconds.
    pub overhead_s: f64,
}

impl Head {
    /// Of a workload, in an engine without bounds and a host that takes no time.
    pub fn new(policy: String, seed: u64, device: String, arrivals: Arrivals, workload: &Workload) -> Head {
        Head {
            policy,
            warming_up: false,
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
            max_model_len: u32::MAX,
            slo_tpot_s: f64::INFINITY,
            overhead_s: 0.0,
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

/// What is known after the last step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tail {
    /// How it ended.
    pub ending: TapeEnding,
    /// Requests that could never fit.
    pub rejected: Vec<u32>,
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

/// A tape in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Tape {
    /// What was known before.
    pub head: Head,
    /// The steps.
    pub steps: Vec<StepTrace>,
    /// What is behind them.
    pub end: End,
}

/// How a tape ends.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// With what was known after the last step.
    Tail(Tail),
    /// Without it, behind a whole frame or within one: whoever wrote it was killed, or the file was cut.
    Cut(Cut),
    /// Before a frame that is damaged.
    Damaged(Damage),
}

impl Tape {
    /// What was known after the last step; `None` when that is not there.
    pub fn tail(&self) -> Option<&Tail> {
        match &self.end {
            End::Tail(tail) => Some(tail),
            End::Cut(_) | End::Damaged(_) => None,
        }
    }

    /// Did every request end?
    pub fn complete(&self) -> bool {
        self.tail().is_some_and(|t| t.ending == TapeEnding::Done)
    }

    /// The last instant it tells of.
    pub fn last(&self) -> Time {
        self.steps.iter().filter_map(|s| s.marks.last()).map(|m| m.end).max().unwrap_or_default()
    }

    /// What happened to each request, and each step.
    pub fn told(&self) -> Told {
        retell(&self.head, &self.steps, self.tail())
    }
}
