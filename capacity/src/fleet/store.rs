//! The probes of a fleet's search on disk. Each is stored when it ends, so that an interrupted search continues.

use super::probe::Probe;
use crate::store::SearchId;
use foretoken_report::Staged;
use foretoken_run::cells::{Folder, PROBES, write_problem};
use foretoken_spec::problem::{Problem, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The folder of stored probes.
pub struct Store {
    folder: PathBuf,
    plan: String,
}

/// What is stored of a search: the probes at the experiment's own load, and the probes of other runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Kept {
    plan: String,
    /// The probes of the search.
    pub probes: Vec<Probe>,
    /// The probes of comparisons: the rate, requests a second, and the probe.
    pub others: Vec<(f64, Probe)>,
}

impl Store {
    /// Opens the store of a plan with the given digest.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn open(results: &Folder, plan: &str) -> Result<Store> {
        let folder = results.path().join(PROBES);
        std::fs::create_dir_all(&folder)
            .map_err(|e| Problem::failed(format!("cannot make the folder {}: {e}", folder.display())))?;
        Ok(Store { folder, plan: plan.to_owned() })
    }

    fn path(&self, id: SearchId) -> PathBuf {
        self.folder.join(format!("fleet-v{}-p{}-s{}.json", id.variant, id.policy, id.seed))
    }

    /// What is stored of a search; nothing if the file belongs to another plan or is damaged.
    pub fn load(&self, id: SearchId) -> Kept {
        let kept = std::fs::read(self.path(id)).ok().and_then(|bytes| serde_json::from_slice::<Kept>(&bytes).ok());
        kept.filter(|kept| kept.plan == self.plan).unwrap_or_default()
    }

    /// Writes everything about a search.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, id: SearchId, kept: &Kept) -> Result<()> {
        let kept = Kept { plan: self.plan.clone(), ..kept.clone() };
        let bytes = serde_json::to_vec(&kept).expect("plain data always serialises");
        Staged::write_all_to(&self.path(id), &bytes).map_err(write_problem)
    }
}
