//! Questions and their answers as text, with columns of fixed widths.

use super::answer::{Answer, Decided, Finding};
use super::verdict::Verdict;
use crate::papers::render::wrapped;
use textwrap::{Options, WordSeparator, WordSplitter};

/// Names of the columns of a question's table of claims, and their widths in characters.
const COLUMNS: [(&str, u16); 6] =
    [("claim", 22), ("what is measured", 46), ("reported", 18), ("ours", 20), ("verdict", 10), ("reason", 42)];

/// The most characters of a line in the texts above a question's table (question, answer, assumptions).
const WIDTH: usize = 150;

/// All questions as text, each with its answer and its claims; then the counts of answers and claims. `answers` are
/// (experiment's name, answer).
pub fn render<'r>(answers: impl IntoIterator<Item = (&'r str, &'r Answer)>) -> String {
    let mut text = wrapped(COLUMNS, [COLUMNS.map(|(name, _)| name.to_owned())]);
    let mut rendered = Vec::new();
    for (name, answer) in answers {
        text.push_str(&format!("\n{name}: {}, {}\n", answer.thread, answer.url));
        paragraph(&mut text, "asked", &answer.asks);
        paragraph(&mut text, "answer", &answer.answer);
        paragraph(&mut text, "assumed", &answer.assumed.join(" "));
        text.push_str(&wrapped(COLUMNS, answer.claims.iter().map(row)));
        rendered.push(answer);
    }
    text + "\n" + &count(&rendered)
}

/// A text with the number of answered questions, and the numbers of claims by verdict: the measured value agrees with
/// the value that the question's thread reports, has the same sign, differs, or cannot be judged.
pub fn count(answers: &[&Answer]) -> String {
    let answered = answers.iter().filter(|a| a.decided != Decided::CannotSay).count();
    let claims = || answers.iter().flat_map(|a| &a.claims).filter(|c| c.verdict != Verdict::NotReported);
    let number = |verdict: Verdict| claims().filter(|c| c.verdict == verdict).count();
    format!(
        "{answered} of {} questions are answered for everything that is assumed. Of {} reported numbers, {} agree \
         within a tenth, {} have the same sign, {} differ, {} cannot be said.\n",
        answers.len(),
        claims().count(),
        number(Verdict::Agrees),
        number(Verdict::SameSign),
        number(Verdict::Differs),
        number(Verdict::CannotSay),
    )
}

fn row(claim: &Finding) -> [String; 6] {
    [
        claim.id.clone(),
        claim.says.clone(),
        claim.reported_shown(),
        claim.ours_shown(),
        claim.verdict.words().to_owned(),
        claim.because.clone().unwrap_or_default(),
    ]
}

/// Appends the text `says` to `text`, in lines of at most [`WIDTH`] characters. The heading `word` stands before the
/// first line.
fn paragraph(text: &mut String, word: &str, says: &str) {
    let first = format!("  {word:<8}");
    let indent = " ".repeat(first.len());
    text.push_str(&lines(says, Options::new(WIDTH).initial_indent(&first).subsequent_indent(&indent)));
}

/// Wraps `text` into lines of the width in `options`. A word that is longer stands alone on its line and is not broken.
pub(super) fn lines(text: &str, options: Options) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let options = options.word_separator(WordSeparator::AsciiSpace).word_splitter(WordSplitter::NoHyphenation);
    textwrap::fill(&words.join(" "), options.break_words(false)) + "\n"
}
