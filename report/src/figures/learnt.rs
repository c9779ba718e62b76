//! Two figures of a calibration (costs and acceptance that were fitted to observed runs): the time of a target pass by
//! its number of tokens, and how often draft tokens are accepted by their position in the draft of a step.

use super::axis::Axis;
use super::page::Page;
use super::sheet::{Named, Sheet};
use super::style::{MARKER, QUIET, Rgb};
use super::thin::apart;
use super::{Figure, Kind};
use crate::{Dash, Look, Marker};

/// Blue of Okabe and Ito's colours (2008), which people with any colour vision can distinguish.
const BLUE: Rgb = (0x00, 0x72, 0xb2);
const FITTED: Look = Look { colour: BLUE, dash: Dash::Solid, marker: Marker::Circle };
const EXTRAPOLATED: Look = Look { colour: BLUE, dash: Dash::Dashed, marker: Marker::Ring };
const OBSERVED: Look = Look { colour: QUIET, dash: Dash::Solid, marker: Marker::Plus };

/// Draws `cost.svg`: the fitted time of a target pass by its number of tokens, at the points `fitted` (tokens,
/// seconds). The points `observed` (tokens, seconds) are observed steps that ran no draft pass. `None` without fitted
/// points.
pub fn cost_figure(fitted: &[(u64, f64)], observed: &[(u64, f64)], source: &str) -> Option<Figure> {
    let ms = |points: &[(u64, f64)]| points.iter().map(|p| (p.0 as f64, 1e3 * p.1)).collect::<Vec<_>>();
    let (fitted, observed) = (ms(fitted), ms(observed));
    let tokens = fitted.iter().map(|p| p.0).reduce(f64::max)?;
    // The axis does not extend to steps that took far longer than the fit, because they would squeeze the curve.
    let time = fitted.iter().map(|p| p.1).fold(0.0, f64::max) * 1.25;
    let page = Page {
        title: "A pass of the target by its tokens".to_owned(),
        source: source.to_owned(),
        x_name: "tokens in the pass".to_owned(),
        y_name: "time (ms)".to_owned(),
        x: Axis::log(fitted.iter().map(|p| p.0).fold(tokens, f64::min).max(1.0), tokens),
        y: Axis::linear(0.0, time, 6),
        legend: vec![Named::plain("fitted", FITTED), Named::plain("observed steps without drafts", OBSERVED)],
        panels: vec![(String::new(), None)],
        own_x: Vec::new(),
        panel_height: 300.0,
        right: 0.0,
        sheet: Sheet::Screen,
    };
    let svg = page.svg(|c, panel, _| {
        let seen = observed
            .iter()
            .filter(|p| (page.x.start()..=tokens).contains(&p.0) && p.1 <= time)
            .map(|p| panel.at(p.0, p.1));
        c.markers(&apart(seen), OBSERVED, MARKER);
        let points: Vec<_> = fitted.iter().filter(|p| p.0 >= 1.0).map(|p| panel.at(p.0, p.1)).collect();
        c.line(&points, FITTED.colour, 1.8, FITTED.dash);
        c.markers(&points, FITTED, MARKER);
    });
    Some(Figure::new(Kind::Fit, "cost.svg", svg))
}

/// The acceptance of draft tokens at one position of a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AtPosition {
    /// Position of the draft token in its round; the first token has 1.
    pub position: usize,
    /// P(accepted | reached), 0 to 1: the share of accepted draft tokens among the draft tokens at this position whose
    /// predecessors in the same step were all accepted.
    pub rate: f64,
    /// The 95 % interval of the acceptance rate. `None` if no draft token at this position was reached, so that the
    /// rate is extrapolated.
    pub interval: Option<(f64, f64)>,
}

/// Draws `acceptance.svg`: the acceptance rate of each draft position with its interval, and extrapolated rates with a
/// dashed line. `None` without positions.
pub fn positions_figure(positions: &[AtPosition], source: &str) -> Option<Figure> {
    let deepest = positions.iter().map(|p| p.position).max()?;
    let page = Page {
        title: "Acceptance by position".to_owned(),
        source: source.to_owned(),
        x_name: "position in a round (1: the first draft)".to_owned(),
        y_name: "accepted, where it was reached (%)".to_owned(),
        x: Axis::batch_sizes(0.5, deepest as f64 + 0.5),
        y: Axis::linear(0.0, 100.0, 5),
        legend: vec![Named::plain("observed, 95 % interval", FITTED), Named::plain("extrapolated", EXTRAPOLATED)],
        panels: vec![(String::new(), None)],
        own_x: Vec::new(),
        panel_height: 240.0,
        right: 0.0,
        sheet: Sheet::Screen,
    };
    let svg = page.svg(|c, panel, _| {
        let at = |p: &AtPosition, rate: f64| panel.at(p.position as f64, 100.0 * rate);
        for pair in positions.windows(2) {
            let look = if pair[1].interval.is_some() { FITTED } else { EXTRAPOLATED };
            c.line(&[at(&pair[0], pair[0].rate), at(&pair[1], pair[1].rate)], look.colour, 1.8, look.dash);
        }
        for p in positions {
            if let Some((low, high)) = p.interval {
                c.line(&[at(p, low), at(p, high)], FITTED.colour, 1.4, Dash::Solid);
            }
            c.marker(at(p, p.rate), if p.interval.is_some() { FITTED } else { EXTRAPOLATED });
        }
    });
    Some(Figure::new(Kind::Depth, "acceptance.svg", svg))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_and_the_steps_that_fit_into_the_frame_are_drawn() {
        let fitted = [(1, 0.010), (64, 0.020), (256, 0.060)];
        let svg = cost_figure(&fitted, &[(8, 0.011), (200, 0.9)], "observed, 2 steps").unwrap().svg;
        for text in ["tokens in the pass", "fitted", "observed steps without drafts", "observed, 2 steps"] {
            assert!(svg.contains(text), "{text}");
        }
        let without = cost_figure(&fitted, &[], "observed, 2 steps").unwrap().svg;
        let with_far = cost_figure(&fitted, &[(200, 0.9)], "observed, 2 steps").unwrap().svg;
        assert_eq!(without, with_far, "the step of 900 ms is left out");
        assert!(svg.len() > without.len());
        assert_eq!(cost_figure(&[], &[], ""), None);
    }

    #[test]
    fn extrapolated_rates_have_no_interval_and_a_dashed_line() {
        let seen = AtPosition { position: 1, rate: 0.7, interval: Some((0.65, 0.75)) };
        let far = AtPosition { position: 2, rate: 0.6, interval: None };
        let svg = positions_figure(&[seen, far], "observed").unwrap().svg;
        assert!(svg.contains("stroke-dasharray") && svg.contains("extrapolated"), "{svg}");
        assert_eq!(positions_figure(&[], ""), None);
    }
}
