//! Stores the probes of a search on disk as soon as each ends, so that an interrupted search can continue.

use crate::cells::{Folder, PROBES, make_folder, write_problem};
use crate::spec::problem::Result;
use foretoken_report::Staged;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Names a search (one policy with one seed at one combination of swept values) by its indices in the experiment's
/// plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchId {
    pub variant: usize,
    pub policy: usize,
    pub seed: usize,
}

/// The folder that stores the probes of one experiment's searches.
pub struct Store {
    folder: PathBuf,
    /// The beginning of the names of the files.
    name: String,
    plan: String,
}

#[derive(Serialize, Deserialize)]
struct Stored<T> {
    plan: String,
    #[serde(flatten)]
    found: T,
}

impl Store {
    /// Opens the store in a results folder. The names of its files begin with `name`. `plan` is the digest of the
    /// experiment's plan.
    pub fn open(results: &Folder, plan: &str, name: &str) -> Result<Store> {
        let folder = results.path().join(PROBES);
        make_folder(&folder)?;
        Ok(Store { folder, name: name.to_owned(), plan: plan.to_owned() })
    }

    fn path(&self, id: SearchId) -> PathBuf {
        self.folder.join(format!("{}v{}-p{}-s{}.json", self.name, id.variant, id.policy, id.seed))
    }

    /// What is stored of the search `id`. The default if the file is missing, is damaged, or was written for a plan
    /// with another digest.
    pub fn load<T: DeserializeOwned + Default>(&self, id: SearchId) -> T {
        let bytes = std::fs::read(self.path(id)).ok();
        let stored = bytes.and_then(|bytes| serde_json::from_slice::<Stored<T>>(&bytes).ok());
        stored.filter(|stored| stored.plan == self.plan).map(|stored| stored.found).unwrap_or_default()
    }

    pub fn save(&self, id: SearchId, found: &impl Serialize) -> Result<()> {
        let bytes = serde_json::to_vec(&Stored { plan: self.plan.clone(), found });
        let bytes = bytes.expect("plain data always serialises");
        Staged::write_all_to(&self.path(id), &bytes).map_err(write_problem)
    }
}
