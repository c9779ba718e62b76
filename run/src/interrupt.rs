//! Handles Ctrl-C and SIGTERM for every command: the command prints "interrupted", exits with 130 and leaves no
//! half-written file.
//!
//! Work that can stop in order is [watched](watch): a first signal sets the flag that it looks at, a second one ends
//! the program. Everywhere else the first one does.

use foretoken_report::Staged;
use foretoken_spec::problem::{Exit, Problem, Result};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

static ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
static WATCHES: AtomicUsize = AtomicUsize::new(0);
/// What is kept of the command's work if it is interrupted, and how to continue.
static KEPT: Mutex<Option<(&str, &str)>> = Mutex::new(None);

/// Listens from now on.
pub fn listen() -> Result<()> {
    ctrlc::set_handler(|| {
        let again = ASKED.swap(true, Ordering::Relaxed);
        if again || WATCHES.load(Ordering::Relaxed) == 0 {
            Staged::abandon_all();
            foretoken_spec::problem::tell(*problem());
            std::process::exit(Exit::Interrupted as i32);
        }
    })
    .map_err(|e| Problem::failed(format!("cannot listen for Ctrl-C: {e}")))
}

/// One piece of work of a process that does many, one at a time.
pub struct Work(#[expect(dead_code, reason = "the others wait for it")] MutexGuard<'static, ()>);

/// Begins a piece of work as soon as no other is at work. Its flag is not set yet.
pub fn begin() -> Work {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    ASKED.store(false, Ordering::Relaxed);
    *KEPT.lock().unwrap_or_else(PoisonError::into_inner) = None;
    Work(alone)
}

/// Asks the work to end, as Ctrl-C does.
pub fn ask() {
    ASKED.store(true, Ordering::Relaxed);
}

/// Set when the command shall end.
pub fn flag() -> Arc<AtomicBool> {
    Arc::clone(&ASKED)
}

/// Guard: while it lives, the first Ctrl-C sets the [`flag`] instead of exiting.
pub struct Watch(());

/// Makes the first Ctrl-C set the [`flag`] from now on.
pub fn watch() -> Watch {
    WATCHES.fetch_add(1, Ordering::Relaxed);
    Watch(())
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Says from now on what an interrupt leaves, and how to go on from there.
pub fn keeps(what: &'static str, how: &'static str) {
    *KEPT.lock().unwrap_or_else(PoisonError::into_inner) = Some((what, how));
}

/// The error of a command that was asked to end.
pub fn problem() -> Box<Problem> {
    match *KEPT.lock().unwrap_or_else(PoisonError::into_inner) {
        Some((what, how)) => Problem::new(Exit::Interrupted, format!("interrupted: {what}")).help(how),
        None => Problem::new(Exit::Interrupted, "interrupted"),
    }
}

/// An error once the command was asked to end.
pub fn check() -> Result<()> {
    if ASKED.load(Ordering::Relaxed) { Err(problem()) } else { Ok(()) }
}
