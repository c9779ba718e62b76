//! Runs every stored input through its fuzz target, so that faults found by fuzzing stay fixed.

use flate2::read::GzDecoder;
use foretoken_fuzz::{TARGETS, Target};
use std::fs;
use std::io::Read;
use std::panic::catch_unwind;
use std::path::Path;
use tar::{Archive, Entry};

type Inputs = Vec<(String, Vec<u8>)>;

/// The inputs of a fuzz target with their names: (the seeds, what libFuzzer found). The archive `corpus/TARGET.tar.gz`
/// has both, the seeds in its folder `seeds`. Seeds that other tests read too are files of `seeds/TARGET`. Panics if
/// there is no seed.
fn inputs(target: &str) -> (Inputs, Inputs) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = folder.join("corpus").join(format!("{target}.tar.gz"));
    let mut archive = fs::File::open(&path).map(|file| Archive::new(GzDecoder::new(file))).ok();
    let read = |entry: std::io::Result<Entry<'_, _>>| {
        let mut entry = entry.expect("an entry of the archive");
        let mut data = Vec::new();
        entry.read_to_end(&mut data).expect("an input");
        (entry.path().expect("a name").display().to_string(), data)
    };
    let kept: Inputs = archive.iter_mut().flat_map(|a| a.entries().expect("an archive").map(read)).collect();
    let (mut seeds, found): (Inputs, Inputs) = kept.into_iter().partition(|(name, _)| name.starts_with("seeds/"));
    let files = fs::read_dir(folder.join("seeds").join(target)).into_iter().flatten();
    let files = files.map(|file| file.expect("an entry of the folder").path());
    seeds.extend(files.map(|path| (path.display().to_string(), fs::read(&path).expect("a seed"))));
    seeds.sort();
    assert!(!seeds.is_empty(), "{target} has no seed");
    (seeds, found)
}

/// Runs a fuzz target on one input. If the target panics, panics with the name of the input.
fn holds(name: &str, target: Target, data: &[u8], input: &str) {
    assert!(catch_unwind(|| target(data)).is_ok(), "{name} fails on {input}");
}

#[test]
fn every_input_runs_through_its_target() {
    for (name, target) in TARGETS {
        let (seeds, found) = inputs(name);
        for (input, data) in seeds.into_iter().chain(found) {
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
        for (input, seed) in inputs(name).0 {
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
