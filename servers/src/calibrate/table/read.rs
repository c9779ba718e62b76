//! Reads a table of benchmark results: one row for each load and draft length.

use super::cell::{Accepted, Cell, CellLoad};
use super::limits::{impossible, is_not_streamed};
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_sim::MAX_SPEC_LEN;
use std::ops::Range;

const COLUMNS: [&str; 11] =
    ["clients", "rate", "k", "input", "output", "requests", "max_num_seqs", "tok_s", "ttft_ms", "tpot_ms", "accepted"];

/// Column names and units that users may write by mistake in a table of benchmark results, each with the name and unit
/// that the user should write instead.
const OTHERS: [(&str, &str); 12] = [
    ("ttft_s", "ttft_ms, in milliseconds"),
    ("ttft_us", "ttft_ms, in milliseconds"),
    ("ttft", "ttft_ms, in milliseconds"),
    ("tpot_s", "tpot_ms, in milliseconds"),
    ("tpot_us", "tpot_ms, in milliseconds"),
    ("tpot", "tpot_ms, in milliseconds"),
    ("itl_ms", "tpot_ms: the gap between two chunks is no time per token where a chunk has several"),
    ("concurrency", "clients"),
    ("qps", "rate, in requests per second"),
    ("rps", "rate, in requests per second"),
    ("throughput", "tok_s, in output tokens per second"),
    ("tok_min", "tok_s, in output tokens per second"),
];

/// If a value of a table of benchmark results differs from comparable values by more than this factor, it must be in
/// another unit.
const OTHER_UNIT: f64 = 100.0;

/// One line of a table of benchmark results, with the table's name and text for error messages.
struct Row<'a> {
    name: &'a str,
    text: &'a str,
    /// The line's range of bytes in the table's text.
    span: Range<usize>,
    /// The line's number in the table of benchmark results, from 1.
    line: usize,
}

impl Row<'_> {
    fn problem(&self, what: impl std::fmt::Display) -> Box<Problem> {
        Problem::bad_input(format!("{}, line {}: {what}", self.name, self.line)).at(
            self.name,
            self.text,
            self.span.clone(),
        )
    }
}

/// Reads the table of benchmark results `text`. `name` is the table's name in errors. Lines that begin with `#` are
/// comments.
pub fn read(name: &str, text: &str) -> Result<Vec<Cell>> {
    // Spreadsheets begin a CSV file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut at = 0;
    let mut rows = Vec::new();
    for (i, with_end) in text.split_inclusive('\n').enumerate() {
        let line = with_end.trim_end();
        if !(line.trim().is_empty() || line.trim_start().starts_with('#')) {
            rows.push(Row { name, text, span: at..at + line.len(), line: i + 1 });
        }
        at += with_end.len();
    }
    let Some((head, rows)) = rows.split_first() else {
        return Err(Problem::bad_input(format!("{name}: the table is empty")).help(columns()));
    };
    let heads = header(head)?;
    let mut cells: Vec<Cell> = Vec::new();
    for row in rows {
        let cell = cell(row, &heads)?;
        if let Some(twin) = cells.iter().find(|c| c.k == cell.k && c.load == cell.load) {
            let (load, k) = (cell.load.in_words(), cell.k);
            return Err(row
                .problem(format!("K = {k} at {load} stands in line {} already", twin.line))
                .help("keep one row of each cell; of repeats write the mean"));
        }
        cells.push(cell);
    }
    if cells.is_empty() {
        return Err(head.problem("the table has no row below its header").help(columns()));
    }
    if let Some((cell, what, help)) = wrong_unit(&cells) {
        let row = rows.iter().find(|row| row.line == cell.line).expect("a cell has a row");
        return Err(row.problem(what).help(help));
    }
    Ok(cells)
}

fn columns() -> String {
    format!("a row is one cell; the columns are {}", COLUMNS.join(", "))
}

/// Reads the column names in the header line of a table of benchmark results. It is an error if a name is unknown or
/// stands twice, or if a needed column is missing.
fn header(row: &Row) -> Result<Vec<&'static str>> {
    let mut heads = Vec::new();
    for field in fields(row) {
        let field = field.to_ascii_lowercase();
        let Some(&known) = COLUMNS.iter().find(|c| **c == field) else {
            let other = OTHERS.iter().find(|(name, _)| *name == field);
            let help = other.map_or_else(columns, |(_, instead)| format!("write {instead}"));
            return Err(row.problem(format!("unknown column `{field}`")).help(help));
        };
        if heads.contains(&known) {
            return Err(row.problem(format!("the column `{known}` stands there twice")).help("keep one of them"));
        }
        heads.push(known);
    }
    let has = |c: &str| heads.contains(&c);
    if let Some(missing) = ["k", "input", "output"].into_iter().find(|c| !has(c)) {
        return Err(row.problem(format!("the column `{missing}` is missing")).help(columns()));
    }
    if !has("clients") && !has("rate") {
        return Err(row.problem("neither `clients` nor `rate` says how requests came").help(columns()));
    }
    if !["tok_s", "ttft_ms", "tpot_ms"].into_iter().any(has) {
        return Err(row.problem("none of tok_s, ttft_ms, tpot_ms: nothing was measured").help(columns()));
    }
    Ok(heads)
}

