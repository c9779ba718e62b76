//! `foretoken run --format csv | markdown | latex` of one experiment, and what all formats must show.

use crate::support::{EXPERIMENT, Place};
use serde_json::Value;

/// `run` must print the same table for a new run and for a finished results folder. The table's numbers must equal the
/// numbers in the JSON report.
#[test]
fn one_experiment_is_one_table() {
    let place = Place::new();
    let printed = |more: &[&str]| place.run_drawn("out", &[&["--no-figures"], more].concat());
    let fresh = printed(&["--format", "csv"]);
    assert_eq!(fresh, printed(&["--resume", "--format", "csv"]));
    let json: serde_json::Value = serde_json::from_str(&printed(&["--resume", "--format", "json"])).unwrap();
    let mut table = csv::Reader::from_reader(fresh.as_bytes());
    let head = table.headers().unwrap().clone();
    let at = |name: &str| head.iter().position(|h| h == name).unwrap_or_else(|| panic!("{name} in {head:?}"));
    let rows: Vec<csv::StringRecord> = table.records().map(Result::unwrap).collect();
    let mut expected = Vec::new();
    for variant in json["variants"].as_array().unwrap() {
        for policy in variant["policies"].as_array().unwrap().iter().filter(|p| p["implied"] == false) {
            expected.push((variant["sweep"][0]["value"].clone(), policy.clone()));
        }
    }
    assert_eq!(rows.len(), expected.len());
    assert!(rows.len() >= 4);
    for (row, (value, policy)) in rows.iter().zip(&expected) {
        assert_eq!(row[at("engine.max_num_seqs")], *value.as_str().unwrap());
        assert_eq!(row[at("policy")], *policy["policy"].as_str().unwrap());
        assert_eq!(&row[at("source")], "simulated");
        assert_eq!(row[at("e2e_mean_s")].parse::<f64>().unwrap(), policy["e2e_mean_s"]["mean"].as_f64().unwrap());
    }
    let page = printed(&["--resume", "--format", "markdown"]);
    assert!(page.starts_with("| max_num_seqs | policy | E2E, mean (s) |"), "{page}");
    assert!(page.contains("simulated by Foretoken"), "{page}");
    let paper = printed(&["--resume", "--format", "latex"]);
    assert!(paper.contains("\\begin{tabular}") && paper.contains("max\\_num\\_seqs & policy"), "{paper}");
}

#[test]
fn what_a_format_cannot_show_is_refused() {
    let place = Place::new();
    let error = place.fails(&["run", "x.toml", "-o", "out", "--why", "--format", "csv"], 2);
    assert!(error.contains("--why is for the printed table"), "{error}");
    std::fs::create_dir(place.path("several")).unwrap();
    std::fs::copy(place.path("x.toml"), place.path("several/a.toml")).unwrap();
    let error = place.fails(&["run", "several", "-o", "out", "--format", "latex"], 2);
    assert!(error.contains("only one experiment is printed as LaTeX"), "{error}");
}

/// Two loads, the first of which overloads the server. The TPOT bound comes from the second. With the first seed alone
/// and few requests, so that shares and lengths scatter.
fn every_mark() -> Place {
    let text = EXPERIMENT
        .replace("{ sweep = [8, 64] }", "8")
        .replace("{ rate = 4.0 }", "{ rate = { sweep = [60.0, 3.0] } }")
        .replace("{ adaspec = {} }", "{ adaspec = { slo = \"step\" } }, { eagle2 = {} }")
        .replace("[{ fixed", "[{ autoregressive = {} }, { fixed");
    Place::holding(&text)
}

/// A policy at a load, as (rate, policy), with the names of its marks.
type Row = ((String, String), Vec<String>);

/// The rows of a CSV file in whose columns the marks are `true`.
fn marked_rows(text: &str) -> Vec<Row> {
    let mut table = csv::Reader::from_reader(text.as_bytes());
    let head = table.headers().unwrap().clone();
    let at = |name: &str| head.iter().position(|h| h == name).unwrap_or_else(|| panic!("{name} in {head:?}"));
    let row = |row: csv::StringRecord| {
        let key = (row[at("workload.arrivals.poisson.rate")].to_owned(), row[at("policy")].to_owned());
        let marks = MARKS.iter().filter(|(mark, ..)| &row[at(mark)] == "true").map(|(mark, ..)| (*mark).to_owned());
        (key, marks.collect())
    };
    table.records().map(|record| row(record.unwrap())).collect()
}

/// The marks: the name in JSON and CSV, the sign, and the beginning of its explanation.
const MARKS: [(&str, char, &str); 7] = [
    ("overloaded", '!', "overloaded, the queue grew"),
    ("speedup_over_overload", '!', "overloaded, the queue grew"),
    ("bound_of_overload", '!', "overloaded, the queue grew"),
    ("attains_by_definition", '*', "90 % by definition"),
    ("regret_of_trees", '^', "drafts trees"),
    ("bound_of_another_load", '~', "does not speculate in a step"),
    ("sees_hidden_truth", '#', "oracles see hidden truth"),
];

