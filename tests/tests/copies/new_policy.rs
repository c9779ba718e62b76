//! Adding a policy takes two edits and one accepted snapshot. The test makes a policy from the template in a copy of
//! the sources. The policy must compile, work, and lack only its line in the golden snapshot.
//!
//! The copy is built in the target folder of the ordinary build, where the dependencies are built already. The
//! workspace's own crates are built without optimisation. The copy stays there, so that nothing is built again until a
//! source changes.

use crate::add_policy;
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const NAME: &str = "two-edits";
const FILE: &str = "policies/src/confidence/two_edits.rs";
const TABLE: &str = "policies/src/lib.rs";
/// The members of the workspace that the tests of `policies` need, `policies` included. The others are empty.
const NEEDED: [&str; 3] = ["policies", "sim", "tests"];
const SNAPSHOT: &str = "policies/src/snapshots/foretoken_policies__registry__tests__decisions.snap";

/// Texts of files, by their paths in the workspace.
type Tree = BTreeMap<PathBuf, String>;

/// Reads all files below `folder` of `root` into `tree`; paths are relative to `root`.
fn read(root: &Path, folder: &Path, tree: &mut Tree) {
    for entry in fs::read_dir(root.join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = folder.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            read(root, &path, tree);
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            tree.insert(path, text);
        }
    }
}

fn all_of(root: &Path) -> Tree {
    let mut tree = Tree::new();
    read(root, Path::new(""), &mut tree);
    tree
}

/// The workspace without what the tests of `policies` do not need. All manifests stay, because Cargo compiles a
/// dependency with the features that all members ask for; with fewer members it would build many dependencies again.
fn sources() -> Tree {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut tree = Tree::new();
    for folder in NEEDED {
        read(root, &Path::new(folder).join("src"), &mut tree);
    }
    let manifest =
        |path: &Path| fs::read_to_string(root.join(path).join("Cargo.toml")).unwrap().parse::<toml::Table>().unwrap();
    let mut workspace = manifest(Path::new(""));
    let members = workspace["workspace"]["members"].as_array().unwrap().clone();
    let mut names = Vec::new();
    for member in members.iter().map(|member| Path::new(member.as_str().unwrap())) {
        let mut manifest = manifest(member);
        names.push(manifest["package"]["name"].as_str().unwrap().to_owned());
        for targets in ["bin", "bench", "example", "test"] {
            manifest.remove(targets);
        }
        let library = table(&mut manifest, "lib");
        library.insert("test".into(), member.ends_with("policies").into());
        library.insert("doctest".into(), false.into());
        tree.insert(member.join("Cargo.toml"), manifest.to_string());
        tree.entry(member.join("src/lib.rs")).or_insert_with(|| "//! Empty.\n".to_owned());
    }
    workspace["workspace"].as_table_mut().unwrap().remove("default-members");
    // Without optimisation our crates build fast. Every member has this Cargo profile, the empty ones too: Cargo keys
    // builds by their profiles, so a member with the ordinary one would take the place of the ordinary build.
    let quick: toml::Table = "opt-level = 0\ndebug = false\ncodegen-units = 8".parse().unwrap();
    for profile in ["dev", "release"] {
        let packages = table(table(table(&mut workspace, "profile"), profile), "package");
        packages.extend(names.iter().map(|name| (name.clone(), quick.clone().into())));
    }
    tree.insert("Cargo.toml".into(), workspace.to_string());
    tree.insert("Cargo.lock".into(), fs::read_to_string(root.join("Cargo.lock")).unwrap());
    tree
}

/// The table `name` of `table`; an empty one is added if it is missing.
fn table<'a>(table: &'a mut toml::Table, name: &str) -> &'a mut toml::Table {
    table.entry(name).or_insert(toml::Table::new().into()).as_table_mut().unwrap()
}

/// Makes the folder `root` hold the files of `tree` and no others. Files whose text is the same already are not
/// written, so that Cargo does not build them again.
fn lay_out(root: &Path, tree: &Tree) {
    fs::create_dir_all(root).unwrap();
    for old in all_of(root).into_keys().filter(|path| !tree.contains_key(path)) {
        fs::remove_file(root.join(old)).unwrap();
    }
    for (path, text) in tree {
        let path = root.join(path);
        if fs::read_to_string(&path).ok().as_ref() != Some(text) {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }
}

/// Runs the tests of the copy that `filters` select. Returns whether they pass, and their output.
fn test(copy: &Path, update: &str, filters: &[&str]) -> (bool, String) {
    // This test's program lies at target/<profile>/deps/<name>, which gives the target folder.
    let exe = env::current_exe().unwrap();
    let profile = exe.ancestors().nth(2).unwrap();
    let mut cargo = foretoken_tests::cargo();
    cargo.args(["test", "--offline", "--workspace"]).current_dir(copy);
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    cargo.arg("--target-dir").arg(profile.parent().unwrap()).arg("--").args(filters).env("INSTA_UPDATE", update);
    let output = cargo.output().unwrap();
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    (output.status.success(), said)
}

#[test]
fn adding_a_policy_is_two_edits_and_one_accepted_snapshot() {
    let before = sources();
    let tree = TempDir::new().unwrap();
    lay_out(tree.path(), &before);
    add_policy(tree.path(), NAME);
    let after = all_of(tree.path());
    let edited: Vec<&PathBuf> =
        after.iter().filter(|(path, text)| before.get(*path) != Some(text)).map(|e| e.0).collect();
    assert_eq!((edited, after.len()), (vec![&PathBuf::from(FILE), &PathBuf::from(TABLE)], before.len() + 1));

    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("new-policy");
    lay_out(&copy, &after);
    // If the new policy's line is missing from the golden snapshot (the accepted decisions of all policies), the
    // snapshot test fails and prints the line.
    let (passed, said) = test(&copy, "no", &["registry::tests::golden"]);
    assert!(!passed && said.contains(&format!("+{NAME}: ")), "{said}");
    assert!(said.contains("1 failed") && said.contains("0 passed"), "{said}");
    let (passed, said) = test(&copy, "always", &["registry::tests::golden"]);
    assert!(passed, "{said}");
    let snapshot = fs::read_to_string(copy.join(SNAPSHOT)).unwrap();
    let (new, old): (Vec<&str>, Vec<&str>) = snapshot.lines().partition(|line| line.starts_with(NAME));
    let lines =
        |text: &str| text.lines().skip_while(|l| !l.starts_with("autoregressive: ")).map(str::to_owned).collect();
    let (kept, expected): (Vec<String>, Vec<String>) = (lines(&old.join("\n")), lines(&before[Path::new(SNAPSHOT)]));
    assert!(kept == expected && new == [format!("{NAME}: 11011/11011 11011/11011 11011/11011")], "{new:?}");
    // The new policy's own tests pass, and so do the tests that run over all policies.
    let own = "confidence::two_edits::";
    let of_all = ["golden", "labels_", "names_and_", "every_preset_", "only_oracles_", "errors_say_"];
    let (passed, said) = test(&copy, "no", &[&[own][..], &of_all].concat());
    assert!(passed && said.contains("confidence::two_edits::tests::it_follows_what_is_accepted ... ok"), "{said}");
}
