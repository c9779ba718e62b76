//! Behaviour that all commands share: the examples in the help work, JSON is available where a table is printed, and
//! colours are used only if they are wanted.

use crate::support::{EXPERIMENT, Place};
use serde_json::Value;
use std::process::{Command, Output};

/// Commands whose examples need models or a device, or take long. Their examples are not run here; a unit test
/// (`src/cli/examples.rs`) checks that they can be parsed.
const NOT_RUN: [&str; 12] = [
    "live", "observe", "serve", "calibrate", "recommend", "validate", "profile", "profile-acceptance", "report",
    "open", "doctor", "policies new",
];
/// Files in examples that no small experiment makes. Examples with these files are not run.
const NOT_HERE: [&str; 5] = ["profile.toml", "conversation_trace", "hardware kernels", "deployment.yaml", "http://"];

const BIN: &str = env!("CARGO_BIN_EXE_foretoken");

/// The commands listed in a help text.
fn commands(help: &str) -> Vec<&str> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| *line != "Options:");
    let names = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect()
}

/// The help of a command and of all its subcommands.
fn walk(words: &[&str], all: &mut Vec<(String, String)>) {
    let output = Command::new(BIN).args(words).arg("--help").output().unwrap();
    assert!(output.status.success(), "{words:?}");
    let help = String::from_utf8(output.stdout).unwrap();
    for line in help.lines() {
        assert!(
            line.chars().count() <= 80,
            "`foretoken {} --help` has a line of over 80 columns: {line}",
            words.join(" ")
        );
    }
    // A long example goes on behind a backslash.
    all.push((words.join(" "), help.replace(" \\\n     ", "")));
    commands(&help).iter().for_each(|name| walk(&[words, &[name]].concat(), all));
}

fn examples(help: &str) -> impl Iterator<Item = &str> {
    help.lines().map(str::trim).filter(|line| line.starts_with("foretoken "))
}

/// A folder with a small version of every file that an example names.
fn stage(decide_help: &str) -> Place {
    let place = Place::new();
    for folder in [
        "experiments/papers", "experiments/questions", "experiments/arena", "home/.zfunc",
        "home/.config/fish/completions",
    ] {
        std::fs::create_dir_all(place.path(folder)).unwrap();
    }
    std::fs::create_dir_all(place.path("home/.local/share/bash-completion/completions")).unwrap();
    let small = EXPERIMENT.replace("requests = 200", "requests = 20").replace("{ sweep = [8, 64] }", "8");
    for name in ["quickstart", "bench-poisson", "bench-poisson-fixed4", "papers/one", "questions/one"] {
        std::fs::write(place.path(&format!("experiments/{name}.toml")), &small).unwrap();
    }
    let scenario = small.replace("adaspec-scale = 1.0", "tpot_s = 0.05");
    let scenario = format!("{scenario}\n[arena]\nset = \"tuning\"\nabout = \"a light load\"\nquick = true\n");
    std::fs::write(place.path("experiments/arena/one.toml"), scenario).unwrap();
    let promised = small.replace("adaspec-scale = 1.0", "ttft_s = 1.0");
    let searched = format!("{promised}\n[capacity]\nrequests = 100\nwarm_up_requests = 5\n");
    std::fs::write(place.path("experiments/capacity.toml"), &searched).unwrap();
    let fleet = format!("{searched}share = 0.9\n[fleet]\nprice_gpu_hour = 2.5\n");
    std::fs::write(place.path("experiments/fleet.toml"), fleet).unwrap();
    let sglang = small.replace("{ adaspec = {} }", "{ sglang-gen1 = { ema_alpha = 0.1 } }");
    std::fs::write(place.path("experiment.toml"), sglang).unwrap();
    let trace = "t_s,input_tokens,output_tokens\n0.0,10,1\n1.0,30,3\n";
    std::fs::write(place.path("BurstGPT_1.csv"), trace).unwrap();
    let log = "{\"timestamp\": 0.5, \"input_length\": 32, \"output_length\": 3, \"hash_ids\": [1, 2]}\n";
    std::fs::write(place.path("qwen_trace.jsonl"), log).unwrap();
    let (_, state) = decide_help.split_once('{').expect("the help of decide shows a state");
    let (state, _) = state.split_once("\n\n").unwrap();
    std::fs::write(place.path("state.json"), format!("{{{state}")).unwrap();
    place.run_drawn("results/kept", &["--no-figures"]);
    place
}

