//! Runs every stored input through its fuzz target, so that faults found by fuzzing stay fixed.

use flate2::read::GzDecoder;
use foretoken_fuzz::{TARGETS, Target};
use std::fs;
use std::io::Read;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use tar::{Archive, Entry};

/// The seeds of a fuzz target, with their names: the files of `seeds/TARGET`, sorted by name. Panics if there are none.
fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    let entries = fs::read_dir(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut files: Vec<PathBuf> = entries.map(|e| e.expect("an entry of the folder").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no input", path.display());
    files.iter().map(|path| (path.display().to_string(), fs::read(path).expect("a seed"))).collect()
}

/// The inputs that libFuzzer found for a fuzz target, with their names: the files of the archive
/// `corpus/TARGET.tar.gz`. A target that libFuzzer has not run yet has no archive.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(format!("{target}.tar.gz"));
    let Ok(file) = fs::File::open(&path) else { return Vec::new() };
    let mut archive = Archive::new(GzDecoder::new(file));
    let read = |entry: std::io::Result<Entry<'_, _>>| {
        let mut entry = entry.expect("an entry of the archive");
        let mut data = Vec::new();
        entry.read_to_end(&mut data).expect("an input");
        (format!("{}: {}", path.display(), entry.path().expect("a name").display()), data)
    };
    let all: Vec<_> = archive.entries().expect("an archive").map(read).collect();
    assert!(!all.is_empty(), "{} has no input", path.display());
    all
}

/// Runs a fuzz target on one input. If the target panics, panics with the name of the input.
fn holds(name: &str, target: Target, data: &[u8], input: &str) {
    assert!(catch_unwind(|| target(data)).is_ok(), "{name} fails on {input}");
}

#[test]
fn every_input_runs_through_its_target() {
    for (name, target) in TARGETS {
        for (input, data) in seeds(name).into_iter().chain(corpus(name)) {
            holds(name, *target, &data, &input);
        }
    }
}

/// libFuzzer's inputs are short. This test inserts 100,000 bytes of one repeated text (`x`, `[`, `a.` and others) at
/// nine places of every seed. A long name must not be repeated in full in a message, and deep nesting must not exhaust
/// the stack.
#[test]
fn long_and_deep_inputs_have_short_errors() {
    const PLACES: usize = 8;
    let long = ["x", "7", "[", "{\"a\":", "a.", "\\u00e9", ",", "\n"].map(|piece| piece.repeat(100_000 / piece.len()));
    for (name, target) in TARGETS {
        for (input, seed) in seeds(name) {
            for place in 0..=PLACES {
                let (before, behind) = seed.split_at(seed.len() * place / PLACES);
                for more in &long {
                    let data = [before, more.as_bytes(), behind].concat();
                    holds(name, *target, &data, &format!("{input} with {more:.8}.. at {place}"));
                }
            }
        }
    }
}

#[test]
fn every_folder_is_of_a_target() {
    for folder in ["seeds", "corpus"] {
        for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let name = name.trim_end_matches(".tar.gz");
            assert!(TARGETS.iter().any(|(target, _)| *target == name), "{folder}/{name} is of no target");
        }
    }
}
