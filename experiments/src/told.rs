//! What the program tells on stderr.

/// Progress and diagnostics name files, keys and labels: what the terminal gets of them, for every line of the crate.
macro_rules! eprintln {
    ($($words:tt)*) => { foretoken_spec::eprintln!($($words)*) };
}
