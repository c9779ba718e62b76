//! An overview of results folders: a page with a row for each page that Foretoken made in these folders. A row's texts
//! come from the start of that page: its title, the scope of its results, and its answer.

use super::{INDEX, keep};
use crate::spec::problem::{Problem, Result};
use foretoken_report::html::{Page, Part, Row, Section, Table, Value};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// The paths in a results folder at which `foretoken run` and other commands put their HTML pages.
const PAGES: [&str; 7] = [
    "report/index.html",
    "capacity.html",
    "fleet.html",
    "calibration.html",
    "recommendation.html",
    "validation.html",
    "arena.html",
];

/// Writes the overview of the folders in `folder` as its `index.html`. Returns the page's path.
pub fn overview(folder: &Path) -> Result<PathBuf> {
    let read = |e: std::io::Error| Problem::bad_input(format!("{}: {e}", folder.display())).help(HELP);
    let mut names: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(read)? {
        names.push(entry.map_err(read)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let pages = names.iter().flat_map(|name| PAGES.map(|page| format!("{name}/{page}")));
    let rows: Vec<Row> = pages.filter_map(|page| row(folder, &page)).collect();
    if rows.is_empty() {
        let problem = Problem::bad_input(format!("no folder in {} has a page of results", folder.display()));
        return Err(problem.help(HELP));
    }
    let columns = [("results", ""), ("kind", ""), ("for what", ""), ("answer", ""), ("written (UTC)", "")];
    let mut table = Table::new("", &columns);
    table.rows = rows;
    let mut section = Section::new("results", "Results");
    section.parts.push(Part::Table(table));
    let page = Page {
        title: "Results".to_owned(),
        kind: "Foretoken overview".to_owned(),
        sections: vec![section],
        foot: format!("Made by Foretoken {}.", env!("CARGO_PKG_VERSION")),
        ..Page::default()
    };
    keep(folder, &[(INDEX, &page.html())])
}

const HELP: &str = "give the folder that holds results folders, as --index results";

/// The overview's row for one HTML page; `None` if the file does not exist or Foretoken did not make it.
fn row(folder: &Path, page: &str) -> Option<Row> {
    let path = folder.join(page);
    let html = std::fs::read_to_string(&path).ok().filter(|html| html.contains(super::MARK))?;
    let written = std::fs::metadata(&path).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_secs();
    let name = format!("{} ({})", page.split('/').next()?, part(&html, "<h1>")?);
    let kind = part(&html, "<p class=\"kind\">").unwrap_or_default();
    let scope = part(&html, "<p class=\"scope\">").unwrap_or_default();
    let answer = part(&html, "<p class=\"headline\">").unwrap_or_default();
    Some(Row::of([
        Value::link(name, page),
        Value::text(kind.trim_start_matches("Foretoken ")),
        Value::text(scope),
        Value::text(answer),
        Value::text(day(written)),
    ]))
}

/// The text after the first `tag` in an HTML page, up to the next tag. `None` if the page does not have the tag.
fn part(html: &str, tag: &str) -> Option<String> {
    let text = html.split_once(tag)?.1.split('<').next()?;
    let marks = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#x27;", "'"), ("&#x2f;", "/"), ("&amp;", "&")];
    Some(marks.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to)))
}

/// Seconds since 1970 as a date and a time, such as `2026-01-31 09:05`.
fn day(seconds: u64) -> String {
    // The last second of the year 9999, in seconds since 1970: `humantime` writes no later time.
    let time = UNIX_EPOCH + Duration::from_secs(seconds.min(253_402_300_799));
    let text = humantime::format_rfc3339_seconds(time).to_string();
    format!("{} {}", &text[..10], &text[11..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_dates() {
        for (seconds, date) in [
            (0, "1970-01-01 00:00"),
            (951_782_400, "2000-02-29 00:00"),
            (1_735_689_599, "2024-12-31 23:59"),
            (4_102_444_800, "2100-01-01 00:00"),
            (u64::MAX, "9999-12-31 23:59"),
        ] {
            assert_eq!(day(seconds), date);
        }
    }

    #[test]
    fn the_overview_has_a_row_for_each_page_and_leaves_foreign_files() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert!(overview(dir.path()).unwrap_err().message().contains("has a page of results"));
        let page = Page {
            title: "a <b>".into(),
            kind: "Foretoken run \u{b7} simulated".into(),
            scope: "x & y".into(),
            lead: vec![Part::Headline("Run fixed-3.".into())],
            ..Page::default()
        };
        write("one/report/index.html", &page.html());
        write("two/capacity.html", "<h1>not ours</h1>");
        let html = std::fs::read_to_string(overview(dir.path()).unwrap()).unwrap();
        for text in [
            "one (a &lt;b&gt;)",
            "run \u{b7} simulated",
            "x &amp; y",
            "Run fixed-3.",
            "href=\"one&#x2f;report&#x2f;index.html\"",
        ] {
            assert!(html.contains(text), "{text}\n{html}");
        }
        assert!(!html.contains("not ours"));
        write("index.html", "mine");
        assert!(overview(dir.path()).unwrap_err().message().contains("did not make"));
    }
}
