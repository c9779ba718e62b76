//! The medium of figures (screen or paper), and the entries of legends.

use super::style::{Rgb, TEXT, WIDTH};
use crate::{Dash, Look, Marker};

/// The medium of a figure: a page on a screen, or a column of a paper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sheet {
    /// A page on a screen: the figure has its title, and its source line (which says where the numbers come from).
    #[default]
    Screen,
    /// A column of a paper, 3.3 inches wide with type of 8 points. Title and source are in the caption, not in the
    /// figure.
    Column,
    /// A page on a phone: as a column, with room for the longest names.
    Phone,
}

impl Sheet {
    /// Width of a figure, px. Text of 12 px is 8 points in a column of 3.3 inches.
    pub fn width(self) -> f64 {
        match self {
            Sheet::Screen => WIDTH,
            Sheet::Column => 3.3 * 72.0 / 8.0 * TEXT,
            Sheet::Phone => 420.0,
        }
    }

    /// Space around a figure, px.
    pub fn margin(self) -> f64 {
        if self == Sheet::Screen { super::style::MARGIN } else { 2.0 }
    }

    /// The largest width for tick labels of the vertical axis, px.
    pub fn labels(self) -> f64 {
        if self == Sheet::Column { 120.0 } else { 220.0 }
    }
}

/// A legend with at most this number of policies names all of them. With more it names only the policies in colour.
pub const MOST_NAMES: usize = 15;

/// An entry of a legend.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    /// The text of the legend entry.
    pub label: String,
    /// Colour, dash and marker of the line that is drawn before the text of the legend entry.
    pub look: Look,
    /// The policy's own colour, if the legend entry names a policy; `None` for other entries.
    pub own: Option<Rgb>,
    /// Does the legend entry explain the colour of an area, not of a line?
    pub area: bool,
}

impl Named {
    /// A legend entry for a line that is not a policy's.
    pub fn plain(label: &str, look: Look) -> Named {
        Named { label: label.to_owned(), look, own: None, area: false }
    }

    /// A legend entry of a policy that is shown in its own colour.
    pub fn policy(label: &str, look: Look) -> Named {
        Named { own: Some(look.colour), ..Named::plain(label, look) }
    }

    /// A legend entry that explains the colour of areas.
    pub fn area(label: &str, colour: Rgb) -> Named {
        let look = Look { colour, dash: Dash::Solid, marker: Marker::Square };
        Named { area: true, ..Named::plain(label, look) }
    }
}
