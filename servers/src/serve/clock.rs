//! Converts between wall-clock instants and the engine's simulated time.

use foretoken_sim::Time;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Maps wall-clock instants to the engine's simulated time. It stores the instant at which the simulated time is zero.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    zero: Instant,
    zero_unix_s: f64,
}

impl Clock {
    /// Makes a clock on which the engine's simulated time is zero at the present instant.
    pub fn now() -> Clock {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { zero: Instant::now(), zero_unix_s: unix.as_secs_f64() }
    }

    /// Converts a wall-clock instant to the engine's simulated time. Instants before the clock's zero give zero.
    pub fn time_of(&self, instant: Instant) -> Time {
        Time(1000 * u64::try_from(instant.saturating_duration_since(self.zero).as_nanos()).unwrap_or(u64::MAX / 1000))
    }

    /// Converts a simulated time of the engine to the wall-clock instant, rounded up to a nanosecond.
    pub fn instant_of(&self, time: Time) -> Instant {
        self.zero + Duration::from_nanos(time.0.div_ceil(1000))
    }

    /// Converts a simulated time of the engine to seconds since 1970.
    pub fn unix_s(&self, time: Time) -> f64 {
        self.zero_unix_s + time.as_s()
    }
}