fn fields<'a>(row: &Row<'a>) -> impl Iterator<Item = &'a str> {
    row.text[row.span.clone()].split(',').map(|field| field.trim().trim_matches('"'))
}

fn cell(row: &Row, heads: &[&str]) -> Result<Cell> {
    let found: Vec<&str> = fields(row).collect();
    if found.len() != heads.len() {
        return Err(row
            .problem(format!("{} fields, and the header has {} columns", found.len(), heads.len()))
            .help("an empty field is a value that was not measured"));
    }
    let text =
        |column: &str| heads.iter().position(|h| *h == column).map(|at| found[at]).filter(|field| !field.is_empty());
    let number = |column: &str, least: f64| -> Result<Option<f64>> {
        let Some(field) = text(column) else { return Ok(None) };
        match field.parse::<f64>() {
            Ok(x) if x.is_finite() && x >= least => Ok(Some(x)),
            _ => Err(row.problem(format!("{column} = {field} is no number of at least {least}"))),
        }
    };
    let whole = |column: &str, least: f64, most: f64| -> Result<Option<u32>> {
        match number(column, least)? {
            Some(x) if x.fract() != 0.0 || x > most => {
                Err(row.problem(format!("{column} = {x} is no whole number up to {most}")))
            }
            x => Ok(x.map(|x| x as u32)),
        }
    };
    let above_zero = |column: &str| -> Result<Option<f64>> {
        match number(column, 0.0)? {
            Some(0.0) => Err(row.problem(format!("{column} = 0: leave the field empty if it was not measured"))),
            x => Ok(x),
        }
    };
    let needed = |column: &str, x: Option<f64>| x.ok_or_else(|| row.problem(format!("{column} is missing")));
    let load = match (whole("clients", 1.0, 1e6)?, above_zero("rate")?) {
        (Some(n), None) => CellLoad::Clients(n),
        (None, Some(rate)) => CellLoad::Rate(rate),
        (Some(_), Some(_)) => return Err(row.problem("clients and rate: a load is one of them")),
        (None, None) => return Err(row.problem("neither clients nor rate: how did requests come?")),
    };
    let k = whole("k", 0.0, f64::from(MAX_SPEC_LEN))?.ok_or_else(|| row.problem("k is missing"))?;
    let accepted = text("accepted").map(|field| accepted(row, field, k)).transpose()?;
    let cell = Cell {
        line: row.line,
        from: None,
        load,
        k,
        input: needed("input", number("input", 1.0)?)?,
        output: needed("output", number("output", 1.0)?)?,
        requests: whole("requests", 1.0, 1e7)?,
        max_num_seqs: whole("max_num_seqs", 1.0, 1e6)?,
        tok_s: above_zero("tok_s")?,
        ttft_s: above_zero("ttft_ms")?.map(|ms| 1e-3 * ms),
        tpot_s: above_zero("tpot_ms")?.map(|ms| 1e-3 * ms),
        accepted: accepted.filter(|_| k > 0),
    };
    let throughput = cell.tok_s.filter(|_| matches!(load, CellLoad::Clients(_)));
    if throughput.or(cell.ttft_s).or(cell.tpot_s).is_none() {
        let why = match load {
            CellLoad::Rate(_) => "with open arrivals tok_s is what was asked for: ttft_ms or tpot_ms is needed",
            CellLoad::Clients(_) => "none of tok_s, ttft_ms, tpot_ms: nothing was measured",
        };
        return Err(row.problem(why));
    }
    if is_not_streamed(&cell, None) {
        return Err(row
            .problem("the first token comes with the last: ttft_ms is the time of a whole answer, not streamed")
            .help("leave ttft_ms empty, or measure with streaming"));
    }
    Ok(cell)
}

