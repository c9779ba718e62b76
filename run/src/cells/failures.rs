//! The failures of cells in a shard, a part of a run for one of several machines. If a cell fails, its error is written
//! into the folder of finished cells, and the shard goes on with its other cells.

use super::folder::Folder;
use super::id::CellId;
use super::store::name;
use super::unwritten::write_problem;
use crate::spec::problem::{Problem, Result};
use foretoken_report::{Key, Staged};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Why a cell failed and has no result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The cell that failed, as text: policy, swept values and seed.
    pub cell: String,
    /// The exit code with which the program ends because of this failure.
    pub exit: u8,
    pub message: String,
    /// The hint of the error that made the cell fail: what the user can do.
    pub help: String,
}

/// The path of the folder, in the results, with a file for each cell that failed. The file says why the cell failed.
pub struct Failures(PathBuf);

impl Failures {
    /// The files in the results folder `folder` that say why cells failed. Does not read them yet.
    pub fn of(folder: &Folder) -> Failures {
        Failures(folder.cells())
    }

    /// Why the cell `id` failed; `None` if no failure is stored for it. If the failure's file cannot be parsed, returns
    /// a failure that says so.
    pub fn get(&self, id: CellId) -> Option<Failure> {
        let text = std::fs::read_to_string(self.path(id)).ok()?;
        let unreadable = |e| Failure {
            cell: name(id),
            exit: 1,
            message: format!("{} cannot be read: {e}", self.path(id).display()),
            help: "run it again with --retry-failed".into(),
        };
        Some(serde_json::from_str(&text).unwrap_or_else(unreadable))
    }

    /// Writes the file that says why a cell failed.
    pub fn keep(&self, id: CellId, key: &Key, problem: &Problem) -> Result<()> {
        let failure = Failure {
            cell: key.to_string(),
            exit: problem.exit as u8,
            message: problem.message().to_owned(),
            help: problem.help_text().to_owned(),
        };
        let text = serde_json::to_string_pretty(&failure).expect("plain data always serialises") + "\n";
        Staged::write_all_to(&self.path(id), text.as_bytes()).map_err(write_problem)
    }

    /// Removes the stored failure of a cell, so that the cell is run again.
    pub fn forget(&self, id: CellId) {
        let _ = std::fs::remove_file(self.path(id));
    }

    fn path(&self, id: CellId) -> PathBuf {
        self.0.join(format!("{}.failure.json", name(id).trim_end_matches(".cell")))
    }
}
