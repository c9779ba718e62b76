//! The profile of a validation, measured in slices between the pieces, so that both see the same machine.

use crate::serve::{Failed, Timed};
use foretoken_profiler::{CpuTime, MeasureError, Profile, Setup, Stop, Until, Visit, measure};
use foretoken_run::interrupt;
use foretoken_spec::problem::{Problem, Result};
use std::convert::Infallible;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// A profile that is being measured.
pub struct Slices {
    setup: Setup,
    stops: Vec<Stop>,
    visits: Vec<Visit>,
    wall: Duration,
    begun: Option<CpuTime>,
}

impl Slices {
    /// An empty profile for `setup`: no slice is measured yet.
    pub fn new(setup: Setup) -> Slices {
        Slices { stops: setup.stops(), setup, visits: Vec::new(), wall: Duration::ZERO, begun: CpuTime::now() }
    }

    /// Measures more visits, until `until`.
    ///
    /// # Errors
    /// A pass fails, or the measurement is interrupted.
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

    /// The profile from all visits so far.
    ///
    /// # Errors
    /// No model fits the visits.
    pub fn profile(&self, measured_at: String) -> Result<Profile> {
        let busy = self.begun.zip(CpuTime::now()).and_then(|(before, after)| before.until(&after));
        self.setup
            .profile(&self.visits, self.wall, busy, measured_at)
            .map_err(|e| Problem::failed(format!("cannot fit costs to the measured passes: {e}")))
    }
}
