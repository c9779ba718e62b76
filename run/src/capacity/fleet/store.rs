//! Stores the probes of a search on disk as soon as each ends, so that an interrupted search can continue.

use super::probe::Probe;
use crate::capacity::store::SearchId;
use crate::cells::{Folder, PROBES, write_problem};
use crate::spec::problem::{Problem, Result};
use foretoken_report::Staged;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The folder that stores the runs of one experiment's search for the fewest replicas.
pub struct Store {
    folder: PathBuf,
    plan: String,
}

/// The stored runs of the search for the fewest replicas, for one policy with one seed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StoredProbes {
    plan: String,
    /// Has the search for the fewest replicas ended? False if a file of an earlier version of Foretoken lacks this
    /// field.
    #[serde(default)]
    pub ended: bool,
    /// The runs of the search for the fewest replicas, one per tried number of replicas, at the experiment's request
    /// rate.
    pub probes: Vec<Probe>,
    /// The runs that compare fleets with and without drafting, as (rate in requests per second, result).
    pub others: Vec<(f64, Probe)>,
}

impl Store {
    /// Opens the store of tried numbers of replicas in a results folder. `plan` is the digest of the experiment's plan.
    pub fn open(results: &Folder, plan: &str) -> Result<Store> {
        let folder = results.path().join(PROBES);
        std::fs::create_dir_all(&folder)
            .map_err(|e| Problem::failed(format!("cannot make the folder {}: {e}", folder.display())))?;
        Ok(Store { folder, plan: plan.to_owned() })
    }

    fn path(&self, id: SearchId) -> PathBuf {
        self.folder.join(format!("fleet-v{}-p{}-s{}.json", id.variant, id.policy, id.seed))
    }

    /// The stored runs of the search `id`. Empty if the file is missing, is damaged, or was written for a plan with
    /// another digest.
    pub fn load(&self, id: SearchId) -> StoredProbes {
        let stored =
            std::fs::read(self.path(id)).ok().and_then(|bytes| serde_json::from_slice::<StoredProbes>(&bytes).ok());
        stored.filter(|stored| stored.plan == self.plan).unwrap_or_default()
    }

    pub fn save(&self, id: SearchId, probes: &StoredProbes) -> Result<()> {
        let stored = StoredProbes { plan: self.plan.clone(), ..probes.clone() };
        let bytes = serde_json::to_vec(&stored).expect("plain data always serialises");
        Staged::write_all_to(&self.path(id), &bytes).map_err(write_problem)
    }
}
