//! Questions and their answers as a page of the documentation, in Markdown.

use super::answer::{Answer, Decided, Finding};
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
    depends on what is assumed.";

fn section(name: &str, answer: &Answer) -> String {
    let mut text = format!("\n## {name}\n\n");
    text.push_str(&wrap(&format!("**Asked** in [{}]({}): {}", answer.thread, answer.url, answer.asks)));
    let decided = match answer.decided {
        Decided::CannotSay => "",
        Decided::Yes | Decided::No => "**Answer.** ",
    };
    text.push('\n');
    text.push_str(&wrap(&format!("{decided}{}", answer.answer)));
    text.push('\n');
    text.push_str(&wrap(&format!("Assumed: {}", answer.assumed.join(" "))));
    text.push_str("\n| claim | reported | ours | verdict | reason |\n|---|--:|--:|---|---|\n");
    answer.claims.iter().for_each(|claim| text.push_str(&row(claim)));
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

/// Wraps a text into lines of at most 110 characters.
fn wrap(text: &str) -> String {
    lines(text, Options::new(110))
}
