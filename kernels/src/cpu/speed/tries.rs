//! Measures the time of a function as the best of several tries.

use std::time::{Duration, Instant};

/// A try must take at least this time. The number of turns (repeats of the timed work) in a try is raised until the try
/// takes this time.
const TRY: Duration = Duration::from_micros(300);

/// Returns the seconds per turn of the fastest of `tries` tries. `run(turns)` must repeat the timed work `turns` times.
pub(super) fn best(tries: u32, mut run: impl FnMut(u64)) -> f64 {
    let mut turns = 1;
    // Raises the number of turns of the timed work until a try takes long enough to be timed.
    loop {
        let begin = Instant::now();
        run(turns);
        let took = begin.elapsed();
        if took >= TRY || turns >= 1 << 40 {
            break;
        }
        turns = (turns as f64 * (TRY.as_secs_f64() / took.as_secs_f64().max(1e-9)).clamp(1.5, 100.0)).ceil() as u64;
    }
    let mut shortest = Duration::MAX;
    for _ in 0..tries {
        let begin = Instant::now();
        run(turns);
        shortest = shortest.min(begin.elapsed());
    }
    shortest.as_secs_f64() / turns as f64
}
