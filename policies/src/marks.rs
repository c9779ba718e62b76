//! What tells policies apart in figures: colours, dashes and markers. Reports draw with them.

/// A colour as red, green and blue, each from 0 to 255.
pub type Colour = (u8, u8, u8);

/// Dash pattern of a policy's lines in figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dash {
    /// Drawn as ────.
    Solid,
    /// Drawn as ─ ─ ─.
    Dashed,
    /// Drawn as · · ·.
    Dotted,
    /// Drawn as ── ── ──.
    LongDash,
}

/// Marker of a policy's points in figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Marker {
    /// Drawn as ●.
    Circle,
    /// Drawn as ■.
    Square,
    /// Drawn as ▲.
    Triangle,
    /// Drawn as ▼.
    TriangleDown,
    /// Drawn as ◆.
    Diamond,
    /// Drawn as ×.
    Cross,
    /// Drawn as +.
    Plus,
    /// Drawn as ○.
    Ring,
}

/// How a policy with its settings looks in figures: colour, dash and marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Look {
    /// Colour of the policy's lines and points.
    pub colour: Colour,
    /// Dash pattern of the policy's lines.
    pub dash: Dash,
    /// Marker of the policy's points.
    pub marker: Marker,
}

impl Look {
    /// The look of a policy with this colour, dash and marker in figures.
    pub const fn new(colour: Colour, dash: Dash, marker: Marker) -> Look {
        Look { colour, dash, marker }
    }
}