fn accepted(row: &Row, field: &str, k: u32) -> Result<Accepted> {
    let numbers: Option<Vec<f64>> = field.split([';', ' ']).filter(|f| !f.is_empty()).map(|f| f.parse().ok()).collect();
    let bad = |why: String| row.problem(format!("accepted = {field}: {why}"));
    let Some(numbers) = numbers.filter(|n| !n.is_empty() && n.iter().all(|x| *x >= 0.0 && x.is_finite())) else {
        return Err(bad("not a mean, and not shares by position such as 0.7;0.45;0.3".into()));
    };
    match numbers.as_slice() {
        [_] if k == 0 => Ok(Accepted::Mean(0.0)),
        [mean] if *mean > f64::from(k) => {
            Err(bad(format!("more than the {k} drafts of a round")).help("write it without the target's own token"))
        }
        [mean] => Ok(Accepted::Mean(*mean)),
        shares if shares.len() != k as usize => Err(bad(format!("{} positions at K = {k}", shares.len()))),
        shares if shares[0] > 1.0 || shares.windows(2).any(|w| w[1] > w[0] + 1e-9) => {
            Err(bad("shares of rounds lie within 0 and 1, and never rise".into()))
        }
        shares => Ok(Accepted::ByPosition(shares.to_vec())),
    }
}

/// Finds a row with a value that must be in another unit than the other rows of its load, or that no server can have.
/// Returns (the row, what is wrong, what to do).
pub(super) fn wrong_unit(cells: &[Cell]) -> Option<(&Cell, String, &'static str)> {
    type Of = fn(&Cell) -> Option<f64>;
    let columns: [(&str, Of, f64); 3] = [
        ("tok_s", |c| Some(c.tok_s? / loop_size(c)?), 1.0),
        ("ttft_ms", |c| c.ttft_s.filter(|_| loop_size(c).is_none_or(|n| n < 2.0)), 1e3),
        ("tpot_ms", |c| c.tpot_s, 1e3),
    ];
    for (column, of, shown) in columns {
        for cell in cells {
            // The value of a row is compared with the median of the other rows at the same load, which have other
            // draft lengths.
            let Some(own) = of(cell) else { continue };
            let same = |c: &&Cell| c.load == cell.load && c.line != cell.line;
            let mut others: Vec<f64> = cells.iter().filter(same).filter_map(of).collect();
            if others.is_empty() {
                continue;
            }
            others.sort_by(f64::total_cmp);
            let middle = others[others.len() / 2];
            let times = (own / middle).max(middle / own);
            let first_is_sure = others.len() > 1 || cell.k > 0;
            if times > OTHER_UNIT && first_is_sure {
                let (own, middle) = (own * shown, middle * shown);
                let (own, middle) = match column {
                    "tok_s" => (own * loop_size(cell).unwrap_or(1.0), middle * loop_size(cell).unwrap_or(1.0)),
                    _ => (own, middle),
                };
                let at = cell.load.in_words();
                let what = format!("{column} = {own:.4} is in another unit than the other rows at {at} ({middle:.4})");
                return Some((cell, what, "tok_s is output tokens per second, ttft_ms and tpot_ms are ms"));
            }
        }
    }
    cells.iter().find_map(|cell| impossible(cell).map(|(what, help)| (cell, what, help)))
}

