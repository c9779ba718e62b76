//! What tells policies apart in figures: colours, dashes and markers. Reports draw with them.

/// Red, green and blue, 0 to 255.
pub type Colour = (u8, u8, u8);

/// Dash pattern of a policy's lines.
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
    /// A look with this colour, dash and marker.
    pub const fn new(colour: Colour, dash: Dash, marker: Marker) -> Look {
        Look { colour, dash, marker }
    }
}
