//! A file that could not be read as what it should be.

use std::fmt;
use std::path::{Path, PathBuf};

/// What is wrong with a file, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Unread {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1, where there is one.
    pub line: Option<usize>,
    /// What is wrong with it.
    pub what: String,
    /// What to do.
    pub hint: String,
}

impl Unread {
    /// Of a file as a whole.
    pub fn file(path: &Path, what: impl Into<String>, hint: impl Into<String>) -> Unread {
        Unread { path: path.to_path_buf(), line: None, what: what.into(), hint: hint.into() }
    }

    /// Of a line, from 1.
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
