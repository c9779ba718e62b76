//! The wish that a piece of work end, as Ctrl-C and SIGTERM express it, and what an interrupt leaves.
//!
//! Work that can stop in order is [watched](Interrupt::watch): a first signal sets the flag that it looks at, a second
//! one ends the program. Everywhere else the first one does. The program owns the signal handler; this file has no
//! state of the process.

use foretoken_spec::problem::{Exit, Problem, Result};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The interrupt of one piece of work. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<State>);

#[derive(Debug, Default)]
struct State {
    asked: Arc<AtomicBool>,
    watches: AtomicUsize,
    /// What is kept of the work if it is interrupted, and how to continue.
    kept: Mutex<Option<(&'static str, &'static str)>>,
}

impl Interrupt {
    /// Asks the work to end, as Ctrl-C does.
    pub fn ask(&self) {
        self.0.asked.store(true, Ordering::Relaxed);
    }

    /// Notes a signal. Returns whether the program must end now: nothing watches the flag, or it was set before.
    pub fn signalled(&self) -> bool {
        let again = self.0.asked.swap(true, Ordering::Relaxed);
        again || self.0.watches.load(Ordering::Relaxed) == 0
    }

    /// Set when the work shall end.
    pub fn flag(&self) -> &Arc<AtomicBool> {
        &self.0.asked
    }

    /// Makes the first signal set the [`flag`](Self::flag) from now on, until the guard is dropped.
    pub fn watch(&self) -> Watch {
        self.0.watches.fetch_add(1, Ordering::Relaxed);
        Watch(self.clone())
    }

    /// Says from now on what an interrupt leaves, and how to go on from there.
    pub fn keeps(&self, what: &'static str, how: &'static str) {
        *self.0.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some((what, how));
    }

    /// The error of work that was asked to end, with what it leaves.
    pub fn problem(&self) -> Box<Problem> {
        match *self.0.kept.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((what, how)) => Problem::new(Exit::Interrupted, format!("interrupted: {what}")).help(how),
            None => problem(),
        }
    }

    /// Adds what the whole work leaves to the error of a part that saw the flag. Other errors stay as they are.
    pub fn with_what_is_kept(&self, wrong: Box<Problem>) -> Box<Problem> {
        if wrong.exit == Exit::Interrupted && wrong.message() == BARE { self.problem() } else { wrong }
    }

    /// Goes on, unless the work was asked to end.
    ///
    /// # Errors
    /// The work was asked to end.
    pub fn check(&self) -> Result<()> {
        if self.0.asked.load(Ordering::Relaxed) { Err(self.problem()) } else { Ok(()) }
    }
}

/// Guard: while it lives, the first signal sets the flag instead of ending the program.
pub struct Watch(Interrupt);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.0.watches.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The message of a part of the work that saw the flag.
const BARE: &str = "interrupted";

/// The error of a part of the work that saw the flag. The program adds what the whole work leaves
/// ([`Interrupt::problem`]).
pub fn problem() -> Box<Problem> {
    Problem::new(Exit::Interrupted, BARE)
}
