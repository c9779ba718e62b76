//! The checks that fuzz targets make on results and on error messages.

use foretoken_run::spec::problem::Problem;
use foretoken_servers::recordings::Unread;
use foretoken_traces::TraceError;
use std::fmt::Debug;

/// The message of an error must have fewer bytes than this.
const MOST: usize = 10_000;

/// Checks a message that the user sees unchanged: it is not blank and has fewer than 10,000 bytes.
///
/// # Panics
/// The message is blank or too long.
pub fn raw(text: &str) {
    assert!(!text.trim().is_empty(), "an error without a message");
    assert!(text.len() < MOST, "an error of {} bytes: {}", text.len(), text.chars().take(500).collect::<String>());
}

/// Checks a library's error message. It must not be blank. The message of the [`Problem`] that the program makes of it
/// for the user must have fewer than 10,000 bytes.
///
/// # Panics
/// The message is blank or too long.
pub fn message(text: &str) {
    raw(Problem::bad_input(text).message());
}

/// Checks that the error message `text` contains the name `file`, is not blank, and is short enough for a user.
///
/// # Panics
/// The message lacks the name, is blank, or is too long.
pub fn names(text: &str, file: &str) {
    message(text);
    let start: String = text.chars().take(500).collect();
    assert!(text.contains(file), "it does not name {file}: {start}");
}

/// Checks that `problem` names `file` in its place, or in its message if it has no place. Also checks that the message
/// is not blank and has fewer than 10,000 bytes.
///
/// # Panics
/// A check fails.
pub fn problem(problem: &Problem, file: &str) {
    raw(problem.message());
    raw(&problem.in_words());
    let place = problem.place().unwrap_or_else(|| problem.message().to_owned());
    assert!(place.contains(file), "it names no place in {file}: {}", problem.in_words());
}

/// Checks that the error `error` of a trace's reader names `file`, and that its message together with its hint has
/// fewer than 10,000 bytes.
///
/// # Panics
/// A check fails.
pub fn trace(error: &TraceError, file: &str) {
    names(&error.to_string(), file);
    raw(&Problem::bad_input(error.to_string()).help(error.hint()).in_words());
}

/// Checks that `error` names `file` and has a hint on what to do. `error` comes from the reader of a recording (log of
/// an observed run) or of a file that vLLM or SGLang wrote.
///
/// # Panics
/// A check fails.
pub fn unread(error: &Unread, file: &str) {
    names(&error.to_string(), file);
    message(&error.hint);
}

/// Checks that no number in the debug text of `value`, outside of quotes, is infinite or NaN.
///
/// # Panics
/// A number is infinite or NaN.
pub fn finite(value: &impl Debug) {
    let text = format!("{value:?}");
    let mut quoted = false;
    let mut bytes = text.bytes();
    let mut bare = String::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if quoted => drop(bytes.next()),
            b'"' => quoted = !quoted,
            _ if !quoted => bare.push(char::from(byte)),
            _ => {}
        }
    }
    let word = |c: char| !(c.is_alphanumeric() || c == '_');
    let wrong = bare.split(word).any(|w| w == "NaN" || w == "inf");
    assert!(!wrong, "a number is not finite: {}", text.chars().take(2000).collect::<String>());
}

/// The bytes `data` of a fuzz input as text; `None` if they are not UTF-8.
pub(crate) fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_not_finite_are_found() {
        finite(&("NaN \" inf", [1.0, -2.5], Some("inf")));
        for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(std::panic::catch_unwind(|| finite(&("x", [Some(wrong)]))).is_err(), "{wrong}");
        }
    }

    #[test]
    fn messages_are_short_and_name_their_file() {
        names("a.csv:3: wrong", "a.csv");
        for (text, file) in [("", ""), (" \n", ""), ("wrong", "a.csv")] {
            assert!(std::panic::catch_unwind(|| names(text, file)).is_err(), "{text}");
        }
        let long = "x".repeat(MOST);
        assert!(std::panic::catch_unwind(|| raw(&long)).is_err());
        message(&long);
    }
}
