//! Experiments, run: what a file comes to ([`plan`]), one setting of it on the simulator ([`setting`]), every cell of it, resumable
//! and in parallel ([`cells`]), what they say beside each other ([`compare`]), and all of that into a folder ([`complete`]). The program `foretoken` words and prints it; any
//! other program can run an experiment as well (`examples/quickstart.rs`).

/// Progress and diagnostics name files, keys and labels: what the terminal gets of them, for every line of the crate.
macro_rules! eprintln {
    ($($words:tt)*) => { foretoken_spec::eprintln!($($words)*) };
}

pub mod bar;
pub mod believed;
mod bound;
pub mod cells;
pub mod compare;
pub mod complete;
pub mod explorer;
pub mod guard;
pub mod inert;
pub mod interrupt;
pub mod load;
pub mod machine;
pub mod merge;
pub mod papers;
pub mod perfetto;
pub mod plan;
pub mod profile_figures;
pub mod profiled;
mod recorded;
mod rejection;
pub mod report;
mod room;
pub mod setting;
pub mod table;
pub mod vllm_table;
pub mod workload;
