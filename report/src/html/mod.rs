//! Pages that open from disk: one file each, everything inline, no network.
//!
//! The shell that all pages share: light, dark and in print, readable on a phone, with tables that sort. A [`Page`]
//! is a list of sections made of [`Part`]s; the caller fills them. All text is escaped here, except SVG and HTML
//! parts. Figures are drawn once, in light; in dark mode the page repaints their colours (`dark.rs`).

mod dark;
mod page;
mod table;

pub use page::{Page, Part, Section};
pub use table::{Row, Table, Value};
