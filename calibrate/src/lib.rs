//! From observed runs to what a simulation needs (costs, acceptance, a trace), and back: what a server would have
//! done, and what it should do.

pub mod acceptance;
pub mod against;
pub mod baselines;
pub mod calibration;
pub mod costs;
pub mod fit;
mod folder;
pub mod foreign;
pub mod frontend;
pub mod held_out;
pub mod kept;
pub mod live;
pub mod loads;
pub mod numbers;
pub mod one_server;
mod page;
pub mod predict;
pub mod recommend;
pub mod replay;
pub mod source;
mod spread;
mod step_lengths;
pub mod verdict;

#[cfg(test)]
mod synthetic;
#[cfg(test)]
mod tests;