fn loop_size(cell: &Cell) -> Option<f64> {
    match cell.load {
        CellLoad::Clients(n) => Some(f64::from(n)),
        CellLoad::Rate(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
# a comment
clients,k,input,output,tok_s,accepted
1,0,300,200,178.2,
1,3,300,200,233.9,0.887
4,3,300,200,717.1,0.5;0.3;0.1
";

    fn why(text: &str) -> String {
        read("t.csv", text).unwrap_err().message().to_owned()
    }

    #[test]
    fn cells_are_read_with_their_lines() {
        let cells = read("t.csv", GOOD).unwrap();
        assert_eq!(cells.iter().map(|c| (c.line, c.k)).collect::<Vec<_>>(), [(3, 0), (4, 3), (5, 3)]);
        assert_eq!((cells[0].load, cells[0].tok_s), (CellLoad::Clients(1), Some(178.2)));
        assert_eq!((cells[0].accepted.clone(), cells[1].accepted.clone()), (None, Some(Accepted::Mean(0.887))));
        assert!((cells[2].accepted.as_ref().unwrap().mean() - 0.9).abs() < 1e-12);
        assert_eq!(read("t.csv", &format!("\u{feff}{GOOD}")).unwrap(), cells, "a byte order mark");
        let bare = GOOD.strip_prefix("# a comment\n").unwrap();
        assert_eq!(read("t.csv", &format!("\u{feff}{bare}")).unwrap().len(), 3, "a byte order mark before the header");
        let open = read("t.csv", "rate,k,input,output,ttft_ms,tpot_ms\n2.5,0,10,20,300,12\n").unwrap();
        assert_eq!((open[0].load, open[0].ttft_s), (CellLoad::Rate(2.5), Some(0.3)));
    }

    #[test]
    fn what_is_wrong_is_named_by_its_line() {
        let row = |row: &str| why(&format!("{GOOD}{row}\n"));
        assert_eq!(row("1,3,300,200,230,"), "t.csv, line 6: K = 3 at 1 client stands in line 4 already");
        assert_eq!(row("16,3,300,200,x,"), "t.csv, line 6: tok_s = x is no number of at least 0");
        assert_eq!(row("16,3,300,200,0,"), "t.csv, line 6: tok_s = 0: leave the field empty if it was not measured");
        assert_eq!(row("16,99,300,200,9,"), "t.csv, line 6: k = 99 is no whole number up to 32");
        assert_eq!(row("16,3,300,200,,"), "t.csv, line 6: none of tok_s, ttft_ms, tpot_ms: nothing was measured");
        assert_eq!(row("16,3,300,200"), "t.csv, line 6: 4 fields, and the header has 6 columns");
        for accepted in ["-0.5", "inf", "0.5;-0.1;0.1", "x", ";"] {
            let bad = "not a mean, and not shares by position such as 0.7;0.45;0.3";
            assert_eq!(
                row(&format!("16,3,300,200,900,{accepted}")),
                format!("t.csv, line 6: accepted = {accepted}: {bad}")
            );
        }
        assert_eq!(row("16,3,300,200,900,3.2"), "t.csv, line 6: accepted = 3.2: more than the 3 drafts of a round");
        assert_eq!(
            row("16,3,300,200,900,0.5;0.6;0.1").split(": ").last(),
            Some("shares of rounds lie within 0 and 1, and never rise")
        );
        assert_eq!(row("16,3,300,200,900,0.5;0.2"), "t.csv, line 6: accepted = 0.5;0.2: 2 positions at K = 3");
        assert!(
            row("1,2,300,200,0.228,")
                .starts_with("t.csv, line 6: tok_s = 0.2280 is in another unit than the other rows")
        );
        assert_eq!(
            row("4,2,300,200,0.7,"),
            "t.csv, line 5: tok_s = 717.1000 is in another unit than the other rows at 4 clients (0.7000)"
        );
        // Two other rows at the load outvote a row without drafts, too.
        let first = "1,0,300,200,0.1782,\n1,1,300,200,210,0.6\n1,3,300,200,233.9,0.887\n";
        assert!(
            why(&format!("clients,k,input,output,tok_s,accepted\n{first}"))
                .starts_with("t.csv, line 2: tok_s = 0.1782")
        );
        assert_eq!(why("clients,k,input,output,ttft_s\n1,0,3,2,1\n"), "t.csv, line 1: unknown column `ttft_s`");
        assert_eq!(why("k,input,output,tok_s\n"), "t.csv, line 1: neither `clients` nor `rate` says how requests came");
        assert_eq!(why("clients,input,output,tok_s\n"), "t.csv, line 1: the column `k` is missing");
        assert_eq!(
            why("clients,k,input,output\n"),
            "t.csv, line 1: none of tok_s, ttft_ms, tpot_ms: nothing was measured"
        );
        assert_eq!(why("# nothing\n"), "t.csv: the table is empty");
        let help = |text: &str| read("t.csv", text).unwrap_err().help_text().to_owned();
        let columns = "a row is one cell; the columns are clients, rate, k, input, output, requests, ";
        for text in ["# nothing\n", "clients,k,input,output,tok_s\n", "clients,k,input,output,speed\n"] {
            assert!(help(text).starts_with(columns), "{}", help(text));
        }
        let both = "clients,k,input,output,tok_s,tpot_ms\n8,0,300,200,800,0.06\n";
        assert_eq!(
            why(both),
            "t.csv, line 2: tok_s = 800 and tpot_ms = 0.06 make 0.048 requests at once, and the row says 8"
        );
        let whole = "clients,k,input,output,tok_s,ttft_ms\n8,0,300,200,1000,1600\n";
        assert!(why(whole).starts_with("t.csv, line 2: the first token comes with the last"), "{}", why(whole));
        let open = "rate,k,input,output,tok_s\n2,0,300,200,400\n";
        assert!(why(open).ends_with("with open arrivals tok_s is what was asked for: ttft_ms or tpot_ms is needed"));
    }
}
