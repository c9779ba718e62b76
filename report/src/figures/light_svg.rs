//! A plotters backend that writes SVG with few elements and few bytes. Its unit is a tenth of a px.
//!
//! plotters' own SVG backend writes an element for each line, marker and text. Here consecutive elements of the same
//! style share one SVG element: lines and markers share a path, texts share a group. All elements of a policy are in a
//! group that names the policy, so that a page can emphasize it. Writing into a string cannot fail.

use super::path::{Pen, tenth};
use super::style::{PAPER, Rgb, hex};
use crate::Dash;
use plotters_backend::text_anchor::HPos;
use plotters_backend::{BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind};
use plotters_backend::{FontStyle, FontTransform};
use std::convert::Infallible;
use std::fmt::Write as _;

/// Distance from a text's middle down to its base line, as a share of the font size.
const BASE: f64 = 0.35;

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

/// An SVG document while it is drawn: its elements so far.
pub struct LightSvg {
    /// Width and height of the document, tenths of a px.
    size: (u32, u32),
    out: String,
    pen: Pen,
    /// The start tag of the SVG element that is not ended yet; empty if there is none.
    open: String,
    /// The text that ends the SVG element that is not ended yet.
    end: &'static str,
    /// The colour of the policy into whose SVG group shapes are drawn now; `None` outside of a policy's group.
    policy: Option<Rgb>,
    /// Length in bytes of the document `out` before and after the start tag of the present policy's SVG group.
    group: (usize, usize),
}

impl LightSvg {
    /// An empty document of `size` (width, height), tenths of a px.
    pub fn new(size: (u32, u32)) -> LightSvg {
        let (out, pen, open) = (String::new(), Pen::default(), String::new());
        LightSvg { size, out, pen, open, end: "", policy: None, group: (0, 0) }
    }

    /// Takes out the SVG elements drawn so far, and leaves an empty document.
    pub fn take(&mut self) -> String {
        self.close();
        std::mem::take(&mut self.out)
    }

    /// Begins the SVG group of a policy. Shapes in the policy's `colour` take their colour from the group. `tag` is the
    /// group's start tag.
    pub fn begin_group(&mut self, tag: &str, colour: Rgb) {
        self.close();
        let before = self.out.len();
        self.out.push_str(tag);
        (self.policy, self.group) = (Some(colour), (before, self.out.len()));
    }

    /// Ends the SVG group of a policy. A group in which nothing was drawn is removed.
    pub fn end_group(&mut self) {
        self.close();
        self.policy = None;
        match self.out.len() == self.group.1 {
            true => self.out.truncate(self.group.0),
            false => self.out.push_str("</g>\n"),
        }
    }

    /// Draws a line with a dash.
    pub fn dashed(&mut self, points: impl IntoIterator<Item = BackendCoord>, colour: Rgb, width: u32, dash: Dash) {
        let dash = match dash {
            Dash::Solid => "",
            Dash::Dashed => " stroke-dasharray=\"7 4\"",
            Dash::Dotted => " stroke-dasharray=\"2 3\"",
            Dash::LongDash => " stroke-dasharray=\"14 4\"",
        };
        self.stroke(colour, width, dash);
        self.pen.through(&mut self.out, points);
    }

    /// Fills a closed shape. `edge` are SVG attributes for its edge.
    fn fill(&mut self, points: impl IntoIterator<Item = BackendCoord>, colour: Rgb, edge: &str) {
        let colour = self.colour(colour);
        self.within(format!("<path fill=\"{colour}\"{edge} d=\""), "\"/>\n");
        self.pen.shape(&mut self.out, points);
    }

    /// Fills a closed shape that has a thin edge in the background's colour.
    pub fn edged(&mut self, points: impl IntoIterator<Item = BackendCoord>, colour: Rgb) {
        let edge = format!(" stroke=\"{}\" stroke-width=\"1.6\" paint-order=\"stroke\"", hex(PAPER));
        self.fill(points, colour, &edge);
    }

    /// Ends the SVG element that is not ended yet; does nothing if there is none.
    fn close(&mut self) {
        if !self.open.is_empty() {
            self.out.push_str(self.end);
            self.open.clear();
        }
    }

