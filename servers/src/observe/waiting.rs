//! Waiting for network work so that Ctrl-C can end it. Connections, bodies and pauses wait on one runtime. A task on
//! the same runtime checks the flag that Ctrl-C sets. Look-ups of host names block threads of the runtime; the end of
//! the program does not wait for these threads.

use foretoken_run::spec::problem::{Exit, Problem, Result};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;
use tokio::time::sleep;

/// Time between two checks of the flag that Ctrl-C sets.
const LOOK: Duration = Duration::from_millis(50);

/// After Ctrl-C has set the flag, [`on_thread`](Waiting::on_thread) waits at most this long for its thread.
const LAST_WORK: Duration = Duration::from_millis(900);

/// An asynchronous runtime on which network work waits, and the flag that Ctrl-C sets.
pub struct Waiting {
    runtime: Option<Runtime>,
    interrupt: Arc<AtomicBool>,
}

impl Waiting {
    /// Starts the runtime on which network work waits.
    pub fn new(interrupt: &Arc<AtomicBool>) -> Result<Waiting> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| Problem::failed(format!("no runtime for connections: {e}")))?;
        Ok(Waiting { runtime: Some(runtime), interrupt: interrupt.clone() })
    }

    pub fn on<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        self.runtime().block_on(async {
            tokio::select! {
                biased;
                () = asked(&self.interrupt) => Err(before_the_first_request()),
                done = work => Ok(done),
            }
        })
    }

    /// Waits for `work` and returns its result. `work` may spawn local tasks, and must itself check the flag that
    /// Ctrl-C sets.
    pub fn on_local<T>(&self, work: impl Future<Output = T>) -> T {
        LocalSet::new().block_on(self.runtime(), work)
    }

    pub fn on_thread<T>(&self, thread: JoinHandle<T>) -> Result<T> {
        let mut end: Option<Instant> = None;
        while !thread.is_finished() {
            if self.is_asked() && Instant::now() > *end.get_or_insert_with(|| Instant::now() + LAST_WORK) {
                return Err(Problem::new(Exit::Interrupted, "interrupted: the last second is not written".to_owned())
                    .help("the disk or the step log does not answer; what was written before can be read"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        thread.join().map_err(|_| Problem::failed("the thread that writes the recording ended early"))
    }

    /// The flag that Ctrl-C sets.
    pub fn interrupt(&self) -> &Arc<AtomicBool> {
        &self.interrupt
    }

    /// True if Ctrl-C has set the flag.
    pub fn is_asked(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is taken when it is dropped")
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // An ordinary drop of the runtime would wait for threads that are looking up host names.
        self.runtime.take().expect("it is dropped once").shutdown_background();
    }
}

/// Returns when Ctrl-C has set the flag `interrupt`.
pub async fn asked(interrupt: &AtomicBool) {
    while !interrupt.load(Ordering::Relaxed) {
        sleep(LOOK).await;
    }
}

fn before_the_first_request() -> Box<Problem> {
    Problem::new(Exit::Interrupted, "interrupted before the first request was sent".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_never_ends_ends_with_the_flag() {
        let interrupt = Arc::new(AtomicBool::new(false));
        let waiting = Waiting::new(&interrupt).unwrap();
        assert_eq!(waiting.on(async { 7 }).unwrap(), 7);
        let late = interrupt.clone();
        let setter = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            late.store(true, Ordering::Relaxed);
        });
        let problem = waiting.on(std::future::pending::<()>()).unwrap_err();
        assert_eq!(
            (problem.exit, problem.message()),
            (Exit::Interrupted, "interrupted before the first request was sent")
        );
        setter.join().unwrap();
        let hangs = std::thread::spawn(|| std::thread::park_timeout(Duration::from_secs(30)));
        assert!(waiting.on_thread(hangs).unwrap_err().message().contains("the last second is not written"));
    }
}
