//! Experiments on a device. [`serve`] makes live runs: it runs the simulator's engine, scheduler and policies on a
//! device and a wall clock. [`validate`] measures the simulator's errors against live runs. [`learned`] fits costs to
//! live runs, and [`calibrate_runs`] makes a profile of these costs. [`profile_pair`] profiles a target and a draft:
//! [`pair`] times their passes, and [`profiling`] chooses the shapes to time. [`record_acceptance`] records which draft
//! tokens are right.

// A part of the program: CONTRIBUTING.md says which comments it has.
#![allow(missing_docs)]

// Replaces std's `eprintln!` by a macro that escapes control characters. Messages contain names of files, keys and
// labels, and control characters in them could otherwise control the terminal.
#[macro_use(eprintln)]
extern crate foretoken_run;

pub mod acceptance_prompts;
pub mod calibrate_runs;
pub mod gpu;
pub mod learned;
pub mod models;
mod output_file;
pub mod pair;
pub mod processor;
pub mod profile_pair;
pub mod profiling;
pub mod record_acceptance;
pub mod serve;
pub mod tokens;
pub mod validate;
