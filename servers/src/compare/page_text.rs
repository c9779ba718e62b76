//! A page as plain text, so that a test can compare all of its words and numbers with a snapshot.

use foretoken_report::html::{Page, Part, Row, Table, Value};

/// The words and numbers of a page. Of a figure only the caption is shown.
pub fn page_text(page: &Page) -> String {
    let mut text = format!("{}\n{}\n{}\n", page.title, page.kind, page.scope);
    text.extend(page.lead.iter().map(part_text));
    for section in &page.sections {
        text += &format!("\n# {}\n", section.title);
        text.extend(section.parts.iter().map(part_text));
    }
    text + "\n" + &page.foot
}

fn part_text(part: &Part) -> String {
    match part {
        Part::Text(text) => format!("{text}\n"),
        Part::Headline(text) => format!("headline: {text}\n"),
        Part::List(lines) => lines.iter().map(|line| format!("- {line}\n")).collect(),
        Part::Warning(text) => format!("warning: {text}\n"),
        Part::Figure { caption, .. } => format!("figure: {caption}\n"),
        Part::Missing(text) => format!("missing: {text}\n"),
        Part::Table(table) => table_text(table),
        Part::Facts(facts) | Part::Tiles(facts) => {
            facts.iter().map(|(name, value)| format!("{name}: {value}\n")).collect()
        }
        Part::Command(text) => format!("command: {text}\n"),
        Part::Folded { title, text } => format!("folded: {title}\n{text}\n"),
        Part::More { title, parts } => {
            format!("folded: {title}\n{}", parts.iter().map(part_text).collect::<String>())
        }
        Part::Html(html) => format!("{html}\n"),
    }
}

/// A line for the headings, and one for each row. The number by which a row is sorted, rounded to six decimal places,
/// follows the shown text in brackets if the two differ.
fn table_text(table: &Table) -> String {
    let headings: Vec<&str> = table.columns.iter().map(|(name, _)| name.as_str()).collect();
    let value = |value: &Value| {
        let rounded = |by: f64| (1e6 * by).round() / 1e6 + 0.0;
        match value.by.map(|by| rounded(by).to_string()) {
            Some(by) if by != value.text => format!("{} [{by}]", value.text),
            _ => value.text.clone(),
        }
    };
    let row = |row: &Row| row.values.iter().map(value).collect::<Vec<_>>().join(" | ") + "\n";
    let rows: String = table.rows.iter().map(row).collect();
    format!("table: {}\n{}\n{rows}", table.caption, headings.join(" | "))
}
