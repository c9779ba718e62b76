//! Scales and ticks. Ticks are at round numbers, at the swept values, or one for each row of a list.

/// A scale that maps values to a share of the axis' length, with its ticks.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    low: f64,
    high: f64,
    log: bool,
    /// Values that the axis marks with a tick, ascending, with the ticks' labels.
    pub ticks: Vec<(f64, String)>,
    /// The labels that stand out; the others are grey.
    pub strong: Vec<String>,
}

impl Axis {
    /// A linear axis from a tick at or below `low` to a tick at or above `high`, with about `ticks` round ticks.
    pub fn linear(low: f64, high: f64, ticks: usize) -> Axis {
        let (low, high) = if high > low { (low, high) } else { (low - 0.5, low + 0.5) };
        let step = round_step((high - low) / ticks.max(1) as f64);
        // The first and the last tick as multiples of the step. The tolerance allows for rounding errors: 0.1 · 3 is
        // not exactly 0.3.
        let (first, last) = ((low / step + 1e-9).floor() as i64, (high / step - 1e-9).ceil() as i64);
        let decimals = (-step.log10().floor()).max(0.0) as usize;
        let ticks = (first..=last).map(|i| (i as f64 * step, format!("{:.decimals$}", i as f64 * step))).collect();
        Axis { low: first as f64 * step, high: last as f64 * step, log: false, ticks, strong: Vec::new() }
    }

    /// A linear axis from exactly `low` to exactly `high`, with about `ticks` round ticks.
    pub fn exact(low: f64, high: f64, ticks: usize) -> Axis {
        let rounded = Axis::linear(low, high, ticks);
        if high <= low {
            return rounded;
        }
        let inside = |v: f64| v >= low - 1e-9 * (high - low) && v <= high + 1e-9 * (high - low);
        Axis { low, high, ticks: rounded.ticks.into_iter().filter(|t| inside(t.0)).collect(), ..rounded }
    }

