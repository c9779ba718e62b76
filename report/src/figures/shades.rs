//! Colours of areas whose colour shows an amount. Each colour has a replacement for a dark page.
//!
//! On a light page a larger amount is darker, on a dark page it is lighter. So no amount has the colour of the page.

use super::style::Rgb;

/// A colour and its replacement on a dark page.
pub type Shade = (Rgb, Rgb);

/// The shades for amounts, from the smallest amount to the largest.
pub const SHADES: [Shade; 5] = [
    ((0xc6, 0xdb, 0xef), (0x17, 0x36, 0x52)),
    ((0x8f, 0xbf, 0xe0), (0x1f, 0x52, 0x80)),
    ((0x4a, 0x98, 0xc9), (0x31, 0x79, 0xb5)),
    ((0x1f, 0x6f, 0xb0), (0x66, 0xa9, 0xdb)),
    ((0x08, 0x30, 0x6b), (0xcb, 0xe5, 0xf8)),
];
/// The colour of an area that shows an amount (such as running requests) by its height, not by its colour.
pub const AREA: Rgb = SHADES[2].0;
pub const BOOTING: Shade = ((0xd1, 0xa2, 0x4c), (0xa8, 0x7c, 0x2c));
/// The colour of replicas that drain: they finish their requests and get no new ones.
pub const DRAINING: Shade = ((0x91, 0x91, 0x91), (0x74, 0x7b, 0x82));

/// All shades: of amounts, of booting replicas and of draining replicas.
pub fn all() -> impl Iterator<Item = Shade> {
    SHADES.into_iter().chain([BOOTING, DRAINING])
}

/// The colour for an amount, given as a share (0 to 1) of the largest amount; `None` for 0.
pub fn of(share: f64) -> Option<Rgb> {
    let class = (share * SHADES.len() as f64).ceil().clamp(0.0, SHADES.len() as f64) as usize;
    class.checked_sub(1).map(|class| SHADES[class].0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_five_shades_and_none_for_nothing() {
        assert_eq!([0.0, 0.2, 0.21, 1.0].map(of), [None, Some(SHADES[0].0), Some(SHADES[1].0), Some(SHADES[4].0)]);
        assert_eq!(of(f64::NAN), None);
    }
}
