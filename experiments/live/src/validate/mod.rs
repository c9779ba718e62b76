//! How wrong the simulator is: what a device did is replayed on the event clock, and every number is put beside the other.
//!
//! [`measure`] makes the live runs and [`runs`] lists them; [`report`] compares: with the recorded acceptance, where the token
//! flow must be the same and only times differ, and with the modelled one. Must never predict with what it measured on the
//! runs that it predicts.

mod compare;
mod drift;
mod flow;
mod maths;
mod measure;
mod numbers;
mod page;
mod regions;
mod report;
mod runs;
mod simulate;
mod table;
mod tapes;
mod verdict;
mod watch;

pub use drift::Drift;
pub use measure::{Measuring, World};
pub use page::page;
pub use report::{Compared, Validation};
pub use runs::Runs;
pub use table::render;
pub use tapes::Tapes;
