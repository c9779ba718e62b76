//! The profile of a validation. It is measured in parts (slices) between the live runs, so that changes of the
//! machine's speed affect the profile and the runs equally.

use crate::serve::{Failed, Timed};
use foretoken_profiler::{CpuTime, MeasureError, Profile, Setup, Stop, Until, Visit, measure};
use foretoken_run::interrupt;
use foretoken_run::spec::problem::{Problem, Result};
use std::convert::Infallible;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// A profile that is measured in parts (slices) between live runs. It holds the visits made so far; a visit times a few
/// passes of one shape.
pub struct Slices {
    setup: Setup,
    stops: Vec<Stop>,
    visits: Vec<Visit>,
    wall: Duration,
    begun: Option<CpuTime>,
}

impl Slices {
    /// Begins a profile with the settings `setup`, which say what passes to time. It does not time any pass yet.
    pub fn new(setup: Setup) -> Slices {
        Slices { stops: setup.stops(), setup, visits: Vec::new(), wall: Duration::ZERO, begun: CpuTime::now() }
    }

    /// Measures the next part (slice) of the profile: makes visits until the condition `until` holds.
    pub fn go_on(&mut self, machine: &mut dyn Timed, until: Until, interrupt: &AtomicBool) -> Result<()> {
        let (effort, begun) = ((self.setup.effort(), until), Instant::now());
        let mut result: std::result::Result<(), MeasureError<Failed, Infallible>> = Ok(());
        let (stops, visits) = (&self.stops, &mut self.visits);
        machine.time(&mut |passes| result = measure(passes, stops, effort, visits, interrupt, |_, _, _| Ok(())));
        self.wall += begun.elapsed();
        result.map_err(|e| match e {
            MeasureError::Interrupted => interrupt::problem(),
            MeasureError::Keep(never) => match never {},
            failed @ MeasureError::Pass { .. } => Problem::failed(failed.to_string()),
        })
    }

    /// Fits the profile's costs to all visits made so far.
    pub fn profile(&self, measured_at: String) -> Result<Profile> {
        let busy = self.begun.zip(CpuTime::now()).and_then(|(before, after)| before.until(&after));
        self.setup
            .profile(&self.visits, self.wall, busy, measured_at)
            .map_err(|e| Problem::failed(format!("cannot fit costs to the measured passes: {e}")))
    }
}
