//! The progress of each shard, as files in the results folder that all shards share.

use super::folder::Folder;
use super::lock::Lock;
use super::manifest::{Manifest, Timing};
use super::shard::Shard;
use super::unwritten::{make_folder, write_problem};
use crate::spec::problem::{Problem, Result};
use foretoken_report::Staged;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The progress of one shard, as its progress file stores it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Mark {
    /// The shard: its number I, and the number N of shards.
    pub shard: Shard,
    /// The digest of the run's plan; it covers the experiment, the input files and Foretoken's version.
    pub digest: String,
    pub version: String,
    /// Are all cells of the shard finished? False as long as the shard runs, and if a cell failed.
    pub complete: bool,
    /// How many runs the last command for this shard made, and how long they took.
    pub timing: Timing,
}

/// The path of the folder with the progress files of a run's shards, one file per shard.
pub struct Marks(PathBuf);

impl Marks {
    /// Opens the progress files of a results folder. Makes the folder's subfolder `shards` if it is missing.
    pub fn of(folder: &Folder) -> Result<Marks> {
        let path = folder.shards();
        make_folder(&path)?;
        Ok(Marks(path))
    }

    /// The progress of every shard that began, in the order of shard numbers.
    pub fn all(&self) -> Result<Vec<Mark>> {
        let cannot = |what: String| {
            Problem::bad_input(what)
                .help("remove that file and run its shard again with --resume: finished cells are kept")
        };
        let entries =
            std::fs::read_dir(&self.0).map_err(|e| cannot(format!("cannot look into {}: {e}", self.0.display())))?;
        let files = entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "json"));
        let read = |path: PathBuf| {
            let text = std::fs::read_to_string(&path).map_err(|e| e.to_string());
            let mark = text.and_then(|t| serde_json::from_str(&t).map_err(|e| e.to_string()));
            mark.map_err(|e| cannot(format!("{}: is not a progress file of a shard: {e}", path.display())))
        };
        let mut marks: Vec<Mark> = files.map(read).collect::<Result<_>>()?;
        marks.sort_by_key(|mark| mark.shard);
        Ok(marks)
    }

    /// Checks that all shards that were begun belong to the run that `manifest` describes. Returns the number N of
    /// shards (`None` if no shard was begun) and the progress of each shard that was begun.
    pub fn agree(&self, manifest: &Manifest) -> Result<(Option<u32>, Vec<Mark>)> {
        let marks = self.all()?;
        let of = marks.first().map(|mark| mark.shard.of);
        for mark in &marks {
            let Mark { shard, digest, version, .. } = mark;
            let what = if Some(shard.of) != of {
                format!("shards of {} and of {}", of.unwrap_or_default(), shard.of)
            } else if *version != manifest.version {
                format!("shard {shard} of Foretoken {version}, and the run was begun by {}", manifest.version)
            } else if *digest != manifest.digest {
                format!("shard {shard} of another experiment: its digest is {digest}, the run's is {}", manifest.digest)
            } else {
                continue;
            };
            return Err(Problem::bad_input(format!("{} holds {what}", self.0.display()))
                .help("run all shards with one N, one version and one experiment into a folder of their own"));
        }
        Ok((of, marks))
    }

    /// Begins a shard: takes its lock and writes its progress file. As long as the returned lock lives, no other
    /// process runs the shard. Returns `None` if the shard is complete and the stored results of its runs are undamaged
    /// (`whole` is true). `goes_on`: may the call continue a shard that was begun before?
    pub fn begin(&self, shard: Shard, manifest: &Manifest, goes_on: bool, whole: bool) -> Result<Option<Lock>> {
        let (of, marks) = self.agree(manifest)?;
        if let Some(of) = of.filter(|&of| of != shard.of) {
            let message = format!("{} holds shards of {of}, and this is one of {}", self.0.display(), shard.of);
            return Err(Problem::bad_input(message).help("run all shards with one N, or choose another folder with -o"));
        }
        let lock = Lock::try_take(&self.0.join(format!("{}-of-{}.lock", shard.index, shard.of)))?;
        let Some(lock) = lock else {
            return Err(Problem::bad_input(format!("shard {shard} is running already in {}", self.0.display()))
                .help("wait until that one ends"));
        };
        match marks.iter().find(|mark| mark.shard == shard) {
            Some(mark) if mark.complete && whole => return Ok(None),
            Some(mark) if mark.complete && !goes_on => {
                let message = format!("shard {shard} was complete, but some of its cells are now damaged or missing");
                return Err(Problem::bad_input(message).help("run those again: --resume"));
            }
            Some(_) if !goes_on => {
                return Err(Problem::bad_input(format!("shard {shard} was begun before and did not end"))
                    .help("go on with it: --resume; try again what failed: --resume --retry-failed"));
            }
            _ => {}
        }
        self.write(shard, manifest, false, Timing::default())?;
        Ok(Some(lock))
    }

    pub fn write(&self, shard: Shard, manifest: &Manifest, complete: bool, timing: Timing) -> Result<()> {
        let mark = Mark { shard, digest: manifest.digest.clone(), version: manifest.version.clone(), complete, timing };
        let text = serde_json::to_string_pretty(&mark).expect("plain data always serialises") + "\n";
        let path = self.0.join(format!("{}-of-{}.json", shard.index, shard.of));
        Staged::write_all_to(&path, text.as_bytes()).map_err(write_problem)
    }

    /// Takes the lock for merging shards. As long as the returned lock lives, no other process merges the shards.
    pub fn merging(&self) -> Result<Lock> {
        Lock::try_take(&self.0.join("merge.lock"))?.ok_or_else(|| {
            Problem::bad_input(format!("another merge is at work in {}", self.0.display()))
                .help("wait until that one ends")
        })
    }
}
