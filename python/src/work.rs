//! Runs long jobs (runs and searches) for Python on another thread, with progress reports and an orderly end on Ctrl-C.

use crate::errors;
use foretoken_run::guard::guarded;
use foretoken_run::machine;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::work::Work;
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Time between two progress reports, and between two checks for Ctrl-C.
const EVERY: Duration = Duration::from_millis(50);

/// The running job (a run or a search) holds this lock. A process runs one job at a time, because only one exception of
/// a policy can be stored.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs `job` on a thread of its own and waits for it. A process runs only one job at a time. `progress` is called with
/// (number of finished pieces of work, number of all pieces); a piece is a run of one policy, for example. If
/// `progress` is Python's `None`, there are no reports.
///
/// # Errors
/// The error of `job`. After Ctrl-C, `KeyboardInterrupt`, or the exception that `progress` raised, once the job has
/// ended in order.
pub fn work<T: Send>(
    py: Python<'_>,
    progress: &Bound<'_, PyAny>,
    job: impl FnOnce(&Work) -> Result<T> + Send,
) -> PyResult<T> {
    let work = Work::default();
    work.counts.draw_elsewhere();
    let (done, mut answer) = channel();
    let mut interrupted = None;
    let result = std::thread::scope(|scope| {
        let of_the_job = work.clone();
        scope.spawn(move || {
            let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
            errors::begin();
            // Sending the job's result fails if the receiver no longer exists. Then the result is dropped.
            let _ = done.send(guarded("the run", || job(&of_the_job)).and_then(|result| result));
        });
        loop {
            let (got, back) = py.detach(move || (answer.recv_timeout(EVERY), answer));
            answer = back;
            match got {
                Ok(result) => return result,
                Err(RecvTimeoutError::Disconnected) => return Err(Problem::failed("the work ended without a word")),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let reported = py.check_signals().and_then(|()| match progress.is_none() {
                true => Ok(()),
                false => progress.call1(work.counts.so_far()).map(drop),
            });
            if let Err(e) = reported {
                interrupted.get_or_insert(e);
                work.interrupt.ask();
            }
        }
    });
    if !progress.is_none() {
        progress.call1(work.counts.so_far())?;
    }
    match (result, interrupted) {
        (Ok(result), None) => Ok(result),
        (Ok(_), Some(e)) => Err(e),
        (Err(problem), _) => Err(errors::of(py, &work.interrupt.with_what_is_kept(problem))),
    }
}

/// Makes a thread pool like [`machine::pool`], whose threads keep their Python thread state as long as they live.
/// Without this, every call of a hook would make and drop a thread state.
///
/// # Errors
/// If the system cannot start the threads.
pub fn pool(wanted: Option<usize>, pieces: usize) -> Result<ThreadPool> {
    let threads = machine::threads(wanted, pieces);
    let spawn = |thread: rayon::ThreadBuilder| {
        std::thread::Builder::new().spawn(move || Python::attach(|py| py.detach(|| thread.run()))).map(drop)
    };
    let pool = ThreadPoolBuilder::new().num_threads(threads).spawn_handler(spawn).build();
    pool.map_err(|e| Problem::failed(format!("cannot start threads: {e}")))
}
