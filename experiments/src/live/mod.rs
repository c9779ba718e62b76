//! Running an experiment on a device: the same engine, scheduler and policies as `run`, on a wall clock.
//!
//! Nothing here decides or schedules: it opens the device, hands over prompts, records what happens ([`tape`]) and says what
//! came of it. Policies run one after the other, the baseline first and then in the order of the table; each gets the same
//! requests at the same instants.

mod cell;
#[cfg(test)]
mod faults_tests;
mod host;
mod machine;
mod monitor;
mod prompts;
mod recorder;
mod refuse;
mod run;
mod spec;
pub mod tape;

pub use cell::{Bench, Recorded, cell_of_tape, first};
pub use host::{HostClock, HostTimes};
pub use machine::{Machine, Models, open};
pub use prompts::prompts;
pub use refuse::check;
pub use run::{LIVE_JSON, Ran, TAPES, run_live};
pub use spec::{LiveSpec, WeightSource, required, with_device};

use foretoken_sim::{Time, Workload};

/// What a `[live]` table changes of a workload: arrivals are compressed, and requests belong to the family of their prompt.
pub fn shape_workload(live: &LiveSpec, workload: &mut Workload) {
    if live.time_scale != 1.0 {
        let compressed = |at: &Time| Time::from_s(at.as_s() / live.time_scale);
        workload.arrival = workload.arrival.iter().map(compressed).collect();
    }
    if live.prompts == spec::Prompts::Families {
        prompts::assign_families(workload);
    }
}
