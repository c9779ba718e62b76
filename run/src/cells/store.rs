//! Stores finished cells on disk, so that a killed run can be resumed. Each cell has a file of its own, which is
//! written completely or not at all.
//!
//! A file starts with a digest of its other bytes. The digest also depends on the plan and the cell. If it does not
//! match (a damaged file, or a cell of another plan), a warning names the file, and the cell is run again.

use super::folder::Folder;
use super::id::CellId;
use super::unwritten::write_problem;
use foretoken_report::{Cell, Entry, ReportError, Staged};
use foretoken_sim::metrics::{CalibrationBin, LengthRow, Replicas, Series};
use foretoken_sim::{RequestRecords, Run, StepRecord, Summary};
use foretoken_spec::problem::{Problem, Result};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::PathBuf;

/// The results of one run, as they are stored in the cell's file.
#[derive(Debug, Serialize, Deserialize)]
pub struct Stored {
    /// Latencies, rates and counts over the whole run.
    pub summary: Summary,
    /// Batch size and tokens over time, in bins.
    pub series: Series,
    /// One record per request.
    pub records: RequestRecords,
    /// One record per step; empty unless the experiment asks for steps.
    pub steps: Vec<StepRecord>,
    /// Warnings for the user, one sentence each.
    pub warnings: Vec<String>,
    /// Number of the target's KV blocks that requests could use.
    pub usable_blocks: u32,
    /// Sums over steps, by batch size and draft length.
    pub lengths: Vec<LengthRow>,
    /// Number of drafts and of right drafts in each bin of confidence.
    pub calibration: Vec<CalibrationBin>,
    /// The counts of each replica, and the replica of each request; `None` for one engine.
    pub replicas: Option<Replicas>,
}

impl Stored {
    /// Takes the results to store from a run. `summary` and `warnings` belong to the run.
    pub fn of(run: Run, summary: Summary, warnings: Vec<String>) -> Stored {
        Stored {
            summary,
            series: run.series,
            records: run.records,
            steps: run.steps,
            warnings,
            usable_blocks: run.usable_blocks,
            lengths: run.totals.lengths.rows(),
            calibration: run.totals.calibration.bins().to_vec(),
            replicas: run.replicas,
        }
    }

    /// A digest of all results except the warnings.
    pub fn numbers(&self) -> blake3::Hash {
        let Stored { summary, series, records, steps, warnings: _, usable_blocks, lengths, calibration, replicas } =
            self;
        let numbers = (summary, series, records, steps, usable_blocks, lengths, calibration, replicas);
        blake3::hash(&postcard::to_stdvec(&numbers).expect("plain data always serialises into memory"))
    }

    /// Splits the results into the cell for tables and figures, the records of requests, the records of steps, the
    /// warnings, and the number of usable KV blocks.
    pub fn into_cell(self, entry: Entry) -> (Cell, RequestRecords, Vec<StepRecord>, Vec<String>, u32) {
        let cell = Cell::new(entry, self.summary).with_latencies(&self.records);
        let cell = Cell { series: self.series, lengths: self.lengths, calibration: self.calibration, ..cell };
        (cell, self.records, self.steps, self.warnings, self.usable_blocks)
    }
}

/// [`Store::damage`] checks at most this many other cells to find the cell to which a damaged file belongs.
const MOST_OTHERS: usize = 1000;

/// The folder of finished cells of one plan.
pub struct Store {
    folder: PathBuf,
    key: blake3::Hash,
}

impl Store {
    /// Opens the store of a plan with the given digest.
    ///
    /// # Errors
    /// The folder of the cells cannot be made.
    pub fn open(results: &Folder, plan_digest: &str) -> Result<Store> {
        let folder = results.cells();
        std::fs::create_dir_all(&folder)
            .map_err(|e| Problem::failed(format!("cannot make the folder {}: {e}", folder.display())))?;
        Ok(Store { folder, key: blake3::hash(plan_digest.as_bytes()) })
    }

    /// Is the cell stored in an undamaged file?
    pub fn has(&self, id: CellId) -> bool {
        self.bytes(id).is_some()
    }

    /// The path of a cell's file, which may not exist.
    pub fn file(&self, id: CellId) -> PathBuf {
        self.path(id)
    }

    /// Describes the damage to a cell's file; `None` if the file is missing or undamaged. `others` are the cells of the
    /// run. If the file is the file of another cell among the first 1000 of `others`, the text says so.
    pub fn damage(&self, id: CellId, others: impl IntoIterator<Item = CellId>) -> Option<String> {
        let path = self.path(id);
        if !path.exists() || self.has(id) {
            return None;
        }
        let why = match std::fs::read(&path) {
            Err(e) => format!("cannot be read: {e}"),
            Ok(bytes) if bytes.is_empty() => "is damaged: it is empty".to_owned(),
            Ok(bytes) if bytes.len() <= blake3::OUT_LEN => format!("is damaged: it is cut to {} bytes", bytes.len()),
            Ok(bytes) => {
                let (seal, body) = bytes.split_at(blake3::OUT_LEN);
                let whose = |other: &CellId| self.seal(*other, body).as_bytes().as_slice() == seal;
                match others.into_iter().take(MOST_OTHERS).find(whose) {
                    Some(other) => format!("is damaged: it is the file of another cell, {}", name(other)),
                    None => "is damaged: its checksum does not match its contents".to_owned(),
                }
            }
        };
        Some(format!("{} {why}", path.display()))
    }

