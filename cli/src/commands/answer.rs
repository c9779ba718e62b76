//! Answers on a terminal: the answer comes last, where the eye is, and in bold, as does its row in the table. Elsewhere
//! the text stays as it is.

use super::{print, write};
use anstream::AutoStream;
use anstyle::{AnsiColor, Style};
use foretoken_run::spec::problem::Result;
use foretoken_run::spec::shown;
use std::io::IsTerminal;

/// Prints a text whose first paragraph is the answer.
pub fn answer(text: &str) -> Result<()> {
    let out = std::io::stdout();
    if !out.is_terminal() {
        return print(text);
    }
    let colour = AutoStream::choice(&out) != anstream::ColorChoice::Never;
    write(&on_a_terminal(&shown::escape(text), colour))
}

/// The text with its first paragraph at the end. With colour, the answer and its row are bold, and warnings red.
fn on_a_terminal(text: &str, colour: bool) -> String {
    let (answer, rest) = text.split_once("\n\n").unwrap_or((text, ""));
    let advised = answer.strip_prefix("Run ").and_then(|words| words.split([' ', ':', ',']).next());
    let styled =
        |line: &str, style: Style| if colour { format!("{style}{line}{style:#}\n") } else { format!("{line}\n") };
    let style = |line: &str| match line.trim_start() {
        l if l.starts_with("> ") || advised.is_some() && l.split(' ').next() == advised => Style::new().bold(),
        l if l.starts_with("! ") || l.starts_with("warning") => AnsiColor::Red.on_default(),
        _ => Style::new(),
    };
    let mut shown: String = rest.trim_end().lines().map(|line| styled(line, style(line))).collect();
    if !shown.is_empty() {
        shown.push('\n');
    }
    answer.trim_end().lines().for_each(|line| shown += &styled(line, Style::new().bold()));
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_comes_last_and_its_row_is_bold() {
        let text = "Run fixed-5 (as good: a): 2x\n\n policy  E2E\n fixed-1  2\n fixed-5  1\n! wrong\n";
        assert_eq!(
            on_a_terminal(text, false),
            " policy  E2E\n fixed-1  2\n fixed-5  1\n! wrong\n\nRun fixed-5 (as good: a): 2x\n"
        );
        let lines: Vec<String> = on_a_terminal(text, true).lines().map(str::to_owned).collect();
        assert_eq!(lines[2], "\u{1b}[1m fixed-5  1\u{1b}[0m");
        assert_eq!((lines[1].as_str(), lines[3].as_str()), (" fixed-1  2", "\u{1b}[31m! wrong\u{1b}[0m"));
        assert!(lines[5].starts_with("\u{1b}[1mRun fixed-5"));
        assert_eq!(on_a_terminal("All\n", false), "All\n");
    }
}
