//! The table of a paper's claims as text: for each claim its name, the paper's statement, the paper's value, our value,
//! the difference and the reason. The columns have fixed widths, so that the table looks the same in a terminal, a log
//! and a README.

use super::compared::{Compared, PaperReport};
use super::results::Measured;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};
use serde::Serialize;

/// Names of the columns of the table of a paper's claims, and their widths in characters.
const COLUMNS: [(&str, u16); 6] =
    [("claim", 22), ("the paper says", 46), ("paper", 16), ("ours", 18), ("difference", 10), ("reason", 46)];

const NO_REASON: &str = "no reason found yet";

/// How many claims come out, and one table with the papers' claims that several experiments check. `reports` are (name
/// of the experiment, the claims that it checks).
pub fn render<'r>(reports: impl IntoIterator<Item = (&'r str, &'r PaperReport)>) -> String {
    let reports: Vec<(&str, &PaperReport)> = reports.into_iter().collect();
    let counted = reports.iter().map(|(_, report)| report.counted());
    let (agree, stated) = counted.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    let mut text =
        format!("{agree} of {stated} claims with a number come out, within a tenth or in the stated direction.\n\n");
    text.push_str(&lines([COLUMNS.map(|(name, _)| name.to_owned())]));
    for (name, report) in reports {
        text.push_str(&format!("\n{name}: {}, {}\n", report.title, report.figure));
        text.push_str(&lines(report.claims.iter().map(row)));
    }
    text
}

/// The rows of the table of a paper's claims as lines of text, in columns of the widths in [`COLUMNS`].
fn lines(rows: impl IntoIterator<Item = [String; 6]>) -> String {
    wrapped(COLUMNS, rows)
}

/// The rows of a table of claims as lines of text, in six columns of the given widths. Long texts continue on the next
/// line. The third, fourth and fifth column are aligned to the right.
pub fn wrapped(columns: [(&str, u16); 6], rows: impl IntoIterator<Item = [String; 6]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(columns.iter().map(|(_, width)| width + 2).sum::<u16>());
    table.add_rows(rows);
    for (i, (column, (_, width))) in table.column_iter_mut().zip(columns).enumerate() {
        column.set_padding((0, 2)).set_constraint(ColumnConstraint::Absolute(Width::Fixed(width + 2)));
        if (2..5).contains(&i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().fold(String::new(), |text, line| text + line.trim_end() + "\n")
}

impl Compared {
    /// The claim as the texts of one row of the table of claims: what the claim says, its place in the paper, the
    /// paper's value, our value, their difference, the reason for the difference.
    pub fn row(&self) -> [String; 6] {
        let paper = self.paper.as_ref().map_or_else(|| "figure only".to_owned(), |m| shown(m, self.share, false));
        let ours = shown(&self.ours, self.share, true);
        [self.says.clone(), self.place.clone(), paper, ours, difference(self), reason(self)]
    }
}

fn row(claim: &Compared) -> [String; 6] {
    let [says, place, rest @ ..] = claim.row();
    let [paper, ours, difference, reason] = rest;
    [claim.id.clone(), format!("{says} ({place})"), paper, ours, difference, reason]
}

fn reason(claim: &Compared) -> String {
    match (&claim.because, claim.agrees) {
        (Some(because), _) => because.clone(),
        (None, Some(false)) => NO_REASON.to_owned(),
        (None, _) => String::new(),
    }
}

fn difference(claim: &Compared) -> String {
    match (claim.difference, claim.agrees) {
        (_, None) => "-".to_owned(),
        (Some(0.0), Some(true)) | (None, Some(true)) => "none".to_owned(),
        (Some(d), _) => foretoken_report::signed_percent(d),
        (None, Some(false)) => "not so".to_owned(),
    }
}

/// A claim's value as text; shares are in percent. `ours`: is it our value and not the paper's?
fn shown(measured: &Measured, share: bool, ours: bool) -> String {
    in_words(measured, ours, |x| number(x, share))
}

/// A claim's value as text; `one` writes each number. `ours`: is it our value and not the paper's? An open end of our
/// range is beyond the swept values, as in `above 4`. An open end of the paper's range states a direction, as in `at
/// least 4`.
pub fn in_words(measured: &Measured, ours: bool, one: impl Fn(f64) -> String) -> String {
    match measured {
        Measured::Numbers(Some(low), Some(high)) if low == high => one(*low),
        Measured::Numbers(Some(low), Some(high)) => format!("{} to {}", one(*low), one(*high)),
        Measured::Numbers(Some(low), None) => format!("{} {}", if ours { "above" } else { "at least" }, one(*low)),
        Measured::Numbers(None, Some(high)) => format!("{} {}", if ours { "below" } else { "at most" }, one(*high)),
        Measured::Policies(names) => names.join(if ours { ", " } else { " or " }),
        Measured::Numbers(None, None) | Measured::Nothing => "nothing".to_owned(),
    }
}

/// A number as text: without decimals from 100 on, with one decimal from 10 on, else with two. A share is in percent,
/// with its sign and one decimal.
pub fn number(x: f64, share: bool) -> String {
    if share {
        return foretoken_report::signed_percent(x);
    }
    let digits = match x.abs() {
        a if a >= 100.0 => 0,
        a if a >= 10.0 => 1,
        _ => 2,
    };
    format!("{x:.digits$}")
}

/// Reports or answers of several experiments as a JSON list, each with its experiment's name.
pub fn render_json<'r, T: Serialize + 'r>(reports: impl IntoIterator<Item = (&'r str, &'r T)>) -> serde_json::Value {
    let one = |(name, report): (&str, &T)| {
        let mut value = serde_json::to_value(report).expect("plain data always serialises");
        value["experiment"] = name.into();
        value
    };
    reports.into_iter().map(one).collect::<Vec<_>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(paper: Option<Measured>, ours: Measured, agrees: Option<bool>) -> Compared {
        Compared {
            id: "c".into(),
            says: "something".into(),
            place: "section 1".into(),
            paper,
            ours,
            share: false,
            difference: None,
            agrees,
            because: None,
        }
    }

    #[test]
    fn every_kind_of_value_as_text() {
        let range = Measured::Numbers(Some(0.07), Some(0.184));
        assert_eq!(shown(&range, true, true), "+7.0 % to +18.4 %");
        assert_eq!(shown(&Measured::Numbers(Some(40.0), None), false, true), "above 40.0");
        assert_eq!(shown(&Measured::Numbers(None, Some(0.0)), false, false), "at most 0.00");
        assert_eq!(shown(&Measured::Policies(vec!["a".into(), "b".into()]), false, false), "a or b");
        let unexplained = claim(None, Measured::one(1.0), Some(false));
        assert_eq!((reason(&unexplained).as_str(), difference(&unexplained).as_str()), (NO_REASON, "not so"));
        let figure = claim(None, Measured::one(1.0), None);
        assert_eq!((reason(&figure).as_str(), difference(&figure).as_str()), ("", "-"));
    }

    #[test]
    fn lines_are_bounded_and_ascii() {
        let report = PaperReport {
            title: "t".into(),
            figure: "Fig. 1".into(),
            claims: vec![claim(Some(Measured::one(12.0)), Measured::one(13.0), Some(false))],
        };
        let text = render([("name", &report)]);
        assert!(text.is_ascii() && text.lines().all(|l| l.len() <= 170), "{text}");
        assert!(text.starts_with("0 of 1 claims with a number come out"), "{text}");
        assert!(text.contains("name: t, Fig. 1") && text.contains("something (section 1)"), "{text}");
        assert!(text.contains(NO_REASON), "{text}");
    }
}
