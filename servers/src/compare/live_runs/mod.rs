//! Compares live runs on a device with their simulations, and makes the report of a validation.

mod bounds_of_cells;
mod cell;
mod host_times;
mod page;
mod piece_report;
mod policies;
mod repeats;
mod simulated;
#[cfg(test)]
mod tests;
mod text;
mod validation;

pub use bounds_of_cells::checks;
pub use cell::{CellReport, CellRuns, Missed, PieceRuns, Records, StepTimes};
pub use host_times::{HostTime, HostTimes, LARGE_BATCH};
pub use page::page;
pub use piece_report::{PartialRun, PieceReport, SpeedRange, Standing, Undecided};
pub use policies::{rankings, service, speedups};
pub use repeats::{LoadName, Repeats, repeats};
pub use simulated::{LiveRow, PolicyValue, Simulated};
pub use text::render;
pub use validation::{SCHEMA_VERSION, Validation};
