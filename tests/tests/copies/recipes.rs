//! Follows the recipes of CONTRIBUTING.md in a copy of the whole tree. Each recipe must take the number of edits that
//! its heading states, and the program that is built from the copy must have what was added.
//!
//! All recipes are applied to one copy, and one build tests them. The build uses the target folder of the ordinary
//! build, so that common dependencies are not built again. Our crates are built without optimisation. The copy stays in
//! this folder, so that it is built again only when a source changes. The copy's program has another name, because the
//! ordinary program is in the same folder.

use crate::add_policy;
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Contents of files, by their paths in the tree.
type Tree = BTreeMap<PathBuf, Vec<u8>>;

/// Name of the program that is built from the copy of the source tree.
const PROGRAM: &str = "foretoken-with-recipes";

/// One edit of a recipe of CONTRIBUTING.md, in a file of the source tree.
enum Edit {
    /// A new file with this text.
    New(&'static str),
    /// Inserts the second text before the line that begins with the first text.
    Before(&'static str, &'static str),
    /// Replaces the first text by the second.
    Replace(&'static str, &'static str),
}

use Edit::{Before, New, Replace};

/// A recipe of CONTRIBUTING.md: the beginning of its heading, and its edits with their files. The rest of the heading
/// states the number of edits.
struct Recipe {
    heading: &'static str,
    edits: &'static [(&'static str, Edit)],
}

const RECIPES: [Recipe; 4] = [
    Recipe {
        heading: "### Add a trace format",
        edits: &[
            ("traces/src/readers/recipe.rs", New(READER)),
            ("traces/src/readers/mod.rs", Before("mod specbench;", "mod recipe;\n")),
            (
                "traces/src/format.rs",
                Before(
                    "            /// CSV of `num_prefill_tokens",
                    "/// Lengths under other names.\nRecipe, \"recipe\", recipe::read, [[\"recipe_prompt\"]];\n",
                ),
            ),
        ],
    },
    Recipe {
        heading: "### Add an engine setting",
        edits: &[
            (
                "sim/src/config.rs",
                Before(
                    "    /// Whether the simulator computes consecutive steps at once",
                    "/// More host time of a step, seconds.\nrecipe_s: f64 = 0.0, time;\n",
                ),
            ),
            (
                "sim/src/simulation.rs",
                Replace("schedule: Time::ZERO,", "schedule: Time::from_s(self.config.recipe_s),"),
            ),
        ],
    },
    Recipe {
        heading: "### Add a GPU or a model",
        edits: &[("profiler/gpus.json", Before("  {\"name\": \"l40\",", GPU))],
    },
    Recipe {
        heading: "### Add a command",
        edits: &[
            ("cli/src/commands/recipe.rs", New(COMMAND)),
            ("cli/src/commands/mod.rs", Before("pub mod recommend;", "pub mod recipe;\n")),
            (
                "cli/src/cli.rs",
                Before(
                    "        /// Write manual pages\n", "/// Say that the recipe works\nRecipe, recipe::RecipeArgs;\n",
                ),
            ),
        ],
    },
];

const READER: &str = r#"//! Lengths under other names.

use super::collector::{Collector, Names};
use super::table::Table;
use super::trace::Trace;
use crate::error::TraceError;
use crate::trace_spec::TraceSpec;
use foretoken_sim::{Request, Time};

pub(super) fn read(spec: &TraceSpec, mut collector: Collector) -> Result<Trace, TraceError> {
    let names = Names { time: "", prompt: "recipe_prompt", output: "recipe_output" };
    let mut table = Table::open(&spec.path)?;
    let (prompt, output) = (table.column(names.prompt)?, table.column(names.output)?);
    collector.gives.arrivals = false;
    while table.next()? {
        let request = Request::new(Time::ZERO, table.tokens(prompt)?, table.tokens(output)?);
        collector.push(table.line(), request, names)?;
    }
    collector.finish()
}
"#;

const GPU: &str = "  {\"name\": \"recipe-gpu\", \"gpu\": {\"memory_bytes\": 1e11, \"bandwidth_bytes_s\": 4e12, \
                   \"bf16_flops\": 1e15}, \"source\": \"made up\"},\n";

const COMMAND: &str = r#"//! `foretoken recipe`: says that the recipe works.

use super::print;
use clap::Args;
use foretoken_run::spec::problem::Result;

pub const EXAMPLES: &str = "Examples:
  foretoken recipe there";

#[derive(Debug, Args)]
pub struct RecipeArgs {
    /// Where it works
    pub place: String,
}

