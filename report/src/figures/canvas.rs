//! Lines, markers and text on a plotters surface, in px. The surface writes SVG with few elements and few bytes.

use super::light_svg::{LightSvg, escape};
use super::path::{is_one_spot, simplified, tenths};
pub use super::style::Point;
use super::style::{FONTS, MARKER, PAPER, Rgb, hex};
use crate::{Dash, Look, Marker};
use plotters::coord::Shift;
use plotters::element::{Circle, Drawable, PathElement, PointCollection, Polygon, Text};
use plotters::prelude::{Color, DrawingArea, FontFamily, FontStyle, FontTransform, IntoDrawingArea, RGBColor};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{IntoTextStyle, ShapeStyle};
use plotters_backend::{BackendCoord, DrawingErrorKind};
use std::cell::RefCell;
use std::convert::Infallible;

const IN_MEMORY: &str = "drawing into a string cannot fail";

/// Which part of a text lies at the point where the text is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// The text starts at the point.
    Start,
    /// The text is centred on the point.
    Middle,
    /// The text ends at the point.
    End,
}

/// A policy's label, and its colour, dash and marker in a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ink<'a> {
    pub label: &'a str,
    /// The policy's colour, dash and marker in the figure. The colour is grey if the figure does not emphasize the
    /// policy.
    pub look: Look,
    /// The policy's own colour, also where the figure shows the policy in grey.
    pub own: Rgb,
}

/// The drawing area of a figure, into which lines, markers and texts are drawn.
pub struct Canvas(DrawingArea<LightSvg, Shift>);

/// Draws an SVG document of `size` px (width, height). `title` and `description` are for readers who cannot see the
/// drawing.
pub fn svg(size: Point, title: &str, description: &str, draw: impl FnOnce(&Canvas)) -> String {
    let (width, height) = (size.0.ceil() as u32, size.1.ceil() as u32);
    let canvas = Canvas(LightSvg::new((10 * width, 10 * height)).into_drawing_area());
    canvas.area((0.0, 0.0), (f64::from(width), f64::from(height)), PAPER);
    draw(&canvas);
    let body = RefCell::default();
    canvas.own(&[], |surface, _| *body.borrow_mut() = surface.take());
    format!(
        "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         font-family=\"{FONTS}\" xmlns=\"http://www.w3.org/2000/svg\">\n<title>{}</title>\n<desc>{}</desc>\n{}</svg>\n",
        escape(title),
        escape(description),
        body.into_inner()
    )
}

/// An element that [`LightSvg`] can draw but the interface of the crate plotters cannot, such as a dashed line.
struct Own<'a, F> {
    points: &'a [BackendCoord],
    draw: F,
}

impl<'a, F> PointCollection<'a, BackendCoord> for &'a Own<'a, F> {
    type Point = &'a BackendCoord;
    type IntoIter = std::slice::Iter<'a, BackendCoord>;

    fn point_iter(self) -> Self::IntoIter {
        self.points.iter()
    }
}

impl<F: Fn(&mut LightSvg, Vec<BackendCoord>)> Drawable<LightSvg> for Own<'_, F> {
    fn draw<I: Iterator<Item = BackendCoord>>(
        &self,
        points: I,
        surface: &mut LightSvg,
        _: (u32, u32),
    ) -> Result<(), DrawingErrorKind<Infallible>> {
        (self.draw)(surface, points.collect());
        Ok(())
    }
}

fn rgb((r, g, b): Rgb) -> RGBColor {
    RGBColor(r, g, b)
}

fn stroke(colour: Rgb, width: f64) -> ShapeStyle {
    rgb(colour).stroke_width((width * 10.0).round() as u32)
}

impl Canvas {
    /// Draws an element through `points` with the function `draw`, which has direct access to the surface.
    fn own(&self, points: &[Point], draw: impl Fn(&mut LightSvg, Vec<BackendCoord>)) {
        let points: Vec<BackendCoord> = points.iter().copied().map(tenths).collect();
        self.0.draw(&Own { points: &points, draw }).expect(IN_MEMORY);
    }

    /// Draws a line through `points`, `width` px wide. Draws nothing if there are fewer than two distinct points.
    pub fn line(&self, points: &[Point], colour: Rgb, width: f64, dash: Dash) {
        if is_one_spot(points) {
            return;
        }
        let points = simplified(points);
        match dash {
            Dash::Solid => {
                let points: Vec<BackendCoord> = points.into_iter().map(tenths).collect();
                self.0.draw(&PathElement::new(points, stroke(colour, width))).expect(IN_MEMORY);
            }
            dash => self.own(&points, |surface, points| {
                surface.dashed(points, colour, (width * 10.0).round() as u32, dash);
            }),
        }
    }

    /// Draws a filled rectangle between two corners.
    pub fn area(&self, from: Point, to: Point, colour: Rgb) {
        self.shape(&[from, (to.0, from.1), to, (from.0, to.1)], colour);
    }

    pub fn shape(&self, points: &[Point], colour: Rgb) {
        let points: Vec<BackendCoord> = points.iter().copied().map(tenths).collect();
        self.0.draw(&Polygon::new(points, rgb(colour).filled())).expect(IN_MEMORY);
    }

    /// Draws the edges of a rectangle between two corners.
    pub fn frame(&self, from: Point, to: Point, colour: Rgb) {
        let (a, b) = (from, to);
        self.line(&[a, (b.0, a.1), b, (a.0, b.1), a], colour, 1.0, Dash::Solid);
    }

