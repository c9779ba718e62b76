//! Draws, by request rate, how many times as fast requests are with each draft length, and with plain decoding, as with
//! the draft setting with which a server runs now. The lines are named where they end.

use super::axis::Axis;
use super::canvas::{Anchor, Canvas};
use super::page::{Page, Panel};
use super::sheet::Sheet;
use super::style::{GREY, INK, QUIET, RULE, Rgb, TEXT, text_width};
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GainOf {
    /// The drafting that the page is about: the line is in colour, with intervals.
    Drafting,
    Plain,
    /// Another draft length.
    Length,
}

#[derive(Clone, Debug, PartialEq)]
pub struct GainLine {
    /// The name, which stands at the line's end.
    pub name: String,
    pub of: GainOf,
    /// The line's points, by rising rate.
    pub points: Vec<GainAt>,
}

/// Draws `gain-over-load.svg`: the gains of `lines` over the present setting. `now` names the present setting in the
/// title, and `here` at the line of no gain. `None` if no line has points.
pub fn gain_figure(lines: &[GainLine], now: &str, here: &str, source: &str) -> Option<Figure> {
    let draw = |sheet| draw(lines, [now, here, source], sheet);
    Figure::on_both(Kind::Gain, "gain-over-load.svg", draw)
}

/// The look of a line, its width, and the colour of its name. Drafting is in Okabe and Ito's blue.
fn ink(of: GainOf) -> (Look, f64, Rgb) {
    let look = |colour, dash, marker| Look { colour, dash, marker };
    match of {
        GainOf::Drafting => (look((0x00, 0x72, 0xb2), Dash::Solid, Marker::Circle), 2.4, INK),
        GainOf::Plain => (look(GREY, Dash::Dashed, Marker::Square), 1.6, GREY),
        GainOf::Length => (look(QUIET, Dash::Solid, Marker::Circle), 1.2, GREY),
    }
}

fn draw(lines: &[GainLine], [now, here, source]: [&str; 3], sheet: Sheet) -> Option<String> {
    let all = || lines.iter().flat_map(|line| &line.points);
    let whole = lines.iter().filter(|line| line.of != GainOf::Length).flat_map(|line| &line.points);
    let ends = whole.flat_map(|p| <[f64; 2]>::from(p.ends.unwrap_or((p.times, p.times))));
    let ends = ends.chain(all().map(|p| p.times));
    let (low, high) = (ends.clone().reduce(f64::min)?, ends.reduce(f64::max)?);
    let last = all().map(|p| p.rate).fold(0.0, f64::max);
    let names = lines.iter().map(|line| line.name.as_str()).chain([here]);
    // Bold type is about a tenth wider than `text_width` says.
    let widest = names.map(|name| 1.1 * text_width(name, TEXT)).fold(0.0, f64::max);
    let page = Page {
        title: format!("Against {now}"),
        source: source.to_owned(),
        x_name: "requests a second".to_owned(),
        y_name: "times as fast (mean end-to-end latency)".to_owned(),
        x: Axis::exact(0.0, last, if sheet == Sheet::Screen { 8 } else { 4 }),
        y: Axis::linear(low.min(1.0), high.max(1.0), 6),
        legend: Vec::new(),
        panels: vec![(String::new(), None)],
        own_x: Vec::new(),
        panel_height: 320.0,
        right: widest + 12.0,
        sheet,
    };
    Some(page.svg(|c, panel, _| {
        c.line(&[panel.at(page.x.start(), 1.0), panel.at(page.x.end(), 1.0)], RULE, 1.2, Dash::Dashed);
        // What the page is about is drawn last, so that it lies on top.
        for of in [GainOf::Length, GainOf::Plain, GainOf::Drafting] {
            let (look, width, _) = ink(of);
            for line in lines.iter().filter(|line| line.of == of) {
                let middle: Vec<_> = line.points.iter().map(|p| panel.at(p.rate, p.times)).collect();
                c.line(&middle, look.colour, width, look.dash);
                for (p, at) in line.points.iter().zip(&middle).filter(|_| of != GainOf::Length) {
                    if let Some((low, high)) = p.ends {
                        c.line(&[low, high].map(|end| panel.at(p.rate, end)), look.colour, 1.2, Dash::Solid);
                    }
                    c.marker(*at, look);
                }
            }
        }
        named(c, panel, lines, here);
    }))
}

