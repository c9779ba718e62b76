//! Files that show when they are damaged. Every byte that is read is checked with a checksum. A file that was cut is
//! reported differently from a file that was changed.
//!
//! [`frames`] is for binary files that grow while a program runs, [`seal`] for text files that people may open.

pub mod frames;
pub mod seal;
