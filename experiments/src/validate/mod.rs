//! How wrong the simulator is: what a device did is replayed on the event clock, and every number is put beside the other.

pub mod flow;
pub mod maths;
pub mod numbers;
mod regions;
mod simulate;
mod spec;
mod watch;

pub use spec::ValidateSpec;
