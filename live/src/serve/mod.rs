//! Runs an experiment on a device and a wall clock, with the engine, scheduler and policies of `foretoken run`.
//!
//! This module makes no decisions of the scheduler or of policies. It opens the device, provides the prompts, records
//! the runs (their logs are tapes, [`tape`]) and reports their results. Policies run one after the other: first the
//! baseline, then the others in the order of the experiment file. Every policy gets the same requests with the same
//! arrival times.

mod cell;
#[cfg(test)]
mod faults_tests;
mod host_clock;
mod machine;
mod monitor;
mod prompts;
mod recorder;
mod refuse;
mod run;
pub mod tape;
mod timed;

pub use cell::{Bench, Recorded, Warm, cell_of_tape};
pub use host_clock::HostClock;
pub use machine::{Job, Machine, Models, Served, open};
pub use prompts::{parse_jsonl, prompts};
pub use refuse::check;
pub use run::{Ran, run_live};
pub use timed::{Failed, Timed, Work, open_timed};
