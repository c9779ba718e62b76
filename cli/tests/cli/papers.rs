//! Claims of papers, which an experiment compares with its own results: the table below a comparison, a folder of
//! experiments, and invalid `[paper]` tables.

use crate::support::{self, EXPERIMENT, Place, bytes_of};

/// A `[paper]` table with three claims about the experiment of these tests. Claim `three-is-best` agrees with the
/// results. Claim `far-off` differs and gives a reason. Claim `not-known` differs without a reason.
const PAPER: &str = r#"
[paper]
title = "A paper"
figure = "Fig. 9"

[[paper.claims]]
id = "three-is-best"
says = "Three tokens are best"
where = "section 1"
paper = ["fixed-3"]
measure = { best = { metric = "speedup", among = ["fixed-1", "fixed-3"], at = { "engine.max_num_seqs" = 8 } } }

[[paper.claims]]
id = "far-off"
says = "The oracle is ten times as fast"
where = "section 2"
paper = 10
measure = { value = { metric = "speedup", policy = "oracle-goodput", keep = "most" } }
because = "It cannot be."

[[paper.claims]]
id = "not-known"
says = "Longer drafts lose"
where = "section 3"
paper = [-inf, 0]
measure = { gain = { metric = "speedup", policy = "fixed-3", over = ["fixed-1"] } }
"#;

pub fn with_paper() -> String {
    format!("{EXPERIMENT}{PAPER}")
}

#[test]
fn claims_are_printed_below_the_comparison() {
    let text = Place::holding(&with_paper()).run("out", &[]);
    let (comparison, claims) = text.split_once("the paper says").expect("there is a table of claims");
    assert!(comparison.contains("fixed-3") && claims.contains("small: A paper, Fig. 9"), "{text}");
    let line = |id: &str| claims.lines().find(|l| l.starts_with(id)).unwrap_or_else(|| panic!("{id} in\n{text}"));
    assert!(line("three-is-best").contains("none"), "{text}");
    assert!(line("far-off").contains("10.0") && line("far-off").contains("It cannot be."), "{text}");
    assert!(line("not-known").contains("no reason found yet"), "{text}");
}

