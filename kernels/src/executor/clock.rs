//! A wall clock that stands still between readings, so that what the engine saw can be repeated exactly.

use foretoken_sim::Time;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest sleep between two looks at the interrupt flag.
const NAP: Duration = Duration::from_millis(20);

/// How long before its end a sleep is replaced by spinning: a sleep overshoots by some 60 µs.
const SPIN: Duration = Duration::from_micros(100);

/// What the thread does while a server waits for requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// It spins: the core keeps its clock and its caches, and passes behind a wait take as long as all others.
    #[default]
    Spin,
    /// It sleeps and leaves the core to others. What they do to its caches, and to its clock, is in the passes that follow.
    Sleep,
}

pub(super) struct WallClock<'a> {
    /// When the clock started: at its first reading.
    origin: Option<Instant>,
    now: Time,
    waiting: Waiting,
    interrupt: &'a AtomicBool,
}

impl<'a> WallClock<'a> {
    pub(super) fn new(waiting: Waiting, interrupt: &'a AtomicBool) -> WallClock<'a> {
        WallClock { origin: None, now: Time::ZERO, waiting, interrupt }
    }

    /// The last reading.
    pub(super) fn now(&self) -> Time {
        self.now
    }

    /// Reads it.
    pub(super) fn read(&mut self) -> Time {
        self.now = self.now.max(self.peek());
        self.now
    }

    /// The time, without anybody else learning of it.
    pub(super) fn peek(&mut self) -> Time {
        time(self.origin.get_or_insert_with(Instant::now).elapsed())
    }

    /// Waits until `at`, or until it is interrupted, and reads the clock.
    pub(super) fn wait_until(&mut self, at: Time) {
        loop {
            let left = Duration::from_nanos(at.saturating_sub(self.peek()).0 / 1000);
            if self.peek() >= at || self.interrupt.load(Ordering::Relaxed) {
                break;
            }
            match left.checked_sub(SPIN) {
                Some(sleep) if self.waiting == Waiting::Sleep => std::thread::sleep(sleep.min(NAP)),
                _ => std::hint::spin_loop(),
            }
        }
        self.read();
    }
}

/// As engine time.
pub(super) fn time(span: Duration) -> Time {
    Time(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1000))
}
