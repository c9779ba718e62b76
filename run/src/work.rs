//! What a long run shares with the program that started it: the handle to stop the run, and the progress counts.

use crate::bar::Counts;
use crate::interrupt::Interrupt;

/// The interrupt and the progress of one run. Clones share both.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// The handle by which the program stops the run.
    pub interrupt: Interrupt,
    /// The number of finished pieces of work, and the number of all pieces.
    pub counts: Counts,
}
