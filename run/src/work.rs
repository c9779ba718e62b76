//! What a long run shares with the program that started it: the handle to stop the run, and counts of finished work.

use crate::bar::Counts;
use crate::interrupt::Interrupt;

/// The handle to stop one long run, and the run's progress. Clones share both.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// The handle by which the program asks the run to stop.
    pub interrupt: Interrupt,
    /// The number of finished pieces of work, and the number of all pieces.
    pub counts: Counts,
}
