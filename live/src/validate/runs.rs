//! The list of live runs to compare (`runs.json`). A validation writes this list. For a folder that `foretoken live`
//! wrote, the list is made of its tapes, one entry each.

use super::probe::{PROBES, Probe, Probed, spread};
use crate::serve::cell_of_tape;
use foretoken_run::cells::{AGAIN, Manifest, RUNS_JSON, TAPES};
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_servers::compare::live_runs::Standing;
use foretoken_traces::intact::seal::{self, Syntax};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Version of the format of the file `runs.json`, the list of a validation's runs.
const VERSION: u32 = 2;

/// Number of live runs in a piece: the first run and its repeat.
pub const PARTS: usize = 2;

/// A cell of a validation: one policy at one load. Its live runs are made in pieces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunEntry {
    /// Index of the variant in the plan, the list of all runs of the experiment.
    pub variant: usize,
    /// Index of the seed in the experiment's list of seeds.
    pub seed: usize,
    /// Index of the policy in the experiment's list of policies, the baseline first.
    pub policy: usize,
    /// How the requests of the runs of this cell arrive.
    pub load: Load,
    /// The pieces, in the order in which they were made.
    pub pieces: Vec<Piece>,
}

/// A piece of a cell: a part of the workload's requests, and the probes around its runs (timings of fixed passes, to
/// see the machine's speed). `foretoken validate` serves the requests of a piece twice, `foretoken live` serves them
/// once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Piece {
    /// The id in the whole workload of the first request that the runs of this piece serve.
    pub first: u32,
    /// File names of the piece's tapes: of the live run, then of its repeat.
    pub tapes: Vec<String>,
    /// The probes of the machine's speed, before, between and after the runs. Empty if nothing is probed.
    pub probes: Vec<Probe>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// A closed loop with this number of clients. It measures the policy's service rate, the rate of requests that the
    /// loop sustains.
    Closed(u32),
    /// Arrivals at this share of the policy's own service rate.
    Own(f64),
    /// Arrivals at this share of the baseline's service rate. All policies get this rate, so that they can be compared.
    Common(f64),
    /// The arrivals of the experiment, unchanged: the load of a run by `foretoken live`.
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

/// The live runs of a folder: the content of `runs.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Runs {
    /// The version of the format of `runs.json`. A file with another version is refused.
    version: u32,
    /// The passes that each probe of the machine's speed times; empty if there are no probes.
    pub probed: Vec<Probed>,
    /// The measured service rate of each policy: the requests per second that its closed loop sustained. The loads are
    /// set from these rates. Empty until they are measured.
    pub rates: Vec<f64>,
    /// The cells. A folder of `foretoken live` has one cell for each tape, sorted by the indices of swept values, seed
    /// and policy.
    pub entries: Vec<RunEntry>,
}

impl RunEntry {
    /// Makes a cell without live runs, for the experiment's first combination of swept values and first seed.
    pub fn new(policy: usize, load: Load) -> RunEntry {
        RunEntry { variant: 0, seed: 0, policy, load, pieces: Vec::new() }
    }

    pub fn tapes(&self) -> impl Iterator<Item = &String> {
        self.pieces.iter().flat_map(|piece| &piece.tapes)
    }
}

impl Runs {
    /// Makes an empty list of live runs. `probed` are the passes that probes will time, to see the machine's speed.
    pub fn new(probed: Vec<Probed>) -> Runs {
        Runs { version: VERSION, probed, rates: Vec::new(), entries: Vec::new() }
    }

    /// Whether a piece counts in the comparison. If there are no probes, every piece counts. Otherwise a piece must
    /// have both runs and all probes; if not, it is [`Unended`](Standing::Unended). For each pass of the probes, the
    /// pass's longest time during the piece must exceed its shortest time by at most the share `steady`; if not, the
    /// piece is [`Changed`](Standing::Changed). The results of the runs have no influence.
    pub fn standing(&self, piece: &Piece, steady: f64) -> Standing {
        match spread(&piece.probes) {
            _ if self.probed.is_empty() => Standing::Counts,
            Some(apart) if piece.tapes.len() == PARTS && apart <= steady => Standing::Counts,
            Some(_) if piece.tapes.len() == PARTS => Standing::Changed,
            _ => Standing::Unended,
        }
    }

    /// Reads `runs.json`, the list of a folder's live runs. If the folder has no such file, makes a list with one cell
    /// for each tape.
    pub fn of(folder: &Path) -> Result<Runs> {
        let list = folder.join(RUNS_JSON);
        if list.exists() {
            return Runs::listed(&list);
        }
        let files = std::fs::read_dir(folder.join(TAPES)).into_iter().flatten().flatten();
        let names = files.map(|f| f.file_name().to_string_lossy().into_owned());
        let mut found: Vec<_> = names.filter_map(|name| Some((cell_of_tape(&name)?, name))).collect();
        found.sort();
        let entry = |((variant, seed, policy), name)| {
            let pieces = vec![Piece { tapes: vec![name], ..Piece::default() }];
            RunEntry { variant, seed, policy, load: Load::AsRun, pieces }
        };
        match found.is_empty() {
            true => Err(Problem::bad_input(format!("{} holds no recording of a live run", folder.display()))
                .help("give a folder that `foretoken live` or `foretoken validate` wrote to")),
            false => Ok(Runs { entries: found.into_iter().map(entry).collect(), ..Runs::new(Vec::new()) }),
        }
    }

