//! How the KV of a prompt came from one replica of a fleet to another.

use crate::time::Time;
use serde::{Deserialize, Serialize};

/// How the KV of a request's prompt came from a prefill replica to the replica that decodes. The time of an event that
/// did not happen is `Time::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandOff {
    /// Index of the prefill replica that computed the prompt; `u16::MAX` if the request's own replica computed it.
    pub replica: u16,
    /// When the prefill replica finished the prompt.
    pub computed: Time,
    /// When the transfer of the prompt's KV between the replicas began.
    pub begun: Time,
    /// When all KV of the prompt had arrived at the replica that decodes.
    pub arrived: Time,
    /// Bytes of KV transferred for the request.
    pub bytes: u64,
}

impl Default for HandOff {
    fn default() -> HandOff {
        HandOff { replica: u16::MAX, computed: Time::MAX, begun: Time::MAX, arrived: Time::MAX, bytes: 0 }
    }
}
