//! How a policy looks in every figure: a colour of the Okabe-Ito palette (told apart by colour-blind readers), and a
//! dash and a marker, so that no figure leans on colour alone. It draws nothing.

/// Red, green, blue.
pub type Colour = (u8, u8, u8);

/// Okabe and Ito, "Color Universal Design" (2008).
pub(crate) const BLACK: Colour = (0, 0, 0);
pub(crate) const GREY: Colour = (153, 153, 153);
pub(crate) const ORANGE: Colour = (230, 159, 0);
pub(crate) const SKY_BLUE: Colour = (86, 180, 233);
pub(crate) const GREEN: Colour = (0, 158, 115);
pub(crate) const BLUE: Colour = (0, 114, 178);
pub(crate) const VERMILLION: Colour = (213, 94, 0);
pub(crate) const PURPLE: Colour = (204, 121, 167);

/// Dash of a policy's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dash {
    /// ────
    Solid,
    /// ─ ─ ─
    Dashed,
    /// · · ·
    Dotted,
    /// ── ── ──
    LongDash,
}

/// Marker of a policy's points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Marker {
    /// ●
    Circle,
    /// ■
    Square,
    /// ▲
    Triangle,
    /// ▼
    TriangleDown,
    /// ◆
    Diamond,
    /// ×
    Cross,
    /// +
    Plus,
    /// ○
    Ring,
}

/// Colour, dash and marker of a policy with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Look {
    /// Colour of lines and points.
    pub colour: Colour,
    /// Dash of lines.
    pub dash: Dash,
    /// Marker of points.
    pub marker: Marker,
}

impl Look {
    pub(crate) const fn new(colour: Colour, dash: Dash, marker: Marker) -> Look {
        Look { colour, dash, marker }
    }
}