    /// Makes an SVG group that names the policy and its own colour. The group contains what `draw` draws.
    pub fn policy(&self, ink: &Ink, draw: impl FnOnce()) {
        let own = if ink.own == ink.look.colour { String::new() } else { format!(" data-c=\"{}\"", hex(ink.own)) };
        let tag = format!("<g data-p=\"{}\" color=\"{}\"{own}>\n", escape(ink.label), hex(ink.look.colour));
        self.own(&[], |surface, _| surface.begin_group(&tag, ink.look.colour));
        draw();
        self.own(&[], |surface, _| surface.end_group());
    }

    pub fn marker(&self, at: Point, look: Look) {
        self.markers(&[at], look, MARKER);
    }

    /// Draws the marker of `look`, of radius `r`, at each point. A thin edge in the background's colour separates
    /// markers that overlap; a ring is filled with the background's colour.
    pub fn markers(&self, points: &[Point], look: Look, r: f64) {
        let moved = |at: &Point, shape: &[Point]| -> Vec<Point> {
            shape.iter().map(|(x, y)| (at.0 + x * r, at.1 + y * r)).collect()
        };
        let polygons = |shape: &[Point]| {
            let edged = |at| self.own(&moved(at, shape), |surface, points| surface.edged(points, look.colour));
            points.iter().for_each(edged);
        };
        let strokes = |lines: [[Point; 2]; 2]| {
            for (width, colour) in [(3.6, PAPER), (2.2, look.colour)] {
                let cross = |at| lines.iter().for_each(|l| self.line(&moved(at, l), colour, width, Dash::Solid));
                points.iter().for_each(cross);
            }
        };
        match look.marker {
            Marker::Circle => {
                [(r + 0.7, PAPER), (r, look.colour)].iter().for_each(|&(r, c)| self.discs(points, r, rgb(c)))
            }
            Marker::Ring => {
                [(r + 0.5, look.colour), (r - 1.5, PAPER)].iter().for_each(|&(r, c)| self.discs(points, r, rgb(c)));
            }
            Marker::Square => polygons(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
            Marker::Triangle => polygons(&[(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)]),
            Marker::TriangleDown => polygons(&[(0.0, 1.2), (1.1, -0.8), (-1.1, -0.8)]),
            Marker::Diamond => polygons(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
            Marker::Cross => strokes([[(-0.9, -0.9), (0.9, 0.9)], [(-0.9, 0.9), (0.9, -0.9)]]),
            Marker::Plus => strokes([[(-1.2, 0.0), (1.2, 0.0)], [(0.0, -1.2), (0.0, 1.2)]]),
        }
    }

    fn discs(&self, points: &[Point], r: f64, colour: impl Color) {
        let style = colour.filled();
        let disc = |at: &Point| Circle::new(tenths(*at), (r * 10.0).round() as u32, style);
        points.iter().for_each(|at| self.0.draw(&disc(at)).expect(IN_MEMORY));
    }

    /// Draws small discs without an edge at `points`, such as the values of single seeds.
    pub fn specks(&self, points: &[Point], colour: Rgb) {
        self.discs(points, 1.5, rgb(colour).mix(0.55));
    }

    /// Draws an arrowhead with its tip at `tip` that points in the direction `towards`. An arrowhead shows that a value
    /// lies outside the frame.
    pub fn arrowhead(&self, tip: Point, towards: Point, colour: Rgb) {
        let (back, side) = ((-5.0 * towards.0, -5.0 * towards.1), (4.0 * towards.1, 4.0 * towards.0));
        let wing = |by: f64| (tip.0 + back.0 + by * side.0, tip.1 + back.1 + by * side.1);
        self.line(&[wing(1.0), tip, wing(-1.0)], colour, 2.0, Dash::Solid);
    }

    /// Writes a text on one line. `at` lies at half the height of the text. `anchor` says whether `at` is the start,
    /// the middle or the end of the text.
    pub fn text(&self, text: &str, at: Point, anchor: Anchor, size: f64, colour: Rgb) {
        self.write(text, at, anchor, (size, colour), FontStyle::Normal, FontTransform::None);
    }

    /// Writes a bold text on one line. `at` lies at half the height of the text. `anchor` says whether `at` is the
    /// start, the middle or the end of the text.
    pub fn bold(&self, text: &str, at: Point, anchor: Anchor, size: f64, colour: Rgb) {
        self.write(text, at, anchor, (size, colour), FontStyle::Bold, FontTransform::None);
    }

    /// Writes a text that reads from bottom to top and is centred on `at`.
    pub fn upward(&self, text: &str, at: Point, size: f64, colour: Rgb) {
        self.write(text, at, Anchor::Middle, (size, colour), FontStyle::Normal, FontTransform::Rotate270);
    }

    fn write(
        &self,
        text: &str,
        at: Point,
        anchor: Anchor,
        (size, colour): (f64, Rgb),
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
        let style = (FontFamily::Name(FONTS), size * 10.0, weight)
            .into_text_style(&self.0)
            .transform(turn)
            .color(&colour)
            .pos(Pos::new(h, VPos::Center));
        self.0.draw(&Text::new(text.to_owned(), tenths(at), style)).expect(IN_MEMORY);
    }
}

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
