//! The recorded data from which a timeline is made, and the processes of a timeline.

use foretoken_report::Key;
use foretoken_sim::{DeliverAt, RequestRecords, StepRecord};

/// Process id, in the trace file, of the rows that show the engine's steps.
pub const ENGINE: u32 = 1;
/// Process id, in the trace file, of the rows (lanes) that show requests.
pub const REQUESTS: u32 = 2;

/// Process id, in the trace file, of the rows that show a fleet's router.
pub const ROUTER: u32 = 3;

/// The recorded steps and requests of one run, from which a timeline is made.
pub struct Recorded<'a> {
    /// The policy, seed and swept values of the run that the timeline shows.
    pub key: &'a Key,
    /// Where the run's numbers come from: simulated, measured on a device, or observed on a server.
    pub source: &'a str,
    /// One record per step of the run, in the order of their starts; at least one.
    pub steps: &'a [StepRecord],
    pub requests: &'a RequestRecords,
    /// Number of KV blocks that the run's requests could use; `None` if it is not known.
    pub blocks: Option<u32>,
    /// For a run that makes draft tokens at the end of a step: are a step's output tokens sent to the clients before or
    /// after the step makes its draft tokens? `None` if the run makes draft tokens at the start of a step.
    pub behind: Option<DeliverAt>,
}
