//! What a piece of work shares with the program that asked for it.

use crate::bar::Counts;
use crate::interrupt::Interrupt;

/// The interrupt and the progress of one piece of work. Clones share both.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Asks the work to end, and says what it leaves.
    pub interrupt: Interrupt,
    /// How far it is.
    pub counts: Counts,
}