    /// A logarithmic axis over positive values. If `high` is less than twice `low`, the axis is widened to a factor of
    /// two. An axis over more than three decades has ticks at powers of ten. An axis over more than 0.6 decades has
    /// ticks at 1, 2 and 5 times powers of ten. A shorter axis has ticks at up to eleven numbers in a decade.
    pub fn log(low: f64, high: f64) -> Axis {
        // The axis covers at least a factor of two, so that some ticks fall inside.
        let widen = (2.0 * low / high).max(1.0).sqrt();
        let (low, high) = (low / widen, high * widen);
        let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let mantissas: &[f64] = match (high / low).log10() {
            d if d > 3.0 => &[1.0],
            d if d > 0.6 => &[1.0, 2.0, 5.0],
            _ => &[1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
        };
        let tick = |(k, m): (i32, f64)| {
            let value = m * 10f64.powi(k);
            let label = format!("{value:.12}");
            (value, label.trim_end_matches('0').trim_end_matches('.').to_owned())
        };
        let all = decades.flat_map(|k| mantissas.iter().map(move |&m| tick((k, m))));
        Axis {
            low,
            high,
            log: true,
            ticks: all.filter(|(v, _)| (low..=high).contains(v)).collect(),
            strong: Vec::new(),
        }
    }

    /// An axis with a tick at each swept value. It is logarithmic if all values are positive and the greatest is at
    /// least 8 times the least.
    pub fn swept(values: &[(f64, String)]) -> Axis {
        let low = values.iter().map(|v| v.0).fold(f64::INFINITY, f64::min);
        let high = values.iter().map(|v| v.0).fold(f64::NEG_INFINITY, f64::max);
        let log = low > 0.0 && high / low >= 8.0;
        let pad = if log { (high / low).powf(0.04) } else { (high - low) * 0.04 };
        let (low, high) = if log { (low / pad, high * pad) } else { (low - pad, high + pad) };
        Axis { low, high, log, ticks: values.to_vec(), strong: Vec::new() }
    }

    /// A linear axis of the whole numbers from 0 to `high`, with a margin of half a unit at both ends. Each number has
    /// a tick if `high` is at most 12, every second number if `high` is at most 24, else every fifth number.
    pub fn whole(high: u32) -> Axis {
        let every = match high {
            0..=12 => 1,
            13..=24 => 2,
            _ => 5,
        };
        let ticks = (0..=high).step_by(every).map(|i| (f64::from(i), i.to_string())).collect();
        Axis { low: -0.5, high: f64::from(high) + 0.5, log: false, ticks, strong: Vec::new() }
    }

    /// An axis of batch sizes from `low` to `high`, with ticks at whole numbers. It is logarithmic if `high` is above
    /// 12.5 and `low` is above 0.
    pub fn batch_sizes(low: f64, high: f64) -> Axis {
        if high > 12.5 && low > 0.0 {
            let mut axis = Axis::log(low, high);
            axis.ticks.retain(|t| t.0.fract() == 0.0);
            return axis;
        }
        let mut axis = Axis { low, high, ..Axis::whole(high as u32) };
        axis.ticks.retain(|t| t.0 >= low);
        axis
    }

    /// A linear axis of the draft positions from 1 to `most`.
    pub fn positions(most: u32) -> Axis {
        let mut axis = Axis { low: 0.5, ..Axis::whole(most) };
        axis.ticks.retain(|t| t.0 >= 1.0);
        axis
    }

    /// A vertical axis with one row per label; the first row is at the top of the panel.
    pub fn rows(labels: &[&str]) -> Axis {
        let ticks = labels.iter().enumerate().map(|(i, label)| (i as f64, (*label).to_owned())).collect();
        Axis { low: labels.len() as f64 - 0.5, high: -0.5, log: false, ticks, strong: Vec::new() }
    }

    /// The axis with fewer ticks, so that their labels are at least a line of text apart. `px` is the height in px of
    /// one unit of the axis.
    pub fn thinned(mut self, px: f64) -> Axis {
        let every = (14.0 / px).ceil().max(1.0) as usize;
        self.ticks = self.ticks.into_iter().step_by(every).collect();
        self
    }

    /// The axis with ticks at whole numbers only.
    pub fn whole_only(mut self) -> Axis {
        self.ticks.retain(|(value, _)| value.fract() == 0.0);
        self.ticks.iter_mut().for_each(|(value, label)| *label = format!("{value:.0}"));
        self
    }

    pub fn is_log(&self) -> bool {
        self.log
    }

    /// The position of a value: 0 at the axis' start, 1 at its end.
    pub fn at(&self, value: f64) -> f64 {
        if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    pub fn start(&self) -> f64 {
        self.low
    }

    pub fn end(&self) -> f64 {
        self.high
    }

    pub fn clamp(&self, value: f64) -> f64 {
        value.clamp(self.low.min(self.high), self.low.max(self.high))
    }
}

/// The least number of the form 1, 2 or 5 · 10^k that is at least `x`.
fn round_step(x: f64) -> f64 {
    let power = 10f64.powf(x.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= x * (1.0 - 1e-9)).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(a: &Axis) -> Vec<&str> {
        a.ticks.iter().map(|t| t.1.as_str()).collect()
    }

    #[test]
    fn linear_ticks_are_round_and_cover_the_data() {
        let a = Axis::linear(0.83, 1.52, 5);
        assert_eq!(labels(&a), ["0.8", "1.0", "1.2", "1.4", "1.6"]);
        assert_eq!((a.at(0.8), a.at(1.6)), (0.0, 1.0));
        assert_eq!(labels(&Axis::linear(0.0, 1.0, 5)), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(&Axis::linear(0.0, 600.0, 6)), ["0", "100", "200", "300", "400", "500", "600"]);
        assert!(Axis::linear(3.0, 3.0, 4).ticks.len() > 1);
    }

    #[test]
    fn log_ticks() {
        assert_eq!(labels(&Axis::log(0.04, 30.0)), ["0.05", "0.1", "0.2", "0.5", "1", "2", "5", "10", "20"]);
        assert_eq!(labels(&Axis::log(1e-4, 1e3)), ["0.0001", "0.001", "0.01", "0.1", "1", "10", "100", "1000"]);
        assert_eq!(labels(&Axis::log(1.4, 3.2)), ["1.5", "2", "2.5", "3"]);
        assert!((Axis::log(1.0, 100.0).at(10.0) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn swept_values_are_the_ticks() {
        let values: Vec<_> = [0.25, 1.0, 4.0].map(|v| (v, v.to_string())).to_vec();
        let a = Axis::swept(&values);
        assert_eq!(labels(&a), ["0.25", "1", "4"]);
        assert!((a.at(1.0) - 0.5).abs() < 1e-12, "log spacing");
        assert!(a.at(0.25) > 0.0 && a.at(4.0) < 1.0, "room at both ends");
    }

    proptest! {
        #[test]
        fn linear_covers_its_data_with_distinct_ticks(low in -1e6..1e6, span in 1e-3..1e6, ticks in 1usize..12) {
            let a = Axis::linear(low, low + span, ticks);
            prop_assert!(a.at(low) >= -1e-6 && a.at(low + span) <= 1.0 + 1e-6);
            prop_assert!(a.ticks.len() >= 2 && a.ticks.len() <= ticks + 2, "{} ticks", a.ticks.len());
            prop_assert!(a.ticks.windows(2).all(|t| t[0].0 < t[1].0 && t[0].1 != t[1].1), "{:?}", a.ticks);
        }

        #[test]
        fn log_covers_its_data_and_marks_it(low in 1e-6..1e4, factor in 1.0..1e9) {
            let a = Axis::log(low, low * factor);
            prop_assert!(a.at(low) >= -1e-9 && a.at(low * factor) <= 1.0 + 1e-9);
            prop_assert!(a.ticks.len() >= 2 && a.ticks.len() <= 20, "{:?}", a.ticks);
            prop_assert!(a.ticks.iter().all(|t| (-1e-9..=1.0 + 1e-9).contains(&a.at(t.0)) && t.1.parse() == Ok(t.0)));
        }
    }
}
