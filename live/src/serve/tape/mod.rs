//! The tape: the log of a live run, from which the records of requests and steps can be rebuilt.

mod facts;
mod file;
mod possible;
mod rebuild;

pub use facts::{Pass, passes, span};
pub use file::{KIND, TapeError, TapeWriter, parse_tape, read_intact, read_tape};
pub use rebuild::rebuild_records;

use foretoken_servers::compare::live_runs::Records;
use foretoken_sim::live::StepTrace;
use foretoken_sim::{Arrivals, Time, Workload};
use foretoken_traces::intact::frames::{Cut, Damage};
use serde::{Deserialize, Serialize};

/// The first part of a tape: the facts known before the first step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// The label of the run's policy, under which results name it.
    pub policy: String,
    /// True for the tape (the log) of a warm-up run. The tape of the measured run later replaces the warm-up run's
    /// file.
    pub warming_up: bool,
    /// The seed of the run's random draws.
    pub seed: u64,
    /// The name of the device that served.
    pub device: String,
    /// Number of clients of a closed loop; `None` if requests arrive at set times.
    pub clients: Option<u32>,
    /// Arrival time of each request on the run's clock. In a closed loop it is ignored, because each client sends its
    /// next request when the one before has ended.
    pub arrival: Vec<Time>,
    /// Number of prompt tokens of each request.
    pub prompt_len: Vec<u32>,
    /// Number of output tokens of each request, unless `max_model_len` ends the request earlier.
    pub output_len: Vec<u32>,
    /// Category of each request (index into the workload's categories).
    pub category: Vec<u16>,
    /// The engine's `max_model_len`: the most tokens of a request, prompt and output together.
    pub max_model_len: u32,
    /// The TPOT bound that the policy saw, in seconds; infinite without a bound.
    pub slo_tpot_s: f64,
    /// Mean host time of a step, in seconds. It includes the time for recording the step. It was measured in the
    /// warm-up run.
    pub overhead_s: f64,
}

impl Head {
    /// Makes the head of a log for a run over `workload`. The caller sets `max_model_len`, the TPOT bound and the host
    /// time afterwards; until then there is no limit, no bound and no host time.
    pub fn new(policy: String, seed: u64, device: String, arrivals: Arrivals, workload: &Workload) -> Head {
        Head {
            policy,
            warming_up: false,
            seed,
            device,
            clients: match arrivals {
                // Sessions cannot occur here: live runs with sessions are refused.
                Arrivals::Open | Arrivals::Sessions => None,
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

    /// Returns how requests arrive: at set times (open), or from a fixed number of clients (closed loop).
    pub fn arrivals(&self) -> Arrivals {
        self.clients.map_or(Arrivals::Open, |clients| Arrivals::Closed { clients })
    }

    /// Number of output tokens after which the request with index `request` ends: its output length, or fewer if its
    /// prompt and output reach `max_model_len` earlier.
    pub fn stop_at(&self, request: usize) -> u32 {
        self.output_len[request].min(self.max_model_len.saturating_sub(self.prompt_len[request]))
    }
}

/// The last part of a tape: the facts known after the last step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tail {
    /// How the live run ended: completely, by an interrupt of the user, or by a failure of the device.
    pub ending: TapeEnding,
    /// Ids of the requests that were rejected because the engine can never run them.
    pub rejected: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TapeEnding {
    /// All requests of the workload ended.
    Done,
    Interrupted,
    /// The device failed; the text is its error.
    Failed(String),
}

/// The content of a tape file, in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Tape {
    /// The facts known before the first step of the run, such as its requests.
    pub head: Head,
    /// The records of the run's steps, in order.
    pub steps: Vec<StepTrace>,
    /// How the file of the tape ends: complete, cut or damaged.
    pub end: End,
}

#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// The file is complete: it ends with a tail, the facts known after the last step.
    Tail(Tail),
    /// The file ends without a tail, after or within a frame: the process was killed, or the file was cut.
    Cut(Cut),
    /// A frame is damaged. Only the frames before it were read.
    Damaged(Damage),
}

impl Tape {
    /// Returns the tail of the log, which has the facts known after the last step; `None` if the log was cut before its
    /// tail or is damaged.
    pub fn tail(&self) -> Option<&Tail> {
        match &self.end {
            End::Tail(tail) => Some(tail),
            End::Cut(_) | End::Damaged(_) => None,
        }
    }

    /// True if the tape has a tail, and all requests of the run ended.
    pub fn complete(&self) -> bool {
        self.tail().is_some_and(|t| t.ending == TapeEnding::Done)
    }

    /// The last time in the tape, on the run's clock; 0 without steps.
    pub fn last(&self) -> Time {
        self.steps.iter().filter_map(|s| s.marks.last()).map(|m| m.end).max().unwrap_or_default()
    }

    /// Rebuilds the records of each request and each step of the run. This works also without a tail, which is the last
    /// part of the log.
    pub fn records(&self) -> Records {
        rebuild_records(&self.head, &self.steps, self.tail())
    }
}
