//! Draws, by request rate, how many times as fast requests are with drafting, and with plain decoding, as with the
//! draft setting with which a server runs now.

use super::axis::Axis;
use super::page::Page;
use super::sheet::{Named, Sheet};
use super::style::{GREY, RULE};
use super::{Figure, Kind};
use crate::{Dash, Look, Marker};

/// How many times as fast requests are with another draft setting as with the server's present draft setting, at one
/// request rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GainAt {
    /// The request rate at which the latencies are compared, requests a second.
    pub rate: f64,
    /// How many times as fast requests are as with the present setting: the ratio of mean end-to-end latencies.
    pub times: f64,
    /// The ends of the ratio's interval over seeds; `None` without an interval.
    pub ends: Option<(f64, f64)>,
}

/// Colour, dash and marker of the line for drafting, in Okabe and Ito's blue.
const DRAFTING: Look = Look { colour: (0x00, 0x72, 0xb2), dash: Dash::Solid, marker: Marker::Circle };
/// Colour, dash and marker of the line for plain decoding.
const PLAIN: Look = Look { colour: GREY, dash: Dash::Dashed, marker: Marker::Square };

/// Draws `gain-over-load.svg`: the gains of drafting (`points`) and of plain decoding (`plain`) over the present
/// setting. `drafting` and `now` are the labels of drafting and of the present setting. `None` if both gains lack
/// points.
pub fn gain_figure(drafting: &str, points: &[GainAt], plain: &[GainAt], now: &str, source: &str) -> Option<Figure> {
    let draw = |sheet| draw([drafting, now, source], points, plain, sheet);
    Figure::on_both(Kind::Gain, "gain-over-load.svg", draw)
}

fn draw([drafting, now, source]: [&str; 3], points: &[GainAt], plain: &[GainAt], sheet: Sheet) -> Option<String> {
    let all = || points.iter().chain(plain);
    let ends = all().flat_map(|p| <[f64; 2]>::from(p.ends.unwrap_or((p.times, p.times))));
    let (low, high) = (ends.clone().reduce(f64::min)?, ends.reduce(f64::max)?);
    let lines = [(drafting, points, DRAFTING), ("plain decoding", plain, PLAIN)];
    let lines = lines.into_iter().filter(|line| !line.1.is_empty()).collect::<Vec<_>>();
    let page = Page {
        title: format!("Against {now}"),
        source: source.to_owned(),
        x_name: "requests a second".to_owned(),
        y_name: "times as fast (mean end-to-end latency)".to_owned(),
        x: Axis::linear(0.0, all().map(|p| p.rate).fold(0.0, f64::max), 8),
        y: Axis::linear(low.min(1.0), high.max(1.0), 6),
        legend: lines.iter().map(|(name, _, look)| Named::plain(name, *look)).collect(),
        panels: vec![(String::new(), None)],
        own_x: Vec::new(),
        panel_height: 320.0,
        right: 0.0,
        sheet,
    };
    Some(page.svg(|c, panel, _| {
        c.line(&[panel.at(page.x.start(), 1.0), panel.at(page.x.end(), 1.0)], RULE, 1.2, Dash::Dashed);
        // The line for drafting is drawn last, so that it lies on top of the line for plain decoding.
        for (_, points, look) in lines.iter().rev() {
            let middle: Vec<_> = points.iter().map(|p| panel.at(p.rate, p.times)).collect();
            c.line(&middle, look.colour, 1.6, look.dash);
            for (p, at) in points.iter().zip(&middle) {
                if let Some((low, high)) = p.ends {
                    let bar = [low, high].map(|end| panel.at(p.rate, end));
                    c.line(&bar, look.colour, 1.2, Dash::Solid);
                }
                c.marker(*at, *look);
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figure_names_both_sides_the_unit_and_the_source() {
        let point = |rate: f64, times: f64| GainAt { rate, times, ends: Some((times - 0.02, times + 0.02)) };
        let drafting = [point(1.0, 1.3), point(5.0, 0.9)];
        let figure = gain_figure("K = 2", &drafting, &[point(1.0, 0.6)], "K = 3", "simulated; 3 seeds").unwrap();
        for text in
            ["K = 2", "Against K = 3", "plain decoding", "requests a second", "times as fast", "simulated; 3 seeds"]
        {
            assert!(figure.svg.contains(text), "{text}");
        }
        let alone = gain_figure("K = 2", &drafting, &[], "plain decoding", "simulated").unwrap();
        assert!(
            !alone.svg.contains("#666666\" stroke-width=\"1.6\" stroke-dasharray"),
            "no line of plain decoding against itself"
        );
        assert_eq!(gain_figure("K = 2", &[], &[], "K = 3", "none"), None);
    }
}
