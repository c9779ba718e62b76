//! The layout of a figure: its title, a grid of panels, the legend to the right of the panels, and below them the
//! source line, which says where the numbers come from. All panels share the vertical axis. They also share the
//! horizontal axis, unless each panel has its own.
//!
//! The legend has a column of its own, so it never hides data. A tick label that would touch the label before it is
//! left out.

use super::axis::Axis;
use super::canvas::{Anchor, Canvas, Ink, Point, svg};
use super::sheet::{Named, Sheet};
use super::style::{GREY, GRID, INK, LINE, MARGIN, QUIET, RULE, TEXT, TITLE, fit, text_width};
use crate::{Dash, Look};

const TITLE_ROOM: f64 = 34.0;
const TITLE_LINE: f64 = 18.0;
const TICK_ROOM: f64 = 22.0;
const NAME_ROOM: f64 = 22.0;
const GAP: f64 = 30.0;
const LEGEND_MARK: f64 = 48.0;

/// A figure's layout without its data: texts, axes, panels and legend.
pub struct Page {
    pub title: String,
    /// The source line: where the numbers come from, the number of samples, and the kind of interval.
    pub source: String,
    /// Name and unit of the horizontal axis of all panels.
    pub x_name: String,
    /// Name and unit of the vertical axis of all panels; empty if the tick labels suffice.
    pub y_name: String,
    /// Horizontal axis of each panel that has no horizontal axis of its own.
    pub x: Axis,
    /// The panels' own horizontal axes, one per panel; empty if all panels share `x`.
    pub own_x: Vec<Axis>,
    /// Vertical axis of every panel.
    pub y: Axis,
    /// The entries of the legend: names with their colour, dash and marker; empty for no legend.
    pub legend: Vec<Named>,
    pub panels: Vec<PanelTitle>,
    /// Height of each panel of the figure, px.
    pub panel_height: f64,
    /// Free space at the right of each panel, px.
    pub right: f64,
    /// Is the figure drawn for a screen or for the column of a paper?
    pub sheet: Sheet,
}

/// A panel's title: its text, which may be empty, and the look (line and marker) to draw before the text; `None` for no
/// look.
pub type PanelTitle = (String, Option<Look>);

/// The area of one panel in a figure, and the panel's axes.
pub struct Panel<'a> {
    /// Top left corner of the panel, px.
    pub from: Point,
    /// Bottom right corner of the panel, px.
    pub to: Point,
    pub x: &'a Axis,
    y: &'a Axis,
}

impl Panel<'_> {
    /// The point of the figure, px, at the data values `x` and `y`.
    pub fn at(&self, x: f64, y: f64) -> Point {
        (self.from.0 + (self.to.0 - self.from.0) * self.x.at(x), self.to.1 + (self.from.1 - self.to.1) * self.y.at(y))
    }
}

pub fn columns(n: usize) -> usize {
    match n {
        0 | 1 => 1,
        2..=4 => 2,
        _ => 3,
    }
}

