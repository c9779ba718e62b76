//! The error of a file that could not be read: a recording, or a file of vLLM, SGLang or a load generator.

use std::fmt;
use std::path::{Path, PathBuf};

/// The error of a recording, or of a file of vLLM, SGLang or a load generator: what is wrong, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Unread {
    /// The path of the file that could not be read.
    pub path: PathBuf,
    /// The line of the file, counted from 1; `None` if the error concerns the whole file.
    pub line: Option<usize>,
    /// The problem with the file, as a text that follows the file's name in the message.
    pub what: String,
    /// What the user can do about the file.
    pub hint: String,
}

impl Unread {
    /// An error that concerns the whole file at `path`.
    pub fn file(path: &Path, what: impl Into<String>, hint: impl Into<String>) -> Unread {
        Unread { path: path.to_path_buf(), line: None, what: what.into(), hint: hint.into() }
    }

    /// An error on one line of the file at `path`, counted from 1.
    pub fn line(path: &Path, line: usize, what: impl Into<String>, hint: impl Into<String>) -> Unread {
        Unread { line: Some(line), ..Unread::file(path, what, hint) }
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        self.line.iter().try_for_each(|line| write!(f, ", line {line}"))?;
        write!(f, ": {}", self.what)
    }
}
