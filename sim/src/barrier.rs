//! Where the target passes of data-parallel ranks meet, as a rank's clock sees it.

use crate::latency::PassShape;
use crate::time::Time;

/// A target pass that a rank has planned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    /// When the rank could begin the pass.
    pub(crate) start: Time,
    pub(crate) shape: PassShape,
    /// Time that the pass takes longer than its model says, and then the factor of its noise.
    pub(crate) longer: Time,
    pub(crate) noise: f64,
}

/// Where the target passes of all ranks meet.
pub(crate) trait Barrier {
    /// Adds the pass that rank `rank` has planned to the round. Returns when the passes of all ranks end.
    fn meet(&self, rank: usize, planned: Planned) -> Time;
}
