//! Formats shares, signed changes and missing values of reports as text.

pub use foretoken_report::percent;

/// Formats a value that may be missing in a report; "-" if it is absent.
pub fn or_dash<T>(x: Option<T>, format: impl FnOnce(T) -> String) -> String {
    x.map_or_else(|| "-".to_owned(), format)
}