impl Page {
    /// The figure as the text of an SVG document. `data` draws into each panel, over the panel's grid; the last
    /// argument of `data` is the panel's index.
    pub fn svg(&self, data: impl Fn(&Canvas, &Panel, usize)) -> String {
        let (sheet, margin) = (self.sheet, self.sheet.margin());
        let screen = sheet == Sheet::Screen;
        let columns = if screen { columns(self.panels.len()) } else { 1 };
        let rows = self.panels.len().div_ceil(columns);
        let left = margin + if self.y_name.is_empty() { 0.0 } else { NAME_ROOM } + self.label_room() + 8.0;
        let beside = if screen { self.legend_width() } else { 8.0 };
        let right = sheet.width() - margin - beside;
        let width = (right - left + GAP) / columns as f64 - GAP - self.right;
        let lines = self.panels.iter().map(|p| title_lines(p, width + self.right).len()).max().unwrap_or(0);
        let titled = 6.0 + lines as f64 * TITLE_LINE;
        // In the column of a paper, a panel is at most 300 px high. Panels with one row for each policy keep their full
        // height; they are the panels without a name on the vertical axis.
        let free = !screen && !self.y_name.is_empty();
        let panel_height = if free { self.panel_height.min(300.0) } else { self.panel_height };
        let row_height = titled + panel_height + TICK_ROOM;
        let top = margin + if screen { TITLE_ROOM } else { 0.0 };
        let legend_height = if screen { self.legend.len() as f64 * LINE + titled } else { 0.0 };
        let bottom = top + (rows as f64 * row_height).max(legend_height);
        let room = sheet.width() - 2.0 * margin;
        let legend: Vec<Point> = match screen {
            true => (0..self.legend.len()).map(|i| (right + GAP, top + titled + (i as f64 + 0.5) * LINE)).collect(),
            false => self.flowing((margin, bottom + NAME_ROOM + 4.0), room),
        };
        let source = if screen { source_lines(&self.source, room) } else { Vec::new() };
        let below = match screen {
            true => source.len() as f64 * LINE + MARGIN,
            false => legend.last().map_or(0.0, |at| at.1 + LINE / 2.0 - bottom - NAME_ROOM),
        };
        let size = (sheet.width(), bottom + NAME_ROOM + below);
        let described = format!("{} against {}. {}", self.y_name, self.x_name, self.source);
        let drawn = svg(size, &self.title, &described, |c| {
            if screen {
                c.bold(&fit(&self.title, TITLE * 1.1, room), (MARGIN, MARGIN + TITLE / 2.0), Anchor::Start, TITLE, INK);
            }
            for (i, title) in self.panels.iter().enumerate() {
                let (row, column) = (i / columns, i % columns);
                let x = left + column as f64 * (width + GAP + self.right);
                let y = top + row as f64 * row_height + titled;
                let panel = Panel {
                    from: (x, y),
                    to: (x + width, y + panel_height),
                    x: self.own_x.get(i).unwrap_or(&self.x),
                    y: &self.y,
                };
                panel_title(c, title, (x, y - 3.0), width + self.right);
                self.grid(c, &panel, column == 0);
                data(c, &panel, i);
            }
            let middle = (left + right - self.right) / 2.0;
            // The name of the axis may be wider than the panels, but it must stay within the figure.
            let half = text_width(&self.x_name, TEXT) / 2.0;
            let middle = middle.min(sheet.width() - margin - half).max(margin + half.min(room / 2.0));
            c.text(&self.x_name, (middle, bottom + NAME_ROOM / 2.0), Anchor::Middle, TEXT, INK);
            let middle = top + (rows as f64 * row_height + titled - TICK_ROOM) / 2.0;
            c.upward(&self.y_name, (margin + TEXT / 2.0, middle), TEXT, INK);
            for (i, line) in source.iter().enumerate() {
                let at = (MARGIN, bottom + NAME_ROOM + (i as f64 + 0.5) * LINE + 4.0);
                c.text(line, at, Anchor::Start, TEXT - 1.0, GREY);
            }
            self.draw_legend(c, &legend);
        });
        if screen { drawn } else { in_inches(&drawn, size) }
    }

    fn label_room(&self) -> f64 {
        self.y.ticks.iter().map(|t| text_width(&t.1, TEXT)).fold(0.0, f64::max).min(self.sheet.labels())
    }

    fn legend_width(&self) -> f64 {
        let widest = self.legend.iter().map(|n| text_width(&n.label, TEXT)).fold(0.0, f64::max);
        if self.legend.is_empty() { 0.0 } else { GAP + LEGEND_MARK + widest.min(200.0) }
    }

    /// The positions of the legend's entries, in lines below the panels from `start` on. `room`: width of a line, px.
    fn flowing(&self, start: Point, room: f64) -> Vec<Point> {
        let (mut x, mut y) = (start.0, start.1 + LINE / 2.0);
        let place = |named: &Named| {
            let width = LEGEND_MARK + text_width(&named.label, TEXT).min(200.0) + 10.0;
            if x > start.0 && x + width > start.0 + room {
                (x, y) = (start.0, y + LINE);
            }
            let at = (x, y);
            x += width;
            at
        };
        self.legend.iter().map(place).collect()
    }

    fn draw_legend(&self, c: &Canvas, places: &[Point]) {
        for (Named { label, look, own, area }, &(x, y)) in self.legend.iter().zip(places) {
            let draw = || {
                match area {
                    true => c.area((x, y - 6.0), (x + LEGEND_MARK - 8.0, y + 6.0), look.colour),
                    false => legend_mark(c, *look, (x, y)),
                }
                let colour = if look.colour == QUIET { GREY } else { INK };
                c.text(&fit(label, TEXT, 200.0), (x + LEGEND_MARK, y), Anchor::Start, TEXT, colour);
            };
            match own {
                Some(own) => c.policy(&Ink { label, look: *look, own: *own }, draw),
                None => draw(),
            }
        }
    }

