//! The section of a page with the claims of a paper or the answer to a question, and the values of this run.

use super::Results;
use crate::papers::PaperReport;
use crate::questions::Answer;
use foretoken_report::html::{Part, Row, Section, Table, Value};

/// The page's section with a paper's claims or a question's answer. `None` if the experiment repeats no paper and
/// answers no question.
pub fn section(results: &Results) -> Option<Section> {
    match (&results.comparison.paper, &results.comparison.question) {
        (Some(paper), _) => Some(of_paper(paper)),
        (None, Some(answer)) => Some(of_question(answer)),
        (None, None) => None,
    }
}

/// The page's first sentence: how many claims of the paper come out, or the question's answer. `None` as for
/// [`section`].
pub fn headline(results: &Results) -> Option<String> {
    let paper = results.comparison.paper.as_ref().map(PaperReport::headline);
    paper.or_else(|| results.comparison.question.as_ref().map(|answer| answer.answer.clone()))
}

fn of_paper(paper: &PaperReport) -> Section {
    let mut section = Section::new("claims", "What the paper says, and what came out here");
    section.parts.push(Part::Text(format!(
        "{}, {}. A claim comes out if our number is within a tenth of the paper's, or in the direction that is stated.",
        paper.title, paper.figure
    )));
    let columns =
        [("claim", ""), ("where", "place in the paper"), ("paper", ""), ("here", ""), ("difference", ""), ("why", "")];
    let mut table = Table::new("", &columns);
    table.rows = paper.claims.iter().map(|claim| Row::of(claim.row().map(Value::text))).collect();
    section.parts.push(Part::Table(table));
    section
}

fn of_question(answer: &Answer) -> Section {
    let mut section = Section::new("claims", "The question, and its answer");
    section.parts.push(Part::Text(format!("Asked in {}: {}", answer.thread, answer.asks)));
    let columns = [("claim", ""), ("reported", ""), ("here", "over what is assumed"), ("verdict", ""), ("why", "")];
    let mut table = Table::new("", &columns);
    let row = |c: &crate::questions::Finding| {
        let because = c.because.clone().unwrap_or_default();
        Row::of(
            [c.says.clone(), c.reported_shown(), c.ours_shown(), c.verdict.words().to_owned(), because]
                .map(Value::text),
        )
    };
    table.rows = answer.claims.iter().map(row).collect();
    section.parts.push(Part::Table(table));
    if !answer.assumed.is_empty() {
        let list = Part::List(answer.assumed.clone());
        section.parts.push(Part::More { title: "What is assumed".into(), parts: vec![list] });
    }
    section
}
