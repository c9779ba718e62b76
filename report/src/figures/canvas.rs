//! Lines, markers and text as the text of an SVG document, in px with one decimal.
//!
//! Neighbours of one style share an element: lines and markers one path, texts one group. This keeps pages small. What
//! belongs to one policy is a group that names the policy, so that a page can bring it forward.

use super::path::{Pen, is_one_spot, px, simplified};
pub use super::style::Point;
use super::style::{FONTS, MARKER, PAPER, Rgb, hex};
use crate::{Dash, Look, Marker};
use std::cell::RefCell;
use std::fmt::Write as _;

/// Which part of a text lies at its point.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// The text starts at the point.
    Start,
    /// The text is centred on the point.
    Middle,
    /// The text ends at the point.
    End,
}

/// A policy as a figure shows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ink<'a> {
    /// The policy's label.
    pub label: &'a str,
    /// The look in the figure; grey for a policy that stands behind others.
    pub look: Look,
    /// The policy's own colour.
    pub own: Rgb,
}

/// The SVG document that figures draw on.
pub struct Canvas(RefCell<Document>);

#[derive(Default)]
struct Document {
    out: String,
    pen: Pen,
    /// The start tag of the element that is open; empty for none.
    open: String,
    /// What ends the open element.
    end: &'static str,
    /// The colour of the policy whose group is open.
    policy: Option<Rgb>,
}

