//! Tests of the template for new policies, on a copy of the table of policies. `new_policy.rs` in the package
//! `foretoken-tests` tests that the written policy compiles and works.

use super::*;
use tempfile::TempDir;

const TABLE: &str = include_str!("../lib.rs");

/// A source tree for a test: the given text of the table of policies, and empty folders of some policy families.
fn tree(table: &str) -> TempDir {
    let tree = TempDir::new().unwrap();
    for family in ["plain", "confidence", "trees"] {
        fs::create_dir_all(tree.path().join("policies/src").join(family)).unwrap();
    }
    fs::write(tree.path().join("policies/src/lib.rs"), table).unwrap();
    tree
}

fn read(tree: &TempDir, path: &str) -> String {
    fs::read_to_string(tree.path().join(path)).unwrap()
}

/// The paths of all files below `folder`, sorted.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<PathBuf> = entries.flat_map(|p| if p.is_dir() { files(&p) } else { vec![p] }).collect();
    all.sort();
    all
}

#[test]
fn a_policy_is_a_file_a_module_and_a_row() {
    let tree = tree(TABLE);
    let made = new_policy(tree.path(), "my-2nd-policy", Some("confidence")).unwrap();
    let (file, table) = ("policies/src/confidence/my_2nd_policy.rs", "policies/src/lib.rs");
    assert_eq!(made, NewPolicy { file: tree.path().join(file), table: tree.path().join(table) });
    assert_eq!(files(tree.path()), [tree.path().join(file), tree.path().join(table)]);
    let policy = read(&tree, file);
    assert!(policy.starts_with("//! `my-2nd-policy`: ") && policy.contains("pub struct My2ndPolicy {"), "{policy}");
    assert!(!policy.contains("{{") || !policy.contains("}}"), "a gap was left open");

    let changed = read(&tree, table);
    let new: Vec<&str> = changed.lines().filter(|l| !TABLE.lines().any(|old| old == *l)).collect();
    let row = "    confidence::my_2nd_policy::My2ndPolicy { My2ndPolicy = \"my-2nd-policy\"; }";
    assert_eq!(new, ["    pub(crate) mod my_2nd_policy;", row]);
    assert_eq!(changed.lines().count(), TABLE.lines().count() + 2);
    let at = |line: &str| changed.lines().position(|l| l == line).unwrap();
    let modules = ["hf_dynamic", "my_2nd_policy", "roc"].map(|m| at(&format!("    pub(crate) mod {m};")));
    assert_eq!(modules, [modules[0], modules[0] + 1, modules[0] + 2], "in order");
    assert!(
        changed.lines().nth(at(row) - 1).unwrap().starts_with("    confidence::tetris::"),
        "behind the family's last"
    );
}

/// A new row of the table of policies goes below a last row of several lines, and may have several lines itself.
#[test]
fn rows_of_several_lines_stay_whole() {
    let (table, rest) = TABLE.split_once("    confidence::svip").unwrap();
    let last = rest.find("\n    // ").unwrap();
    let tree = tree(&format!("{table}{}", &rest[last..]));
    let name = "a-policy-with-the-longest-name-there-is";
    new_policy(tree.path(), name, Some("confidence")).unwrap();
    let expected = "hf-heuristic\" in PURPLE Dotted Ring, with HfDynamic::heuristic();\n    }\n    \
                    confidence::a_policy_with_the_longest_name_there_is::APolicyWithTheLongestNameThereIs {\n        \
                    APolicyWithTheLongestNameThereIs = \"a-policy-with-the-longest-name-there-is\";\n    }\n";
    assert!(read(&tree, "policies/src/lib.rs").contains(expected));
    let again = new_policy(tree.path(), name, Some("confidence")).unwrap_err().to_string();
    assert_eq!(again, format!("`{name}` is taken: there is a policy `{name}`"));
}

#[test]
fn refused_names_and_families_write_nothing() {
    let tree = tree(TABLE);
    fs::write(tree.path().join("policies/src/trees/mine.rs"), "").unwrap();
    let before = files(tree.path());
    for (name, family, what) in [
        ("My-Policy", None, "only lower-case letters"),
        ("", None, "it is empty"),
        ("../../up", None, "only lower-case letters"),
        ("tetris", None, "`tetris` is taken: there is a policy `tetris`"),
        ("te-tris", None, "`te-tris` is taken: there is a policy `tetris`"),
        ("adaspec", Some("slo"), "is taken"),
        ("match", None, "`match` is a keyword of Rust"),
        ("gen", None, "`gen` is a keyword of Rust"),
        ("belief", None, "`Belief` is something else already"),
        ("policy-spec", None, "`PolicySpec` is something else already"),
        ("running", None, "`Running` is a name that a policy's file uses"),
        ("default", None, "`Default` is a name that a policy's file uses"),
        (
            "fresh",
            Some("shared"),
            "there is no family `shared`; there are plain, sglang, goodput, slo, vllm, engines, local",
        ),
        ("fresh", Some("../plain"), "there is no family `../plain`"),
        ("mine", Some("trees"), "exists already"),
        ("roc", Some("confidence"), "exists already"),
    ] {
        let error = new_policy(tree.path(), name, family).unwrap_err().to_string();
        assert!(error.contains(what), "{name}: {error}");
        assert_eq!(
            (files(tree.path()), read(&tree, "policies/src/lib.rs").as_str()),
            (before.clone(), TABLE),
            "{name}"
        );
    }
}

#[test]
fn trees_of_another_kind_are_refused_by_path() {
    let empty = TempDir::new().unwrap();
    let error = new_policy(empty.path(), "fresh", None).unwrap_err().to_string();
    assert!(error.starts_with("cannot read ") && error.contains("lib.rs"), "{error}");
    for (text, what) in [("fn main() {}\n", "no table `policies!"), ("policies! {\n", "no end of the table")] {
        let other = tree(text);
        let error = new_policy(other.path(), "fresh", None).unwrap_err().to_string();
        assert!(error.contains(what) && error.contains("lib.rs"), "{error}");
    }
}

/// The new policy's file cannot be written because the folder of its policy family does not exist.
#[test]
fn what_cannot_be_written_changes_nothing() {
    let tree = tree(TABLE);
    let error = new_policy(tree.path(), "fresh", Some("bandits")).unwrap_err().to_string();
    assert!(error.starts_with("cannot write ") && error.contains("fresh.rs"), "{error}");
    assert_eq!(read(&tree, "policies/src/lib.rs"), TABLE);
    // The file with the table of policies cannot be replaced, because a folder has the name of its temporary file.
    fs::create_dir(tree.path().join("policies/src/lib.rs.tmp")).unwrap();
    let error = new_policy(tree.path(), "fresh", None).unwrap_err().to_string();
    assert!(error.starts_with("cannot write ") && error.contains("lib.rs"), "{error}");
    assert!(!tree.path().join("policies/src/plain/fresh.rs").exists(), "it was taken back");
    assert_eq!(read(&tree, "policies/src/lib.rs"), TABLE);
}
