//! Tests of the template for new policies. `tests/tests/copies/new_policy.rs` tests that the written policy compiles
//! and works with the two lines.

use super::*;
use std::fs;
use tempfile::TempDir;

fn tree() -> TempDir {
    let tree = TempDir::new().unwrap();
    fs::create_dir_all(tree.path().join("policies/src/confidence")).unwrap();
    tree
}

#[test]
fn a_policy_is_a_file_a_module_and_a_row() {
    let tree = tree();
    let made = new_policy(tree.path(), "my-2nd-policy", "confidence").unwrap();
    assert_eq!(made.file, tree.path().join("policies/src/confidence/my_2nd_policy.rs"));
    assert_eq!(made.table, tree.path().join("policies/src/lib.rs"));
    assert_eq!(made.module, "    pub(crate) mod my_2nd_policy;");
    assert_eq!(made.row, "    confidence::my_2nd_policy::My2ndPolicy { My2ndPolicy = \"my-2nd-policy\"; }");
    let policy = fs::read_to_string(&made.file).unwrap();
    assert!(policy.starts_with("//! `my-2nd-policy`: ") && policy.contains("pub struct My2ndPolicy {"), "{policy}");
    assert!(!policy.contains("{{") || !policy.contains("}}"), "a gap was left open");
}

#[test]
fn refused_names_and_families_write_nothing() {
    let tree = tree();
    let file = new_policy(tree.path(), "mine", "confidence").unwrap().file;
    fs::write(&file, "changed").unwrap();
    for (name, family, what) in [
        ("My-Policy", "confidence", "only lower-case letters"),
        ("../../up", "confidence", "only lower-case letters"),
        ("te-tris", "confidence", "`te-tris` is taken: there is a policy `tetris`"),
        ("fresh", "trees", "trees is no family of policies"),
        ("fresh", "../confidence", "is no family of policies"),
        ("mine", "confidence", "cannot write "),
    ] {
        let error = new_policy(tree.path(), name, family).unwrap_err().to_string();
        assert!(error.contains(what), "{name}: {error}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "changed");
    assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
}
