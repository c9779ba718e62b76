//! Errors about the options beside the line. They show the option, as an error about the line shows the line.

use foretoken_run::spec::problem::Problem;

pub fn wrong(name: &str, given: &str, message: impl Into<String>) -> Box<Problem> {
    let text = format!("{name} {given}");
    Problem::bad_input(message).at("the options", &text, name.len() + 1..text.len())
}

/// An error about two options, of which the second contradicts the first. Each is a name with a value.
pub fn contradicts(first: (&str, String), second: (&str, String), message: impl Into<String>) -> Box<Problem> {
    let before = format!("{} {} ", first.0, first.1);
    let text = format!("{before}{} {}", second.0, second.1);
    Problem::bad_input(message).at("the options", &text, before.len()..text.len())
}
