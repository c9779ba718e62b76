//! An overview of results folders: a page with a row for each page that Foretoken made in these folders. A row's texts
//! come from the start of that page: its title, the scope of its results, and its answer.

use super::{INDEX, keep};
use crate::spec::problem::{Problem, Result};
use foretoken_report::html::{Page, Part, Row, Section, Table, Value};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// The paths in a results folder at which `foretoken run` and other commands put their HTML pages.
const PAGES: [&str; 8] = [
    "report/index.html", "capacity.html", "fleet.html", "calibration.html", "recommendation.html", "validation.html",
    "arena.html", "ladder.html",
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
    let mut made: Vec<Made> = pages.filter_map(|page| Made::read(folder, page)).collect();
    made.sort_by_key(|page| std::cmp::Reverse(page.written));
    if made.is_empty() {
        let problem = Problem::bad_input(format!("no folder in {} has a page of results", folder.display()));
        return Err(problem.help(HELP));
    }
    let columns = [
        ("answer", ""),
        ("results", ""),
        ("written (UTC)", ""),
        ("before", "the answer of the last results of the same kind and name"),
        ("kind", ""),
        ("for what", ""),
    ];
    let mut table = Table::new("", &columns);
    table.rows = made.iter().enumerate().map(|(i, page)| page.row(&made[i + 1..])).collect();
    let mut section = Section::new("results", "Results");
    section.parts.push(Part::Table(table));
    let page = Page {
        title: "Results".to_owned(),
        kind: "Foretoken overview".to_owned(),
        sections: vec![section],
        // Three columns of sentences do not fit on paper otherwise.
        style: "@media print{td.long{min-width:0}}".into(),
        foot: format!("Made by Foretoken {}.", env!("CARGO_PKG_VERSION")),
        ..Page::default()
    };
    keep(folder, &[(INDEX, &page.html())])
}

const HELP: &str = "give the folder that holds results folders, as --index results";

/// What the overview shows of a page that Foretoken made.
struct Made {
    /// The page's path in the folder of the overview.
    page: String,
    /// When the page was written, seconds since 1970.
    written: u64,
    title: String,
    kind: String,
    scope: String,
    answer: String,
    /// The page's first figure, an SVG document; empty without figures.
    picture: String,
}

impl Made {
    /// Reads the page `page` of `folder`; `None` if the file does not exist or Foretoken did not make it.
    fn read(folder: &Path, page: String) -> Option<Made> {
        let path = folder.join(&page);
        let html = std::fs::read_to_string(&path).ok().filter(|html| html.contains(super::MARK))?;
        let written = std::fs::metadata(&path).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_secs();
        let after = |tag: &str| part(&html, tag).unwrap_or_default();
        Some(Made {
            written,
            title: part(&html, "<h1>")?,
            kind: after("<p class=\"kind\">").trim_start_matches("Foretoken ").to_owned(),
            scope: after("<p class=\"scope\">"),
            answer: after("<p class=\"headline\">"),
            picture: picture(&html).unwrap_or_default(),
            page,
        })
    }

    /// The page's row. `older` are the pages that were written before it, the newest first.
    fn row(&self, older: &[Made]) -> Row {
        let before = older.iter().find(|page| page.title == self.title && page.kind == self.kind);
        let before = before.map_or(String::new(), |page| match page.answer == self.answer {
            true => format!("the same ({})", day(page.written)),
            false => format!("{} ({})", page.answer, day(page.written)),
        });
        let folder = self.page.split('/').next().unwrap_or_default();
        Row::of([
            Value { drawing: self.picture.clone(), ..Value::text(&self.answer) },
            Value::link(format!("{folder} ({})", self.title), &self.page),
            Value::text(day(self.written)),
            Value::text(before),
            Value::text(&self.kind),
            Value::text(&self.scope),
        ])
    }
}

/// The first figure of a page, in its form for phones if it has one.
fn picture(html: &str) -> Option<String> {
    let figure = html.split_once("<figure>")?.1.split_once("</figure>")?.0;
    let phone = figure.split_once("<div class=\"phone\">").map_or(figure, |(_, phone)| phone);
    let svg = phone.split_once("<svg")?.1.split_once("</svg>")?.0;
    Some(format!("<svg{svg}</svg>"))
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
            "one (a &lt;b&gt;)", "run \u{b7} simulated", "x &amp; y", "Run fixed-3.",
            "href=\"one&#x2f;report&#x2f;index.html\"",
        ] {
            assert!(html.contains(text), "{text}\n{html}");
        }
        assert!(!html.contains("not ours"));
        write("index.html", "mine");
        assert!(overview(dir.path()).unwrap_err().message().contains("did not make"));
    }
}
