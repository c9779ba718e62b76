//! The threads of a CPU device. They share the work of each operation (such as a matrix product), and spin (busy-wait)
//! until the next operation begins. A pass of a small model has about two dozen operations of some microseconds each. A
//! sleeping thread would wake up too late for such short operations.
//!
//! The number of threads never changes a result: every number is computed and written by a single task.

use crossbeam_utils::CachePadded;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// An operation with fewer multiply-adds than this number runs on one thread. Starting the helper threads would take
/// longer than they save, because a message between threads takes some tenths of a microsecond.
const WORTH_SHARING: usize = 1 << 15;

/// A waiting thread looks for work this number of times in a row. If it finds no work, it yields its core to other
/// threads after each further look. It never sleeps.
const LOOKS: u32 = 1 << 12;

/// The threads of a device: the leader, which runs passes, and the helpers, which share the work of operations while a
/// [`Session`] lasts.
pub(super) struct Team {
    pool: Arc<ThreadPool>,
    board: Arc<Board>,
}

impl Team {
    pub(super) fn new(threads: usize) -> Result<Team, ThreadPoolBuildError> {
        let pool = Arc::new(ThreadPoolBuilder::new().num_threads(threads).build()?);
        Ok(Team { pool, board: Arc::default() })
    }

    /// Returns the number of threads of the team, the leader included.
    pub(super) fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Returns a session, during which the team's helper threads look for work. The session has not begun yet:
    /// [`Session::run`] starts the helpers. `None` if a session is running already.
    pub(super) fn session(&self) -> Option<Session> {
        let begun = self.board.session.load(Ordering::Relaxed);
        (!begun).then(|| Session { pool: Arc::clone(&self.pool), board: Arc::clone(&self.board) })
    }

    /// Runs the tasks `0..tasks` of one operation, which together do about `work` multiply-adds. The helper threads
    /// take part if a session has started them and `work` is large enough.
    pub(super) fn share(&mut self, tasks: usize, work: usize, task: impl Fn(usize) + Sync) {
        if tasks == 1 || work < WORTH_SHARING || self.threads() == 1 {
            return (0..tasks).for_each(task);
        }
        self.board.run(tasks, &task);
    }
}

/// A session that [`Team::session`] made and that has not begun. While a session runs, the team's helper threads look
/// for tasks.
pub(super) struct Session {
    pool: Arc<ThreadPool>,
    board: Arc<Board>,
}

impl Session {
    /// Runs `run` on the leader, the thread that runs passes. Meanwhile the helper threads take tasks of the operations
    /// that `run` starts.
    pub(super) fn run<R: Send>(self, run: impl FnOnce() -> R + Send) -> R {
        let Session { pool, board } = &self;
        board.session.store(true, Ordering::Relaxed);
        let with_helpers = || {
            rayon::scope(|scope| {
                (1..pool.current_num_threads()).for_each(|_| scope.spawn(|_| board.help()));
                // Dropping this guard stops the helper threads. This happens at the end of the session, also after a
                // panic.
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

/// The state that the threads of a CPU device share. The threads are the leader, which runs passes, and the helpers.
#[derive(Default)]
struct Board {
    /// True while a session runs. The helper threads stop when this becomes false.
    session: CachePadded<AtomicBool>,
    /// Number of tasks of the present operation that no thread has taken yet. The next task that a thread takes has the
    /// index `open − 1`.
    open: CachePadded<AtomicUsize>,
    /// Number of finished tasks of the present operation.
    done: CachePadded<AtomicUsize>,
    /// True if a task of the present operation panicked.
    failed: AtomicBool,
    /// The function that runs a task of the present operation; its argument is the task's number. Written by the
    /// leader.
    task: UnsafeCell<Option<&'static Task<'static>>>,
}

// SAFETY: only the leader writes `task`, and only while no task of an operation is open or running. Another thread
// reads `task` only after it has taken an open task.
#[expect(
    unsafe_code,
    reason = "a task lives as long as its operation, which no lifetime can say to threads that outlive it"
)]
unsafe impl Sync for Board {}

impl Board {
    /// Runs an operation of `tasks` tasks. Only one thread, the leader, can call this function at a time, because a
    /// team calls it through a mutable reference.
    #[expect(unsafe_code, reason = "as above")]
    fn run(&self, tasks: usize, task: &Task<'_>) {
        // SAFETY: dropping `finish` waits until no thread uses the task any more, also when this thread panics. No
        // other thread writes the cell. Another thread reads the cell only after it has taken a task from `open`.
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

    /// Takes a task that no thread has taken yet, and runs it. Returns false if no such task is left.
    #[expect(unsafe_code, reason = "as above")]
    fn take_one(&self) -> bool {
        let less = |open: usize| open.checked_sub(1);
        let Ok(open) = self.open.fetch_update(Ordering::Acquire, Ordering::Relaxed, less) else { return false };
        let _done = Done(self);
        // SAFETY: this thread has taken a task that is not done yet. Until it is done, the leader waits and does not
        // write the cell.
        let task = unsafe { *self.task.get() }.expect("written before tasks are open");
        task(open - 1);
        true
    }

    /// The loop of a helper thread: takes and runs tasks as long as the session lasts.
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

/// Waits a moment. `looks` counts the calls since the thread last found work. The function spins for the first
/// [`LOOKS`] of these calls, and yields the core to other threads in later calls.
fn wait(looks: &mut u32) {
    if *looks < LOOKS {
        *looks += 1;
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// Guard of a task that a thread has taken. Dropping the guard counts the task as done.
struct Done<'a>(&'a Board);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.failed.store(true, Ordering::Relaxed);
        }
        self.0.done.fetch_add(1, Ordering::Release);
    }
}

/// Guard of an operation, such as a matrix product. Dropping the guard waits until no thread works on the operation any
/// more.
struct Finish<'a> {
    board: &'a Board,
    tasks: usize,
}

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        // `left` is the number of tasks that no thread took. `left` is above 0 only if this thread panicked.
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

    /// Runs an operation of `tasks` tasks on the team. Returns how often each task ran, and the ids of the threads that
    /// ran tasks.
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
            // A helper may start late, so the operation is repeated until every thread has run a task.
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