    fn listed(list: &Path) -> Result<Runs> {
        let bad = |e: &dyn std::fmt::Display| {
            Problem::bad_input(format!("{} is damaged or was changed: {e}", list.display())).help(AGAIN)
        };
        let text = fs_err::read_to_string(list).map_err(|e| bad(&e))?;
        seal::check(Syntax::Json, &text).map_err(|e| bad(&e))?;
        let value: serde_json::Value = serde_json::from_str(&text).map_err(|e| bad(&e))?;
        // The first version of the list had no `version` key.
        let version = value.get("version").and_then(serde_json::Value::as_u64).unwrap_or(1);
        if version != u64::from(VERSION) {
            let message =
                format!("{} is of version {version}, and this Foretoken reads version {VERSION}", list.display());
            return Err(Problem::bad_input(message).help("run the validation again: its runs are in pieces now"));
        }
        serde_json::from_value(value).map_err(|e| bad(&e))
    }

    /// Checks that this list of runs has every tape that the manifest has.
    pub fn check(&self, folder: &Path, manifest: &Manifest) -> Result<()> {
        let known = |name: &str| self.entries.iter().flat_map(RunEntry::tapes).any(|tape| tape == name);
        let finished = manifest.files.keys().filter_map(|name| name.strip_prefix(TAPES)?.strip_prefix('/'));
        match finished.into_iter().find(|name| !known(name)) {
            Some(name) => {
                let message = format!("{}: {TAPES}/{name} is missing, and the manifest lists it", folder.display());
                Err(Problem::bad_input(message).help(AGAIN))
            }
            None => Ok(()),
        }
    }

    /// The text of `runs.json`: the list of live runs as JSON, with a checksum at its end (a seal).
    pub fn to_json(&self) -> String {
        seal::seal(Syntax::Json, &serde_json::to_string_pretty(self).expect("plain data always serialises"))
    }

    pub fn probes(&self) -> impl Iterator<Item = &Probe> {
        self.entries.iter().flat_map(|entry| &entry.pieces).flat_map(|piece| &piece.probes)
    }
}

const _: () = assert!(PROBES == PARTS + 1, "before, between and after the parts");

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_profiler::{Kind, Role, Shape};

    #[test]
    fn each_tape_of_a_live_folder_is_a_run() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Runs::of(dir.path()).unwrap_err().message().contains("holds no recording"));
        std::fs::create_dir(dir.path().join(TAPES)).unwrap();
        for name in ["v0-s0-p10.tape", "v0-s0-p2.tape", "notes.txt"] {
            std::fs::write(dir.path().join(TAPES).join(name), "").unwrap();
        }
        let runs = Runs::of(dir.path()).unwrap();
        let found: Vec<_> = runs.entries.iter().map(|e| (e.policy, e.load)).collect();
        assert_eq!(found, [(2, Load::AsRun), (10, Load::AsRun)]);
        assert_eq!(runs.standing(&runs.entries[0].pieces[0], 0.0), Standing::Counts, "nothing was probed");
        let listed = Runs { rates: vec![3.5], ..runs };
        let text = listed.to_json();
        std::fs::write(dir.path().join(RUNS_JSON), &text).unwrap();
        assert_eq!(Runs::of(dir.path()).unwrap(), listed);
        std::fs::write(dir.path().join(RUNS_JSON), text.replace("\"policy\": 2", "\"policy\": 3")).unwrap();
        let said = Runs::of(dir.path()).unwrap_err();
        assert!(said.message().contains("runs.json is damaged or was changed: its checksum is"), "{}", said.message());
        let old = seal::seal(Syntax::Json, "{\n  \"entries\": [],\n  \"drift\": null\n}");
        std::fs::write(dir.path().join(RUNS_JSON), old).unwrap();
        let said = Runs::of(dir.path()).unwrap_err();
        assert!(said.message().contains("is of version 1, and this Foretoken reads version 2"), "{}", said.message());
    }

    #[test]
    fn a_piece_counts_by_its_probes_alone() {
        let shape = Shape { kind: Kind::Decode, requests: 1, new: 1, context: 16 };
        let runs = Runs::new(vec![Probed { role: Role::Target, shape }]);
        let piece = |tapes: &[&str], seconds: &[f64]| Piece {
            first: 0,
            tapes: tapes.iter().map(|t| (*t).to_owned()).collect(),
            probes: seconds.iter().map(|&s| Probe { seconds: vec![s] }).collect(),
        };
        let standing = |tapes: &[&str], seconds: &[f64]| runs.standing(&piece(tapes, seconds), 0.05);
        assert_eq!(standing(&["a", "b"], &[1.0, 1.04, 1.02]), Standing::Counts);
        assert_eq!(standing(&["a", "b"], &[1.0, 1.06, 1.0]), Standing::Changed);
        assert_eq!(standing(&["a", "b"], &[1.0, 0.0, 1.0]), Standing::Changed);
        for (tapes, seconds) in
            [(&["a", "b"][..], &[1.0, 1.0][..]), (&["a"], &[1.0, 1.0]), (&["a"], &[1.0]), (&[], &[])]
        {
            assert_eq!(standing(tapes, seconds), Standing::Unended, "{tapes:?} {seconds:?}");
        }
    }
}
