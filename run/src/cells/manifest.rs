//! The manifest of a results folder: what the results are, of what, and which files there are. It is sealed, and it
//! has the digest of every other file, so that nothing in a folder is damaged or gone unseen.

use crate::plan::Plan;
use foretoken_intact::seal::{self, Syntax};
use foretoken_spec::problem::{Problem, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// `manifest.json`: what the results are, and of what.
#[derive(Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// What the files look like: [`SCHEMA`].
    pub schema: u32,
    /// The experiment's name.
    pub name: String,
    /// Where the numbers come from.
    pub source: String,
    /// The version of Foretoken.
    pub version: String,
    /// Digest of experiment, inputs and version: what decides the results.
    pub digest: String,
    /// blake3 of each file that was read, under the path the experiment gives.
    pub inputs: BTreeMap<String, String>,
    /// Profiles among these files that are not what was measured or calibrated: why, in words. Left out where there is
    /// none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edited: Vec<String>,
    /// Cells of the plan.
    pub cells: usize,
    /// Are all results here?
    pub complete: bool,
    /// blake3 of each result file that is finished. A run that goes on enters its experiment and each recording as it
    /// ends.
    pub files: BTreeMap<String, String>,
    /// The only part that may differ between two runs of the same plan, and with it the seal behind it.
    pub timing: Timing,
}

/// How long it took.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Timing {
    /// Cells run by the last command.
    pub cells: u64,
    /// Wall time of the last command, seconds.
    pub wall_s: f64,
    /// Time in the engine, summed over threads, seconds.
    pub engine_s: f64,
}

/// Its name.
pub const MANIFEST: &str = "manifest.json";
/// What the files of a results folder look like, and the only schema that is read: 2 since the manifest is sealed and
/// lists recordings.
const SCHEMA: u32 = 2;
/// What helps where the folder is not what was written.
pub const AGAIN: &str = "put back what was written, or run the experiment again with --overwrite";

impl Manifest {
    /// Of a plan.
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

    /// The text of the file.
    pub fn to_json(&self) -> String {
        seal::seal(Syntax::Json, &serde_json::to_string_pretty(self).expect("plain data always serialises"))
    }

    /// The manifest of a results folder. The one way to read it.
    pub fn read(folder: &Path) -> Result<Manifest> {
        let path = folder.join(MANIFEST);
        let help = "give the folder that `foretoken run` wrote its results to: it holds a manifest.json";
        if !folder.is_dir() {
            let what = if folder.exists() { "is not a folder" } else { "does not exist" };
            return Err(Problem::bad_input(format!("{} {what}", folder.display())).help(help));
        }
        let Ok(bytes) = std::fs::read(&path) else {
            return Err(Problem::bad_input(format!("{} is no results folder", folder.display())).help(help));
        };
        let unreadable = |e: &dyn std::fmt::Display| {
            Problem::bad_input(format!("{}: is not a manifest: {e}", path.display())).help(help)
        };
        let text = String::from_utf8(bytes).map_err(|e| unreadable(&e))?;
        // The schema first: nothing else of another one can be relied on.
        let value: serde_json::Value = serde_json::from_str(&text).map_err(|e| unreadable(&e))?;
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
        let manifest = serde_json::from_value(value).map_err(|e| unreadable(&e))?;
        seal::check(Syntax::Json, &text).map_err(|e| {
            Problem::bad_input(format!("{} is damaged or was changed: {e}", path.display())).help(AGAIN)
        })?;
        Ok(manifest)
    }

    /// Is it among the files that were finished?
    pub fn has(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    /// Are the finished files among `names` still what was written?
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

    /// Is every file that was finished still what was written?
    pub fn check_all(&self, folder: &Path) -> Result<()> {
        self.check(folder, self.files.keys().map(String::as_str))
    }
}

/// The first of them, and how many more there are.
fn few(names: &[impl AsRef<str>]) -> String {
    const FEW: usize = 8;
    let shown: Vec<&str> = names.iter().take(FEW).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(FEW) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// blake3 of a file.
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

    /// Every bit of it, and every end.
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
