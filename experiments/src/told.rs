//! The program's own output on stderr.

/// Prints progress and diagnostics. They name files, keys and labels, so characters that could steer a terminal are
/// escaped.
macro_rules! eprintln {
    ($($words:tt)*) => { foretoken_spec::eprintln!($($words)*) };
}
