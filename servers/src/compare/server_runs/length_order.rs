//! Ranks the draft lengths at a load by mean E2E, observed and predicted.

use super::cell::Cell;
use crate::compare::numbers::E2E;
use serde::Serialize;

/// The draft lengths of a server at one load, ordered by mean E2E.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LengthOrder {
    /// The load as text, such as `closed 4` (four clients).
    pub load: String,
    /// The draft lengths by observed mean E2E, the fastest first.
    pub observed: Vec<u32>,
    /// The draft lengths by predicted mean E2E, the fastest first.
    pub predicted: Vec<u32>,
    /// Number of pairs of draft lengths whose observed mean E2E can be told apart: the difference between the two
    /// lengths is larger than the difference between repeated runs with one of the lengths.
    pub told_apart: usize,
    /// Number of the pairs in `told_apart` whose predicted order is the same as the observed order.
    pub kept: usize,
}

/// Mean E2E of the runs with one draft length, seconds.
#[derive(Clone, Copy)]
struct Length {
    k: u32,
    observed: f64,
    predicted: f64,
    /// Distance between the mean E2E of repeated runs with this draft length, relative to their median.
    spread: f64,
}

/// The order of draft lengths at each load with at least two lengths whose mean E2E is decided (observed at least
/// twice, with repeats that agree). In `cells`, the cells of one load must be neighbours.
pub fn orders(cells: &[Cell]) -> Vec<LengthOrder> {
    let mut loads: Vec<&str> = cells.iter().map(|c| c.load.as_str()).collect();
    loads.dedup();
    let length = |c: &Cell| {
        let row = c.row(E2E)?;
        Some(Length { k: c.k, observed: row.reference(), predicted: row.predicted.predicted, spread: row.spread? })
    };
    let lengths = |load: &str| -> Vec<Length> {
        cells.iter().filter(|c| c.load == load && c.decided(E2E)).filter_map(length).collect()
    };
    loads.into_iter().filter_map(|load| order(load, &lengths(load))).collect()
}

fn order(load: &str, lengths: &[Length]) -> Option<LengthOrder> {
    if lengths.len() < 2 {
        return None;
    }
    let sorted = |value: fn(&Length) -> f64| {
        let mut sorted = lengths.to_vec();
        sorted.sort_by(|a, b| value(a).total_cmp(&value(b)));
        sorted.iter().map(|length| length.k).collect()
    };
    let (mut told_apart, mut kept) = (0, 0);
    for (i, a) in lengths.iter().enumerate() {
        for b in &lengths[..i] {
            if (a.observed - b.observed).abs() > a.spread.max(b.spread) * a.observed.min(b.observed) {
                told_apart += 1;
                kept += usize::from((a.observed < b.observed) == (a.predicted < b.predicted));
            }
        }
    }
    let (observed, predicted) = (sorted(|l| l.observed), sorted(|l| l.predicted));
    Some(LengthOrder { load: load.to_owned(), observed, predicted, told_apart, kept })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths() -> Vec<Length> {
        [(0, 10.0, 10.1, 0.02), (1, 8.0, 8.2, 0.02), (2, 8.1, 8.0, 0.03), (3, 9.0, 10.3, 0.01)]
            .map(|(k, observed, predicted, spread)| Length { k, observed, predicted, spread })
            .to_vec()
    }

    #[test]
    fn pairs_within_the_noise_do_not_count() {
        let o = order("closed 4", &lengths()).unwrap();
        assert_eq!((o.observed, o.predicted), (vec![1, 2, 3, 0], vec![2, 1, 0, 3]));
        // Lengths 1 and 2 cannot be told apart: their mean E2E differs by 0.1 s, and repeated runs with length 2 differ
        // by 3 % (0.24 s). So five of the six pairs of draft lengths count. The order of lengths 0 and 3 is predicted
        // wrongly, so four orders are kept.
        assert_eq!((o.told_apart, o.kept), (5, 4));
    }

    #[test]
    fn one_length_has_no_order() {
        assert_eq!(order("closed 1", &lengths()[..1]), None);
    }
}
