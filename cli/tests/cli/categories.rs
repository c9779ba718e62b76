//! Categories of requests: each category has its own lengths, acceptance and draft lengths. The program prints a
//! note if a trace is replayed and the acceptance of its requests is only assumed.

use crate::support::Place;

const TRAFFIC: &str = r#"name = "traffic"
seeds = [1, 2]
policies = [{ autoregressive = {} }, { fixed = { k = 4 } }, { by-category = { k = 4, lengths = { story = 0 } } }, { by-context = { lengths = [[0, 4], [300, 0]] } }]

[hardware]
target = { linear = { alpha_s = 0.3e-6, gamma_s = 55e-6, delta_s = 11e-3 } }
draft = { linear = { alpha_s = 0.0, gamma_s = 5e-6, delta_s = 1e-3 } }

[engine]
version = "vllm-0.32"
async_scheduling = false

[workload]
arrivals = { closed-loop = 8 }
requests = 80

[workload.lengths.categories]
code = { share = 1.0, lengths = { fixed = { prompt = 600, output = 60 } } }
story = { share = 1.0, lengths = { fixed = { prompt = 100, output = 90 } } }

[acceptance.source.by-category.categories]
code = { by-depth = { rates = [1.0] } }
story = { constant = { rate = 0.0 } }
"#;

/// The share of accepted draft tokens of `policy`, from the printed table.
fn accepted(table: &str, policy: &str) -> f64 {
    let row = table.lines().find(|line| line.trim_start().starts_with(policy)).expect(table);
    let columns: Vec<&str> = row.split_whitespace().rev().collect();
    columns[4].parse().expect(row)
}

/// Draft tokens for code are always right, and draft tokens for stories never. `by-category` drafts nothing for
/// stories, so all draft tokens of `by-category` are accepted. `by-context` drafts only for contexts below 300 tokens.
/// Only stories have such contexts, so no draft token of `by-context` is accepted.
#[test]
fn each_category_has_its_lengths_its_acceptance_and_its_drafts() {
    let place = Place::holding(TRAFFIC);
    let table = place.run_drawn("out", &["--no-figures", "--wide"]);
    let fixed = accepted(&table, "fixed-4");
    assert!((5.0..40.0).contains(&fixed), "{table}");
    assert_eq!(accepted(&table, "by-category["), 100.0, "{table}");
    assert_eq!(accepted(&table, "by-context["), 0.0, "{table}");
}

fn refused(set: &str, parts: &[&str]) {
    let place = Place::holding(TRAFFIC);
    let output = place.foretoken().args(["run", "x.toml", "-o", "out", "--set", set]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{set}\n{error}");
    parts.iter().for_each(|part| assert!(error.contains(part), "`{part}` is missing in\n{error}"));
}

#[test]
fn what_no_request_is_and_what_has_no_law_is_refused() {
    let unknown = "policies=[{ by-category = { lengths = { poem = 0 } } }]";
    refused(unknown, &["no request is of the category poem", "there are: code, story"]);
    let lengths = "workload.lengths={ fixed = { prompt = 9, output = 9 } }";
    refused(lengths, &["request 0 has no category", "add `otherwise`"]);
    let one = "acceptance.source={ by-category = { categories = { code = { constant = { rate = 0.5 } } } } }";
    refused(one, &["is of the category story, and there are laws for code alone"]);
    let share = "workload.lengths.categories.code.share=-1.0";
    refused(share, &["workload.lengths.categories.code.share", "-1.0 is not a number of at least 0"]);
    let rate = "acceptance.source.by-category.categories.story.constant.rate=1.5";
    refused(rate, &["by-category.categories.story.constant.rate: 1.5 is not a probability"]);
    let nothing = "policies=[{ by-context = { lengths = [[9, 1]] } }]";
    refused(nothing, &["the first entry must be [0, draft length]"]);
}

#[test]
fn a_draft_on_its_own_device_has_its_limits() {
    refused("engine.outcomes_guessed=1.5", &["engine.outcomes_guessed: 1.5 is not a share in [0, 1]"]);
    refused("engine.piecewise_graph_s=-1.0", &["engine.piecewise_graph_s: -1 is not a time"]);
    let place = Place::holding(TRAFFIC);
    let bounds = ["--set", "engine.draft_device=\"own\"", "--set", "policies=[{ oracle-goodput = {} }]"];
    let output = place.foretoken().args(["run", "x.toml", "-o", "out"]).args(bounds).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("do not bound a draft on its own device"), "{error}");
}

/// A run on a trace with an assumed acceptance prints a note. The note says that the lengths are real, but that
/// acceptance depends on texts that the trace does not contain.
#[test]
fn real_lengths_with_assumed_acceptance_are_noted() {
    let place = Place::holding(TRAFFIC);
    let log = "t_s,input_tokens,output_tokens,category\n0.1,10,5,code\n0.2,20,5,story\n0.3,20,5,code\n";
    std::fs::write(place.path("log.csv"), log).unwrap();
    let noted = |sets: &[&str]| {
        let mut command = place.foretoken();
        command.args(["run", "x.toml", "-o", "out", "--no-figures", "--overwrite"]);
        for set in sets {
            command.args(["--set", set]);
        }
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{error}");
        error.contains("the lengths of log.csv are real, its acceptance is assumed")
    };
    let trace = "workload={ arrivals = { trace = { path = \"log.csv\" } } }";
    assert!(noted(&[trace]));
    assert!(noted(&[trace, "acceptance.source={ constant = { rate = 0.7 } }"]));
    assert!(!noted(&[]), "drawn lengths belong to no trace");
}
