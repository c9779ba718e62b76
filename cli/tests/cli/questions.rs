//! Questions that people asked about speculation, which an experiment answers: the answer below a comparison, a folder
//! of questions, and invalid `[question]` tables.

use crate::support::{self, EXPERIMENT, Place};

/// A `[question]` table for the experiment of these tests. Its answer holds for both swept values of
/// `engine.max_num_seqs`.
const QUESTION: &str = r#"
[question]
thread = "someone/something#1"
url = "https://example.org/1"
asks = "Does knowing the outcome pay?"
assumed = ["8 or 64 requests run at most."]
answer = "Yes: it is {gain} ahead."
otherwise = "No: it is {gain} behind."
decided_by = ["gain"]

[[question.claims]]
id = "gain"
says = "Gain of the oracle over three tokens"
reported = 0.05
measure = { gain = { metric = "speedup", policy = "oracle-goodput", over = ["fixed-3"] } }

[[question.claims]]
id = "length"
says = "Tokens a round"
measure = { value = { metric = "acceptance-length", policy = "fixed-3" } }
because = "The thread has no number."
"#;

pub fn with_question() -> String {
    format!("{EXPERIMENT}{QUESTION}")
}

#[test]
fn the_answer_stands_below_the_comparison() {
    let text = Place::holding(&with_question()).run("out", &[]);
    let (comparison, question) = text.split_once("what is measured").expect("there is a table of claims");
    assert!(comparison.contains("fixed-3") && question.contains("small: someone/something#1"), "{text}");
    assert!(question.contains("answer  Yes: it is +"), "{text}");
    assert!(question.contains("assumed 8 or 64 requests run at most."), "{text}");
    assert!(question.contains("1 of 1 questions are answered"), "{text}");
}

#[test]
fn an_answer_that_depends_on_what_is_assumed_is_none() {
    // At engine.max_num_seqs = 1 every batch has one request. At 64 batches are larger.
    let sweep = |text: String| text.replacen("sweep = [8, 64]", "sweep = [1, 64]", 1);
    let measure = "measure = { gain = { metric = \"speedup\", policy = \"oracle-goodput\", over = [\"fixed-3\"] } }";
    let batch = "measure = { value = { metric = \"batch-size\", policy = \"fixed-3\" } }";
    let value = |metric: &str, at: u32| -> f64 {
        let at = format!("at = {{ \"engine.max_num_seqs\" = {at} }}");
        let claim = format!("measure = {{ value = {{ metric = \"{metric}\", policy = \"fixed-3\", {at} }} }}");
        let place = Place::holding(&sweep(with_question()).replacen(measure, &claim, 1));
        let document: serde_json::Value = serde_json::from_str(&place.run("out", &["--format", "json"])).unwrap();
        document["question"]["claims"][0]["ours"]["numbers"][0].as_f64().unwrap()
    };
    let (few, many) = (value("batch-size", 1), value("batch-size", 64));
    assert!(many > few * 1.2, "{few} and {many}");
    let reported = |x: f64| {
        sweep(with_question()).replacen(measure, batch, 1).replacen("reported = 0.05", &format!("reported = {x}"), 1)
    };
    let text = Place::holding(&reported(few)).run("out", &[]);
    assert!(text.contains("answer  Cannot say.") && text.contains("over what is assumed."), "{text}");
    let text = Place::holding(&reported(many * 2.0)).run("out", &[]);
    assert!(text.contains("answer  No: it is"), "{text}");
}

