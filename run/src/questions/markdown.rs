//! Questions and their answers as a page of the documentation, in Markdown.

use super::answer::{Answer, Finding};
use super::table::{count, lines};
use textwrap::Options;

/// A Markdown page: an introduction with the number of answered questions and the numbers of claims by verdict, an
/// index of questions and answers, then each question with its claims.
pub fn render<'r>(answers: impl IntoIterator<Item = (&'r str, &'r Answer)>) -> String {
    let answers: Vec<(&str, &Answer)> = answers.into_iter().collect();
    let counted: Vec<&Answer> = answers.iter().map(|(_, answer)| *answer).collect();
    let mut text = format!("# Questions that people asked\n\n{}\n{}\n", wrap(INTRODUCTION), wrap(&count(&counted)));
    text.push_str("| asked in | question | answer |\n|---|---|---|\n");
    for (name, a) in &answers {
        text.push_str(&format!("| [{}](#{name}) | {} | {} |\n", cell(&a.thread), cell(&a.asks), cell(&a.answer)));
    }
    for (name, answer) in answers {
        text.push_str(&section(name, answer));
    }
    text
}

const INTRODUCTION: &str = "Each section is one experiment of `experiments/questions/`. `foretoken run \
    experiments/questions/` runs them all; `--format markdown` prints this page. Numbers under \"reported\" stand in \
    the thread. Numbers under \"ours\" are simulated: the range over everything that is assumed. \"agrees\" means \
    within a tenth, \"same sign\" that the direction is right and the size is not, \"cannot say\" that the answer \
    depends on what is assumed. Values that no thread reports stand in the results of the run.";

fn section(name: &str, answer: &Answer) -> String {
    // A title's own anchor differs between sites, so the section has one of its own. The index above has the answer.
    let mut text = format!("\n<a id=\"{name}\"></a>\n\n## {}\n\n", cell(&answer.asks));
    text.push_str(&wrap(&format!("Asked in [{}]({}).", answer.thread, answer.url)));
    text.push('\n');
    text.push_str(&wrap(&format!("Assumed: {}", answer.assumed.join(" "))));
    text.push_str("\n| claim | reported | ours | verdict | reason |\n|---|--:|--:|---|---|\n");
    let reported = |claim: &&Finding| claim.reported.is_some();
    let all = !answer.claims.iter().any(|claim| reported(&claim));
    answer.claims.iter().filter(|claim| all || reported(claim)).for_each(|claim| text.push_str(&row(claim)));
    text
}

fn row(claim: &Finding) -> String {
    let reason = claim.because.as_deref().unwrap_or_default();
    let cells = [&claim.says, &claim.reported_shown(), &claim.ours_shown(), claim.verdict.words(), reason];
    format!("| {} |\n", cells.map(cell).join(" | "))
}

/// Escapes a text for a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// Wraps a text into lines of at most 110 characters. A line that begins with the number of an issue, such as `#123`,
/// would be a heading, so its first character is escaped.
fn wrap(text: &str) -> String {
    lines(text, Options::new(110)).split_inclusive('\n').fold(String::new(), |page, line| {
        let escape = if line.starts_with('#') { "\\" } else { "" };
        page + escape + line
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_an_issue_is_no_heading() {
        let text = wrap(&format!("{} #12755 and more", "word ".repeat(21).trim_end()));
        assert_eq!(text.trim_end().lines().nth(1), Some("\\#12755 and more"), "{text}");
    }
}