    /// Reads a cell's results. `None` if the cell is not stored, or if its file is damaged.
    ///
    /// # Errors
    /// The digest matches, but the content cannot be decoded.
    pub fn load(&self, id: CellId) -> Result<Option<Stored>> {
        let Some(bytes) = self.bytes(id) else { return Ok(None) };
        let stored = postcard::from_bytes(&bytes)
            .map_err(|e| Problem::failed(format!("{}: cannot be read back: {e}", self.path(id).display())))?;
        Ok(Some(stored))
    }

    /// Writes a finished cell to its file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, id: CellId, stored: &Stored) -> Result<()> {
        let body = postcard::to_stdvec(stored).expect("plain data always serialises into memory");
        let path = self.path(id);
        let cannot = |cause| write_problem(ReportError::Write { path: path.clone(), cause });
        let mut file = Staged::create(&path).map_err(write_problem)?;
        file.write_all(self.seal(id, &body).as_bytes()).and_then(|()| file.write_all(&body)).map_err(cannot)?;
        file.commit().map_err(write_problem)
    }

    /// The content of a cell's file, without the digest. `None` if the file is missing or damaged.
    fn bytes(&self, id: CellId) -> Option<Vec<u8>> {
        let mut bytes = std::fs::read(self.path(id)).ok()?;
        let body = bytes.split_off(blake3::OUT_LEN.min(bytes.len()));
        (self.seal(id, &body).as_bytes().as_slice() == bytes).then_some(body)
    }

    fn seal(&self, id: CellId, body: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(self.key.as_bytes());
        hasher.update(name(id).as_bytes()).update(body);
        hasher.finalize()
    }

    fn path(&self, id: CellId) -> PathBuf {
        self.folder.join(name(id))
    }
}

/// The file name of a cell.
pub fn name(id: CellId) -> String {
    format!("v{}-s{}-p{}.cell", id.variant, id.seed, id.policy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::Totals;
    use foretoken_sim::metrics::Slo;

    fn stored() -> Stored {
        let records = RequestRecords::new(3);
        let summary = Summary::new(&records, &Totals::default(), Slo::default(), &[], 10, 16);
        let warnings = vec!["w".into()];
        Stored {
            summary,
            series: Series::default(),
            records,
            steps: vec![],
            warnings,
            usable_blocks: 9,
            lengths: vec![],
            calibration: vec![],
            replicas: None,
        }
    }

    #[test]
    fn a_refused_write_is_not_blamed_on_a_full_disk() {
        let help = |kind: std::io::ErrorKind| {
            let error = ReportError::Write { path: "x".into(), cause: kind.into() };
            write_problem(error).help_text().to_owned()
        };
        assert!(help(std::io::ErrorKind::PermissionDenied).starts_with("make the folder writable"));
        assert!(help(std::io::ErrorKind::ReadOnlyFilesystem).starts_with("make the folder writable"));
        assert!(help(std::io::ErrorKind::StorageFull).starts_with("free some space"));
        assert!(help(std::io::ErrorKind::OutOfMemory).starts_with("it ran out of memory"));
        let cause = std::io::Error::other("Allocation error : not enough memory");
        let zstd = write_problem(ReportError::Write { path: "x".into(), cause });
        assert!(zstd.help_text().starts_with("it ran out of memory"));
    }

    #[test]
    fn cells_come_back_unless_damaged_or_of_another_plan() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::at(dir.path().to_path_buf());
        let store = Store::open(&folder, "a").unwrap();
        let id = CellId { variant: 0, seed: 1, policy: 2 };
        assert!(!store.has(id));
        store.save(id, &stored()).unwrap();
        let back = store.load(id).unwrap().unwrap();
        assert_eq!((back.summary, back.records, back.usable_blocks), (stored().summary, stored().records, 9));
        assert!(!store.has(CellId { policy: 3, ..id }));
        assert!(!Store::open(&folder, "b").unwrap().has(id));

        let path = store.path(id);
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert!(!store.has(id) && store.damage(id, []).is_some());
        std::fs::write(&path, b"short").unwrap();
        assert!(!store.has(id) && store.damage(id, []).is_some());
        std::fs::remove_file(&path).unwrap();
        assert!(!store.has(id) && store.damage(id, []).is_none());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_of_a_cell_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&Folder::at(dir.path().to_path_buf()), "a").unwrap();
        let id = CellId { variant: 0, seed: 0, policy: 0 };
        store.save(id, &stored()).unwrap();
        let path = store.path(id);
        let bytes = std::fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[at] ^= 1 << bit;
                std::fs::write(&path, &other).unwrap();
                assert!(store.load(id).unwrap().is_none() && store.damage(id, []).is_some(), "byte {at}, bit {bit}");
            }
            std::fs::write(&path, &bytes[..at]).unwrap();
            assert!(store.load(id).unwrap().is_none() && store.damage(id, []).is_some(), "cut at {at}");
        }
    }
}
