//! How a policy looks in every figure: a colour of the Okabe-Ito palette, which colour-blind readers can tell apart, a
//! dash and a marker, so that no figure depends on colour alone. This module draws nothing.

pub use crate::marks::{Colour, Dash, Look, Marker};

use crate::registry::Row;

/// Black. This and the colours below are from the palette of Okabe and Ito, "Color Universal Design" (2008), with two
/// changes. Orange, sky blue and purple are darker than theirs: a line on white needs a contrast of 3 (WCAG 2.1,
/// 1.4.11). Brown replaces their grey, because figures show less important policies in grey.
pub(crate) const BLACK: Colour = (0, 0, 0);
pub(crate) const BROWN: Colour = (140, 86, 75);
pub(crate) const ORANGE: Colour = (196, 133, 0);
pub(crate) const SKY_BLUE: Colour = (52, 150, 205);
pub(crate) const GREEN: Colour = (0, 158, 115);
pub(crate) const BLUE: Colour = (0, 114, 178);
pub(crate) const VERMILLION: Colour = (213, 94, 0);
pub(crate) const PURPLE: Colour = (196, 113, 159);

/// The look (colour, dash and marker in figures) of the policy with the fixed draft length `k`. Colours get darker from
/// length to length; lengths that differ by 8 have the same look. Lengths 1, 3 and 5, which papers often compare, also
/// differ in dash.
pub(crate) const fn of_length(k: u32) -> Look {
    const MARKERS: [Marker; 8] = [
        Marker::Ring,
        Marker::Circle,
        Marker::Square,
        Marker::Triangle,
        Marker::TriangleDown,
        Marker::Diamond,
        Marker::Plus,
        Marker::Cross,
    ];
    Look::new(RAMP[k as usize % 8], DASHES[k as usize / 2 % 4], MARKERS[k as usize % 8])
}

/// Blues from light to dark, the colours of fixed draft lengths in ascending order.
pub const RAMP: [Colour; 8] = [
    (104, 149, 210),
    (88, 137, 202),
    (68, 122, 191),
    (48, 106, 178),
    (32, 90, 162),
    (20, 74, 143),
    (12, 58, 122),
    (6, 42, 98),
];

const DASHES: [Dash; 4] = [Dash::Solid, Dash::Dashed, Dash::Dotted, Dash::LongDash];

/// Markers in the order in which policies without a stated look get them; the most different markers come first.
const MARKERS: [Marker; 8] = [
    Marker::Circle,
    Marker::Square,
    Marker::Triangle,
    Marker::Diamond,
    Marker::TriangleDown,
    Marker::Ring,
    Marker::Plus,
    Marker::Cross,
];

/// Colours in the order in which policies without a stated look get them. Sky blue is for bounds (policies that show
/// how well a server could do at best).
const COLOURS: [Colour; 7] = [ORANGE, GREEN, VERMILLION, PURPLE, BLUE, BROWN, BLACK];

/// The colour in figures of the policies of a family (a folder of policies) for which the table of policies states no
/// look. When all looks of this colour are taken, other colours follow.
fn colour(family: &str) -> Colour {
    match family {
        "sglang" => ORANGE,
        "goodput" | "local" => GREEN,
        "slo" => VERMILLION,
        "confidence" => PURPLE,
        "vllm" => BLUE,
        "trees" => BROWN,
        "bounds" => SKY_BLUE,
        _ => BLACK,
    }
}

/// Looks (colour, dash and marker) in figures that policies get by their settings, such as a fixed length, in place of
/// the look in the table of policies. No other policy may get them.
fn by_settings() -> impl Iterator<Item = Look> {
    let batch = Look::new(SKY_BLUE, Dash::Dashed, Marker::Square);
    let per_request = Look::new(BROWN, Dash::Dotted, Marker::Cross);
    (0..8).map(of_length).chain([batch, per_request])
}

/// The first look (colour, dash and marker in figures) that is not in `taken` and that no policy's settings choose: in
/// the colour of the family (folder of policies) as long as one is left, then in the order of [`COLOURS`].
///
/// # Panics
/// If all looks of all colours are taken.
pub(crate) fn free(family: &str, taken: &[Look]) -> Look {
    let colours = [colour(family)].into_iter().chain(COLOURS);
    let all = colours.flat_map(|c| DASHES.into_iter().flat_map(move |d| MARKERS.map(|m| Look::new(c, d, m))));
    let mut free = all.filter(|look| !taken.contains(look) && by_settings().all(|other| other != *look));
    free.next().expect("a free look")
}

/// The looks (colour, dash and marker in figures) of the rows of the table of policies, in their order. A row without a
/// stated look gets a free one. No two looks are the same.
pub(crate) fn of_rows(rows: &[Row]) -> Vec<Look> {
    let mut taken: Vec<Look> = rows.iter().filter_map(|row| row.look).collect();
    let of_row = |row: &Row| {
        row.look.unwrap_or_else(|| {
            let look = free(row.family, &taken);
            taken.push(look);
            look
        })
    };
    rows.iter().map(of_row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn row(name: &'static str, family: &'static str, look: Option<Look>) -> Row {
        Row { name, family, look }
    }

    #[test]
    fn rows_without_a_look_get_a_free_one_of_their_family() {
        let stated = Look::new(PURPLE, Dash::Solid, Marker::Circle);
        let rows = [row("a", "confidence", None), row("b", "confidence", Some(stated)), row("c", "bandits", None)];
        let looks = of_rows(&rows);
        let (a, c) = (Look::new(PURPLE, Dash::Solid, Marker::Square), Look::new(BLACK, Dash::Solid, Marker::Circle));
        assert_eq!(looks, [a, stated, c], "stated looks stay, also further down");
        assert_eq!(of_rows(&rows), looks);
    }

    /// The 7 colours other than sky blue have 32 looks each, less the looks that settings choose. A table of policies
    /// with 223 rows takes all of them.
    #[test]
    fn a_full_family_goes_on_in_other_colours() {
        let rows: Vec<Row> = (0..223).map(|_| row("x", "vllm", None)).collect();
        let looks = of_rows(&rows);
        assert_eq!(looks.iter().collect::<HashSet<_>>().len(), rows.len());
        assert_eq!(looks.iter().filter(|l| l.colour == BLUE).count(), 32);
        assert!(looks.iter().all(|l| by_settings().all(|other| other != *l)));
    }

    /// WCAG 2.1 asks that graphics have a contrast of 3 with their background.
    #[test]
    fn every_colour_has_contrast_with_white_and_longer_lengths_are_darker() {
        let luminance = |(r, g, b): Colour| {
            let channel = |c: u8| {
                let c = f64::from(c) / 255.0;
                if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b)
        };
        for colour in RAMP.into_iter().chain(COLOURS).chain([SKY_BLUE]) {
            assert!(1.05 / (luminance(colour) + 0.05) >= 3.0, "{colour:?}");
        }
        assert!(RAMP.is_sorted_by(|a, b| luminance(*a) > luminance(*b)));
    }
}
