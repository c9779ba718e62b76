//! The text that starts a server, as it was given, and its words.

use foretoken_run::spec::problem::Problem;
use std::ops::Range;

/// A word as the program would get it, and where it stands in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// The word without quotes.
    pub text: String,
    /// Its bytes in the text, quotes included.
    pub span: Range<usize>,
}

/// The text that starts a server, and its words.
#[derive(Clone, Debug)]
pub struct Line {
    pub name: String,
    pub text: String,
    pub words: Vec<Word>,
    /// Is the text no shell line to paste back, so that only what changes is shown?
    pub only_changes: bool,
    /// The file that `--config` names, and the place of its name.
    pub config: Option<(Range<usize>, String)>,
}

impl Line {
    /// An error about the bytes `span` of the text.
    pub fn wrong(&self, span: &Range<usize>, message: impl Into<String>) -> Box<Problem> {
        Problem::bad_input(message).at(&self.name, &self.text, span.clone())
    }
}