    fn grid(&self, c: &Canvas, panel: &Panel, labelled: bool) {
        let (from, to) = (panel.from, panel.to);
        let across = |value: f64| from.0 + (to.0 - from.0) * panel.x.at(value);
        let up = |value: f64| to.1 + (from.1 - to.1) * self.y.at(value);
        let line = |points: [Point; 2]| c.line(&points, GRID, 1.0, Dash::Solid);
        panel.x.ticks.iter().map(|t| across(t.0)).for_each(|x| line([(x, from.1), (x, to.1)]));
        self.y.ticks.iter().map(|t| up(t.0)).for_each(|y| line([(from.0, y), (to.0, y)]));
        let mut free_from = f64::NEG_INFINITY;
        for (value, label) in &panel.x.ticks {
            let half = text_width(label, TEXT) / 2.0;
            // A label at the right edge of the sheet moves to the left, so that it is not cut.
            let x = across(*value).min(self.sheet.width() - half - 1.0);
            if x - half >= free_from {
                c.text(label, (x, to.1 + TICK_ROOM / 2.0), Anchor::Middle, TEXT, GREY);
                free_from = x + half + 8.0;
            }
        }
        for (value, label) in self.y.ticks.iter().filter(|_| labelled) {
            let label = fit(label, TEXT, self.sheet.labels());
            let colour = if self.y.strong.contains(&label) { INK } else { GREY };
            c.text(&label, (from.0 - 8.0, up(*value)), Anchor::End, TEXT, colour);
        }
        c.frame(from, to, RULE);
    }
}

/// Breaks the source line (which says where a figure's numbers come from) between its parts into lines of at most
/// `room` px.
fn source_lines(source: &str, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in source.split(" · ") {
        match lines.last_mut() {
            Some(line) if text_width(&format!("{line} · {part}"), TEXT - 1.0) <= room => {
                line.push_str(" · ");
                line.push_str(part);
            }
            _ => lines.push(part.to_owned()),
        }
    }
    lines.iter().map(|line| fit(line, TEXT - 1.0, room)).collect()
}

/// The SVG of a figure for the column of a paper. The SVG states its width and height in inches.
fn in_inches(svg: &str, (width, height): Point) -> String {
    let (wide, high) = (width.ceil(), height.ceil());
    let px = format!("<svg width=\"{wide}\" height=\"{high}\"");
    svg.replacen(&px, &format!("<svg width=\"3.3in\" height=\"{:.3}in\"", 3.3 * high / wide), 1)
}

fn legend_mark(c: &Canvas, look: Look, (x, y): Point) {
    c.line(&[(x, y), (x + LEGEND_MARK - 8.0, y)], look.colour, 2.0, look.dash);
    c.marker((x + (LEGEND_MARK - 8.0) / 2.0, y), look);
}

/// The lines of a panel's title: one line, or one line per swept setting if the title would be wider than `room` px.
fn title_lines((title, look): &PanelTitle, room: f64) -> Vec<&str> {
    let mark = if look.is_some() { LEGEND_MARK } else { 0.0 };
    // `text_width` estimates the width of regular type; bold type is about 10 % wider.
    let fits = text_width(title, TEXT) * 1.1 + mark <= room;
    if fits {
        Some(title.as_str()).filter(|t| !t.is_empty()).into_iter().collect()
    } else {
        title.split(", ").collect()
    }
}

/// Writes a panel's title so that its last line ends at `bottom`.
fn panel_title(c: &Canvas, title: &PanelTitle, (x, bottom): Point, room: f64) {
    for (i, line) in title_lines(title, room).into_iter().rev().enumerate() {
        let y = bottom - (i as f64 + 0.5) * TITLE_LINE;
        let mark = title.1.map_or(0.0, |look| {
            legend_mark(c, look, (x, y));
            LEGEND_MARK
        });
        c.bold(&fit(line, TEXT * 1.1, room - mark), (x + mark, y), Anchor::Start, TEXT, INK);
    }
}
