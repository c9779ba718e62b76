//! Pages that open from disk: one file each, everything inline, no network.
//!
//! The shell that every page shares: light, dark and in print, readable on a phone, tables that sort. A [`Page`] is a list
//! of sections made of [`Part`]s; what they say is up to the caller. All text is escaped here, except what is called SVG or
//! HTML. Figures are drawn once, in light: in the dark the page repaints their colours (`dark.rs`).

mod dark;
mod page;
mod table;

pub use page::{Page, Part, Section};
pub use table::{Row, Table, Value};
