//! Stops work in an orderly way on Ctrl-C or SIGTERM, and says which results remain and how to continue.
//!
//! Work that can stop in an orderly way holds a [`Watch`] and looks at a flag. Then the first signal sets the flag, and
//! the second signal ends the program at once. If no work holds a watch, the first signal ends the program. The program
//! installs the signal handler; this file has no global state.

use crate::spec::problem::{Exit, Problem, Result};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The handle by which one run is asked to stop. All clones share one flag.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<State>);

#[derive(Debug, Default)]
struct State {
    asked: Arc<AtomicBool>,
    watches: AtomicUsize,
    /// Texts for the error after the user interrupts the run: (which results remain, how to continue).
    kept: Mutex<Option<(&'static str, &'static str)>>,
}

impl Interrupt {
    /// Asks the run to stop: sets the flag, as the first Ctrl-C does.
    pub fn ask(&self) {
        self.0.asked.store(true, Ordering::Relaxed);
    }

    /// Sets the flag because Ctrl-C or SIGTERM came. Returns true if the program must end now: the flag was set
    /// already, or no work holds a watch.
    pub fn signalled(&self) -> bool {
        let was_set = self.0.asked.swap(true, Ordering::Relaxed);
        was_set || self.0.watches.load(Ordering::Relaxed) == 0
    }

    /// The flag that long work checks again and again. The flag is true as soon as the work must stop.
    pub fn flag(&self) -> &Arc<AtomicBool> {
        &self.0.asked
    }

    /// Declares that some work looks at the [`flag`](Self::flag) and can stop in an orderly way. Until the returned
    /// guard is dropped, the first signal does not end the program.
    pub fn watch(&self) -> Watch {
        self.0.watches.fetch_add(1, Ordering::Relaxed);
        Watch(self.clone())
    }

    /// Sets the texts for the error after the user interrupts the run: `what` says which results remain, `how` says how
    /// to continue.
    pub fn keeps(&self, what: &'static str, how: &'static str) {
        *self.0.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some((what, how));
    }

    /// The error of a run that the user interrupted. It says which results remain.
    pub fn problem(&self) -> Box<Problem> {
        match *self.0.kept.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((what, how)) => Problem::new(Exit::Interrupted, format!("interrupted: {what}")).help(how),
            None => problem(),
        }
    }

    /// If `wrong` is the error [`problem`] of an inner function, returns [`Self::problem`], which says which results
    /// remain. Returns any other error unchanged.
    pub fn with_what_is_kept(&self, wrong: Box<Problem>) -> Box<Problem> {
        if wrong.exit == Exit::Interrupted && wrong.message() == BARE { self.problem() } else { wrong }
    }

    /// Returns an error if the user has asked the work to stop.
    pub fn check(&self) -> Result<()> {
        if self.0.asked.load(Ordering::Relaxed) { Err(self.problem()) } else { Ok(()) }
    }
}

/// A guard that work holds while it can stop in an orderly way. As long as the guard lives, the first Ctrl-C sets a
/// flag and does not end the program.
pub struct Watch(Interrupt);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.0.watches.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The message of the error that [`problem`] makes.
const BARE: &str = "interrupted";

/// The error of an inner function that stopped because the user interrupted the run. It does not say which results
/// remain; [`Interrupt::with_what_is_kept`] adds this.
pub fn problem() -> Box<Problem> {
    Problem::new(Exit::Interrupted, BARE)
}