#[test]
fn a_folder_of_questions_prints_one_table_and_a_page() {
    let place = Place::new();
    std::fs::create_dir(place.path("asked")).unwrap();
    for name in ["a", "b"] {
        let text = with_question().replacen("name = \"small\"", &format!("name = \"{name}\""), 1);
        std::fs::write(place.path("asked").join(format!("{name}.toml")), text).unwrap();
    }
    let run = |more: &[&str]| {
        let output = place.foretoken().args(["run", "asked", "-o", "out", "--no-figures"]).args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = run(&[]);
    assert_eq!(text.matches("what is measured").count(), 1, "{text}");
    assert!(text.contains("2 of 2 questions are answered"), "{text}");
    let page = run(&["--resume", "--format", "markdown"]);
    for part in [
        "# Questions that people asked", "| [someone/something#1](#a) |",
        "\n<a id=\"b\"></a>\n\n## Does knowing the outcome pay?\n",
        "Asked in [someone/something#1](https://example.org/1).\n", "| Yes: it is",
    ] {
        assert!(page.contains(part), "{part} in\n{page}");
    }
    let json: serde_json::Value = serde_json::from_str(&run(&["--resume", "--format", "json"])).unwrap();
    assert_eq!(json["questions"][1]["experiment"], "b");
    assert_eq!(json["questions"][1]["decided"], "yes");
    assert_eq!(json["questions"][1]["claims"][1]["verdict"], "not-reported");
}

#[test]
fn markdown_of_a_folder_is_for_questions() {
    let place = Place::new();
    std::fs::create_dir(place.path("asked")).unwrap();
    std::fs::write(place.path("asked/a.toml"), EXPERIMENT).unwrap();
    let error = place.fails(&["run", "asked", "-o", "out", "--format", "markdown"], 2);
    assert!(error.contains("asked holds no experiment with a [question]"), "{error}");
}

fn refused(from: &str, to: &str, says: &[&str]) {
    support::refused(&with_question(), from, to, says);
}

#[test]
fn questions_about_missing_things_are_refused() {
    refused(
        "decided_by = [\"gain\"]",
        "decided_by = []",
        &["question.decided_by is empty", "claims here: gain, length"],
    );
    refused("decided_by = [\"gain\"]", "decided_by = [\"x\"]", &["no claim is called `x`", "x.toml:3"]);
    refused("{gain} ahead", "{gains} ahead", &["question.answer: no claim is called `gains`"]);
    refused("{gain} behind", "{y} behind", &["question.otherwise: no claim is called `y`"]);
    refused("https://example.org/1", "example.org/1", &["question.url", "begins with https://"]);
    refused("over = [\"fixed-3\"]", "over = [\"fixed-33\"]", &["no policy of this experiment is labelled `fixed-33`"]);
    refused("reported = 0.05", "reported = [\"fixed-1\"]", &["question.claims[0].reported cannot be compared"]);
    refused("id = \"length\"", "id = \"gain\"", &["another claim is called `gain` too"]);
}

/// The documentation's page must have every shipped question.
#[test]
fn the_page_has_every_question() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../docs/questions.md")).unwrap();
    let files = std::fs::read_dir(root.join("../experiments/questions")).unwrap().map(|entry| entry.unwrap().path());
    for file in files.filter(|file| file.extension().is_some_and(|e| e == "toml")) {
        let table: toml::Table = std::fs::read_to_string(&file).unwrap().parse().unwrap();
        let name = table["name"].as_str().unwrap();
        assert_eq!(file.file_stem().unwrap().to_str(), Some(name), "a file is named as its experiment");
        let (question, anchor) = (&table["question"], format!("\n<a id=\"{name}\"></a>\n"));
        let (_, section) = page.split_once(&anchor).unwrap_or_else(|| panic!("{name} is missing"));
        let section = section.split("\n<a id=").next().unwrap();
        assert!(section.starts_with(&format!("\n## {}\n", question["asks"].as_str().unwrap())), "{section}");
        // The page shows the values that the thread reports, or all if it reports none.
        let claims = question["claims"].as_array().unwrap();
        let is_reported = |claim: &&toml::Value| {
            claim.get("reported").is_some_and(|reported| reported.as_str() != Some("figure only"))
        };
        let none = !claims.iter().any(|claim| is_reported(&claim));
        for claim in claims.iter().filter(|claim| none || is_reported(claim)) {
            let says = claim["says"].as_str().unwrap();
            assert!(section.contains(&format!("| {says} |")), "{name}: `{says}` is missing");
        }
    }
}
