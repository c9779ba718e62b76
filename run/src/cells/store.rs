//! Stores finished cells on disk, so that a killed run can be resumed. Each cell has a file of its own, which is
//! written completely or not at all.
//!
//! A file ends with a seal, a digest of its other bytes. The seal also depends on the experiment and the cell. If the
//! seal does not match (a damaged file, or a cell of another experiment), a warning names the file, and the cell is run
//! again.

use super::cell_file::{CellFile, END, PiecesOf, digest, parts, seal, split};
use super::folder::Folder;
use super::id::CellId;
use super::unwritten::{make_folder, write_problem};
use crate::spec::problem::{Problem, Result};
use foretoken_report::{Cell, Entry, FleetCell};
use foretoken_sim::metrics::{CalibrationBin, LengthRow, PIECE, Pieces, Replicas, Series};
use foretoken_sim::{RequestRecords, Run, StepRecord, Summary};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The results of one run, as they are stored in the cell's file.
#[derive(Debug, Serialize, Deserialize)]
pub struct Stored {
    /// Latencies, rates and counts over the whole run of one policy.
    pub summary: Summary,
    /// The run over time, in bins of equal width: batch size, and numbers of drafted, accepted and emitted tokens.
    pub series: Series,
    /// One record per request of the run. Empty if the records are stored separately, as pieces in the run's file.
    pub records: RequestRecords,
    /// One record per step of the engine; empty unless the experiment sets `output.steps`.
    pub steps: Vec<StepRecord>,
    /// Warnings about the run for the user, one sentence each.
    pub warnings: Vec<String>,
    /// Number of the target's KV blocks that requests could use.
    pub usable_blocks: u32,
    /// For each batch size and draft length: the number and the total time of the run's steps with them, and other sums
    /// over these steps.
    pub lengths: Vec<LengthRow>,
    /// For each bin of the draft model's confidence: the number of verified draft tokens with a confidence in the bin,
    /// and the number of these tokens that were right.
    pub calibration: Vec<CalibrationBin>,
    /// For a fleet: the counts (requests, tokens, steps) of each replica, and the replica that served each request;
    /// `None` for one engine.
    pub replicas: Option<Replicas>,
}

impl Stored {
    /// Takes the results to store from a run. `summary` and `warnings` are the summary and the warnings of this run.
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

    /// A digest of all results of a run except its warnings. `records` are the per-request records, which may lie
    /// outside of `self`.
    pub fn numbers(&self, records: &dyn Pieces) -> blake3::Hash {
        let Stored { summary, series, records: _, steps, warnings: _, usable_blocks, lengths, calibration, replicas } =
            self;
        let numbers = (summary, series, steps, usable_blocks, lengths, calibration, replicas);
        let mut hasher = blake3::Hasher::new();
        hasher.update(&postcard::to_stdvec(&numbers).expect("plain data always serialises into memory"));
        let mut add = |piece: &RequestRecords| {
            let piece = postcard::to_stdvec(piece).expect("plain data always serialises into memory");
            hasher.update(&piece);
        };
        // Equal per-request records have the same digest, whether they are whole or in pieces.
        records.each(&mut |records| match records.len() {
            0..=PIECE => add(records),
            _ => split(records).for_each(|piece| add(&piece)),
        });
        hasher.finalize()
    }

    /// Splits a run's results into four parts: the numbers for tables and figures (`Cell`), the records of steps, the
    /// warnings, and the number of KV blocks that requests could use. `entry` says which run it is; `records` are the
    /// records of the run's requests.
    pub fn into_cell(self, entry: Entry, records: &dyn Pieces) -> (Cell, Vec<StepRecord>, Vec<String>, u32) {
        let cell = Cell::new(entry, self.summary).with_latencies(records);
        let fleet =
            self.replicas.map(|Replicas { each, flows, scaled, .. }| Box::new(FleetCell { each, flows, scaled }));
        let cell = Cell { series: self.series, lengths: self.lengths, calibration: self.calibration, fleet, ..cell };
        (cell, self.steps, self.warnings, self.usable_blocks)
    }
}

/// [`Store::damage`] checks at most this many other cells to find the cell to which a damaged file belongs.
const MOST_OTHERS: usize = 1000;

/// The folder in which the finished cells of a plan are stored.
pub struct Store {
    folder: PathBuf,
    key: blake3::Hash,
}

