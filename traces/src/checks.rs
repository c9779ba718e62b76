//! Checks of single settings. Each check has its error message.

use crate::error::TraceError;

/// Refuses a setting whose value is not a finite number above 0. `key` is the setting's name.
pub(crate) fn positive(key: &str, value: f64) -> Result<(), TraceError> {
    let ok = value > 0.0 && value.is_finite();
    if ok { Ok(()) } else { Err(TraceError::spec(key, format!("{value:?} is not a number above 0"), "")) }
}

/// Refuses a setting that is a rate of events a second and is not above 0, or is over one a picosecond (the clock's
/// unit).
pub(crate) fn rate(key: &str, value: f64) -> Result<(), TraceError> {
    within(key, value, f64::MIN_POSITIVE, 1e12, "a rate above 0 and up to 1e12 a second")
}

/// Refuses a setting that is a time of an arrival process (such as a correlation time or a tick), seconds, if it is
/// below a microsecond or not finite.
pub(crate) fn span(key: &str, value: f64) -> Result<(), TraceError> {
    within(key, value, 1e-6, f64::MAX, "a finite number of seconds, at least 1e-6")
}

/// Refuses a setting that is a coefficient of variation (standard deviation over mean) below 0 or above 1000. With a
/// larger coefficient, nearly all draws of a log-normal rate are 0.
pub(crate) fn variation(key: &str, value: f64) -> Result<(), TraceError> {
    within(key, value, 0.0, 1e3, "a coefficient of variation from 0 to 1000")
}

/// Refuses a setting whose value is outside `least..=most`. The error message names the allowed values with the text
/// `wanted`.
pub(crate) fn within(key: &str, value: f64, least: f64, most: f64, wanted: &str) -> Result<(), TraceError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let what =
        if value > 0.0 { format!("{value:?} is out of range") } else { format!("{value:?} is not a number above 0") };
    let what = if least == 0.0 && value <= 0.0 { format!("{value:?} is not a number of at least 0") } else { what };
    Err(TraceError::spec(key, what, format!("expected {wanted}")))
}

/// Refuses a setting whose value is not a finite number of at least 0.
pub(crate) fn not_negative(key: &str, value: f64) -> Result<(), TraceError> {
    let ok = value >= 0.0 && value.is_finite();
    if ok { Ok(()) } else { Err(TraceError::spec(key, format!("{value:?} is not a number of at least 0"), "")) }
}
