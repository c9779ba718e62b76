//! Fits a simulation to observed runs of a server (costs, acceptance, a trace), predicts other runs of the server, and
//! recommends a draft length or policy.

pub mod acceptance;
pub mod calibration;
pub mod compare_server;
pub mod costs;
pub mod fit;
mod folder;
pub mod foreign;
pub mod frontend;
pub mod held_out;
mod interval;
pub mod kept;
pub mod live;
pub mod loads;
pub mod one_server;
mod page;
pub mod predict;
mod predict_cell;
pub mod recommend;
pub mod replay;
pub mod scheduling;
mod simple_predictions;
pub mod source;
mod spread;
mod step_lengths;
pub mod table;
pub mod term;
mod terms;
pub mod unknown_costs;
pub mod verdict;
mod write;

#[cfg(test)]
mod rounded;
// For tests, here and of the command line, which are built with the feature `observe`. A feature of its own would make
// cargo build this crate once more.
#[cfg(feature = "observe")]
#[doc(hidden)]
pub mod synthetic;
#[cfg(test)]
mod tests;
