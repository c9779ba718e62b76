//! Experiments on a device: the same engine, scheduler and policies on a wall clock ([`serve`]), and how wrong the simulator is about
//! them ([`validate`]), and what they tell of costs ([`learned`]). [`pair`] times passes for a profile, [`profiling`] says of what.

/// Progress and diagnostics name files, keys and labels: what the terminal gets of them, for every line of the crate.
macro_rules! eprintln {
    ($($words:tt)*) => { foretoken_spec::eprintln!($($words)*) };
}

pub mod gpu;
pub mod learned;
pub mod models;
pub mod pair;
pub mod processor;
pub mod profiling;
pub mod serve;
pub mod tokens;
pub mod validate;
