//! Threads that work on one operation after the other, and spin in between: a pass of a small model is two dozen operations of some
//! microseconds each, and a thread that slept would come too late to any of them.
//!
//! How work is spread never changes a result: every task writes numbers of its own.

use crossbeam_utils::CachePadded;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Multiply-adds below which help costs more than it saves: telling another thread, and being told, takes some tenths of a microsecond.
const WORTH_SHARING: usize = 1 << 15;

/// Looks that a thread takes before it offers its core to others. It never sleeps.
const LOOKS: u32 = 1 << 12;

/// The threads of a device: the one that leads, and helpers while a session lasts.
pub(super) struct Team {
    pool: Arc<ThreadPool>,
    board: Arc<Board>,
}

impl Team {
    /// Of this many threads.
    pub(super) fn new(threads: usize) -> Result<Team, ThreadPoolBuildError> {
        let pool = Arc::new(ThreadPoolBuilder::new().num_threads(threads).build()?);
        Ok(Team { pool, board: Arc::default() })
    }

    /// How many they are.
    pub(super) fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// What calls helpers, and lets them go; `None` while they are there.
    pub(super) fn session(&self) -> Option<Session> {
        let begun = self.board.session.load(Ordering::Relaxed);
        (!begun).then(|| Session { pool: Arc::clone(&self.pool), board: Arc::clone(&self.board) })
    }

    /// Runs tasks `0..tasks`, which together do about `work` multiply-adds: with the helpers, where there are any and it is worth it.
    ///
    /// # Panics
    /// If a task does.
    pub(super) fn share(&mut self, tasks: usize, work: usize, task: impl Fn(usize) + Sync) {
        if tasks == 1 || work < WORTH_SHARING || self.threads() == 1 {
            return (0..tasks).for_each(task);
        }
        self.board.run(tasks, &task);
    }
}

/// A session that has not begun.
pub(super) struct Session {
    pool: Arc<ThreadPool>,
    board: Arc<Board>,
}

impl Session {
    /// Runs it on the threads of the team.
    pub(super) fn run<R: Send>(self, run: impl FnOnce() -> R + Send) -> R {
        let Session { pool, board } = &self;
        board.session.store(true, Ordering::Relaxed);
        let with_helpers = || {
            rayon::scope(|scope| {
                (1..pool.current_num_threads()).for_each(|_| scope.spawn(|_| board.help()));
                // Helpers go when the session ends, however it does.
                let _over = Over(board);
                run()
            })
        };
        pool.install(with_helpers)
    }
}

struct Over<'a>(&'a Board);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.session.store(false, Ordering::Relaxed);
    }
}

type Task<'a> = dyn Fn(usize) + Sync + 'a;

/// What there is to do.
#[derive(Default)]
struct Board {
    /// Are helpers wanted?
    session: CachePadded<AtomicBool>,
    /// Tasks that nobody has taken: the one with this number, less one, is the next.
    open: CachePadded<AtomicUsize>,
    /// Tasks of this operation that are done.
    done: CachePadded<AtomicUsize>,
    /// Did one of them panic?
    failed: AtomicBool,
    /// What they are.
    task: UnsafeCell<Option<&'static Task<'static>>>,
}

// SAFETY: `task` is written by the leader alone, while no task is open or being worked on, and read by those who have taken one.
#[expect(
    unsafe_code,
    reason = "a task lives as long as its operation, which no lifetime can say to threads that outlive it"
)]
unsafe impl Sync for Board {}

impl Board {
    /// Runs an operation. There is one leader: a team calls this by a mutable reference.
    #[expect(unsafe_code, reason = "as above")]
    fn run(&self, tasks: usize, task: &Task<'_>) {
        // SAFETY: `finish` waits until nobody uses it any more, also when this thread panics; and nobody else writes the cell, nor reads
        // it before `open` says that there is something to take.
        unsafe {
            *self.task.get() = Some(std::mem::transmute::<&Task<'_>, &'static Task<'static>>(task));
        }
        self.failed.store(false, Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
        let finish = Finish { board: self, tasks };
        self.open.store(tasks, Ordering::Release);
        while self.take_one() {}
        drop(finish);
        assert!(!self.failed.load(Ordering::Relaxed), "a task failed on another thread");
    }

    /// Takes a task and runs it, if there is one.
    #[expect(unsafe_code, reason = "as above")]
    fn take_one(&self) -> bool {
        let less = |open: usize| open.checked_sub(1);
        let Ok(open) = self.open.fetch_update(Ordering::Acquire, Ordering::Relaxed, less) else { return false };
        let _done = Done(self);
        // SAFETY: the task that was taken is not done yet, so that the leader waits for it and leaves the cell alone.
        let task = unsafe { *self.task.get() }.expect("written before tasks are open");
        task(open - 1);
        true
    }

    /// Takes tasks as long as the session lasts.
    fn help(&self) {
        let mut looks = 0;
        while self.session.load(Ordering::Relaxed) {
            if self.take_one() {
                looks = 0;
            } else {
                wait(&mut looks);
            }
        }
    }
}

/// Spins, or offers the core to others when it has looked often.
fn wait(looks: &mut u32) {
    if *looks < LOOKS {
        *looks += 1;
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// A task that was taken: done when this is dropped.
struct Done<'a>(&'a Board);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.failed.store(true, Ordering::Relaxed);
        }
        self.0.done.fetch_add(1, Ordering::Release);
    }
}

/// The end of an operation, which waits for all who work on it.
struct Finish<'a> {
    board: &'a Board,
    tasks: usize,
}

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        // None is left, but where this thread panicked.
        let left = self.board.open.swap(0, Ordering::Relaxed);
        let mut looks = 0;
        while self.board.done.load(Ordering::Acquire) + left < self.tasks {
            wait(&mut looks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Mutex;
    use std::thread::ThreadId;

    /// Which tasks ran, how often, and on which threads.
    fn run(team: &mut Team, tasks: usize) -> (Vec<usize>, HashSet<ThreadId>) {
        let (runs, threads) = (Mutex::new(vec![0; tasks]), Mutex::new(HashSet::new()));
        team.share(tasks, WORTH_SHARING, |i| {
            runs.lock().unwrap()[i] += 1;
            threads.lock().unwrap().insert(std::thread::current().id());
        });
        (runs.into_inner().unwrap(), threads.into_inner().unwrap())
    }

    #[test]
    fn every_task_runs_once_with_helpers_or_without() {
        let mut team = Team::new(3).unwrap();
        assert_eq!(run(&mut team, 5), (vec![1; 5], HashSet::from([std::thread::current().id()])));
        let session = team.session().unwrap();
        session.run(|| {
            assert!(team.session().is_none(), "a session within a session");
            let mut threads = HashSet::new();
            // Helpers may come late, but they come.
            while threads.len() < 3 {
                let (runs, by) = run(&mut team, 64);
                assert_eq!(runs, vec![1; 64]);
                threads.extend(by);
            }
        });
        assert!(team.session().is_some(), "the session is over");
    }

    #[test]
    fn a_task_that_panics_fails_the_operation_and_leaves_the_team_whole() {
        let mut team = Team::new(2).unwrap();
        for worst in 0..8 {
            let session = team.session().unwrap();
            let end = catch_unwind(AssertUnwindSafe(|| {
                session.run(|| team.share(8, WORTH_SHARING, |i| assert_ne!(i, worst, "the worst one")));
            }));
            assert!(end.is_err());
            assert_eq!(run(&mut team, 4).0, [1; 4]);
        }
    }
}
