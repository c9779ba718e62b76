//! Sizes, greys and fonts, defined once so that all figures look alike.

/// Width of every figure, px.
pub const WIDTH: f64 = 960.0;
/// Space around the figure, px.
pub const MARGIN: f64 = 16.0;
/// Size of axis and legend text, px.
pub const TEXT: f64 = 12.0;
/// Size of the title, px.
pub const TITLE: f64 = 17.0;
/// Height of a line of text in a legend, px.
pub const LINE: f64 = 20.0;
/// Radius of a marker, px.
pub const MARKER: f64 = 4.0;
/// Font families in order of preference: the viewer uses the first one that is installed.
pub const FONTS: &str = "Helvetica, Arial, Liberation Sans, DejaVu Sans, sans-serif";

/// A point in px from the top left.
pub type Point = (f64, f64);

/// A colour as (red, green, blue), each 0 to 255.
pub type Rgb = (u8, u8, u8);

/// A colour as in SVG attributes, such as `#0072B2`.
pub fn hex((r, g, b): Rgb) -> String {
    format!("#{r:02X}{g:02X}{b:02X}")
}

/// Colour of titles and labels.
pub const INK: Rgb = (0x22, 0x22, 0x22);
/// Colour of tick labels and source lines (the lines below figures that say where their numbers come from).
pub const GREY: Rgb = (0x66, 0x66, 0x66);
/// Colour of frames and reference lines.
pub const RULE: Rgb = (0x8c, 0x8c, 0x8c);
/// Colour of policies that a figure does not emphasize.
pub const QUIET: Rgb = (0x90, 0x90, 0x90);
/// Colour of the first policy's line where a figure repeats it behind the lines of other policies.
pub const BEHIND: Rgb = (0x94, 0x94, 0x94);
pub const GRID: Rgb = (0xe4, 0xe4, 0xe4);
/// Colour of the region of a figure in which an SLO bound is met.
pub const KEPT: Rgb = (0xe9, 0xf4, 0xec);
/// Colour of the background.
pub const PAPER: Rgb = (0xff, 0xff, 0xff);

/// Width of a text in px, estimated from Helvetica's advance widths. Each class of characters has one width, rounded
/// up. Reads no font, so that every machine draws the same figure. Characters outside ASCII count as wide.
pub fn text_width(text: &str, size: f64) -> f64 {
    let em = |c: char| match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '|' | '!' | '\'' | '·' => 0.28,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '-' | ' ' | '/' => 0.34,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.89,
        'A'..='Z' => 0.72,
        c if c.is_ascii() => 0.57,
        _ => 0.75,
    };
    text.chars().map(em).sum::<f64>() * size
}

/// The text, or the text cut with an ellipsis if it is wider than `room` px.
pub fn fit(text: &str, size: f64, room: f64) -> String {
    if text_width(text, size) <= room {
        return text.to_owned();
    }
    let mut cut = text.to_owned();
    while cut.pop().is_some() && text_width(&cut, size) + size > room {}
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_to_its_room() {
        assert_eq!(fit("fixed-3", TEXT, 200.0), "fixed-3");
        let cut = fit("a-policy-with-a-very-long-label", TEXT, 80.0);
        assert!(cut.ends_with('…') && text_width(&cut, TEXT) <= 80.0 && cut.len() > 6, "{cut}");
    }
}