#[test]
fn every_help_has_examples_and_they_run() {
    let mut all = Vec::new();
    walk(&[], &mut all);
    assert!(all.len() > 15, "commands were not found: {all:?}");
    let place = stage(&all.iter().find(|(name, _)| name == "decide").unwrap().1);
    let mut ran = 0;
    for (name, help) in all.iter().filter(|(name, _)| !NOT_RUN.contains(&name.as_str())) {
        assert!(examples(help).next().is_some(), "`foretoken {name} --help` has no example:\n{help}");
        for example in examples(help).filter(|e| !NOT_HERE.iter().any(|file| e.contains(file))) {
            // Timelines need a run that kept its steps and that has the policies and seeds of the examples.
            let line = match name.starts_with("export") {
                true => example.replace("results/small", "results/kept"),
                false => example.to_owned(),
            };
            // The examples in the top-level help are examples of single commands and run with these commands.
            if name.is_empty() {
                continue;
            }
            let mut shell = Command::new("bash");
            shell.args(["-c", &format!("foretoken() {{ '{BIN}' \"$@\"; }}\n{line}")]);
            let output = shell.current_dir(place.path(".")).env("HOME", place.path("home")).output().unwrap();
            assert!(output.status.success(), "{example}\n{}", String::from_utf8_lossy(&output.stderr));
            ran += 1;
        }
    }
    assert!(ran >= 30, "only {ran} examples ran");
}

#[test]
fn without_arguments_a_few_lines_say_what_there_is() {
    let output = Command::new(BIN).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said.lines().count() <= 8 && said.lines().all(|line| line.chars().count() <= 80), "{said}");
    for words in ["foretoken ask 'vllm serve", "foretoken new ", "foretoken --help"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn every_command_with_a_table_also_prints_json() {
    let place = Place::new();
    std::fs::write(place.path("t.csv"), "t_s,input_tokens,output_tokens\n0.0,10,1\n1.0,30,3\n").unwrap();
    let json = |args: &[&str]| -> Value {
        let output = place.foretoken().args(args).args(["--format", "json"]).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let listed = json(&["policies", "list"]);
    let adaspec = listed.as_array().unwrap().iter().find(|p| p["name"] == "adaspec").unwrap().clone();
    assert_eq!(json(&["policies", "show", "adaspec"]), adaspec);
    assert!(adaspec["settings"]["adaspec"].is_object() && adaspec["sees_hidden_truth"] == false);
    assert_eq!(json(&["traces", "inspect", "t.csv"])["requests"], 2);
    assert_eq!(json(&["run", "x.toml", "-o", "out", "--no-figures", "--set", "workload.requests=20"])["name"], "small");
}

fn has_colour(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|pair| pair == b"\x1b[")
}

#[test]
fn a_pipe_gets_neither_colours_nor_progress() {
    let place = Place::new();
    let output = place.foretoken().args(["run", "x.toml", "-o", "out"]).output().unwrap();
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(!has_colour(&output.stdout) && !has_colour(&output.stderr), "{stderr}");
    assert!(!stderr.contains('\r') && !stderr.contains("cells  "), "{stderr}");
    let help = place.foretoken().args(["run", "--help"]).output().unwrap();
    let error = place.foretoken().args(["run", "x.toml", "--set", "engine.wat=1"]).output().unwrap();
    assert!(!has_colour(&help.stdout) && !has_colour(&error.stderr));
}

/// Runs a command line on a terminal. Without util-linux's `script`, the test counts as skipped, and this returns
/// `None`.
fn on_a_terminal(place: &Place, line: &str, no_color: Option<&str>) -> Option<Output> {
    let mut command = Command::new("script");
    command.args(["-qec", &format!("'{BIN}' {line}"), "/dev/null"]).current_dir(place.path("."));
    command.env("TERM", "xterm-256color").env_remove("NO_COLOR");
    if let Some(value) = no_color {
        command.env("NO_COLOR", value);
    }
    let output = command.output().ok();
    if output.is_none() {
        foretoken_tests::skip(foretoken_tests::Part::Terminal, "there is no `script` to make a terminal with");
    }
    output
}

#[test]
fn no_color_is_obeyed() {
    let place = Place::new();
    for line in ["run x.toml --set engine.wat=1", "run --help", "run --wat"] {
        let colour = |no_color| on_a_terminal(&place, line, no_color).map(|output| has_colour(&output.stdout));
        let Some(plain) = colour(None) else { return };
        assert!(plain, "{line}: a terminal gets colours");
        assert_eq!(colour(Some("")), Some(true), "{line}: an empty NO_COLOR means nothing");
        assert_eq!(colour(Some("1")), Some(false), "{line}");
    }
}

/// On a terminal the answer comes last, in bold; in a pipe it comes first.
#[test]
fn the_answer_is_where_the_eye_is() {
    let place = Place::new();
    let line = "run x.toml -o out --no-figures --overwrite --set workload.requests=40 --set engine.max_num_seqs=8";
    let Some(output) = on_a_terminal(&place, line, Some("1")) else { return };
    // On a terminal the answer is wrapped.
    let in_a_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let plain = in_a_line(&String::from_utf8_lossy(&output.stdout));
    let table = plain.find(" policy ").unwrap_or_else(|| panic!("{plain}"));
    let said = std::fs::read_to_string(place.path("out/report.txt")).unwrap();
    let answer = said.lines().next().unwrap();
    assert!(plain.find(answer).is_some_and(|at| at > table), "{answer}: {plain}");
    let coloured = on_a_terminal(&place, line, None).unwrap().stdout;
    let coloured = String::from_utf8_lossy(&coloured).into_owned();
    let begins = answer.split_inclusive(' ').take(3).collect::<String>();
    assert!(coloured.contains(&format!("\u{1b}[1m{begins}")), "{answer}: {coloured}");
}

#[test]
fn completions_and_man_pages_cover_every_command() {
    let place = Place::new();
    let script = |shell: &str| {
        let output = place.foretoken().args(["completions", shell]).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = script(shell);
        for word in ["policies", "perfetto", "no-figures"] {
            assert!(text.contains(word), "{word} is missing in {shell}'s");
        }
    }
    std::fs::write(place.path("completions.bash"), script("bash")).unwrap();
    let parsed = Command::new("bash").args(["-n", "completions.bash"]).current_dir(place.path(".")).status().unwrap();
    assert!(parsed.success(), "bash does not understand its completions");
    assert!(place.fails(&["completions", "bsh"], 2).contains("'bash'"));

    let output = place.foretoken().args(["man", "-o", "man"]).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "man man/foretoken.1\n");
    for page in ["foretoken.1", "foretoken-run.1", "foretoken-export-perfetto.1"] {
        let text = std::fs::read_to_string(place.path("man").join(page)).unwrap();
        assert!(text.contains(".TH") && text.contains("foretoken"), "{page}");
    }
    let run = std::fs::read_to_string(place.path("man/foretoken-run.1")).unwrap();
    assert!(run.contains("quickstart.toml"), "examples are missing in the manual");
}

