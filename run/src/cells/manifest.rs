//! The manifest of a results folder: the experiment, the version, and the digest of every result file. The manifest
//! ends with a seal, a digest of its own text. So damage or loss of any file can be detected.

use crate::plan::Plan;
use crate::spec::problem::{Problem, Result};
use foretoken_traces::intact::seal::{self, Syntax};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Component, Path};

/// `manifest.json`: says what the results in a folder are, and lists their files.
#[derive(Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the format of the results folder: [`SCHEMA`].
    pub schema: u32,
    pub name: String,
    /// Where the numbers come from: simulated, measured on a device, or observed on a server.
    pub source: String,
    /// The version of Foretoken that wrote the results.
    pub version: String,
    /// Digest of everything on which the results depend: experiment, input files and version.
    pub digest: String,
    /// A map from the path of each input file, as the experiment gives it, to the file's blake3 digest.
    pub inputs: BTreeMap<String, String>,
    /// One sentence for each input profile that was edited after the costs were measured or fitted; absent if there is
    /// none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edited: Vec<String>,
    /// Number of cells of the whole plan. A cell is one policy with one seed and one combination of swept values.
    pub cells: usize,
    /// Are the results of all cells of the plan in the folder?
    pub complete: bool,
    /// A map from the path of each finished result file in the folder to the file's blake3 digest. While a run is in
    /// progress, only the experiment and the files that are finished already, such as recordings, are listed.
    pub files: BTreeMap<String, String>,
    /// How long the run took. The manifests of two runs of one experiment may differ only in this time and in the seal.
    pub timing: Timing,
}

/// How long the last command on a results folder took, and the number of cells that this command ran.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Timing {
    /// Number of cells that the last command on this folder ran.
    pub cells: u64,
    /// Wall time of the last command that ran cells, seconds.
    pub wall_s: f64,
    /// Wall time spent in the simulated engine, summed over threads, seconds.
    pub engine_s: f64,
}

/// Name of the file that says what the results in a folder are, and lists their files with digests.
pub const MANIFEST: &str = "manifest.json";
/// Version of the format of a results folder. Folders with another version are refused. Version 2 added the manifest's
/// seal, and recordings to the list of files.
const SCHEMA: u32 = 2;
/// The hint of errors about folders that hold no results.
const HELP: &str = "give the folder that `foretoken run` wrote its results to: it holds a manifest.json";
/// The hint that errors about damaged or changed results give.
pub const AGAIN: &str = "restore the original file, or run the experiment again with --overwrite";

impl Manifest {
    /// The manifest for results of `plan`. `files` maps the path of each result file to the file's blake3 digest;
    /// `complete` says whether all runs are finished.
    pub fn of(plan: &Plan, files: BTreeMap<String, String>, complete: bool, timing: Timing) -> Manifest {
        Manifest {
            schema: SCHEMA,
            name: plan.name.clone(),
            source: plan.source().to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            digest: plan.digest(),
            inputs: plan.inputs.clone(),
            edited: plan.edited().into_iter().map(str::to_owned).collect(),
            cells: plan.cells(),
            complete,
            files,
            timing,
        }
    }

    /// The JSON text of the manifest's file. Its last field is the seal, a checksum of the text before it.
    pub fn to_json(&self) -> String {
        seal::seal(Syntax::Json, &serde_json::to_string_pretty(self).expect("plain data always serialises"))
    }

    /// Reads the manifest of a results folder and checks its seal.
    pub fn read(folder: &Path) -> Result<Manifest> {
        let path = folder.join(MANIFEST);
        if !folder.is_dir() {
            let what = if folder.exists() { "is not a folder" } else { "does not exist" };
            return Err(Problem::bad_input(format!("{} {what}", folder.display())).help(HELP));
        }
        let Ok(bytes) = std::fs::read(&path) else {
            return Err(Problem::bad_input(format!("{} is no results folder", folder.display())).help(HELP));
        };
        Manifest::parse(folder, &bytes)
    }

    /// Reads and checks a manifest from its `bytes`, as [`read`](Manifest::read) does from a file. Error messages name
    /// the folder `folder`.
    pub fn parse(folder: &Path, bytes: &[u8]) -> Result<Manifest> {
        let path = folder.join(MANIFEST);
        let unreadable = |e: &dyn std::fmt::Display| {
            Problem::bad_input(format!("{}: is not a manifest: {e}", path.display())).help(HELP)
        };
        let text = std::str::from_utf8(bytes).map_err(|e| unreadable(&e))?;
        // The version of the format (`schema`) is checked before the fields are read, because another version may have
        // other fields.
        let value: serde_json::Value = serde_json::from_str(text).map_err(|e| unreadable(&e))?;
        let schema = value.get("schema").and_then(serde_json::Value::as_u64);
        if schema != Some(u64::from(SCHEMA)) && value.get("digest").is_some() {
            let of = schema.map_or("an older schema".to_owned(), |schema| format!("schema {schema}"));
            let version = value.get("version").and_then(|v| v.as_str()).unwrap_or("another version");
            let message =
                format!("{} has results of {of}, and this version of Foretoken reads {SCHEMA}", folder.display());
            let help = format!(
                "they were written by Foretoken {version}: use that, or run the experiment again with --overwrite"
            );
            return Err(Problem::bad_input(message).help(help));
        }
        let manifest: Manifest = serde_json::from_value(value).map_err(|e| unreadable(&e))?;
        if let Some(name) = manifest.files.keys().find(|name| !stays_inside(name)) {
            return Err(unreadable(&format!("it lists {name:.100}, which is not in the folder")));
        }
        seal::check(Syntax::Json, text).map_err(|e| {
            Problem::bad_input(format!("{} is damaged or was changed: {e}", path.display())).help(AGAIN)
        })?;
        Ok(manifest)
    }