/// Marks (overloaded, by definition, of another load, trees, hidden truth) are data of a row. Every format must show
/// each of them on each row that has it, and say what it means.
#[test]
fn every_format_shows_every_mark() {
    let place = every_mark();
    let text = place.run_drawn("out", &["--wide"]);
    let printed = |format: &str| place.run_drawn("out", &["--resume", "--format", format]);
    let json: Value = serde_json::from_str(&printed("json")).unwrap();
    let mut rows: Vec<Row> = Vec::new();
    for variant in json["variants"].as_array().unwrap() {
        for policy in variant["policies"].as_array().unwrap() {
            let marks = policy["marks"].as_array().unwrap().iter().map(|m| m.as_str().unwrap().to_owned()).collect();
            let name = |value: &Value| value.as_str().unwrap().to_owned();
            rows.push(((name(&variant["sweep"][0]["value"]), name(&policy["policy"])), marks));
        }
    }
    let seen: Vec<&str> =
        MARKS.iter().map(|m| m.0).filter(|mark| rows.iter().any(|r| r.1.iter().any(|m| m == mark))).collect();
    // A bound of an overloaded run needs an experiment whose reference load is overloaded; see below.
    assert_eq!(seen.len(), MARKS.len() - 1, "{seen:?}");
    assert_eq!(marked_rows(&printed("csv")), rows);

    // The rows of a printed table, in the order of JSON: lines that begin with a policy's name.
    let page = std::fs::read_to_string(place.path("out/report/index.html")).unwrap();
    let table = page.split("id=\"results\"").nth(1).unwrap().split("</table>").next().unwrap();
    let without_tags =
        |row: &str| row.split('<').map(|part| part.rsplit('>').next().unwrap()).collect::<Vec<_>>().join(" ");
    let of_page: Vec<String> = table.split("<tr").filter(|row| row.contains("<td")).map(without_tags).collect();
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let formats = [
        ("terminal", lines(&text), text.clone()),
        ("markdown", lines(&printed("markdown")), printed("markdown")),
        ("latex", lines(&printed("latex").replace("\\textasciitilde{}", "~").replace("\\textasciicircum{}", "^")), {
            printed("latex").replace("\\%", "%")
        }),
        ("page", of_page, page.clone()),
    ];
    for (format, lines, whole) in &formats {
        for (mark, sign, meaning) in MARKS.iter().filter(|m| seen.contains(&m.0)) {
            assert!(whole.contains(meaning), "{format} does not explain {mark}");
            let with_sign = |policy: &str| {
                let is_row = |line: &&String| {
                    line.contains(policy)
                        && !line.trim_start().starts_with('!')
                        && line.matches(char::is_numeric).count() > 20
                };
                lines.iter().filter(is_row).filter(|line| line.contains(*sign)).count()
            };
            for (_, policy) in rows.iter().map(|r| &r.0).filter(|key| key.0 == "3.0") {
                let has_sign = |m: &String| MARKS.iter().any(|(name, s, _)| name == m && s == sign);
                let marked = rows.iter().filter(|(key, marks)| key.1 == *policy && marks.iter().any(has_sign)).count();
                assert_eq!(with_sign(policy), marked, "{format}: {policy} and {mark} in\n{}", lines.join("\n"));
            }
        }
    }

    // The numbers behind a paper's figures have a row for each seed.
    let paper = place.foretoken().args(["report", "out", "--paper", "paper"]).output().unwrap();
    assert!(paper.status.success(), "{}", String::from_utf8_lossy(&paper.stderr));
    let of_paper = marked_rows(&std::fs::read_to_string(place.path("paper/numbers.csv")).unwrap());
    for (key, marks) in &rows {
        let seeds: Vec<&Row> = of_paper.iter().filter(|(of, _)| of == key).collect();
        assert_eq!(seeds.len(), 2, "{key:?}");
        for mark in marks {
            assert!(seeds.iter().any(|(_, of)| of.contains(mark)), "{key:?} lacks {mark}");
        }
    }
}

/// A bound that is scaled from an overloaded run is a mark of the attainment.
#[test]
fn a_bound_of_an_overloaded_run_marks_the_attainment() {
    let place = every_mark();
    let named = r#"slo.reference={ at = { "workload.arrivals.poisson.rate" = 60.0 } }"#;
    let csv = place.run("out", &["--set", named, "--format", "csv"]);
    let rows = marked_rows(&csv);
    assert!(rows.iter().all(|(_, marks)| marks.iter().any(|mark| mark == "bound_of_overload")), "{rows:?}");
}

/// An interval ends where its quantity ends: shares in [0, 1], lengths and times from 0 on, acceptance lengths from 1
/// on.
#[test]
fn no_interval_goes_beyond_its_quantity() {
    let place = every_mark();
    let few = ["--set", "workload.requests=12", "--set", "acceptance.source={ constant = { rate = 0.05 } }"];
    let csv = place.run("out", &[&few[..], &["--set", "slo={ tpot_s = 0.0125 }", "--format", "csv"]].concat());
    let mut table = csv::Reader::from_reader(csv.as_bytes());
    let head = table.headers().unwrap().clone();
    let (mut ends, mut at_the_end) = (0, 0);
    for row in table.records().map(Result::unwrap) {
        for (name, value) in head.iter().zip(row.iter()) {
            let Some(of) = name.strip_suffix("_low").or(name.strip_suffix("_high")) else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            let (least, most) = match of {
                "slo_attainment" | "acceptance_rate" | "kv_use_peak" => (0.0, 1.0),
                "mean_acceptance_length" => (1.0, f64::INFINITY),
                "regret_to_oracle_goodput" => (-1.0, f64::INFINITY),
                _ => (0.0, f64::INFINITY),
            };
            assert!((least..=most).contains(&value), "{name} = {value}");
            (ends, at_the_end) = (ends + 1, at_the_end + u32::from(value == least || value == most));
        }
    }
    assert!(ends > 100 && at_the_end > 0, "{ends} ends, {at_the_end} of them cut: the experiment cuts none");
}
