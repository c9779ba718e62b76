//! Files that tell when they are damaged: every bit that is read back is covered by a checksum, and what was cut off is told
//! apart from what was changed.
//!
//! [`frames`] is for binary files that grow while something runs, [`seal`] for texts that people may open.

pub mod frames;
pub mod seal;
