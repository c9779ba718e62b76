//! The folders inside a results folder, and the names of the files that the program writes into them. The program
//! removes files with these names only.

use crate::spec::problem::{Problem, Result};
use std::path::{Path, PathBuf};

/// Name of the file with the experiment that was run. The file has every default written out.
pub const EXPERIMENT: &str = "experiment.toml";
/// Name of the folder, in the results, with one tape (log) for each run of a live experiment.
pub const TAPES: &str = "tapes";
/// Name of the folder, in the results, with the recordings of observed runs: one for each combination of swept values
/// and seed.
pub const RECORDINGS: &str = "recordings";
/// Name of the folder, in the results, with the probes of a capacity search: the runs at each request rate, or with
/// each number of replicas, that the search tried. The folder is removed when the search is complete.
pub const PROBES: &str = "probes";
/// Name of the folder, in the results, with the finished cells, and with the failures of a shard's cells. It is removed
/// when the run is complete.
pub const CELLS: &str = "cells";
/// Name of the folder, in the results, with the progress files and locks of shards, and with the experiment as the user
/// gave it. It is removed when the shards are merged.
pub const SHARDS: &str = "shards";
/// Name of the folder, in the results, with the SVG figures.
pub const FIGURES: &str = "figures";
/// Name of the folder, in the results, with the HTML page. The page can be made again from the other files.
pub const REPORT: &str = "report";

/// The names of the files that the program writes into each folder. `#` stands for a number, `*` for any text.
const NAMES: [(&str, &[&str]); 7] = [
    (CELLS, &["v#-s#-p#.cell", "v#-s#-p#.failure.json"]),
    (SHARDS, &["#-of-#.json", "#-of-#.lock", "begin.lock", "merge.lock", "alone-v#-p#.lock", EXPERIMENT]),
    (PROBES, &["v#-p#-s#.json", "fleet-v#-p#-s#.json", "host#-v#-p#-s#.json"]),
    (FIGURES, &["*.svg"]),
    (TAPES, &["*.tape"]),
    (RECORDINGS, &["v#-s#.obs"]),
    (REPORT, &["index.html", "timing.js", "explore.html"]),
];

/// Does the program write files with the name `file` into `folder`? A name with the ending `.partial` counts as the
/// name without it.
pub fn is_own(folder: &str, file: &str) -> bool {
    let file = file.strip_suffix(".partial").unwrap_or(file);
    let names = NAMES.iter().find(|(name, _)| *name == folder).map_or(&[][..], |(_, names)| names);
    names.iter().any(|pattern| fits(pattern.as_bytes(), file.as_bytes()))
}

fn fits(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'#', rest)) => {
            let digits = name.iter().take_while(|c| c.is_ascii_digit()).count();
            digits > 0 && fits(rest, &name[digits..])
        }
        Some((b'*', rest)) => (0..=name.len()).any(|i| fits(rest, &name[i..])),
        Some((c, rest)) => name.first() == Some(c) && fits(rest, &name[1..]),
    }
}

/// Removes the files that the program wrote into the folder `name` in `path`. Removes the folder itself if it is then
/// empty. Returns the files that stay. A missing folder is no error.
pub fn remove_own(path: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let folder = path.join(name);
    let Ok(entries) = std::fs::read_dir(&folder) else { return Ok(Vec::new()) };
    let mut left = Vec::new();
    for entry in entries.flatten() {
        let file = entry.path();
        let is_folder = entry.file_type().is_ok_and(|t| t.is_dir());
        if is_folder || !is_own(name, &entry.file_name().to_string_lossy()) {
            left.push(file);
            continue;
        }
        match std::fs::remove_file(&file) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(Problem::failed(format!("cannot remove {}: {e}", file.display())));
            }
            _ => {}
        }
    }
    if left.is_empty() {
        // The results folder's subfolder may be a link, which stays. So an error of `remove_dir` is ignored.
        let _ = std::fs::remove_dir(&folder);
    }
    left.sort();
    Ok(left)
}

/// Prints a note for each file in `left`, which Foretoken did not write and did not remove.
pub fn tell_left(left: &[PathBuf]) {
    for file in left {
        eprintln!("note: {} is left where it is: Foretoken did not write it", file.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_program_are_its_own() {
        for (folder, own, other) in [
            (CELLS, "v0-s12-p3.cell", "v0-s12-p3.cell.bak"),
            (CELLS, "v0-s0-p0.failure.json", "notes.md"),
            (CELLS, "v0-s1-p2.cell.partial", "v-s1-p2.cell"),
            (SHARDS, "1-of-2.json", "1-of-2.txt"),
            (FIGURES, "speedup.svg", "speedup.png"),
            (RECORDINGS, "v0-s1.obs", "v0-s1.obs.gz"),
            (REPORT, "index.html", "mine.html"),
        ] {
            assert!(is_own(folder, own), "{folder}/{own}");
            assert!(!is_own(folder, other), "{folder}/{other}");
        }
        assert!(!is_own("elsewhere", "v0-s0-p0.cell"));
    }

    #[test]
    fn files_that_the_program_did_not_write_stay() {
        let dir = tempfile::tempdir().unwrap();
        let cells = dir.path().join(CELLS);
        std::fs::create_dir_all(cells.join("v1-s1-p1.cell")).unwrap();
        for name in ["v0-s0-p0.cell", "notes.md"] {
            std::fs::write(cells.join(name), "x").unwrap();
        }
        let left = remove_own(dir.path(), CELLS).unwrap();
        assert_eq!(left, [cells.join("notes.md"), cells.join("v1-s1-p1.cell")]);
        assert!(!cells.join("v0-s0-p0.cell").exists() && left.iter().all(|f| f.exists()));
        std::fs::remove_file(cells.join("notes.md")).unwrap();
        std::fs::remove_dir(cells.join("v1-s1-p1.cell")).unwrap();
        assert!(remove_own(dir.path(), CELLS).unwrap().is_empty() && !cells.exists());
        assert!(remove_own(dir.path(), CELLS).unwrap().is_empty(), "nothing there is no error");
    }
}
