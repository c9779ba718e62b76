//! HTML pages that open from disk: each is one file with everything inline, and needs no network.
//!
//! All pages share one layout, for light and dark mode, print and phones, with tables that the reader can sort. A
//! [`Page`] is a list of sections made of [`Part`]s. All text is escaped here, except SVG documents and HTML parts.
//! Figures are drawn once, in light colours; in dark mode the page recolours them (`dark.rs`). A page's head says which
//! scripts may run (`policy.rs`).

mod dark;
mod page;
mod policy;
mod table;

pub use page::{COPY, Page, Part, Section};
pub use policy::policy;
pub use table::{Row, Table, Value};
