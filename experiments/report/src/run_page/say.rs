//! Numbers in words.

use crate::Source;
use crate::number::fixed;
use foretoken_sim::metrics::Interval;

/// Where the numbers come from, in words.
pub fn source(source: Source) -> &'static str {
    match source {
        Source::Simulated => "simulated: predicted on the event clock",
        Source::Profiled => "simulated on profiled costs: predicted on the event clock, passes cost what was measured",
        Source::Live => "live: measured on hardware while serving",
        Source::Observed => "observed: measured from outside, of a server that was asked",
        Source::Recorded => {
            "simulated on recorded acceptance: predicted on the event clock, drafts are right where they were recorded to be"
        }
        Source::ProfiledRecorded => {
            "simulated on profiled costs and recorded acceptance: predicted on the event clock, passes cost what was measured, \
             drafts are right where they were recorded to be"
        }
    }
}

/// What intervals are.
pub fn interval(seeds: usize) -> String {
    match seeds {
        0 | 1 => "none: one seed".to_owned(),
        n => format!("95 %, Student t over {n} seeds, differences paired by seed"),
    }
}

/// A mean with its interval in a unit: `1.31 [1.28, 1.34]`.
pub fn with_interval(i: &Interval, unit: f64, decimals: usize) -> String {
    let say = |value: f64| fixed(value * unit, decimals);
    match i.half_width {
        Some(half) => format!("{} [{}, {}]", say(i.mean), say(i.mean - half), say(i.mean + half)),
        None => say(i.mean),
    }
}

/// A speedup: `1.31× [1.28, 1.34]`.
pub fn speedup(i: &Interval) -> String {
    with_interval(i, 1.0, 2).replacen(' ', "× ", 1) + if i.half_width.is_none() { "×" } else { "" }
}

/// Can a difference be told from zero?
pub fn told_apart(difference: &Interval) -> bool {
    difference.half_width.is_some_and(|half| difference.mean.abs() > half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_in_words() {
        let i = Interval::of(&[1.30, 1.31, 1.32]).unwrap();
        assert_eq!(speedup(&i), "1.31× [1.29, 1.33]");
        assert_eq!(speedup(&Interval::of(&[1.3]).unwrap()), "1.30×");
        assert_eq!(with_interval(&i, 100.0, 0), "131 [129, 133]");
        assert!(told_apart(&i) && !told_apart(&Interval::of(&[1.0, -1.0]).unwrap()));
        assert!(!told_apart(&Interval::of(&[1.0]).unwrap()), "one seed tells nothing apart");
    }
}
