//! What drafting brings as the load grows.

use super::axis::Axis;
use super::page::Page;
use super::style::RULE;
use super::{Figure, Kind};
use crate::{Dash, Look, Marker};

/// At a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GainAt {
    /// Requests a second.
    pub rate: f64,
    /// Gain as a share: above 0 drafting pays.
    pub gain: f64,
    /// Half of its interval, where there is one.
    pub half_width: Option<f64>,
}

/// Okabe and Ito's blue, as the policies'.
const LOOK: Look = Look { colour: (0x00, 0x72, 0xb2), dash: Dash::Solid, marker: Marker::Circle };

/// The figure `gain-over-load.svg` of a draft length; `None` without points.
pub fn gain_figure(k: u32, points: &[GainAt], source: &str) -> Option<Figure> {
    let ends = points.iter().flat_map(|p| [-1.0, 1.0].map(|s| 100.0 * (p.gain + s * p.half_width.unwrap_or(0.0))));
    let (low, high) = (ends.clone().reduce(f64::min)?, ends.reduce(f64::max)?);
    let page = Page {
        title: format!("What drafting {k} brings as the load grows"),
        source: source.to_owned(),
        x_name: "requests a second".to_owned(),
        y_name: "gain in mean end-to-end latency (%)".to_owned(),
        x: Axis::linear(0.0, points.iter().map(|p| p.rate).fold(0.0, f64::max), 8),
        y: Axis::linear(low.min(0.0), high.max(0.0), 6),
        legend: Vec::new(),
        panels: vec![(String::new(), None)],
        own_x: Vec::new(),
        panel_height: 320.0,
        right: 0.0,
    };
    let svg = page.svg(|c, panel, _| {
        c.line(&[panel.at(page.x.start(), 0.0), panel.at(page.x.end(), 0.0)], RULE, 1.2, Dash::Dashed);
        let middle: Vec<_> = points.iter().map(|p| panel.at(p.rate, 100.0 * p.gain)).collect();
        c.line(&middle, LOOK.colour, 1.6, LOOK.dash);
        for (p, at) in points.iter().zip(&middle) {
            if let Some(half) = p.half_width {
                let bar = [-1.0, 1.0].map(|s| panel.at(p.rate, 100.0 * (p.gain + s * half)));
                c.line(&bar, LOOK.colour, 1.2, Dash::Solid);
            }
            c.marker(*at, LOOK);
        }
    });
    Some(Figure { kind: Kind::Gain, file: "gain-over-load.svg".to_owned(), svg })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_the_length_the_unit_and_the_source() {
        let point = |rate: f64, gain: f64| GainAt { rate, gain, half_width: Some(0.02) };
        let figure = gain_figure(3, &[point(1.0, 0.3), point(5.0, -0.1)], "simulated; 3 seeds").unwrap();
        for text in ["drafting 3", "requests a second", "(%)", "simulated; 3 seeds"] {
            assert!(figure.svg.contains(text), "{text}");
        }
        assert_eq!(gain_figure(3, &[], "none"), None);
    }
}