/// Draws an SVG of `size` px. `title` and `description` are for readers who cannot see it.
pub fn svg(size: Point, title: &str, description: &str, draw: impl FnOnce(&Canvas)) -> String {
    let (width, height) = (size.0.ceil() as u32, size.1.ceil() as u32);
    let canvas = Canvas(RefCell::default());
    canvas.area((0.0, 0.0), (f64::from(width), f64::from(height)), PAPER);
    draw(&canvas);
    let body = canvas.0.into_inner().finished();
    format!(
        "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         font-family=\"{FONTS}\" xmlns=\"http://www.w3.org/2000/svg\">\n<title>{}</title>\n<desc>{}</desc>\n{body}</svg>\n",
        escape(title),
        escape(description),
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Document {
    /// Ends the open element.
    fn close(&mut self) {
        if !self.open.is_empty() {
            self.out.push_str(self.end);
            self.open.clear();
        }
    }

    /// Goes on in the open element if it starts with `tag`, else ends it and starts one.
    fn within(&mut self, tag: String, end: &'static str) {
        if self.open != tag {
            self.close();
            self.out.push_str(&tag);
            (self.open, self.end) = (tag, end);
        }
    }

    fn finished(mut self) -> String {
        self.close();
        self.out
    }

    /// A colour as the value of an attribute. The colour of the open policy is the group's.
    fn colour(&self, colour: Rgb) -> String {
        if self.policy == Some(colour) { "currentColor".to_owned() } else { hex(colour) }
    }

    /// Goes on with the strokes of this style.
    fn stroke(&mut self, colour: Rgb, width: f64, style: &str) {
        let colour = self.colour(colour);
        let width = if width == 1.0 { String::new() } else { format!(" stroke-width=\"{}\"", px(width)) };
        self.within(format!("<path fill=\"none\" stroke=\"{colour}\"{width}{style} d=\""), "\"/>\n");
    }

    /// Goes on with filled shapes of a colour, with an edge in the background's colour.
    fn fill(&mut self, colour: Rgb, edge: bool) {
        let colour = self.colour(colour);
        let edge = match edge {
            true => format!(" stroke=\"{}\" stroke-width=\"1.6\" paint-order=\"stroke\"", hex(PAPER)),
            false => String::new(),
        };
        self.within(format!("<path fill=\"{colour}\"{edge} d=\""), "\"/>\n");
    }
}

const ROUND: &str = " stroke-linecap=\"round\"";

/// The attribute for a dash.
fn dashes(dash: Dash) -> &'static str {
    match dash {
        Dash::Solid => "",
        Dash::Dashed => " stroke-dasharray=\"7 4\"",
        Dash::Dotted => " stroke-dasharray=\"2 3\"",
        Dash::LongDash => " stroke-dasharray=\"14 4\"",
    }
}

impl Canvas {
    fn with(&self, draw: impl FnOnce(&mut Document)) {
        draw(&mut self.0.borrow_mut());
    }

    /// Draws a line through `points`, `width` px wide; nothing if all points are the same or there is one only.
    pub fn line(&self, points: &[Point], colour: Rgb, width: f64, dash: Dash) {
        if is_one_spot(points) {
            return;
        }
        self.with(|d| {
            d.stroke(colour, width, dashes(dash));
            let Document { pen, out, .. } = d;
            pen.through(out, &simplified(points));
        });
    }

    /// A filled rectangle between two corners.
    pub fn area(&self, from: Point, to: Point, colour: Rgb) {
        self.shape(&[from, (to.0, from.1), to, (from.0, to.1)], colour);
    }

    /// A filled shape.
    pub fn shape(&self, points: &[Point], colour: Rgb) {
        self.with(|d| {
            d.fill(colour, false);
            let Document { pen, out, .. } = d;
            pen.shape(out, points);
        });
    }

    /// An empty rectangle between two corners.
    pub fn frame(&self, from: Point, to: Point, colour: Rgb) {
        let (a, b) = (from, to);
        self.line(&[a, (b.0, a.1), b, (a.0, b.1), a], colour, 1.0, Dash::Solid);
    }

    /// Draws what belongs to one policy, in a group that names the policy and its own colour.
    pub fn policy(&self, ink: &Ink, draw: impl FnOnce()) {
        let own = if ink.own == ink.look.colour { String::new() } else { format!(" data-c=\"{}\"", hex(ink.own)) };
        let tag = format!("<g data-p=\"{}\" color=\"{}\"{own}>\n", escape(ink.label), hex(ink.look.colour));
        self.with(|d| {
            d.close();
            d.out.push_str(&tag);
            d.policy = Some(ink.look.colour);
        });
        draw();
        self.with(|d| {
            d.close();
            d.policy = None;
            match d.out.strip_suffix(&tag).map(str::len) {
                // Nothing was drawn.
                Some(before) => d.out.truncate(before),
                None => d.out.push_str("</g>\n"),
            }
        });
    }

    /// Draws the marker of `look` at a point.
    pub fn marker(&self, at: Point, look: Look) {
        self.markers(&[at], look, MARKER);
    }

    /// Draws the marker of `look`, of radius `r`, at each point. A thin edge in the background's colour separates
    /// markers that overlap; a ring is filled with the background's colour.
    pub fn markers(&self, points: &[Point], look: Look, r: f64) {
        if points.is_empty() {
            return;
        }
        let dots = |r: f64, colour: Rgb| {
            self.with(|d| {
                d.stroke(colour, 2.0 * r, ROUND);
                let Document { pen, out, .. } = d;
                points.iter().for_each(|p| pen.dot(out, *p));
            });
        };
        let moved = |at: &Point, shape: &[Point]| -> Vec<Point> {
            shape.iter().map(|(x, y)| (at.0 + x * r, at.1 + y * r)).collect()
        };
        let polygons = |shape: &[Point]| {
            self.with(|d| {
                d.fill(look.colour, true);
                let Document { pen, out, .. } = d;
                points.iter().for_each(|p| pen.shape(out, &moved(p, shape)));
            });
        };
        let strokes = |lines: [[Point; 2]; 2]| {
            for (width, colour) in [(3.6, PAPER), (2.2, look.colour)] {
                self.with(|d| {
                    d.stroke(colour, width, "");
                    let Document { pen, out, .. } = d;
                    points.iter().for_each(|p| lines.iter().for_each(|l| pen.through(out, &moved(p, l))));
                });
            }
        };
        match look.marker {
            Marker::Circle => [(r + 0.7, PAPER), (r, look.colour)].iter().for_each(|&(r, c)| dots(r, c)),
            Marker::Ring => [(r + 0.5, look.colour), (r - 1.5, PAPER)].iter().for_each(|&(r, c)| dots(r, c)),
            Marker::Square => polygons(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
            Marker::Triangle => polygons(&[(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)]),
            Marker::TriangleDown => polygons(&[(0.0, 1.2), (1.1, -0.8), (-1.1, -0.8)]),
            Marker::Diamond => polygons(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
            Marker::Cross => strokes([[(-0.9, -0.9), (0.9, 0.9)], [(-0.9, 0.9), (0.9, -0.9)]]),
            Marker::Plus => strokes([[(-1.2, 0.0), (1.2, 0.0)], [(0.0, -1.2), (0.0, 1.2)]]),
        }
    }

    /// Small discs without an edge, such as the values of single seeds.
    pub fn specks(&self, points: &[Point], colour: Rgb) {
        self.with(|d| {
            d.stroke(colour, 3.0, " stroke-linecap=\"round\" stroke-opacity=\".55\"");
            let Document { pen, out, .. } = d;
            points.iter().for_each(|p| pen.dot(out, *p));
        });
    }

    /// An arrowhead whose tip is at `tip` and that points along `towards`: what it stands for lies beyond the frame.
    pub fn arrowhead(&self, tip: Point, towards: Point, colour: Rgb) {
        let (back, side) = ((-5.0 * towards.0, -5.0 * towards.1), (4.0 * towards.1, 4.0 * towards.0));
        let wing = |by: f64| (tip.0 + back.0 + by * side.0, tip.1 + back.1 + by * side.1);
        self.line(&[wing(1.0), tip, wing(-1.0)], colour, 2.0, Dash::Solid);
    }

    /// Writes a text; `at` is at half of its height.
    pub fn text(&self, text: &str, at: Point, anchor: Anchor, size: f64, colour: Rgb) {
        self.write(text, at, anchor, (size, colour), "");
    }

    /// Writes a bold text; `at` is at half of its height.
    pub fn bold(&self, text: &str, at: Point, anchor: Anchor, size: f64, colour: Rgb) {
        self.write(text, at, anchor, (size, colour), " font-weight=\"bold\"");
    }

    fn write(&self, text: &str, at: Point, anchor: Anchor, (size, colour): (f64, Rgb), weight: &str) {
        if text.is_empty() {
            return;
        }
        self.with(|d| {
            let anchor = match anchor {
                Anchor::Start => "",
                Anchor::Middle => " text-anchor=\"middle\"",
                Anchor::End => " text-anchor=\"end\"",
            };
            let (colour, px_size) = (d.colour(colour), px(size));
            d.within(format!("<g fill=\"{colour}\" font-size=\"{px_size}\"{anchor}{weight}>\n"), "</g>\n");
            let (x, y) = (px(at.0), px(at.1 + BASE * size));
            writeln!(d.out, "<text x=\"{x}\" y=\"{y}\">{}</text>", escape(text)).expect("into a string");
        });
    }

    /// Writes a text that reads from bottom to top, centred on `at`.
    pub fn upward(&self, text: &str, at: Point, size: f64, colour: Rgb) {
        if text.is_empty() {
            return;
        }
        self.with(|d| {
            d.close();
            let (x, y, turn) =
                (px(at.0 + BASE * size), px(at.1), format!("rotate(-90 {} {})", px(at.0 + BASE * size), px(at.1)));
            let (colour, size) = (d.colour(colour), px(size));
            let tag = format!("<g fill=\"{colour}\" font-size=\"{size}\" text-anchor=\"middle\">");
            writeln!(d.out, "{tag}<text x=\"{x}\" y=\"{y}\" transform=\"{turn}\">{}</text></g>", escape(text))
                .expect("into a string");
        });
    }
}

/// From half of a text's height down to its base line, as a share of its size.
const BASE: f64 = 0.35;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_style_share_an_element() {
        let drawn = svg((10.0, 10.0), "t", "d", |c| {
            c.line(&[(0.0, 0.0), (5.0, 0.0)], (1, 2, 3), 1.0, Dash::Solid);
            c.line(&[(0.0, 1.0), (5.0, 1.0)], (1, 2, 3), 1.0, Dash::Solid);
            ["a", "<b>"].iter().for_each(|t| c.text(t, (1.0, 1.0), Anchor::End, 10.0, (0, 0, 0)));
        });
        assert!(drawn.contains("<path fill=\"none\" stroke=\"#010203\" d=\"M0 0h5M0 1h5\"/>"), "{drawn}");
        assert_eq!(drawn.matches("<g ").count(), 1, "{drawn}");
        assert!(drawn.contains("<text x=\"1\" y=\"4.5\">&lt;b&gt;</text>\n</g>"), "{drawn}");
    }

    #[test]
    fn a_policy_is_a_group_that_names_it_and_an_empty_one_goes() {
        let look = Look { colour: (9, 9, 9), dash: Dash::Solid, marker: Marker::Circle };
        let ink = Ink { label: "a \"b\"", look, own: (0, 0, 255) };
        let drawn = svg((10.0, 10.0), "t", "d", |c| c.policy(&ink, || c.marker((1.0, 1.0), look)));
        assert!(drawn.contains("<g data-p=\"a &quot;b&quot;\" color=\"#090909\" data-c=\"#0000FF\">\n"), "{drawn}");
        assert!(drawn.contains("stroke=\"currentColor\" stroke-width=\"8\""), "{drawn}");
        assert!(!svg((10.0, 10.0), "t", "d", |c| c.policy(&ink, || ())).contains("<g"));
    }
}
