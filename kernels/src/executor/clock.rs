//! The wall clock of a run on a device. The engine's time changes only when the engine reads this clock, so that a run
//! can be replayed exactly from the recorded readings.

use foretoken_sim::Time;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest time that a waiting run sleeps between two checks of the interrupt flag.
const NAP: Duration = Duration::from_millis(20);

/// The thread spins (busy-waits) during the last part of a wait, which has this length. It does not sleep then, because
/// a sleep ends about 60 µs late.
const SPIN: Duration = Duration::from_micros(100);

/// What the executor's thread does while a run waits for the next arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// The thread spins (busy-waits). The core keeps its clock frequency and its caches, so passes after a wait take
    /// the usual time.
    #[default]
    Spin,
    /// The thread sleeps, and other threads may use the core. Passes after the sleep are slower, because the caches
    /// have other contents and the clock frequency has fallen.
    Sleep,
}

pub(super) struct WallClock<'a> {
    /// The instant at which the clock was first read, which is engine time 0. `None` before the first reading.
    origin: Option<Instant>,
    now: Time,
    waiting: Waiting,
    interrupt: &'a AtomicBool,
}

impl<'a> WallClock<'a> {
    pub(super) fn new(waiting: Waiting, interrupt: &'a AtomicBool) -> WallClock<'a> {
        WallClock { origin: None, now: Time::ZERO, waiting, interrupt }
    }

    /// Returns the last reading of the wall clock, without reading it again.
    pub(super) fn now(&self) -> Time {
        self.now
    }

    /// Reads the wall clock, stores the reading as the last reading, and returns it.
    pub(super) fn read(&mut self) -> Time {
        self.now = self.now.max(self.peek());
        self.now
    }

    /// Returns the present time of the wall clock, but does not store it as the last reading. The first call starts the
    /// clock at 0.
    pub(super) fn peek(&mut self) -> Time {
        time(self.origin.get_or_insert_with(Instant::now).elapsed())
    }

    /// Waits until the time `at` or until the interrupt flag is set. Then reads the clock.
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

/// Converts a duration to engine time, which counts picoseconds.
pub(super) fn time(span: Duration) -> Time {
    Time(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1000))
}