/// Writes the names of the lines beside their ends, a line of text apart.
fn named(c: &Canvas, panel: &Panel, lines: &[GainLine], here: &str) {
    let end = |line: &GainLine| Some(panel.at(0.0, line.points.last()?.times).1);
    let mut names: Vec<(f64, &str, GainOf)> =
        lines.iter().filter_map(|line| Some((end(line)?, line.name.as_str(), line.of))).collect();
    names.push((panel.at(0.0, 1.0).1, here, GainOf::Plain));
    names.sort_by(|a, b| a.0.total_cmp(&b.0));
    let apart = TEXT + 2.0;
    let mut free = panel.from.1 + apart / 2.0;
    let (many, floor) = (names.len(), panel.to.1 - apart / 2.0);
    for (i, (y, name, of)) in names.into_iter().enumerate() {
        // The names below need room too.
        let y = y.max(free).min(floor - apart * (many - 1 - i) as f64);
        let at = (panel.to.0 + 8.0, y);
        match of {
            GainOf::Drafting => c.bold(name, at, Anchor::Start, TEXT, INK),
            other => c.text(name, at, Anchor::Start, TEXT, ink(other).2),
        }
        free = y + apart;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::texts;
    use super::*;

    fn line(name: &str, of: GainOf, points: &[(f64, f64)]) -> GainLine {
        let point = |&(rate, times): &(f64, f64)| GainAt { rate, times, ends: Some((times - 0.02, times + 0.02)) };
        GainLine { name: name.into(), of, points: points.iter().map(point).collect() }
    }

    #[test]
    fn the_figure_names_every_line_the_unit_and_the_source() {
        let lines = [
            line("K = 2, advised", GainOf::Drafting, &[(1.0, 1.3), (5.0, 0.9)]),
            line("K = 1", GainOf::Length, &[(1.0, 1.2), (5.0, 0.9)]),
            line("plain decoding", GainOf::Plain, &[(1.0, 0.6)]),
        ];
        let figure = gain_figure(&lines, "K = 3", "now", "simulated; 3 seeds").unwrap();
        for text in [
            "K = 2, advised", "K = 1", "now", "Against K = 3", "plain decoding", "requests a second", "times as fast",
            "simulated; 3 seeds",
        ] {
            assert!(figure.svg.contains(text), "{text}");
        }
        let alone = gain_figure(&lines[..1], "plain decoding", "now", "simulated").unwrap();
        assert!(
            !alone.svg.contains("#666666\" stroke-width=\"1.6\" stroke-dasharray"),
            "no line of plain decoding against itself"
        );
        assert_eq!(gain_figure(&[line("K = 2", GainOf::Drafting, &[])], "K = 3", "now", "none"), None);
    }

    /// Lines that end at one place have names at different heights, inside the figure.
    #[test]
    fn names_do_not_overlap() {
        let lines: Vec<GainLine> =
            (1..=8).map(|k| line(&format!("K = {k}"), GainOf::Length, &[(1.0, 2.0), (9.0, 0.5)])).collect();
        let figure = gain_figure(&lines, "plain decoding", "now", "simulated").unwrap();
        for svg in [&figure.svg, figure.narrow.as_ref().unwrap()] {
            let mut heights: Vec<f64> =
                texts(svg).iter().filter(|t| t.text.starts_with("K = ")).map(|t| t.to.1).collect();
            heights.sort_by(f64::total_cmp);
            assert_eq!(heights.len(), 8);
            assert!(heights.windows(2).all(|h| h[1] - h[0] > 12.0), "{heights:?}");
        }
    }
}
