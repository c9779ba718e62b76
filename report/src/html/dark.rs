//! Dark mode of figures: gives another colour to every stroke and fill that would not be visible on a dark page.
//!
//! CSS rules match colours by the SVG's attributes. So the same SVG serves both modes, and as a file of its own it
//! stays light. The greys of the figures' style and black have fixed replacements. The colours of policies keep their
//! hue and are lightened until their contrast with the dark page suffices.

use crate::figures::{BEHIND, GREY, GRID, INK, PAPER, RULE, Rgb};
use std::collections::BTreeSet;
use std::fmt::Write;

/// The page's background in dark mode; `style.css` has the same colour.
const DARK: Rgb = (0x16, 0x19, 0x1d);
/// Least contrast ratio of a line with the page. Thin lines need the contrast that WCAG 2.1 demands of text (1.4.3).
const CONTRAST: f64 = 4.5;
/// Fixed replacements of black and of the figures' greys.
const GREYS: [(Rgb, Rgb); 7] = [
    (PAPER, DARK),
    // The black of autoregressive decoding becomes white. If it were lightened, it would equal the grey of other
    // policies.
    ((0, 0, 0), PAPER),
    (INK, (0xe6, 0xe8, 0xea)),
    (GREY, (0xa6, 0xac, 0xb3)),
    (RULE, (0x7a, 0x80, 0x87)),
    (BEHIND, (0x55, 0x5b, 0x62)),
    (GRID, (0x33, 0x38, 0x3e)),
];

/// CSS rules that recolour the SVG documents `figures` in dark mode. A colour that only fills areas, such as a field of
/// a heat map, keeps its value.
pub fn style(figures: &[&str]) -> String {
    let mut css = String::new();
    let mut rule = |from: Rgb, to: Rgb| {
        let (from, to) = (hex(from), hex(to));
        write!(css, ".fig [fill=\"{from}\"],.swatch [fill=\"{from}\"]{{fill:{to}}}").expect("into a string");
        write!(css, ".fig [stroke=\"{from}\"],.swatch [stroke=\"{from}\"]{{stroke:{to}}}").expect("into a string");
    };
    GREYS.iter().for_each(|&(from, to)| rule(from, to));
    let known = |c: &Rgb| GREYS.iter().any(|g| g.0 == *c);
    let drawn: BTreeSet<Rgb> = figures.iter().flat_map(|svg| strokes(svg)).filter(|c| !known(c)).collect();
    drawn.into_iter().filter_map(|c| lightened(c).map(|to| (c, to))).for_each(|(from, to)| rule(from, to));
    css
}

fn hex((r, g, b): Rgb) -> String {
    format!("#{r:02X}{g:02X}{b:02X}")
}

/// The colours of all strokes in an SVG document.
fn strokes(svg: &str) -> impl Iterator<Item = Rgb> {
    let part = |hex: &str, at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    let parse = move |rest: &str| Some((part(rest, 0)?, part(rest, 2)?, part(rest, 4)?));
    svg.split("stroke=\"#").skip(1).filter_map(parse)
}

/// The colour mixed with white until its contrast with the dark page suffices; `None` if the colour itself suffices.
fn lightened(colour: Rgb) -> Option<Rgb> {
    let mix = |share: f64| {
        let one = |c: u8| (f64::from(c) + (255.0 - f64::from(c)) * share).round() as u8;
        (one(colour.0), one(colour.1), one(colour.2))
    };
    let enough = |c: &Rgb| contrast(*c, DARK) >= CONTRAST;
    (!enough(&colour)).then(|| (1..=20).map(|i| mix(f64::from(i) / 20.0)).find(enough)).flatten()
}

/// Contrast ratio of two colours (WCAG 2.1).
fn contrast(a: Rgb, b: Rgb) -> f64 {
    let channel = |c: u8| {
        let c = f64::from(c) / 255.0;
        if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
    };
    let luminance = |(r, g, b): Rgb| 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contrast_is_wcags() {
        assert!((contrast((0, 0, 0), (255, 255, 255)) - 21.0).abs() < 1e-9);
        assert!((contrast((0x77, 0x77, 0x77), PAPER) - 4.48).abs() < 0.01);
    }

    #[test]
    fn dark_lines_are_lightened_and_areas_are_left() {
        let css = style(&["<path stroke=\"#332288\"/><path stroke=\"#E69F00\"/><rect fill=\"#221144\"/>"]);
        assert!(css.contains("[stroke=\"#332288\"]") && css.contains("[fill=\"#332288\"]"), "{css}");
        assert!(!css.contains("#E69F00") && !css.contains("#221144"), "{css}");
        assert!(contrast(lightened((0x33, 0x22, 0x88)).unwrap(), DARK) >= CONTRAST);
    }

    #[test]
    fn the_page_is_as_dark_as_the_style_says() {
        assert!(include_str!("../../templates/style.css").contains(&format!("--paper:{}", hex(DARK).to_lowercase())));
    }
}
