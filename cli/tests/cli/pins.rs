//! Snapshots of what each command with an answer prints and writes: text, JSON and page. Figures, styles and scripts in
//! a page are shown as their digests. The experiment with every default is left out, so that a new setting changes no
//! snapshot.

use crate::support::Place;
use crate::{arena, capacity, fleet, ladder, papers, questions};

/// Fewer requests and seeds than in the other tests of a command.
const SMALL: [&str; 4] = ["--set", "seeds=[1, 2]", "--threads", "2"];

/// What the command `args` prints to stdout; it must succeed.
fn printed(place: &Place, args: &[&str]) -> String {
    let output = place.foretoken().args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The text of a page, with a line for each element, digests in place of figures, styles and scripts, and without the
/// experiment.
fn page(place: &Place, name: &str) -> String {
    let mut text = std::fs::read_to_string(place.path(name)).unwrap();
    for tag in ["svg", "style", "script"] {
        text = replaced(&text, tag, |body| foretoken_traces::intact::seal::digest(body.as_bytes())[..16].to_owned());
    }
    let text = replaced(&text, "pre", |_| "...".to_owned()).replace("><", ">\n<");
    // The digest of what was asked is one of the experiment with every default.
    let mut digest = false;
    let line = |line: &str| {
        let shown = if digest { "<dd>...</dd>" } else { line };
        digest = line.contains("digest of what was asked");
        format!("{shown}\n")
    };
    text.lines().map(line).collect()
}

/// The page `text` with `by` in place of the body of every element `tag`.
fn replaced(text: &str, tag: &str, by: impl Fn(&str) -> String) -> String {
    let (open, close) = (format!("<{tag}"), format!("</{tag}>"));
    let mut parts = text.split(&open);
    let mut made = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (body, rest) = part.split_once(&close).unwrap_or_else(|| panic!("<{tag}> has no end"));
        made += &format!("<{tag}>{}{close}{rest}", by(body));
    }
    made
}

#[test]
fn the_table_of_a_run() {
    let place = Place::new();
    let args = ["run", "x.toml", "-o", "out", "--set", "workload.requests=60", "--resume"];
    insta::assert_snapshot!("run_text", printed(&place, &args));
    for (name, more) in [
        ("run_wide", &["--wide", "--show-implied", "--why"][..]),
        ("run_json", &["--format", "json"]),
        ("run_csv", &["--format", "csv"]),
        ("run_markdown", &["--format", "markdown"]),
        ("run_latex", &["--format", "latex", "--show-implied"]),
    ] {
        insta::assert_snapshot!(name, printed(&place, &[&args, more].concat()));
    }
    insta::assert_snapshot!("run_page", page(&place, "out/report/index.html"));
}

#[test]
fn capacities() {
    let place = Place::holding(capacity::EXPERIMENT);
    let more = ["--set", "capacity.requests=100", "--set", "slo.ttft_s={ sweep = [0.3, 0.6] }", "-o", "out"];
    let text = printed(&place, &[&["capacity", "x.toml"], &more[..], &SMALL].concat());
    insta::assert_snapshot!("capacity_text", text);
    insta::assert_snapshot!("capacity_json", std::fs::read_to_string(place.path("out/capacity.json")).unwrap());
    insta::assert_snapshot!("capacity_page", page(&place, "out/capacity.html"));
}

#[test]
fn fleets() {
    let place = Place::holding(fleet::EXPERIMENT);
    let more = ["--set", "fleet.price_gpu_hour=2.0", "--set", "engine.max_num_seqs={ sweep = [8, 16] }", "-o", "out"];
    let text = printed(&place, &[&["fleet", "x.toml"], &more[..], &SMALL].concat());
    insta::assert_snapshot!("fleet_text", text);
    insta::assert_snapshot!("fleet_json", std::fs::read_to_string(place.path("out/fleet.json")).unwrap());
    insta::assert_snapshot!("fleet_page", page(&place, "out/fleet.html"));
}

#[test]
fn ladders() {
    let place = Place::holding(&ladder::small());
    insta::assert_snapshot!("ladder_text", printed(&place, &["ladder", "x.toml", "-o", "out"]));
    insta::assert_snapshot!("ladder_json", std::fs::read_to_string(place.path("out/ladder.json")).unwrap());
    insta::assert_snapshot!("ladder_page", page(&place, "out/ladder.html"));
}

#[test]
fn the_arena() {
    let place = arena::folder();
    insta::assert_snapshot!("arena_text", arena::run(&place, &["--no-figures"]));
    insta::assert_snapshot!("arena_json", std::fs::read_to_string(place.path("out/arena.json")).unwrap());
    insta::assert_snapshot!("arena_csv", std::fs::read_to_string(place.path("out/arena.csv")).unwrap());
    insta::assert_snapshot!("arena_markdown", arena::run(&place, &["--no-figures", "--format", "markdown"]));
    insta::assert_snapshot!("arena_page", page(&place, "out/arena.html"));
}

/// A folder with the experiment of a paper and the experiment of a question.
#[test]
fn claims_of_papers_and_answers_to_questions() {
    let place = Place::new();
    std::fs::create_dir(place.path("studies")).unwrap();
    for (name, text) in [("a", papers::with_paper()), ("b", questions::with_question())] {
        let text = text.replacen("name = \"small\"", &format!("name = \"{name}\""), 1);
        std::fs::write(place.path("studies").join(format!("{name}.toml")), text).unwrap();
    }
    let args = ["run", "studies", "-o", "out", "--set", "workload.requests=60", "--resume"];
    insta::assert_snapshot!("studies_text", printed(&place, &args));
    insta::assert_snapshot!("studies_json", printed(&place, &[&args[..], &["--format", "json"]].concat()));
    insta::assert_snapshot!("studies_markdown", printed(&place, &[&args[..], &["--format", "markdown"]].concat()));
    insta::assert_snapshot!("paper_page", page(&place, "out/a/report/index.html"));
    insta::assert_snapshot!("question_page", page(&place, "out/b/report/index.html"));
}
