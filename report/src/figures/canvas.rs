//! Lines, markers and text on a plotters SVG surface, in px with fractions.
//!
//! plotters' SVG backend has whole coordinates only. So the surface has several units per px, and the SVG header scales
//! the drawing back. Drawing into a string cannot fail.

use super::style::{FONTS, MARKER, PAPER, Rgb};
use crate::{Dash, Look, Marker};
use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::{
    Circle, Color, DrawingArea, FontFamily, FontStyle, FontTransform, IntoDrawingArea, IntoTextStyle, PathElement,
    Polygon, RGBColor, Rectangle, ShapeStyle, Text,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Number of surface units per px.
const FINE: f64 = 4.0;
const IN_MEMORY: &str = "drawing into a string cannot fail";

/// A point in px from the top left.
pub type Point = (f64, f64);

/// Which part of a text lies at the text's point.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// The text starts at the point.
    Start,
    /// The text is centred on the point.
    Middle,
    /// The text ends at the point.
    End,
}

/// The SVG surface that figures draw on.
pub struct Canvas<'a>(DrawingArea<SVGBackend<'a>, Shift>);

/// Draws an SVG document of `size` px (width, height). `title` and `description` are for readers who cannot see the
/// drawing.
pub fn svg(size: Point, title: &str, description: &str, draw: impl FnOnce(&Canvas)) -> String {
    let (width, height) = (size.0.ceil() as u32, size.1.ceil() as u32);
    let (fine_width, fine_height) = (width * FINE as u32, height * FINE as u32);
    let mut out = String::new();
    let canvas = Canvas(SVGBackend::with_string(&mut out, (fine_width, fine_height)).into_drawing_area());
    canvas.0.fill(&rgb(PAPER)).expect(IN_MEMORY);
    draw(&canvas);
    canvas.0.present().expect(IN_MEMORY);
    drop(canvas);
    let head = out.find('\n').expect("plotters ends the svg tag with its line");
    format!(
        "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {fine_width} {fine_height}\" role=\"img\" \
         xmlns=\"http://www.w3.org/2000/svg\">\n<title>{}</title>\n<desc>{}</desc>{}",
        escape(title),
        escape(description),
        &out[head..]
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn rgb((r, g, b): Rgb) -> RGBColor {
    RGBColor(r, g, b)
}

fn fine((x, y): Point) -> (i32, i32) {
    ((x * FINE).round() as i32, (y * FINE).round() as i32)
}

fn stroke(colour: Rgb, width: f64) -> ShapeStyle {
    rgb(colour).stroke_width((width * FINE).round() as u32)
}

impl Canvas<'_> {
    /// Draws a line through `points`, `width` px wide. Draws nothing if there are fewer than two distinct points.
    pub fn line(&self, points: &[Point], colour: Rgb, width: f64, dash: Dash) {
        let mut path: Vec<_> = points.iter().copied().map(fine).collect();
        path.dedup();
        if path.len() < 2 {
            return;
        }
        let style = stroke(colour, width);
        let px = |length: f64| (length * FINE) as i32;
        let (on, off) = match dash {
            Dash::Solid => return self.0.draw(&PathElement::new(path, style)).expect(IN_MEMORY),
            Dash::Dashed => (7.0, 4.0),
            Dash::Dotted => (2.0, 3.0),
            Dash::LongDash => (14.0, 4.0),
        };
        self.0.draw(&DashedPathElement::new(path, px(on), px(off), style)).expect(IN_MEMORY);
    }

    /// A filled rectangle between two corners.
    pub fn area(&self, from: Point, to: Point, colour: Rgb) {
        let style = rgb(colour).filled();
        self.0.draw(&Rectangle::new([fine(from), fine(to)], style)).expect(IN_MEMORY);
    }

    /// An empty rectangle between two corners.
    pub fn frame(&self, from: Point, to: Point, colour: Rgb) {
        let (a, b) = (from, to);
        self.line(&[a, (b.0, a.1), b, (a.0, b.1), a], colour, 1.0, Dash::Solid);
    }

    /// Draws the marker of `look`. A thin edge in the background's colour separates overlapping markers. A ring has no
    /// edge; its inside has the background's colour.
    pub fn marker(&self, at: Point, look: Look) {
        let corners = |shape: &[Point], r: f64| shape.iter().map(|(x, y)| (at.0 + x * r, at.1 + y * r)).collect();
        let polygon = |shape: &[Point]| {
            for (r, colour) in [(MARKER + 0.8, PAPER), (MARKER, look.colour)] {
                let points: Vec<Point> = corners(shape, r);
                let points: Vec<_> = points.into_iter().map(fine).collect();
                self.0.draw(&Polygon::new(points, rgb(colour).filled())).expect(IN_MEMORY);
            }
        };
        let disc = |r: f64, colour: Rgb| {
            self.0.draw(&Circle::new(fine(at), (r * FINE) as i32, rgb(colour).filled())).expect(IN_MEMORY);
        };
        let strokes = |lines: [[Point; 2]; 2]| {
            for (width, colour) in [(3.6, PAPER), (2.2, look.colour)] {
                lines.iter().for_each(|l| self.line(&corners(l, MARKER), colour, width, Dash::Solid));
            }
        };
        match look.marker {
            Marker::Circle => [(MARKER + 0.7, PAPER), (MARKER, look.colour)].iter().for_each(|&(r, c)| disc(r, c)),
            Marker::Ring => [(MARKER + 0.5, look.colour), (MARKER - 1.5, PAPER)].iter().for_each(|&(r, c)| disc(r, c)),
            Marker::Square => polygon(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
            Marker::Triangle => polygon(&[(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)]),
            Marker::TriangleDown => polygon(&[(0.0, 1.2), (1.1, -0.8), (-1.1, -0.8)]),
            Marker::Diamond => polygon(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
            Marker::Cross => strokes([[(-0.9, -0.9), (0.9, 0.9)], [(-0.9, 0.9), (0.9, -0.9)]]),
            Marker::Plus => strokes([[(-1.2, 0.0), (1.2, 0.0)], [(0.0, -1.2), (0.0, 1.2)]]),
        }
    }

    /// Writes a text on one line. `at` is half-way up the text; `anchor` says which part of the text lies at it.
    pub fn text(&self, text: &str, at: Point, anchor: Anchor, size: f64, colour: Rgb) {
        self.write(text, at, anchor, size, colour, FontStyle::Normal, FontTransform::None);
    }

    /// Writes a bold text on one line. `at` is half-way up the text; `anchor` says which part of the text lies at it.
    pub fn bold(&self, text: &str, at: Point, anchor: Anchor, size: f64, colour: Rgb) {
        self.write(text, at, anchor, size, colour, FontStyle::Bold, FontTransform::None);
    }

    /// Writes a text that reads from bottom to top and is centred on `at`.
    pub fn upward(&self, text: &str, at: Point, size: f64, colour: Rgb) {
        self.write(text, at, Anchor::Middle, size, colour, FontStyle::Normal, FontTransform::Rotate270);
    }

    #[expect(clippy::too_many_arguments, reason = "plain, bold and turned text share this function")]
    fn write(
        &self,
        text: &str,
        at: Point,
        anchor: Anchor,
        size: f64,
        colour: Rgb,
        weight: FontStyle,
        turn: FontTransform,
    ) {
        if text.is_empty() {
            return;
        }
        let h = match anchor {
            Anchor::Start => HPos::Left,
            Anchor::Middle => HPos::Center,
            Anchor::End => HPos::Right,
        };
        let colour = rgb(colour);
        // plotters divides a font size by 1.24 when it writes the SVG, so the size is multiplied by 1.24.
        let style = (FontFamily::Name(FONTS), size * FINE * 1.24, weight)
            .into_text_style(&self.0)
            .transform(turn)
            .color(&colour)
            .pos(Pos::new(h, VPos::Center));
        self.0.draw(&Text::new(text.to_owned(), fine(at), style)).expect(IN_MEMORY);
    }
}
