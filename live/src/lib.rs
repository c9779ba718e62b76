//! Experiments on a device. [`serve`] runs the same engine, scheduler and policies on a wall clock. [`validate`]
//! measures the simulator's errors against such runs. [`learned`] fits costs to them. [`pair`] times passes for a
//! profile, and [`profiling`] chooses the shapes to time.

// `eprintln!` is the one that escapes characters that could steer a terminal: messages name files, keys and labels.
#[macro_use(eprintln)]
extern crate foretoken_spec;

pub mod gpu;
pub mod learned;
pub mod models;
pub mod pair;
pub mod processor;
pub mod profiling;
pub mod serve;
pub mod tokens;
pub mod validate;