impl Store {
    pub fn open(results: &Folder, plan_digest: &str) -> Result<Store> {
        let folder = results.cells();
        make_folder(&folder)?;
        Ok(Store { folder, key: blake3::hash(plan_digest.as_bytes()) })
    }

    /// Is the result of the cell stored in an undamaged file?
    pub fn has(&self, id: CellId) -> bool {
        digest(&self.path(id)).is_ok_and(|read| read.is_some_and(|(digest, seal)| self.seals(id, &digest) == seal))
    }

    /// The path of the file with the results of the cell `id`; the file may not exist.
    pub fn file(&self, id: CellId) -> PathBuf {
        self.path(id)
    }

    /// Describes the damage to the file of a cell; `None` if the file is missing or undamaged. `others` are the cells
    /// of the run. If the file is the file of another cell among the first 1000 of `others`, the text says so.
    pub fn damage(&self, id: CellId, others: impl IntoIterator<Item = CellId>) -> Option<String> {
        let path = self.path(id);
        if !path.exists() || self.has(id) {
            return None;
        }
        let bytes = std::fs::metadata(&path).map_or(0, |file| file.len());
        let why = match digest(&path) {
            Err(e) => format!("cannot be read: {e}"),
            Ok(_) if bytes == 0 => "is damaged: it is empty".to_owned(),
            Ok(_) if bytes <= END as u64 => format!("is damaged: it is cut to {bytes} bytes"),
            Ok(None) => unreachable!("it is longer than a seal"),
            Ok(Some((digest, seal))) => {
                let whose = |other: &CellId| self.seals(*other, &digest) == seal;
                match others.into_iter().take(MOST_OTHERS).find(whose) {
                    Some(other) => format!("is damaged: it is the file of another cell, {}", name(other)),
                    None => "is damaged: its checksum does not match its contents".to_owned(),
                }
            }
        };
        Some(format!("{} {why}", path.display()))
    }

    /// Reads the stored results of a cell. `None` if the cell is not stored, or if its file is damaged.
    pub fn load(&self, id: CellId) -> Result<Option<Stored>> {
        let Some((mut stored, pieces)) = self.open_cell(id)? else { return Ok(None) };
        stored.records = pieces.together().map_err(|e| Problem::failed(e.to_string()))?;
        Ok(Some(stored))
    }

    /// Reads the results of a cell as [`load`](Store::load) does, but leaves the per-request records in the file, to be
    /// read in pieces.
    pub fn open_cell(&self, id: CellId) -> Result<Option<(Stored, PiecesOf)>> {
        if !self.has(id) {
            return Ok(None);
        }
        let unread = |e: &dyn std::fmt::Display| {
            Problem::failed(format!("{}: cannot be read back: {e}", self.path(id).display()))
        };
        let (rest, pieces) = parts(&self.path(id)).map_err(|e| unread(&e))?;
        Ok(Some((postcard::from_bytes(&rest).map_err(|e| unread(&e))?, pieces)))
    }

    /// Begins the results file of the cell `id`. The records of its requests are added while the run goes on.
    pub fn begin(&self, id: CellId) -> Result<CellFile> {
        CellFile::create(&self.path(id), (self.key, name(id))).map_err(write_problem)
    }

    pub fn save(&self, id: CellId, stored: &Stored) -> Result<()> {
        let mut file = self.begin(id)?;
        let _ = split(&stored.records).all(|piece| file.add(piece));
        self.finish(file, stored)
    }

    /// Completes the results file of a cell, to which the per-request records were added before. Records in `stored`
    /// are not written.
    pub fn finish(&self, file: CellFile, stored: &Stored) -> Result<()> {
        let Stored { summary, series, records: _, steps, warnings, usable_blocks, lengths, calibration, replicas } =
            stored;
        let none = RequestRecords::default();
        // The fields stand in the order of the struct `Stored`, so that a `Stored` can be decoded from them.
        let rest = (summary, series, &none, steps, warnings, usable_blocks, lengths, calibration, replicas);
        file.finish(&rest).map_err(write_problem)
    }

    fn seals(&self, id: CellId, digest: &blake3::Hash) -> [u8; blake3::OUT_LEN] {
        *seal(&(self.key, name(id)), digest).as_bytes()
    }

    fn path(&self, id: CellId) -> PathBuf {
        self.folder.join(name(id))
    }
}

/// The name of the file with the results of the cell `id`.
pub fn name(id: CellId) -> String {
    format!("v{}-s{}-p{}.cell", id.variant, id.seed, id.policy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_report::ReportError;
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
