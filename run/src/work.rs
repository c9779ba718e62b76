//! What a long run shares with the program that started it: interrupt and progress.

use crate::bar::Counts;
use crate::interrupt::Interrupt;

/// The interrupt and the progress of one run. Clones share both.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// The handle by which the program stops the run.
    pub interrupt: Interrupt,
    /// The counts of finished and of all pieces of work.
    pub counts: Counts,
}
