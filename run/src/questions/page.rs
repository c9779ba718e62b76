//! Questions and their answers as an HTML page: each question is a heading, and its claims have bars of our range with
//! a mark at the reported number.

use super::answer::{Answer, Decided, Finding};
use super::table::count;
use crate::papers::results::Measured;
use foretoken_report::html::{Page, Part, Row, Section, Table, Value};
use foretoken_report::range_bar;

pub fn page<'r>(answers: impl IntoIterator<Item = (&'r str, &'r Answer)>) -> Page {
    let answers: Vec<(&str, &Answer)> = answers.into_iter().collect();
    let counted: Vec<&Answer> = answers.iter().map(|(_, answer)| *answer).collect();
    let mark = "Bar: our range over everything that is assumed. Diamond: the reported number.";
    Page {
        title: "Questions that people asked".to_owned(),
        kind: "Foretoken questions · simulated".to_owned(),
        lead: vec![Part::Headline(count(&counted).trim_end().to_owned()), Part::Text(mark.to_owned())],
        sections: answers.iter().map(|(name, answer)| section(name, answer)).collect(),
        foot: format!("Made by Foretoken {}.", env!("CARGO_PKG_VERSION")),
        ..Page::default()
    }
}

fn section(name: &str, a: &Answer) -> Section {
    let mut section = Section::new(name, &a.asks);
    let decided = if a.decided == Decided::CannotSay { "" } else { "Answer: " };
    section.parts.push(Part::Text(format!("{decided}{}", a.answer)));
    let mut table = Table::new("", &[("claim", ""), ("ours", ""), ("reported", ""), ("verdict", ""), ("reason", "")]);
    table.rows = a.claims.iter().map(row).collect();
    section.parts.push(Part::Table(table));
    let facts = [vec![format!("Asked in {}: {}", a.thread, a.url)], a.assumed.clone()].concat();
    section
        .parts
        .push(Part::More { title: "Where it was asked, and what is assumed".into(), parts: vec![Part::List(facts)] });
    section
}

fn row(c: &Finding) -> Row {
    let drawing = match (&c.ours, &c.reported) {
        (&Measured::Numbers(Some(a), Some(b)), Some(Measured::Numbers(from, to))) => {
            from.or(*to).zip(to.or(*from)).map(|reported| range_bar((a, b), reported))
        }
        _ => None,
    };
    Row::of([
        Value::text(&c.says),
        Value { drawing: drawing.unwrap_or_default(), ..Value::text(c.ours_shown()) },
        Value::text(c.reported_shown()),
        Value::text(c.verdict.words()),
        Value::text(c.because.clone().unwrap_or_default()),
    ])
}
