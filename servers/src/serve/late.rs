//! Measures how late the chunks of streams are sent. A chunk has the tokens of one step for one request. Its delay is
//! the time from the end of the simulated step until the chunk is handed over to the connection.

use hdrhistogram::Histogram;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Histogram of the delays of chunks: the time from the end of a chunk's step until the chunk was handed over to its
/// connection. All clones share one histogram.
#[derive(Clone, Debug)]
pub struct Late(Arc<Mutex<Histogram<u64>>>);

impl Late {
    /// Makes an empty histogram of the delays of chunks.
    pub fn new() -> Late {
        Late(Arc::new(Mutex::new(Histogram::new(3).expect("3 digits are possible"))))
    }

    /// Adds the delay of a chunk to the histogram. The chunk's step ended at `due`, and the chunk is handed over to its
    /// connection now.
    pub fn note(&self, due: Instant) {
        let late_us = u64::try_from(due.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(late_us);
    }

    /// Returns the median and the 99th percentile of the delays of chunks, in seconds; 0 if no chunk was sent.
    pub fn quantiles_s(&self) -> [f64; 2] {
        let delays = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        [0.5, 0.99].map(|q| delays.value_at_quantile(q) as f64 / 1e6)
    }
}
