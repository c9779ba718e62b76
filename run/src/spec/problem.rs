//! Errors as a user sees them: what is wrong, where, what to do, and the exit code. It is the only error type of the
//! program.
//!
//! Library errors become a [`Problem`] where file and place are known. All input that messages quote is escaped for
//! the terminal here, and nowhere else.

mod place;

use crate::spec::shown;
use miette::{Diagnostic, LabeledSpan, SourceCode};
use place::Place;
use std::fmt;
use std::io::IsTerminal;

/// Exit codes (docs/experiments.md lists them).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Something failed that the input did not cause: a full disk, an unwritable folder.
    Failed = 1,
    /// The command line, the experiment or a trace is wrong.
    BadInput = 2,
    /// The work finished, and the command's own verdict is negative: for example, a prediction's error is above its
    /// bound.
    Negative = 3,
    /// The hardware (GPU) that the user asked for is missing.
    NoHardware = 4,
    /// The program was ended by Ctrl-C or SIGTERM. The results so far are kept.
    Interrupted = 130,
}

/// The result of all fallible functions of the program. The error is boxed, because it is large and rare.
pub type Result<T> = std::result::Result<T, Box<Problem>>;

/// One error, as the user sees it.
#[derive(Debug)]
pub struct Problem {
    pub exit: Exit,
    message: String,
    help: Option<String>,
    place: Option<Place>,
    missing_file: bool,
}

impl Problem {
    pub fn new(exit: Exit, message: impl Into<String>) -> Box<Problem> {
        Box::new(Problem {
            exit,
            message: shown::message(&message.into()),
            help: None,
            place: None,
            missing_file: false,
        })
    }

    /// Makes a problem for wrong input of the user (exit code 2).
    pub fn bad_input(message: impl Into<String>) -> Box<Problem> {
        Problem::new(Exit::BadInput, message)
    }

    /// Makes a problem for work that failed (exit code 1).
    pub fn failed(message: impl Into<String>) -> Box<Problem> {
        Problem::new(Exit::Failed, message)
    }

    /// Adds a hint: what the user can do about the problem.
    pub fn help(mut self: Box<Self>, help: impl Into<String>) -> Box<Problem> {
        self.help = Some(shown::message(&help.into()));
        self
    }

    /// Marks the problem as caused by a missing file. A caller that has other files may then go on.
    pub fn for_a_missing_file(mut self: Box<Self>) -> Box<Problem> {
        self.missing_file = true;
        self
    }

    pub fn is_a_missing_file(&self) -> bool {
        self.missing_file
    }

    /// Adds a place: the bytes `span` of `text`. `name` is the text's name in messages. A span over several lines is
    /// cut at the end of its first line.
    pub fn at(mut self: Box<Self>, name: &str, text: &str, span: std::ops::Range<usize>) -> Box<Problem> {
        self.place = Some(Place::of(name, text, span));
        self
    }

    /// The problem's message, without its place and its help text.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The help text; empty if the problem has none.
    pub fn help_text(&self) -> &str {
        self.help.as_deref().unwrap_or_default()
    }

    /// The place as `file:line:column`; `None` if the problem has no place.
    pub fn place(&self) -> Option<String> {
        self.place.as_ref().map(Place::in_words)
    }

    /// Message, place and help as plain text, for output that is not a terminal.
    pub fn in_words(&self) -> String {
        let mut words = String::new();
        let plain = miette::GraphicalReportHandler::new_themed(miette::GraphicalTheme::none());
        match plain.with_width(160).render_report(&mut words, self) {
            Ok(()) => words.trim_end().to_owned(),
            Err(_) => self.message.clone(),
        }
    }

    /// The text at the problem's place; `None` if the problem has no place.
    pub fn pointed_at(&self) -> Option<&str> {
        self.place.as_ref().map(Place::pointed_at)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

impl Diagnostic for Problem {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|h| Box::new(h) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.place.as_ref().map(|p| p as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        self.place.as_ref().map(|p| Box::new(std::iter::once(p.label())) as Box<dyn Iterator<Item = _>>)
    }
}

/// Longest text, in bytes, for which [`nearest`] looks for a similar name.
const LONGEST_NAME: usize = 200;

/// The candidate nearest to `given`, for a hint "did you mean"; `None` if no candidate is near. Case is ignored. Order
/// of preference: a name that begins with `given` (`a100`), a name within two typing errors, a name with which `given`
/// begins (`h100-sxm`), a name of similar spelling.
pub fn nearest<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // No name is longer than this limit. Longer texts are not compared, because the time and memory of the comparison
    // grow with the length.
    if given.len() > LONGEST_NAME {
        return None;
    }
    let given = given.to_lowercase();
    let rank = |c: &str| {
        let name = c.to_lowercase();
        let distance = strsim::damerau_levenshtein(&given, &name);
        let goes_on = |short: &str, long: &str| short.len() >= 3 && long.starts_with(short);
        match distance {
            _ if goes_on(&given, &name) => Some((0, distance)),
            0..=2 => Some((1, distance)),
            _ if goes_on(&name, &given) => Some((2, distance)),
            _ => (distance <= name.len().max(given.len()) / 2).then_some((3, distance)),
        }
    };
    candidates.into_iter().filter_map(|c| Some((rank(c)?, c))).min_by_key(|(rank, _)| *rank).map(|(_, c)| c)
}

/// Prints the problem on stderr. On a terminal: 80 columns, Unicode, and colours unless `NO_COLOR` is set. Elsewhere:
/// 160 columns of plain text.
pub fn tell(problem: Problem) {
    // https://no-color.org: any value but the empty one turns colours off.
    let colour = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let fancy = std::io::stderr().is_terminal();
    let options =
        miette::MietteHandlerOpts::new().unicode(fancy).color(fancy && colour).width(if fancy { 80 } else { 160 });
    // miette accepts a handler for the output only once. If a problem was printed before, this call fails, and the
    // handler of then, which has the same options, remains.
    let _ = miette::set_hook(Box::new(move |_| Box::new(options.clone().build())));
    // The text was escaped when the problem was made. The escape codes that remain are miette's colours.
    std::eprintln!("{:?}", miette::Report::new(problem));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_finds_typos_and_no_unlike_names() {
        let keys = ["max_num_seqs", "max_num_batched_tokens", "block_size"];
        assert_eq!(nearest("max_num_seq", keys), Some("max_num_seqs"));
        assert_eq!(nearest("blok_size", keys), Some("block_size"));
        assert_eq!(nearest("temperature", keys), None);
        assert_eq!(nearest(&"block_size".repeat(100_000), keys), None, "at once");
        let gpus = ["a100-40g", "a100-80g", "l40", "h100", "h200"];
        assert_eq!(nearest("h100-sxm", gpus), Some("h100"));
        assert_eq!(nearest("A100", gpus), Some("a100-40g"));
        assert_eq!(nearest("l40s", gpus), Some("l40"));
        assert_eq!(nearest("a100-80gb", gpus), Some("a100-80g"));
    }

    #[test]
    fn a_long_span_is_cut_at_its_first_line() {
        let p = Problem::bad_input("x").at("f.toml", "[a]\nb = 1\n", 0..9);
        assert_eq!(p.pointed_at(), Some("[a]"));
    }
}
