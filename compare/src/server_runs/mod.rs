//! Observed runs of a server, compared with what a calibration predicts of them.

mod cell;
mod comparison;
mod interval;
mod length_order;
mod page;
mod text;

pub use cell::{BOUND, BOUND_TTFT, Calibrated, Cell, JUDGED, PredictedNumbers};
pub use comparison::{HeldOutNumbers, MeanErrors, Replayed, ServerComparison, Worst};
pub use length_order::LengthOrder;
