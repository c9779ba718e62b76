//! What several routers share: checks of settings, and how often the original programs query the replicas' loads.

use crate::report_board::Signals;

/// How SMG's program queries its workers' loads: every 10 s, and the answer comes without delay.
pub(super) fn smg_signals() -> Signals {
    Signals { interval_s: 10.0, delay_s: 0.0 }
}

/// How llm-d's endpoint picker reads the metrics of every server: each 50 ms, and the metrics come without delay.
pub(super) fn llm_d_signals() -> Signals {
    Signals { interval_s: 0.05, delay_s: 0.0 }
}

/// The result of checking a setting: its key and what is wrong.
pub(super) type Checked = Result<(), (&'static str, String)>;

/// Refuses a value that is not a finite number above 0.
pub(super) fn positive(key: &'static str, value: f64) -> Checked {
    let fine = value > 0.0 && value.is_finite();
    if fine { Ok(()) } else { Err((key, format!("{value} is not a number above 0"))) }
}

/// Refuses a number that is not from 1 to `most`.
pub(super) fn at_most(key: &'static str, value: u32, most: u32) -> Checked {
    let fine = (1..=most).contains(&value);
    if fine { Ok(()) } else { Err((key, format!("{value} is not a number from 1 to {most}"))) }
}

/// Refuses a value that is not a finite number of at least 0.
pub(super) fn not_negative(key: &'static str, value: f64) -> Checked {
    let fine = value >= 0.0 && value.is_finite();
    if fine { Ok(()) } else { Err((key, format!("{value} is not a number of at least 0"))) }
}

/// Refuses a value that is not from 0 to 1.
pub(super) fn share(key: &'static str, value: f64) -> Checked {
    let fine = (0.0..=1.0).contains(&value);
    if fine { Ok(()) } else { Err((key, format!("{value} is not a share from 0 to 1"))) }
}
