//! The host's time between the steps of a server, from its step log.

use crate::calibrate::costs::StepRow;

/// The host's time is taken to grow with the requests only if the slope is at least this many standard errors.
const SURE: f64 = 4.0;
/// The host's time is taken to grow with the requests only if, from the smallest to the largest batch, it grows by at
/// least this share of its mean.
const GROWS: f64 = 0.1;

/// The host's time between steps as (seconds for a step, seconds for each request in it), by least squares.
pub(crate) fn between_steps(rows: &[StepRow]) -> (f64, f64) {
    let all: Vec<(f64, f64)> =
        rows.iter().filter_map(|r| Some((f64::from(r.decodes + r.prompts), r.host_s?))).collect();
    let n = all.len().max(1) as f64;
    let (x, y) = (all.iter().map(|at| at.0).sum::<f64>() / n, all.iter().map(|at| at.1).sum::<f64>() / n);
    let xx: f64 = all.iter().map(|at| (at.0 - x).powi(2)).sum();
    let slope = all.iter().map(|at| (at.0 - x) * (at.1 - y)).sum::<f64>() / xx;
    let rest: f64 = all.iter().map(|at| (at.1 - y - slope * (at.0 - x)).powi(2)).sum();
    let error = (rest / (n - 2.0).max(1.0) / xx).sqrt();
    let sizes = all.iter().map(|at| at.0);
    let span = sizes.clone().fold(0.0, f64::max) - sizes.fold(f64::INFINITY, f64::min);
    let shows = xx > 0.0 && slope > SURE * error && slope * span > GROWS * y;
    match (shows, y - slope * x) {
        (true, step) if step > 0.0 => (step, slope),
        // All of the time is that of the requests.
        (true, _) => (0.0, y / x),
        (false, _) => (y, 0.0),
    }
}
