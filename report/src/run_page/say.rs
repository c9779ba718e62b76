//! Numbers, intervals over seeds, and the source of a report's numbers, as text.

use crate::Source;
use crate::figures::view::Mean;
use crate::number::fixed;

/// A sentence that explains the source of the numbers.
pub fn source(source: Source) -> &'static str {
    match source {
        Source::Simulated => "simulated: predicted on the event clock",
        Source::Profiled => "simulated on profiled costs: predicted on the event clock, passes cost what was measured",
        Source::Live => "live: measured on hardware while serving",
        Source::Observed => "observed: measured from outside, by a client that sent requests to a server",
        Source::Recorded => {
            "simulated on recorded acceptance: predicted on the event clock, drafts are right where they were recorded to be"
        }
        Source::ProfiledRecorded => {
            "simulated on profiled costs and recorded acceptance: predicted on the event clock, passes cost what was measured, \
             drafts are right where they were recorded to be"
        }
    }
}

/// A text on how the intervals over `seeds` seeds are computed.
pub fn interval(seeds: usize) -> String {
    match seeds {
        0 | 1 => "none: one seed".to_owned(),
        n => {
            format!("95 %, Student t over {n} seeds, paired by seed; intervals of ratios are taken of their logarithms")
        }
    }
}

/// A mean as text with its unit and interval, such as `1.31× [1.28, 1.34]` or `9.5 % [8.3, 10.8]`. If the interval is
/// missing, only the mean.
pub fn with_interval(mean: &Mean, unit: &str, decimals: usize) -> String {
    let say = |value: f64| fixed(value, decimals);
    match mean.ends {
        Some((low, high)) => format!("{}{unit} [{}, {}]", say(mean.mean), say(low), say(high)),
        None => format!("{}{unit}", say(mean.mean)),
    }
}

/// A speedup as text, such as `1.31× [1.28, 1.34]`.
pub fn speedup(mean: &Mean) -> String {
    with_interval(mean, "×", 2)
}

/// The names as text. Up to four names are written out. Of more names, the first three are written out, followed by the
/// number of the others, as in `a, b, c and 2 more`.
pub fn few(names: &[&str]) -> String {
    match names.len() {
        0..=4 => names.join(", "),
        n => format!("{} and {} more", names[..3].join(", "), n - 3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::view::Scale;

    #[test]
    fn intervals_as_text() {
        let i = Scale::Ratio.mean(&[1.30, 1.31, 1.32]).unwrap();
        assert_eq!(speedup(&i), "1.31× [1.29, 1.34]");
        assert_eq!(speedup(&Scale::Ratio.mean(&[1.3]).unwrap()), "1.30×");
        let percent = Scale::Change.mean(&[9.0, 10.0, 11.0]).unwrap();
        assert_eq!(with_interval(&percent, "\u{a0}%", 0), "10\u{a0}% [8, 13]");
        assert_eq!(few(&["a", "b", "c", "d"]), "a, b, c, d");
        assert_eq!(few(&["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
    }
}