#[test]
fn json_has_the_claims() {
    let place = Place::holding(&with_paper());
    let document: serde_json::Value = serde_json::from_str(&place.run("out", &["--format", "json"])).unwrap();
    let claims = document["paper"]["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 3);
    assert_eq!(claims[0]["agrees"], true);
    assert_eq!(claims[0]["ours"]["policies"], serde_json::json!(["fixed-3"]));
    assert_eq!(claims[1]["agrees"], false);
    assert!(claims[1]["difference"].as_f64().unwrap() < -0.5);
    assert_eq!(claims[2]["because"], serde_json::Value::Null);
}

#[test]
fn a_folder_prints_one_table_and_resumes() {
    let place = Place::new();
    std::fs::create_dir(place.path("papers")).unwrap();
    for name in ["a", "b"] {
        let text = with_paper().replacen("name = \"small\"", &format!("name = \"{name}\""), 1);
        std::fs::write(place.path("papers").join(format!("{name}.toml")), text).unwrap();
    }
    std::fs::write(place.path("papers/plain.toml"), EXPERIMENT).unwrap();
    std::fs::write(place.path("papers/README.md"), "not an experiment").unwrap();
    let run = |more: &[&str]| {
        let output =
            place.foretoken().args(["run", "papers", "-o", "out", "--no-figures"]).args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = run(&[]);
    assert_eq!(text.matches("the paper says").count(), 1, "{text}");
    let position = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} in\n{text}"));
    assert!(position("a: A paper, Fig. 9") < position("b: A paper, Fig. 9"), "{text}");
    for name in ["a", "b", "small"] {
        assert!(place.path("out").join(name).join("summary.parquet").exists(), "{name}");
    }
    // The results of experiment b are deleted. A resumed run must not run the other experiments again, and must print
    // the same table.
    std::fs::remove_dir_all(place.path("out/b")).unwrap();
    let before = bytes_of(&place.path("out/a"));
    assert_eq!(run(&["--resume"]), text);
    assert!(before == bytes_of(&place.path("out/a")));
    let json: serde_json::Value = serde_json::from_str(&run(&["--resume", "--format", "json"])).unwrap();
    assert_eq!(json["papers"].as_array().unwrap().len(), 2);
    assert_eq!(json["papers"][1]["experiment"], "b");
    assert_eq!(json["papers"][1]["claims"][0]["id"], "three-is-best");
}

#[test]
fn folders_without_valid_experiments_are_refused() {
    let place = Place::new();
    std::fs::create_dir(place.path("papers")).unwrap();
    let error = place.fails(&["run", "papers", "-o", "out"], 2);
    assert!(error.contains("papers holds no experiment"), "{error}");
    std::fs::write(place.path("papers/a.toml"), EXPERIMENT).unwrap();
    std::fs::write(place.path("papers/b.toml"), EXPERIMENT).unwrap();
    let error = place.fails(&["run", "papers", "-o", "out"], 2);
    assert!(error.contains("a.toml") && error.contains("b.toml") && error.contains("both named `small`"), "{error}");
    // An error in the last file must be found before the first experiment runs.
    std::fs::write(place.path("papers/b.toml"), EXPERIMENT.replacen("rate = 0.7", "rate = 7.0", 1)).unwrap();
    let error = place.fails(&["run", "papers", "-o", "out"], 2);
    assert!(error.contains("b.toml") && !place.path("out").exists(), "{error}");
}

fn refused(from: &str, to: &str, says: &[&str]) {
    support::refused(&with_paper(), from, to, says);
}

#[test]
fn claims_about_missing_policies_or_values_are_refused() {
    let label = "policy = \"oracle-goodput\"";
    refused(label, "policy = \"oracle\"", &["no policy of this experiment is labelled `oracle`", "x.toml:43"]);
    refused(label, "policy = \"fixed-33\"", &["did you mean `fixed-3`?"]);
    refused("over = [\"fixed-1\"]", "over = [\"fixed-2\"]", &["labelled `fixed-2`", "x.toml:51"]);
    refused("over = [\"fixed-1\"]", "over = []", &["paper.claims[2].measure.gain.over is empty"]);
    let at = "\"engine.max_num_seqs\" = 8 ";
    refused(at, "\"engine.max_num_seqs\" = 9 ", &["`engine.max_num_seqs` is never 9", "swept over 8, 64", "x.toml:36"]);
    refused(at, "\"engine.block_size\" = 8 ", &["`engine.block_size` is not swept", "swept here: engine.max_num_seqs"]);
    refused(
        "metric = \"speedup\", policy",
        "metric = \"speed\", policy",
        &["unknown name `speed`", "`speedup`", "x.toml:43"],
    );
}

#[test]
fn claims_without_a_comparison_are_refused() {
    refused("paper = 10", "paper = \"guessed\"", &["guessed", "\"figure only\"", "x.toml:42"]);
    refused("paper = [-inf, 0]", "paper = [1, 0]", &["expected a number, a range", "x.toml:50"]);
    refused(
        "paper = 10",
        "paper = [\"fixed-3\"]",
        &["paper.claims[1].paper cannot be compared", "a number or a range"],
    );
    refused("paper = [\"fixed-3\"]", "paper = 3", &["paper.claims[0].paper cannot be compared", "a list of policies"]);
    refused("paper = [\"fixed-3\"]", "paper = [\"adaspec\"]", &["`adaspec` is not among the policies"]);
    refused("id = \"far-off\"", "id = \"three-is-best\"", &["another claim is called `three-is-best`", "x.toml:39"]);
    let gain = "{ gain = { metric = \"speedup\", policy = \"fixed-3\", over = [\"fixed-1\"] } }";
    let crossing = |along: &str| {
        format!(
            "{{ crossing = {{ metric = \"speedup\", policy = \"fixed-3\", over = \"fixed-1\", along = \"{along}\" }} }}"
        )
    };
    refused(gain, &crossing("engine.block_size"), &["`engine.block_size` is not swept"]);
    let value = "{ windows = { policy = \"adaspec\", seconds = 0, batch = [0, 9] } }";
    refused(gain, value, &["windows.seconds: 0 is not a number above 0"]);
    let length = "{ belief-length = { acceptance = 1.5, batch = 4, context = 100 } }";
    refused(gain, length, &["1.5 is not a probability"]);
}

#[test]
fn attainment_needs_a_bound() {
    let text = with_paper()
        .replacen("adaspec-scale = 1.0", "", 1)
        .replacen("metric = \"speedup\", policy = \"oracle", "metric = \"slo-attainment\", policy = \"oracle", 1);
    let error = Place::holding(&text).fails(&["run", "x.toml", "-o", "out"], 2);
    assert!(error.contains("there is no bound to attain") && error.contains("adaspec-scale"), "{error}");
}

/// The README must have a row for every claim in the shipped experiments on papers.
#[test]
fn the_readme_has_every_claim() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments/papers");
    let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut claims = 0;
    for file in files.filter(|file| file.extension().is_some_and(|e| e == "toml")) {
        let table: toml::Table = std::fs::read_to_string(&file).unwrap().parse().unwrap();
        let heading = format!("\n{}: ", table["name"].as_str().unwrap());
        let (_, from) = readme.split_once(&heading).unwrap_or_else(|| panic!("{heading} is not in the README"));
        let section = from.split("\n\n").next().unwrap();
        for claim in table["paper"]["claims"].as_array().unwrap() {
            // The README wraps long names after 22 characters.
            let id: String = claim["id"].as_str().unwrap().chars().take(22).collect();
            assert!(section.lines().any(|line| line.starts_with(&id)), "{heading}{id} is not in the README");
            claims += 1;
        }
    }
    assert!(claims > 150, "{claims}");
}
