//! `foretoken run --format csv | markdown | latex` of one experiment.

use crate::support::Place;

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