/// Runs the command.
pub fn run(args: &RecipeArgs) -> Result<()> {
    print(&format!("the recipe works {}\n", args.place))
}
"#;

/// The files that git tracks below `root`, with their contents. If `root` is an unpacked archive, all files outside of
/// build folders.
fn tree(root: &Path) -> Tree {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output();
    let paths: Vec<PathBuf> = match listed {
        Ok(listed) if listed.status.success() => {
            String::from_utf8(listed.stdout).unwrap().split_terminator('\0').map(PathBuf::from).collect()
        }
        _ => walk(root, Path::new("")),
    };
    // `cli/experiments` is a link to the folder of experiments. The copy has its files instead.
    let below = |path: PathBuf| match fs::read_dir(root.join(&path)) {
        Ok(entries) => entries.map(|entry| path.join(entry.unwrap().file_name())).collect(),
        Err(_) => vec![path],
    };
    // A file that was removed without a commit is still in git's list, so it is left out here.
    let there = paths.into_iter().flat_map(below).filter(|path| root.join(path).is_file());
    there.map(|path| (path.clone(), fs::read(root.join(path)).unwrap())).collect()
}

/// Paths of all files below `folder` of `root`, relative to `root`.
fn walk(root: &Path, folder: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(root.join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = folder.join(entry.file_name());
        if !entry.file_type().unwrap().is_dir() {
            paths.push(path);
        } else if !["target", ".git", ".venv", "results"].iter().any(|name| path.ends_with(name)) {
            paths.extend(walk(root, &path));
        }
    }
    paths
}

