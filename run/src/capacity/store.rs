//! Stores the probes (runs at one rate each) of a capacity search on disk as soon as each ends, so that an interrupted
//! search can continue.

use crate::capacity::probe::Probe;
use crate::cells::{Folder, PROBES, write_problem};
use crate::spec::problem::{Problem, Result};
use foretoken_report::Staged;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Names a search (one policy with one seed at one combination of swept values) by its indices in the experiment's
/// plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchId {
    /// Index of the search's variant among the experiment's variants.
    pub variant: usize,
    /// Index of the search's policy among the experiment's policies.
    pub policy: usize,
    /// Index of the search's seed among the experiment's seeds.
    pub seed: usize,
}

/// The folder that stores the runs of one experiment's capacity searches.
pub struct Store {
    folder: PathBuf,
    /// The beginning of the names of the files.
    name: String,
    plan: String,
}

#[derive(Serialize, Deserialize)]
struct StoredProbes {
    plan: String,
    probes: Vec<Probe>,
}

impl Store {
    /// Opens the store of tried rates in a results folder. `plan` is the digest of the experiment's plan.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn open(results: &Folder, plan: &str) -> Result<Store> {
        let folder = results.path().join(PROBES);
        std::fs::create_dir_all(&folder)
            .map_err(|e| Problem::failed(format!("cannot make the folder {}: {e}", folder.display())))?;
        Ok(Store { folder, name: String::new(), plan: plan.to_owned() })
    }

    /// The store of other searches in the same folder, whose files' names begin with `name`.
    pub fn named(self, name: &str) -> Store {
        Store { name: name.to_owned(), ..self }
    }

    fn path(&self, id: SearchId) -> PathBuf {
        self.folder.join(format!("{}v{}-p{}-s{}.json", self.name, id.variant, id.policy, id.seed))
    }

    /// The stored runs of the search `id`, one per tried rate. Empty if the file is missing, is damaged, or was written
    /// for a plan (list of all runs) with another digest.
    pub fn load(&self, id: SearchId) -> Vec<Probe> {
        let stored =
            std::fs::read(self.path(id)).ok().and_then(|bytes| serde_json::from_slice::<StoredProbes>(&bytes).ok());
        stored.filter(|stored| stored.plan == self.plan).map_or_else(Vec::new, |stored| stored.probes)
    }

    /// Writes all runs of the search `id`, one per tried rate.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, id: SearchId, probes: &[Probe]) -> Result<()> {
        let stored = StoredProbes { plan: self.plan.clone(), probes: probes.to_vec() };
        let bytes = serde_json::to_vec(&stored).expect("plain data always serialises");
        Staged::write_all_to(&self.path(id), &bytes).map_err(write_problem)
    }
}
