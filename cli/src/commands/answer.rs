//! Answers on a terminal: the answer comes last, where the eye is, wrapped and in bold, as is the best row of each
//! table. Elsewhere the text stays as it is.

use super::{print, write};
use crate::cli::format::Format;
use anstream::AutoStream;
use anstyle::{AnsiColor, Style};
use foretoken_run::cells::Folder;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::spec::shown;
use std::io::IsTerminal;

/// The width to which an answer is wrapped on a terminal.
const WIDTH: usize = 80;

/// Prints a text whose first paragraph is the answer. `best` says whether a line that starts with a word is the best
/// row of the n-th paragraph behind it. A line that starts with `> ` is one too.
pub fn answer(text: &str, best: impl Fn(usize, &str) -> bool) -> Result<()> {
    let out = std::io::stdout();
    if !out.is_terminal() {
        return print(text);
    }
    let colour = AutoStream::choice(&out) != anstream::ColorChoice::Never;
    write(&on_a_terminal(&shown::escape(text), colour, best))
}

/// Prints the kept answer of a results folder: its file `text`, or `json`.
pub fn print_kept(folder: &Folder, format: Format, text: &str, json: &str) -> Result<()> {
    let read =
        |name: &str| fs_err::read_to_string(folder.path().join(name)).map_err(|e| Problem::failed(e.to_string()));
    match format {
        Format::Table => answer(&read(text)?, |_, _| false),
        Format::Json => print(&read(json)?),
    }
}

/// The text with its first paragraph at the end. With colour, the answer and the best rows are bold, and warnings red.
fn on_a_terminal(text: &str, colour: bool, best: impl Fn(usize, &str) -> bool) -> String {
    let (answer, rest) = text.split_once("\n\n").unwrap_or((text, ""));
    let styled =
        |line: &str, style: Style| if colour { format!("{style}{line}{style:#}\n") } else { format!("{line}\n") };
    let style = |paragraph: usize, line: &str| match line.trim_start() {
        l if l.starts_with("> ") || best(paragraph, l.split(' ').next().unwrap_or_default()) => Style::new().bold(),
        l if l.starts_with("! ") || l.starts_with("warning") => AnsiColor::Red.on_default(),
        _ => Style::new(),
    };
    let mut shown = String::new();
    for (i, paragraph) in rest.trim_end().split("\n\n").filter(|paragraph| !paragraph.is_empty()).enumerate() {
        for line in paragraph.lines() {
            shown.extend(wrapped(line).iter().map(|part| styled(part, style(i, line))));
        }
        shown.push('\n');
    }
    for line in answer.trim_end().lines().flat_map(|line| textwrap::wrap(line, options())) {
        shown += &styled(&line, Style::new().bold());
    }
    shown
}

/// A line in parts that fit the terminal. Rows of tables, which have columns apart, and commands to copy stay whole.
fn wrapped(line: &str) -> Vec<std::borrow::Cow<'_, str>> {
    if line.trim_start().contains("  ") || line.contains(" --") {
        vec![line.into()]
    } else {
        textwrap::wrap(line, options())
    }
}

fn options() -> textwrap::Options<'static> {
    textwrap::Options::new(WIDTH).break_words(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_comes_last_and_its_row_is_bold() {
        let text = "Run fixed-5 (as good: a): 2x\n\n policy  E2E\n fixed-1  2\n fixed-5  1\n! wrong\n";
        let fifth = |_, policy: &str| policy == "fixed-5";
        assert_eq!(
            on_a_terminal(text, false, fifth),
            " policy  E2E\n fixed-1  2\n fixed-5  1\n! wrong\n\nRun fixed-5 (as good: a): 2x\n"
        );
        let lines: Vec<String> = on_a_terminal(text, true, fifth).lines().map(str::to_owned).collect();
        assert_eq!(lines[2], "\u{1b}[1m fixed-5  1\u{1b}[0m");
        assert_eq!((lines[1].as_str(), lines[3].as_str()), (" fixed-1  2", "\u{1b}[31m! wrong\u{1b}[0m"));
        assert!(lines[5].starts_with("\u{1b}[1mRun fixed-5"));
        assert_eq!(on_a_terminal("All\n", false, |_, _| false), "All\n");
    }

    #[test]
    fn sentences_are_wrapped_and_rows_and_commands_are_not() {
        let long = "word ".repeat(30);
        let text = format!("All\n\n{long}\n a  {long}\nconfirm: foretoken observe --set {long}\n");
        let shown = on_a_terminal(&text, false, |_, _| false);
        let widths: Vec<bool> = shown.lines().filter(|line| !line.is_empty()).map(|line| line.len() <= WIDTH).collect();
        assert_eq!(widths, [true, true, false, false, true]);
    }

    /// In a sweep each setting has its own best row, and a row with `>` is one anywhere.
    #[test]
    fn each_setting_has_its_best_row() {
        let text = "Up to 2: b.\n\nx = 1\n a  1\n b  2\n\nx = 2\n a  2\n b  1\n\n > c  1\n";
        let shown = on_a_terminal(text, true, |i, policy| [Some("a"), Some("b")].get(i) == Some(&Some(policy)));
        let bold: Vec<&str> =
            shown.lines().filter_map(|line| line.strip_prefix("\u{1b}[1m")?.strip_suffix("\u{1b}[0m")).collect();
        assert_eq!(bold, [" a  1", " b  1", " > c  1", "Up to 2: b."]);
    }
}
