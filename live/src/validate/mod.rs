//! Measures the simulator's errors. Live runs of a device are simulated on the event clock, and the numbers of each
//! live run are compared with the numbers of its simulations.
//!
//! [`run_and_compare`] runs the whole validation. [`Measuring`] makes the live runs in pieces ([`piece`]: a live run
//! and its repeat), with probes of the machine's speed in between ([`probe`]). [`runs`] lists the live runs.
//! [`compare_runs`] simulates each piece twice: with the recorded acceptance, where tokens must be equal and only times
//! may differ, and with the modelled acceptance. Further simulations have 3 % longer passes, or costs fitted to other
//! cells. `foretoken_servers::compare` has the numbers to compare, the bounds on their errors, and the report's pages.
//! A piece in which the machine changed its speed is left out of all numbers. No run may be predicted with measurements
//! of the same run.

mod compare_runs;
mod costs_of_other_cells;
mod machine_speed;
mod measure;
mod piece;
mod piece_requests;
mod probe;
mod profile_slices;
mod read_tapes;
mod run_and_compare;
mod runs;
mod shifted_acceptance;
mod simulated_piece;
mod timed_passes;
mod trace_recorder;

pub use compare_runs::{Compared, PassCosts};
pub use machine_speed::{paces, usual_of, usual_passes};
pub use piece::{Measuring, first_slice};
pub use profile_slices::Slices;
pub use read_tapes::{Recording, Tapes};
pub use run_and_compare::{
    BELIEF, Comparing, GivenProfile, OUTCOME, Outcome, PROFILE, Request, compare_folder, run_and_compare,
};
pub use runs::Runs;
