//! Which live runs there are to compare: those that a validation made, or those of a folder that `foretoken live` wrote.

use super::drift::Drift;
use crate::serve::cell_of_tape;
use foretoken_intact::seal::{self, Syntax};
use foretoken_run::cells::{AGAIN, Manifest, RUNS_JSON, TAPES};
use foretoken_spec::problem::{Problem, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// One run at one load, done once or twice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunEntry {
    /// Index of the variant of the experiment.
    pub variant: usize,
    /// Index of its seed.
    pub seed: usize,
    /// Index of the policy.
    pub policy: usize,
    /// What it was run at.
    pub load: Load,
    /// Its recordings, below the folder of recordings.
    pub tapes: Vec<String>,
}

/// What a run was run at.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// A closed loop of so many clients: what the service rate is measured by.
    Closed(u32),
    /// Arrivals at this share of the policy's own service rate.
    Own(f64),
    /// Arrivals at this share of the baseline's service rate: where policies are compared.
    Common(f64),
    /// The arrivals of a live run, as they were.
    AsRun,
}

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Load::Closed(clients) => write!(f, "closed loop of {clients}"),
            Load::Own(share) => write!(f, "{share} of its service rate"),
            Load::Common(share) => write!(f, "{share} of the baseline's service rate"),
            Load::AsRun => write!(f, "as run"),
        }
    }
}

/// What a folder holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Runs {
    /// The runs, in the order of the plan.
    pub entries: Vec<RunEntry>,
    /// How steady the machine was; absent where it was not measured.
    pub drift: Option<Drift>,
}

impl Runs {
    /// The runs of a folder: a validation's own list, or one for each recording that is there.
    pub fn of(folder: &Path) -> Result<Runs> {
        let list = folder.join(RUNS_JSON);
        if list.exists() {
            let bad = |e: &dyn std::fmt::Display| {
                Problem::bad_input(format!("{} is damaged or was changed: {e}", list.display())).help(AGAIN)
            };
            let text = fs_err::read_to_string(&list).map_err(|e| bad(&e))?;
            seal::check(Syntax::Json, &text).map_err(|e| bad(&e))?;
            return serde_json::from_str(&text).map_err(|e| bad(&e));
        }
        let files = std::fs::read_dir(folder.join(TAPES)).into_iter().flatten().flatten();
        let names = files.map(|f| f.file_name().to_string_lossy().into_owned());
        let mut found: Vec<_> = names.filter_map(|name| Some((cell_of_tape(&name)?, name))).collect();
        found.sort();
        let entry =
            |((variant, seed, policy), name)| RunEntry { variant, seed, policy, load: Load::AsRun, tapes: vec![name] };
        match found.is_empty() {
            true => Err(Problem::bad_input(format!("{} holds no recording of a live run", folder.display()))
                .help("give a folder that `foretoken live` or `foretoken validate` wrote to")),
            false => Ok(Runs { entries: found.into_iter().map(entry).collect(), drift: None }),
        }
    }

    /// Are all recordings that the folder has finished among them?
    pub fn check(&self, folder: &Path, manifest: &Manifest) -> Result<()> {
        let known = |name: &str| self.entries.iter().flat_map(|e| &e.tapes).any(|tape| tape == name);
        let finished = manifest.files.keys().filter_map(|name| name.strip_prefix(TAPES)?.strip_prefix('/'));
        match finished.into_iter().find(|name| !known(name)) {
            Some(name) => {
                let message = format!("{}: {TAPES}/{name} is missing, and the manifest lists it", folder.display());
                Err(Problem::bad_input(message).help(AGAIN))
            }
            None => Ok(()),
        }
    }

    /// The text of the list.
    pub fn to_json(&self) -> String {
        seal::seal(Syntax::Json, &serde_json::to_string_pretty(self).expect("plain data always serialises"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_folder_has_a_run_a_tape_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Runs::of(dir.path()).unwrap_err().message().contains("holds no recording"));
        std::fs::create_dir(dir.path().join(TAPES)).unwrap();
        for name in ["v0-s0-p10.tape", "v0-s0-p2.tape", "notes.txt"] {
            std::fs::write(dir.path().join(TAPES).join(name), "").unwrap();
        }
        let runs = Runs::of(dir.path()).unwrap();
        let found: Vec<_> = runs.entries.iter().map(|e| (e.policy, e.load)).collect();
        assert_eq!(found, [(2, Load::AsRun), (10, Load::AsRun)]);
        let listed = Runs { drift: Some(Drift { largest: 0.01, models: vec![("target".into(), -0.01)] }), ..runs };
        let text = listed.to_json();
        std::fs::write(dir.path().join(RUNS_JSON), &text).unwrap();
        assert_eq!(Runs::of(dir.path()).unwrap(), listed);
        std::fs::write(dir.path().join(RUNS_JSON), text.replace("\"policy\": 2", "\"policy\": 3")).unwrap();
        let said = Runs::of(dir.path()).unwrap_err();
        assert!(said.message().contains("runs.json is damaged or was changed: its checksum is"), "{}", said.message());
    }
}