#[test]
fn misspelled_presets_and_labels_get_a_suggestion() {
    let place = Place::new();
    let target = |gpu: &str, model: &str| {
        let set = format!("hardware.target={{ roofline = {{ gpu = \"{gpu}\", model = \"{model}\" }} }}");
        place.fails(&["run", "x.toml", "--set", &set], 2)
    };
    assert!(target("a100-80gb", "vicuna-7b").contains("did you mean `a100-80g`?"));
    assert!(target("h100", "vicuna7b").contains("did you mean `vicuna-7b`?"));
    assert!(target("tpu-something-else", "vicuna-7b").contains("another GPU is given by the numbers of its datasheet"));
    assert!(target("h100", "of-my-own-making").contains("another model is given by its config.json"));
    let draft = "hardware.draft={ roofline = { gpu = \"h100\", model = \"eagle-head\" } }";
    let error = place.fails(&["run", "x.toml", "--set", draft], 2);
    assert!(error.contains("an EAGLE or MTP head is given by"), "{error}");
    let lacking = "hardware={ target = { linear = { alpha_s = 1e-8, gamma_s = 2e-5, delta_s = 6e-3 } } }";
    let error = place.fails(&["run", "x.toml", "--set", lacking], 2);
    assert!(error.contains("missing field `draft`") && error.contains("an EAGLE or MTP head is given by"), "{error}");
    for args in [
        &["policies", "show", "adaspek"][..],
        &["policies", "defaults", "adaspek"],
        &["run", "x.toml", "--set", "policies=[{ adaspek = {} }]"],
    ] {
        assert!(place.fails(args, 2).contains("did you mean `adaspec`?"), "{args:?}");
    }
    let error = place.fails(&["run", "x.toml", "--set", "workload.arrivals={ poison = { rate = 3.0 } }"], 2);
    assert!(error.contains("did you mean `poisson`?"), "{error}");
    for command in ["profile", "profile-acceptance"] {
        let error = place.fails(&[command, "--target", "tiny-targett", "--draft", "tiny-draft", "-o", "q"], 2);
        assert!(error.contains("did you mean \"tiny-target\"?"), "{error}");
    }
    let live = format!("{EXPERIMENT}\n[live]\ntarget = \"tiny-targett\"\ndraft = \"tiny-draft\"\n");
    std::fs::write(place.path("live.toml"), live).unwrap();
    let error = place.fails(&["live", "live.toml"], 2);
    assert!(error.contains("did you mean \"tiny-target\"?"), "{error}");
    std::fs::write(place.path("s.toml"), EXPERIMENT.replace("{ adaspec = {} }", "{ sglang-gen1 = {} }")).unwrap();
    let error = place.fails(&["export", "sglang", "s.toml", "--label", "sglang-gen"], 2);
    assert!(error.contains("did you mean `sglang-gen1`?"), "{error}");
}