    pub fn has(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    /// Checks that the files `names` have the digests that the manifest lists. Skips names that the manifest does not
    /// list.
    pub fn check<'a>(&self, folder: &Path, names: impl IntoIterator<Item = &'a str>) -> Result<()> {
        let (mut gone, mut changed) = (Vec::new(), Vec::new());
        for name in names.into_iter().filter(|name| self.has(name)) {
            let expected = &self.files[name];
            match digest(&folder.join(name)) {
                Ok(found) if found == *expected => {}
                Ok(found) => changed.push(format!("{name} (blake3 {found}, in the manifest {expected})")),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => gone.push(name),
                Err(e) => return Err(Problem::failed(format!("cannot read {}: {e}", folder.join(name).display()))),
            }
        }
        let folder = folder.display();
        let problem = match (gone.len(), changed.len()) {
            (0, 0) => return Ok(()),
            (0, _) => format!("{folder} is damaged or was changed: {}", few(&changed)),
            (1, _) => format!("{folder}: {} is missing, and the manifest lists it", gone[0]),
            _ => format!("{folder}: {} are missing, and the manifest lists them", few(&gone)),
        };
        Err(Problem::bad_input(problem).help(AGAIN))
    }

    pub fn check_all(&self, folder: &Path) -> Result<()> {
        self.check(folder, self.files.keys().map(String::as_str))
    }
}

/// Is a listed name a path of a file in the folder? A path such as `../x` or `/dev/zero` is not.
fn stays_inside(name: &str) -> bool {
    !name.is_empty() && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
}

/// The first eight of `names` as text, separated by commas, then the number of the others.
fn few(names: &[impl AsRef<str>]) -> String {
    const FEW: usize = 8;
    let shown: Vec<&str> = names.iter().take(FEW).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(FEW) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The blake3 digest of a file's bytes, in hexadecimal.
pub fn digest(path: &Path) -> std::io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(std::fs::File::open(path)?)?;
    Ok(hasher.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            schema: SCHEMA,
            name: "small".into(),
            source: "simulated".into(),
            version: "0.1.0".into(),
            digest: "d".repeat(64),
            inputs: BTreeMap::new(),
            edited: vec![],
            cells: 4,
            complete: true,
            files: BTreeMap::from([("a.parquet".to_owned(), seal::digest(b"a")), ("b".to_owned(), seal::digest(b"b"))]),
            timing: Timing { cells: 4, wall_s: 0.1, engine_s: 0.05 },
        }
    }

    /// A manifest with any one bit flipped, or cut off at any byte, is refused.
    #[test]
    fn a_manifest_is_read_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(MANIFEST);
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            Manifest::read(dir.path())
        };
        let text = manifest().to_json();
        assert_eq!(read(text.as_bytes()).unwrap().to_json(), text);
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut other = text.clone().into_bytes();
                other[at] ^= 1 << bit;
                assert!(read(&other).is_err(), "byte {at}, bit {bit}");
            }
            assert!(read(&text.as_bytes()[..at]).is_err(), "cut at {at}");
        }
    }

    /// The files of a hostile manifest are not opened, even if its seal is right.
    #[test]
    fn files_outside_of_the_folder_are_refused() {
        for name in ["../secret", "cells/../../secret", "/dev/zero", ".", ""] {
            let mut hostile = manifest();
            hostile.files.insert(name.to_owned(), seal::digest(b"a"));
            let problem = Manifest::parse(Path::new("out"), hostile.to_json().as_bytes()).unwrap_err();
            let said = format!("out/manifest.json: is not a manifest: it lists {name}, which is not in the folder");
            assert_eq!(problem.message(), said);
        }
    }

    #[test]
    fn another_schema_and_files_that_are_not_what_was_written_are_named() {
        let dir = tempfile::tempdir().unwrap();
        for (schema, said) in [("99", "has results of schema 99"), ("1", "has results of schema 1")] {
            let other = manifest().to_json().replacen("\"schema\": 2", &format!("\"schema\": {schema}"), 1);
            std::fs::write(dir.path().join(MANIFEST), other).unwrap();
            let problem = Manifest::read(dir.path()).unwrap_err();
            assert!(problem.message().contains(said), "{}", problem.message());
            assert!(problem.help_text().contains("--overwrite"), "{}", problem.help_text());
        }
        let said = |m: &Manifest| m.check_all(dir.path()).map_err(|p| p.message().to_owned());
        assert!(said(&manifest()).unwrap_err().ends_with("a.parquet, b are missing, and the manifest lists them"));
        std::fs::write(dir.path().join("a.parquet"), "a").unwrap();
        assert!(said(&manifest()).unwrap_err().ends_with("b is missing, and the manifest lists it"));
        std::fs::write(dir.path().join("b"), "c").unwrap();
        assert!(said(&manifest()).unwrap_err().contains("is damaged or was changed: b (blake3 "));
        std::fs::write(dir.path().join("b"), "b").unwrap();
        assert_eq!(said(&manifest()), Ok(()));
    }
}
