//! `foretoken traces text` writes the documents that `foretoken_traces::text::document` makes, to stdout or into a
//! file.

use crate::support::Place;
use foretoken_traces::text::{Document, Family, document};

fn printed(place: &Place, args: &[&str]) -> String {
    let output = place.foretoken().args(["traces", "text"]).args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn lines_are_documents_of_all_families_in_turn() {
    let place = Place::new();
    let text = printed(&place, &["--seed", "5", "--n", "14"]);
    let documents: Vec<Document> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expected: Vec<Document> = (0..14).map(|i| document(Family::ALL[i % 6], 5, i as u64 / 6)).collect();
    assert_eq!(documents, expected);
}

#[test]
fn a_file_holds_what_stdout_would() {
    let place = Place::new();
    let args = ["--family", "retrieval", "--n", "5", "--format", "raw"];
    let text = printed(&place, &args);
    let expected: String = (0..5).map(|i| document(Family::Retrieval, 1, i).text()).collect();
    assert_eq!(text, expected);
    assert_eq!(printed(&place, &[&args[..], &["-o", "out.txt"]].concat()), "");
    assert_eq!(std::fs::read_to_string(place.path("out.txt")).unwrap(), expected);
}

#[test]
fn a_family_that_is_none_is_named_with_the_nearest() {
    let stderr = Place::new().fails(&["traces", "text", "--family", "retreival"], 2);
    assert!(stderr.contains("`retreival`") && stderr.contains("did you mean `retrieval`?"), "{stderr}");
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let place = Place::new();
    let stderr = place.fails(&["traces", "text", "-o", "missing/out.jsonl"], 1);
    assert!(stderr.contains("missing/out.jsonl"), "{stderr}");
    let stderr = place.fails(&["traces", "text", "-o", ".."], 2);
    assert!(stderr.contains("not the name of a file"), "{stderr}");
}