    /// Continues the present SVG element if its start tag is `tag`. Otherwise ends it and starts an element with `tag`,
    /// which the text `end` will end.
    fn within(&mut self, tag: String, end: &'static str) {
        if self.open != tag {
            self.close();
            self.out.push_str(&tag);
            (self.open, self.end) = (tag, end);
        }
    }

    /// A colour as the value of an SVG attribute. The colour of the policy whose group is open is inherited from the
    /// group.
    fn colour(&self, colour: Rgb) -> String {
        if self.policy == Some(colour) { "currentColor".to_owned() } else { hex(colour) }
    }

    /// Continues or starts a path of strokes with this colour, `width` (tenths of a px) and style.
    fn stroke(&mut self, colour: Rgb, width: u32, style: &str) {
        let colour = self.colour(colour);
        let width = if width == 10 { String::new() } else { format!(" stroke-width=\"{}\"", tenth(width as i32)) };
        self.within(format!("<path fill=\"none\" stroke=\"{colour}\"{width}{style} d=\""), "\"/>\n");
    }
}

impl DrawingBackend for LightSvg {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.size
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, (x, y): BackendCoord, colour: BackendColor) -> Drawn {
        self.draw_rect((x, y), (x + 1, y + 1), &colour, true)
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Drawn {
        self.draw_path([from, to], style)
    }

    fn draw_rect<S: BackendStyle>(&mut self, a: BackendCoord, b: BackendCoord, style: &S, fill: bool) -> Drawn {
        let corners = [a, (b.0, a.1), b, (a.0, b.1)];
        match fill {
            true => self.fill_polygon(corners, style),
            false => self.draw_path(corners.into_iter().chain([a]), style),
        }
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, path: I, style: &S) -> Drawn {
        self.dashed(path, style.color().rgb, style.stroke_width(), Dash::Solid);
        Ok(())
    }

    /// A filled circle is a stroke of length zero with round ends. plotters draws other circles pixel by pixel.
    fn draw_circle<S: BackendStyle>(&mut self, at: BackendCoord, radius: u32, style: &S, fill: bool) -> Drawn {
        if !fill {
            return plotters_backend::rasterizer::draw_circle(self, at, radius, style, fill);
        }
        let opacity = match style.color().alpha {
            1.0 => String::new(),
            alpha => format!(" stroke-opacity=\"{alpha}\""),
        };
        self.stroke(style.color().rgb, 2 * radius, &format!(" stroke-linecap=\"round\"{opacity}"));
        self.pen.dot(&mut self.out, at);
        Ok(())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, points: I, style: &S) -> Drawn {
        self.fill(points, style.color().rgb, "");
        Ok(())
    }

    /// Writes a text. `at` lies at half the height of the text; the vertical anchor of `style` is ignored.
    fn draw_text<T: BackendTextStyle>(&mut self, text: &str, style: &T, at: BackendCoord) -> Drawn {
        let anchor = match style.anchor().h_pos {
            HPos::Left => "",
            HPos::Center => " text-anchor=\"middle\"",
            HPos::Right => " text-anchor=\"end\"",
        };
        let weight = if matches!(style.style(), FontStyle::Bold) { " font-weight=\"bold\"" } else { "" };
        let (down, turned) =
            ((BASE * style.size()).round() as i32, matches!(style.transform(), FontTransform::Rotate270));
        let (x, y) = if turned { (at.0 + down, at.1) } else { (at.0, at.1 + down) };
        let (x, y, size) = (tenth(x), tenth(y), tenth(style.size().round() as i32));
        let turn = if turned { format!(" transform=\"rotate(-90 {x} {y})\"") } else { String::new() };
        let colour = self.colour(style.color().rgb);
        self.within(format!("<g fill=\"{colour}\" font-size=\"{size}\"{anchor}{weight}>\n"), "</g>\n");
        writeln!(self.out, "<text x=\"{x}\" y=\"{y}\"{turn}>{}</text>", escape(text)).expect("into a string");
        Ok(())
    }
}

/// The text with the characters `&`, `<`, `>` and `"` escaped.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
