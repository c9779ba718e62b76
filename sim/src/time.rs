//! The engine's clock unit: whole picoseconds in a `u64` (213 days of range).
//!
//! Integers have a total order and no NaN, and their sum does not depend on the order of addition. So steps that are
//! computed in one go end at the same instant as single steps. Sums and products saturate at [`Time::MAX`], where the
//! engine stops; a sum that wrapped around would be a wrong number that looks right. A negative difference would look
//! right, too, so it panics; use [`Time::saturating_sub`] where a difference may be negative. Durations inside models
//! are `f64` seconds with an `_s` suffix. They are converted to `Time` once.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub};

/// A point in time or a duration on the engine's clock, in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Time(pub u64);

/// Picoseconds in a second.
pub const PS_PER_S: f64 = 1e12;

impl Time {
    /// The start of the clock.
    pub const ZERO: Time = Time(0);
    /// The latest time that the clock can have (213 days). It also stands for "never".
    pub const MAX: Time = Time(u64::MAX);

    /// Rounds seconds to the nearest picosecond. Negative values and NaN become zero, so callers must check user input
    /// before.
    #[inline]
    pub fn from_s(seconds: f64) -> Time {
        let ps = seconds * PS_PER_S;
        // Both ways round as `f64::round` does. `round` is a function call on processors without an instruction for
        // it, and numbers with a sign are converted faster.
        if ps < i64::MAX as f64 {
            let whole = ps as i64;
            return Time((whole + i64::from(ps - whole as f64 >= 0.5)).max(0) as u64);
        }
        Time(ps as u64)
    }

    /// The time in seconds.
    pub fn as_s(self) -> f64 {
        self.0 as f64 / PS_PER_S
    }

    /// `self - other`, or zero if `other` is larger.
    pub fn saturating_sub(self, other: Time) -> Time {
        Time(self.0.saturating_sub(other.0))
    }
}

impl Add for Time {
    type Output = Time;
    fn add(self, other: Time) -> Time {
        Time(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Time {
    fn add_assign(&mut self, other: Time) {
        *self = *self + other;
    }
}

impl Sub for Time {
    type Output = Time;

    /// The time from `other` to `self`.
    ///
    /// # Panics
    /// If `other` is later, in every build profile.
    #[inline]
    #[track_caller]
    fn sub(self, other: Time) -> Time {
        match self.0.checked_sub(other.0) {
            Some(span) => Time(span),
            None => negative(self, other),
        }
    }
}

/// Panics, because `other` is later than `time`. This is a separate function, so that a subtraction of times costs only
/// one branch.
#[cold]
#[inline(never)]
#[track_caller]
fn negative(time: Time, other: Time) -> ! {
    panic!("a negative span of time: {} ps - {} ps", time.0, other.0)
}

impl Mul<u64> for Time {
    type Output = Time;
    fn mul(self, times: u64) -> Time {
        Time(self.0.saturating_mul(times))
    }
}

impl Sum for Time {
    fn sum<I: Iterator<Item = Time>>(spans: I) -> Time {
        spans.fold(Time::ZERO, Add::add)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6} s", self.as_s())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_saturates() {
        assert_eq!(Time::MAX + Time(1), Time::MAX);
        assert_eq!(Time::from_s(1e6) * 1000, Time::MAX);
        assert_eq!(Time::from_s(1e300), Time::MAX);
    }

    #[test]
    fn spans_are_never_negative() {
        assert_eq!(Time(5) - Time(5), Time::ZERO);
        assert_eq!(Time(4).saturating_sub(Time(5)), Time::ZERO);
        let panic = std::panic::catch_unwind(|| Time(4) - Time(5)).unwrap_err();
        assert_eq!(panic.downcast_ref::<String>().unwrap(), "a negative span of time: 4 ps - 5 ps");
    }

    #[test]
    fn seconds_round_to_the_nearest_picosecond() {
        assert_eq!(Time::from_s(1.5), Time(1_500_000_000_000));
        assert_eq!(Time::from_s(0.3e-6), Time(300_000));
        assert_eq!(Time::from_s(0.6e-12), Time(1));
        assert_eq!(Time::from_s(-1.0), Time::ZERO);
        for bits in (0..10_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            // Two numbers for each `bits`. `from_bits` gives numbers of all signs and magnitudes, infinities and NaN.
            // The second number is a multiple of half a picosecond.
            for seconds in [f64::from_bits(bits), (bits >> 40) as f64 * 0.5e-12] {
                assert_eq!(Time::from_s(seconds), Time((seconds * PS_PER_S).round() as u64), "{seconds:?}");
            }
        }
        assert_eq!(Time(2_500_000_000_000).as_s(), 2.5);
    }
}
