//! Experiments on a device. [`serve`] runs the same engine, scheduler and policies on a wall clock. [`validate`]
//! measures the simulator's errors against such runs. [`learned`] fits costs to them, and
//! [`calibrate_runs`] makes a profile of those. [`profile_pair`] profiles a pair:
//! [`pair`] times its passes, and [`profiling`] chooses the shapes to time. [`record_acceptance`] records which drafts
//! are right.

// `eprintln!` is the one that escapes characters that could steer a terminal: messages name files, keys and labels.
#[macro_use(eprintln)]
extern crate foretoken_spec;

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
