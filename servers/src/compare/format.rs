//! Formats shares, signed changes and missing values of reports as text.

/// Formats a share as percent; positive values have no sign.
pub fn percent(x: f64) -> String {
    format!("{:.1} %", x * 100.0)
}

/// Formats a value that may be missing in a report; "-" if it is absent.
pub fn or_dash<T>(x: Option<T>, format: impl FnOnce(T) -> String) -> String {
    x.map_or_else(|| "-".to_owned(), format)
}
