//! Compares observed runs of a server with their predictions from a calibration.

mod cell;
mod comparison;
mod interval;
mod length_order;
mod page;
#[cfg(test)]
mod tests;
mod text;

pub use cell::{BOUND, BOUND_TTFT, Calibrated, Cell, JUDGED, PredictedNumbers};
pub use comparison::{HeldOutNumbers, MeanErrors, Replayed, ServerComparison, Worst};
pub use interval::Misfit;
pub use length_order::LengthOrder;
