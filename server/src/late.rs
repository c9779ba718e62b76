//! Measures how late a token is sent: the time from the end of the simulated step that made the token until the token
//! is written to the connection.

use hdrhistogram::Histogram;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The delays of all streamed tokens, from the end of their step until they are written to the connection. Clones share
/// one histogram.
#[derive(Clone, Debug)]
pub struct Late(Arc<Mutex<Histogram<u64>>>);

impl Late {
    /// An empty histogram.
    pub fn new() -> Late {
        Late(Arc::new(Mutex::new(Histogram::new(3).expect("3 digits are possible"))))
    }

    /// Adds the delay of tokens that were due at `due` and are written to the connection now.
    pub fn note(&self, due: Instant) {
        let late_us = u64::try_from(due.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(late_us);
    }

    /// Median and 99th percentile of the delays, seconds; 0 if no token was streamed.
    pub fn quantiles_s(&self) -> [f64; 2] {
        let delays = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        [0.5, 0.99].map(|q| delays.value_at_quantile(q) as f64 / 1e6)
    }
}
