//! Finds the path, on this machine, of a file that an experiment names.

use crate::spec::document::Document;
use crate::spec::problem::{Problem, Result};
use std::path::PathBuf;

/// The path `given` in the experiment, with each `${NAME}` replaced by the value of the environment variable `NAME`.
pub(crate) fn locate(document: &Document, given: &str) -> Result<PathBuf> {
    if given.is_empty() {
        let problem = document.point(Problem::bad_input("the path is empty"), document.span_of_string(given));
        return Err(problem.help("expected the path of a file; a relative one starts at the experiment's folder"));
    }
    let mut rest = given;
    let mut full = String::new();
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, tail)) = after.split_once('}') else { break };
        let value = std::env::var(name).map_err(|_| {
            let problem = Problem::bad_input(format!("the environment variable {name} is not set"));
            let help = format!("set it to the folder that holds the file: {name}=/path/to/folder foretoken run ...");
            document.point(problem, document.span_of_string(given)).help(help).for_a_missing_file()
        })?;
        full.push_str(before);
        full.push_str(&value);
        rest = tail;
    }
    full.push_str(rest);
    let full = PathBuf::from(full);
    Ok(full)
}
