//! Runs experiments. A file becomes a plan ([`plan`]), which lists the cells; a cell is one policy with one combination
//! of swept values and one seed. The simulator runs a cell ([`setting`]). Cells run in parallel, and a run that was
//! stopped can be resumed ([`cells`]). The results are compared ([`compare`]) and written into a folder ([`complete`]).
//! The program `foretoken` prints the results. Other programs can run experiments too (`examples/quickstart.rs`).

// A part of the program: CONTRIBUTING.md says which comments it has.
#![allow(missing_docs)]

/// Prints progress and diagnostics on stderr, in place of the standard macro. Characters that could steer a terminal
/// are escaped, because messages quote names of files, keys and labels that the user chose.
#[macro_export]
macro_rules! eprintln {
    ($($words:tt)*) => { ::std::eprintln!("{}", $crate::spec::shown::escape(&format!($($words)*))) };
}

pub mod arena;
pub mod bar;
pub mod believed;
mod bound;
pub mod capacity;
pub mod cells;
pub mod compare;
pub mod complete;
mod content;
pub mod decide;
pub mod explorer;
pub mod flat_table;
pub mod fleet;
pub mod golden;
pub mod guard;
pub mod host_band;
mod host_tried;
pub mod inert;
pub mod interrupt;
pub mod keep_runs;
mod kernel_times;
pub mod ladder;
pub mod load;
mod locate;
pub mod machine;
pub mod merge;
mod model_config;
pub mod offered;
pub mod papers;
pub mod perfetto;
pub mod plan;
pub mod profiled;
pub mod questions;
mod recorded;
mod rejection;
pub mod report;
mod room;
pub mod scaled;
pub mod scope;
pub mod server;
pub mod setting;
pub mod spec;
mod split;
pub mod table;
pub mod vllm_table;
pub mod why;
pub mod work;
pub mod workload;