/// Makes the folder `root` hold exactly the files of `tree`. A file that is up to date is not written again, so that
/// cargo does not rebuild it.
fn lay_out(root: &Path, tree: &Tree) {
    fs::create_dir_all(root).unwrap();
    for old in walk(root, Path::new("")).into_iter().filter(|path| !tree.contains_key(path)) {
        fs::remove_file(root.join(old)).unwrap();
    }
    for (path, content) in tree {
        let path = root.join(path);
        if fs::read(&path).ok().as_ref() != Some(content) {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
    }
}

/// Changes the text of one file.
fn change(tree: &mut Tree, file: &str, change: impl FnOnce(&str) -> String) {
    let content = tree.get_mut(Path::new(file)).unwrap_or_else(|| panic!("there is no {file}"));
    *content = change(std::str::from_utf8(content).unwrap()).into_bytes();
}

/// Makes the edits of a recipe in `tree`. Panics unless each text to find occurs exactly once in its file.
fn follow(tree: &mut Tree, recipe: &Recipe) {
    let once = |file: &str, text: &str, old: &str, new: &str| {
        assert_eq!(text.matches(old).count(), 1, "{file}: `{old}`");
        text.replace(old, new)
    };
    for &(file, ref edit) in recipe.edits {
        match *edit {
            New(text) => assert!(tree.insert(file.into(), text.into()).is_none(), "{file} is there already"),
            Before(line, new) => change(tree, file, |text| once(file, text, line, &format!("{new}{line}"))),
            Replace(old, new) => change(tree, file, |text| once(file, text, old, new)),
        }
    }
}

/// Asserts that the heading of the recipe states `edits` as its number of edits.
fn states(contributing: &str, heading: &str, edits: usize) {
    let (heading, other) = (format!("{heading} ({edits} edit"), heading);
    let found = contributing.lines().find(|line| line.starts_with(other));
    assert!(found.is_some_and(|line| line.starts_with(&heading)), "expected `{heading}`, found {found:?}");
}

/// Builds [`PROGRAM`] from the copy of the source tree, and returns its path.
fn build(copy: &Path) -> PathBuf {
    // The path of this test's program is `target/<profile>/deps/<name>`.
    let exe = env::current_exe().unwrap();
    let folder = exe.ancestors().nth(2).unwrap();
    let mut cargo = foretoken_tests::cargo();
    cargo.args(["build", "--offline", "--bin", PROGRAM]).current_dir(copy);
    let profile = if folder.ends_with("release") { "release" } else { "dev" };
    cargo.args(["--profile", profile]).arg("--target-dir").arg(folder.parent().unwrap());
    let manifest: toml::Table = fs::read_to_string(copy.join("Cargo.toml")).unwrap().parse().unwrap();
    for member in manifest["workspace"]["members"].as_array().unwrap() {
        let name = match member.as_str().unwrap() {
            "experiments" => "foretoken".to_owned(),
            other => format!("foretoken-{other}"),
        };
        cargo.arg("--config").arg(format!("profile.{profile}.package.{name}.opt-level=0"));
    }
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    folder.join(PROGRAM)
}

#[test]
fn every_recipe_takes_the_edits_that_it_states_and_works() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let before = tree(root);
    let mut after = before.clone();
    let contributing = String::from_utf8(before[Path::new("CONTRIBUTING.md")].clone()).unwrap();
    for recipe in &RECIPES {
        states(&contributing, recipe.heading, recipe.edits.len());
        follow(&mut after, recipe);
    }
    // The copy's program gets another name, so that it does not overwrite the ordinary program in the same folder.
    change(&mut after, "cli/Cargo.toml", |text| {
        format!("{text}\n[[bin]]\nname = \"{PROGRAM}\"\npath = \"src/main.rs\"\n")
    });
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("recipes");
    // The policy is added to a source tree that does not have it yet.
    let fresh = tempfile::tempdir().unwrap();
    let sources = after.iter().filter(|(path, _)| path.starts_with("policies/src"));
    lay_out(fresh.path(), &sources.map(|(path, content)| (path.clone(), content.clone())).collect());
    add_policy(fresh.path(), "recipe-policy");
    let written = walk(fresh.path(), Path::new("")).into_iter().map(|path| {
        let content = fs::read(fresh.path().join(&path)).unwrap();
        (path, content)
    });
    let changed: Tree = written.filter(|(path, content)| after.get(path) != Some(content)).collect();
    let files: Vec<&str> = changed.keys().map(|path| path.to_str().unwrap()).collect();
    assert_eq!(files, ["policies/src/confidence/recipe_policy.rs", "policies/src/lib.rs"]);
    // The recipe states one edit for the new file, and one for each line that is added to the file with the table of
    // policies.
    let lines = |tree: &Tree| tree[Path::new(files[1])].iter().filter(|&&byte| byte == b'\n').count();
    states(&contributing, "### Add a policy", 1 + lines(&changed) - lines(&after));
    after.extend(changed.clone());
    lay_out(&copy, &after);

    let program = build(&copy);
    let folder = tempfile::tempdir().unwrap();
    let says = |arguments: &[&str]| {
        let output = Command::new(&program).args(arguments).current_dir(folder.path()).output().unwrap();
        let (said, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {error}");
        said.into_owned()
    };
    assert_eq!(says(&["recipe", "everywhere"]), "the recipe works everywhere\n");
    assert!(says(&["recipe", "--help"]).contains("foretoken recipe there"));
    assert!(says(&["policies", "show", "recipe-policy"]).contains("recipe-policy"));
    fs::write(folder.path().join("trace.csv"), "recipe_prompt,recipe_output\n8,3\n5,4\n").unwrap();
    let stats: serde_json::Value =
        serde_json::from_str(&says(&["traces", "inspect", "trace.csv", "--format", "json"])).unwrap();
    assert_eq!((&stats["format"], &stats["rows"]), (&"recipe".into(), &2.into()), "{stats}");
    // The generated files must contain everything that the recipes added.
    let schema = says(&["schema"]);
    for added in ["recipe-policy", "\"recipe\"", "recipe_s", "recipe-gpu"] {
        assert!(schema.contains(added), "the schema has no {added}");
    }
    let page = says(&["settings", "--markdown"]);
    assert!(page.contains("engine.recipe_s") && page.contains("recipe-gpu"), "{page}");
    let experiment = copy.join("experiments/quickstart.toml");
    let run = |set: &str| {
        let sets = ["--set", "seeds=[1]", "--set", "policies=[{ recipe-policy = {} }]", "--set", set];
        let how = ["--overwrite", "--no-figures", "--format", "json", "-o", "out"];
        says(&[&["run", experiment.to_str().unwrap()][..], &sets, &how].concat())
    };
    let e2e = |json: String| json.lines().skip_while(|line| !line.contains("e2e_mean_s")).nth(1).unwrap().to_owned();
    let (with, without) = (e2e(run("engine.recipe_s=0.1")), e2e(run("engine.recipe_s=0.0")));
    assert!(with.contains('.') && with != without, "the setting does nothing: {with}");
    let mut refused = Command::new(&program);
    refused.args(["run", experiment.to_str().unwrap(), "--set", "engine.recipe_s=-1.0", "-o", "refused"]);
    let error = refused.current_dir(folder.path()).output().unwrap().stderr;
    let error = String::from_utf8_lossy(&error);
    assert!(error.contains("recipe_s") && error.contains("-1 is not a time"), "the setting is not checked: {error}");
}
