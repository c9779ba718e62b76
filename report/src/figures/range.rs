//! A small bar for a row of a table: the range of our numbers, and a mark at a number that others report.

use super::canvas::svg;
use super::style::{INK, RULE, Rgb};
use crate::{Dash, Look, Marker};

/// Size of the drawing, px.
const SIZE: (f64, f64) = (176.0, 22.0);
/// Blue of Okabe and Ito's colours.
const OURS: Rgb = (0x00, 0x72, 0xb2);
const REPORTED: Look = Look { colour: INK, dash: Dash::Solid, marker: Marker::Diamond };

/// Draws the ranges `ours` and `reported`, both (low, high), on one scale: ours as a bar, the reported one as a
/// diamond, with a line if it is a range.
pub fn range_bar(ours: (f64, f64), reported: (f64, f64)) -> String {
    let ends = [ours.0, ours.1, reported.0, reported.1];
    let (low, high) =
        (ends.into_iter().fold(f64::INFINITY, f64::min), ends.into_iter().fold(f64::NEG_INFINITY, f64::max));
    let span = if high > low { high - low } else { 1.0 };
    let (margin, middle) = (8.0, SIZE.1 / 2.0);
    let x = |value: f64| margin + (SIZE.0 - 2.0 * margin) * (value - low) / span;
    svg(SIZE, "ours and reported", "bar: our range; diamond: reported", |c| {
        c.line(&[(margin, middle), (SIZE.0 - margin, middle)], RULE, 1.0, Dash::Solid);
        c.area((x(ours.0) - 1.0, middle - 5.0), (x(ours.1) + 1.0, middle + 5.0), OURS);
        c.line(&[(x(reported.0), middle), (x(reported.1), middle)], INK, 2.0, Dash::Solid);
        c.marker((x((reported.0 + reported.1) / 2.0), middle), REPORTED);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_and_mark_are_on_one_scale() {
        let svg = range_bar((1.0, 2.0), (3.0, 3.0));
        assert!(svg.contains("#0072B2") && !svg.contains("NaN"), "{svg}");
        assert!(!range_bar((1.0, 1.0), (1.0, 1.0)).contains("NaN"));
    }
}
