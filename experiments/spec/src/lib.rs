//! What an experiment file says, as data: its tables and keys ([`experiment`]), where each stands in the file ([`document`]), and
//! how what is wrong is told ([`problem`]). Must not evaluate or run anything.

pub mod capacity;
pub mod document;
pub mod experiment;
pub mod live;
pub mod observe;
pub mod paper;
pub mod problem;
pub mod prompts;
pub mod read;
pub mod schema;
pub mod shown;
pub mod text;
pub mod validate;

/// Tells progress and diagnostics on stderr. They name files, keys and labels: what could steer a terminal is shown, not sent.
#[macro_export]
macro_rules! eprintln {
    ($($words:tt)*) => { ::std::eprintln!("{}", $crate::shown::escape(&format!($($words)*))) };
}
