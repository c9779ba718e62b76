//! Tests of the commands other than `run`, and of the help texts.

use crate::support::Place;

fn stdout(args: &[&str]) -> String {
    let output = Place::new().foretoken().args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn help_has_examples_and_exit_codes() {
    let help = stdout(&["--help"]);
    for part in ["run", "merge", "traces", "policies", "doctor", "Exit codes: 0 ok, 1 failed, 2 bad input"] {
        assert!(help.contains(part), "{part} is missing in\n{help}");
    }
    assert!(help.lines().all(|line| line.chars().count() <= 80), "a line is wider than a terminal\n{help}");
    let help = stdout(&["run", "--help"]);
    for part in ["Examples:", "foretoken run experiments/quickstart.toml", "--set <PATH=VALUE>", "--resume"] {
        assert!(help.contains(part), "{part} is missing in\n{help}");
    }
    assert_eq!(stdout(&["--version"]), format!("foretoken {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn every_policy_is_listed_and_shown() {
    let list = stdout(&["policies", "list"]);
    let names: Vec<&str> = list.lines().filter_map(|l| l.split_whitespace().next()).collect();
    assert!(names.contains(&"adaspec") && names.contains(&"oracle-goodput"), "{list}");
    for name in names {
        let shown = stdout(&["policies", "show", name]);
        assert!(shown.contains("source: ") && shown.contains(&format!("policies = [{{ {name} = {{")), "{shown}");
    }
    assert!(Place::new().fails(&["policies", "show", "adaspek"], 2).contains("did you mean `adaspec`?"));
}

#[test]
fn a_trace_is_inspected_as_text_and_json() {
    let place = Place::new();
    std::fs::write(place.path("t.csv"), "t_s,input_tokens,output_tokens\n0.0,10,1\n1.0,30,3\n").unwrap();
    let output = place.foretoken().args(["traces", "inspect", "t.csv"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["windows", "requests             2", "40 (mean 20.0)", "index of dispersion", "percent"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let output = place.foretoken().args(["traces", "inspect", "t.csv", "--format", "json"]).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["requests"], 2);
    let error = place.fails(&["traces", "inspect", "t.csv", "--format-of", "mooncak"], 2);
    assert!(error.contains("did you mean `mooncake`?"), "{error}");
}

#[test]
fn keys_of_a_trace_can_be_given_to_inspect() {
    let place = Place::new();
    let row = "{\"timestamp\": 1.5, \"input_length\": 20, \"output_length\": 2, \"hash_ids\": [3, 4]}\n";
    std::fs::write(place.path("t.jsonl"), row).unwrap();
    let error = place.fails(&["traces", "inspect", "t.jsonl", "--set", "unit=s"], 2);
    assert!(error.contains("block_size = 16"), "{error}");
    let mut command = place.foretoken();
    command.args(["traces", "inspect", "t.jsonl", "--set", "unit=s", "--set", "block_size=16"]);
    assert!(command.output().unwrap().status.success());
    for set in ["block_size", "blocksize=16", "block_size=many"] {
        place.fails(&["traces", "inspect", "t.jsonl", "--set", set], 2);
    }
}

/// A log in another unit than it is read in gives a load that no server has. The warning has the other reading.
#[test]
fn a_load_far_from_what_the_server_carries_is_named() {
    let text = crate::support::EXPERIMENT.replace("requests = 200\n", "");
    let text = text.replace("lengths = { fixed = { prompt = 128, output = 64 } }\n", "");
    let run = |gap: f64, unit: &str| {
        let columns = format!("{{ arrival = \"start\", prompt = \"in\", output = \"out\", unit = \"{unit}\" }}");
        let trace = format!("{{ trace = {{ path = \"log.csv\", columns = {columns} }} }}");
        let place = Place::holding(&text.replace("{ poisson = { rate = 4.0 } }", &trace));
        let rows: String = (0..200).map(|i| format!("{},100,40\n", f64::from(i) * gap)).collect();
        std::fs::write(place.path("log.csv"), format!("start,in,out\n{rows}")).unwrap();
        let sets =
            ["--set", "seeds=[1]", "--set", "policies=[{ autoregressive = {} }]", "--set", "engine.max_num_seqs=64"];
        let out = place.foretoken().args(["run", "x.toml", "-o", "out", "--no-figures"]).args(sets).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
    };
    let (table, said) = run(250.0, "ms");
    assert!(table.contains("200 requests, 4.00 requests/s, 160 output tokens/s"), "{table}");
    assert!(!said.contains("requests/s came"), "{said}");
    let (table, said) = run(250.0, "s");
    assert!(table.contains("0.00400 requests/s"), "{table}");
    let low = "0.00400 requests/s came, less than a thousandth of some ";
    assert!(said.contains(low) && said.contains("with columns.unit = \"ms\" it would be 4.00 requests/s"), "{said}");
    let (_, said) = run(0.05, "ms");
    let high = "20000 requests/s came, over a hundred times the ";
    assert!(said.contains(high) && said.contains("with columns.unit = \"s\" it would be 20.0 requests/s"), "{said}");
}

#[test]
fn a_log_of_another_tool_is_run_by_the_names_of_its_columns() {
    let text = crate::support::EXPERIMENT.replace("requests = 200\n", "");
    let text = text.replace("lengths = { fixed = { prompt = 128, output = 64 } }\n", "");
    let columns = "{ arrival = \"start\", prompt = \"in\", output = \"out\" }";
    let trace = format!("{{ trace = {{ path = \"log.csv\", format = \"columns\", columns = {columns} }} }}");
    let place = Place::holding(&text.replace("{ poisson = { rate = 4.0 } }", &trace));
    let row = |i: u32| format!("2026-11-24 09:30:{i:02}.250,{},{}\n", 100 + i, 20 + i);
    let rows: String = (0..30).map(row).collect();
    std::fs::write(place.path("log.csv"), format!("start,in,out\n{rows}")).unwrap();
    assert!(place.run("out", &[]).contains("30 requests"), "every row is a request");
    std::fs::write(place.path("log.csv"), format!("begin,in,out\n{rows}")).unwrap();
    let error = place.fails(&["run", "x.toml", "-o", "out2"], 2);
    for part in ["log.csv:1", "\"start\"", "missing", "begin, in, out"] {
        assert!(error.contains(part), "{part} is missing in\n{error}");
    }
}

/// `foretoken run` finds a shipped experiment by its name, also in an empty working directory without the source.
#[test]
fn a_shipped_experiment_runs_by_its_name() {
    let place = crate::support::Place::holding("");
    let args = ["run", "quickstart", "--no-figures", "-o", "out", "--set", "workload.duration_s=5"];
    let output = place.foretoken().args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("\nquickstart: simulated"), "{said}");
    let error = place.fails(&["run", "quikstart"], 2);
    assert!(error.contains("the name of a shipped experiment: quickstart, capacity"), "{error}");
}

#[test]
fn doctor_prints_results() {
    assert!(stdout(&["doctor"]).contains("CPU"));
}

#[test]
fn a_closed_pipe_is_no_error_and_a_full_disk_is_one() {
    let place = Place::new();
    let bin = env!("CARGO_BIN_EXE_foretoken");
    let shell = |script: String| std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
    assert!(shell(format!("{bin} policies list | true")).status.success());
    if std::path::Path::new("/dev/full").exists() {
        let output = shell(format!("{bin} policies list > /dev/full"));
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write to stdout"));
    }
    drop(place);
}
