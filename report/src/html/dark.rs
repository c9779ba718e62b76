//! Dark mode of figures: gives another colour to every stroke and fill that would not be visible on a dark page.
//!
//! CSS rules match colours by the SVG's attributes. So the same SVG serves both modes, and an SVG file outside of a
//! page stays light. The greys of the figures' style, black, and the blues of fixed draft lengths have fixed
//! replacements. The other colours of policies keep their hue and are lightened until their contrast with the dark page
//! suffices.

use crate::figures::{BEHIND, GREY, GRID, INK, KEPT, PAPER, QUIET, RULE, Rgb, hex, shades};
use foretoken_policies::RAMP;
use std::collections::BTreeSet;
use std::fmt::Write;

/// The page's background in dark mode; `style.css` has the same colour.
const DARK: Rgb = (0x16, 0x19, 0x1d);
/// Least contrast ratio of a line with the page. Thin lines need the contrast that WCAG 2.1 demands of text (1.4.3).
const CONTRAST: f64 = 4.5;
/// Fixed replacements of black and of the figures' greys, as (colour on a light page, colour on a dark page).
const GREYS: [(Rgb, Rgb); 9] = [
    (PAPER, DARK),
    // The black of autoregressive decoding becomes white. If it were lightened, it would equal the grey of other
    // policies.
    ((0, 0, 0), PAPER),
    (INK, (0xe6, 0xe8, 0xea)),
    (GREY, (0xa6, 0xac, 0xb3)),
    (RULE, (0x7a, 0x80, 0x87)),
    (QUIET, (0x7d, 0x84, 0x8b)),
    (KEPT, (0x1d, 0x2b, 0x24)),
    (BEHIND, (0x66, 0x6c, 0x73)),
    (GRID, (0x33, 0x38, 0x3e)),
];

/// The blues of fixed draft lengths on a dark page, in ascending order of length. On both pages a longer length stands
/// out more.
const DARK_RAMP: [Rgb; 8] = [
    (0x5c, 0x8f, 0xd6),
    (0x6f, 0x9c, 0xdb),
    (0x81, 0xa9, 0xe0),
    (0x94, 0xb6, 0xe5),
    (0xa6, 0xc4, 0xeb),
    (0xb9, 0xd1, 0xf0),
    (0xcb, 0xde, 0xf5),
    (0xde, 0xeb, 0xfa),
];

/// CSS rules that recolour the SVG documents `figures` in dark mode. Colours of strokes and of shades
/// (`figures/shades.rs`) change. Other colours that only fill areas, such as a field of a heat map, stay.
pub fn style(figures: &[&str]) -> String {
    let mut css = String::new();
    let mut rule = |from: Rgb, to: Rgb| {
        let (from, to) = (hex(from), hex(to));
        write!(css, ".fig [fill=\"{from}\"],.swatch [fill=\"{from}\"]{{fill:{to}}}").expect("into a string");
        write!(css, ".fig [stroke=\"{from}\"],.swatch [stroke=\"{from}\"]{{stroke:{to}}}").expect("into a string");
        write!(css, ".fig [color=\"{from}\"]{{color:{to}}}.forward .fig .hit[data-c=\"{from}\"]{{color:{to}}}")
            .expect("into a string");
    };
    GREYS.iter().for_each(|&(from, to)| rule(from, to));
    let known = |c: &Rgb| GREYS.iter().any(|g| g.0 == *c);
    let drawn: BTreeSet<Rgb> = figures.iter().flat_map(|svg| strokes(svg)).filter(|c| !known(c)).collect();
    let is_drawn = |c: &Rgb| figures.iter().any(|svg| svg.contains(&format!("fill=\"{}\"", hex(*c))));
    shades().filter(|shade| is_drawn(&shade.0)).for_each(|(from, to)| rule(from, to));
    let dark = |c: Rgb| RAMP.iter().position(|r| *r == c).map(|k| DARK_RAMP[k]).or_else(|| lightened(c));
    drawn.into_iter().filter_map(|c| dark(c).map(|to| (c, to))).for_each(|(from, to)| rule(from, to));
    css
}

/// CSS rules that give a grey policy its own colour while the reader points at it.
pub fn forward(figures: &[&str]) -> String {
    let own: BTreeSet<Rgb> = figures.iter().flat_map(|svg| colours(svg, "data-c=\"#")).collect();
    let rule = |c| format!(".forward .fig .hit[data-c=\"{0}\"]{{color:{0}}}", hex(c));
    own.into_iter().map(rule).collect()
}

/// The colours of all strokes and policies in an SVG document.
fn strokes(svg: &str) -> impl Iterator<Item = Rgb> {
    ["stroke=\"#", "color=\"#", "data-c=\"#"].into_iter().flat_map(|before| colours(svg, before))
}

/// The colours that follow each occurrence of the text `before` in an SVG document.
fn colours<'s>(svg: &'s str, before: &'s str) -> impl Iterator<Item = Rgb> + 's {
    let part = |hex: &str, at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    let parse = move |rest: &str| Some((part(rest, 0)?, part(rest, 2)?, part(rest, 4)?));
    svg.split(before).skip(1).filter_map(parse)
}

/// The colour mixed with white until its contrast with the dark page suffices; `None` if the colour suffices unmixed.
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
    fn longer_lengths_stand_out_more_on_a_dark_page_too() {
        assert!(DARK_RAMP.is_sorted_by(|a, b| contrast(*a, DARK) < contrast(*b, DARK)));
        assert!(contrast(DARK_RAMP[0], DARK) >= CONTRAST);
        let svg = format!("<path stroke=\"{}\"/>", hex(RAMP[7]));
        let css = style(&[&svg]);
        assert!(css.contains(&format!("{{stroke:{}}}", hex(DARK_RAMP[7]))), "{css}");
    }

    /// WCAG 2.1 (1.4.11) demands a contrast ratio of 3 for lines. Grids, backgrounds and shaded regions need no such
    /// contrast.
    #[test]
    fn greys_of_lines_have_contrast_in_both_modes() {
        for (light, dark) in GREYS.into_iter().filter(|(light, _)| ![PAPER, GRID, KEPT].contains(light)) {
            assert!(contrast(light, PAPER) >= 3.0, "{light:?} on white");
            assert!(contrast(dark, DARK) >= 3.0, "{dark:?} for {light:?} on dark");
        }
    }

    #[test]
    fn a_policy_in_grey_has_its_own_colour_in_both_modes() {
        let svg = "<g data-p=\"x\" color=\"#909090\" data-c=\"#332288\">";
        assert!(forward(&[svg]).contains(".hit[data-c=\"#332288\"]{color:#332288}"));
        let dark = style(&[svg]);
        assert!(dark.contains("[color=\"#909090\"]") && dark.contains(".hit[data-c=\"#332288\"]"), "{dark}");
    }

    #[test]
    fn the_page_is_as_dark_as_the_style_says() {
        assert!(include_str!("../../templates/style.css").contains(&format!("--paper:{}", hex(DARK).to_lowercase())));
    }
}
