//! The file of a finished cell. It has the per-request records in pieces, which are written while the run goes on, then
//! all other results, their length in bytes, and a seal over all of it.

use foretoken_report::{ReportError, Staged};
use foretoken_sim::RequestRecords;
use foretoken_sim::metrics::{PIECE, Pieces};
use serde::Serialize;
use std::cell::{OnceCell, RefCell};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Size in bytes of each length field in the file of a cell: one stands before each piece of per-request records, one
/// after all other results.
const LENGTH: usize = 8;

/// Number of bytes at the end of the file of a cell, after its last results: the length field of these results, and the
/// seal.
pub(super) const END: usize = LENGTH + blake3::OUT_LEN;

/// Number of bytes of the file of a cell that are read at a time to check its seal.
const BLOCK: usize = 1 << 18;

/// The results file of one run, while it is written. If it is dropped before [`finish`](CellFile::finish), no file is
/// left.
pub struct CellFile {
    file: Staged,
    hasher: blake3::Hasher,
    /// Number of bytes of per-request records that were written to the file so far.
    pieces: u64,
    /// The error of the first piece of per-request records that could not be written to the file.
    failed: Option<io::Error>,
    /// The first piece of per-request records, as long as no second piece was added. It is in memory and not in the
    /// file.
    only: Option<RequestRecords>,
    /// (The plan's digest, the cell's name): the file's seal depends on both, so the file of another experiment or
    /// another cell is refused.
    key: (blake3::Hash, String),
}

impl CellFile {
    /// Begins the results file of a cell at `path`. `key` is (the plan's digest, the cell's name).
    pub(super) fn create(path: &Path, key: (blake3::Hash, String)) -> Result<CellFile, ReportError> {
        let file = Staged::create(path)?;
        Ok(CellFile { file, hasher: blake3::Hasher::new(), pieces: 0, failed: None, only: None, key })
    }

    /// Adds the next piece of per-request records to the file. As long as there is one piece only, it stays in memory.
    /// Returns false if the pieces cannot be written.
    pub fn add(&mut self, piece: RequestRecords) -> bool {
        if self.pieces == 0 && self.only.is_none() {
            self.only = Some(piece);
            return true;
        }
        let result = self.write_only().and_then(|()| self.write_piece(&piece));
        self.failed = self.failed.take().or(result.err());
        self.failed.is_none()
    }

    /// The per-request records that were added to the file so far.
    pub fn records(&mut self) -> Result<Written<'_>, ReportError> {
        let path = self.file.path().to_path_buf();
        let cannot = |cause| ReportError::Write { path, cause };
        if let Some(cause) = self.failed.take() {
            return Err(cannot(cause));
        }
        match &self.only {
            Some(only) => Ok(Written::Only(only)),
            None => {
                let path = self.file.readable().map_err(cannot)?.to_path_buf();
                Ok(Written::Pieces(PiecesOf::new(path, 0..self.pieces)))
            }
        }
    }

    /// Writes all results other than the per-request records, and completes the file. `stored` has these results, and
    /// no per-request records.
    pub(super) fn finish(mut self, stored: &impl Serialize) -> Result<(), ReportError> {
        let path = self.file.path().to_path_buf();
        let written = match self.failed.take() {
            Some(cause) => Err(cause),
            None => self.write_only().and_then(|()| {
                let rest = postcard::to_stdvec(stored).expect("plain data always serialises into memory");
                self.write(&rest)?;
                self.write(&(rest.len() as u64).to_le_bytes())?;
                let seal = seal(&self.key, &self.hasher.finalize());
                self.file.write_all(seal.as_bytes())
            }),
        };
        written.map_err(|cause| ReportError::Write { path, cause })?;
        self.file.commit()
    }

    fn write_only(&mut self) -> io::Result<()> {
        self.only.take().map_or(Ok(()), |only| self.write_piece(&only))
    }

    fn write_piece(&mut self, piece: &RequestRecords) -> io::Result<()> {
        let bytes = postcard::to_stdvec(piece).expect("plain data always serialises into memory");
        self.write(&(bytes.len() as u64).to_le_bytes())?;
        self.write(&bytes)?;
        self.pieces += (LENGTH + bytes.len()) as u64;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.file.write_all(bytes)
    }
}

/// The per-request records that were added to a [`CellFile`]: in memory, or in the file.
pub enum Written<'a> {
    /// The only piece of the run's per-request records; it is in memory, not in the file.
    Only(&'a RequestRecords),
    /// The pieces of the per-request records in the run's file; there are several.
    Pieces(PiecesOf),
}

impl Written<'_> {
    /// The per-request records, as pieces that can be read one at a time.
    pub fn pieces(&self) -> &dyn Pieces {
        match self {
            Written::Only(only) => *only,
            Written::Pieces(pieces) => pieces,
        }
    }

    /// Says whether all pieces of the records could be read from the file so far.
    pub fn check(&self) -> Result<(), ReportError> {
        match self {
            Written::Only(_) => Ok(()),
            Written::Pieces(pieces) => pieces.check(),
        }
    }
}

/// Pieces of per-request records in the file of a cell. Each use reads the pieces from the file again, one at a time.
/// If the file has only one piece, it is read once and then stays in memory.
pub struct PiecesOf {
    path: PathBuf,
    bytes: Range<u64>,
    /// If the file has only one piece of records: this piece, from the first reading on.
    only: OnceCell<Box<RequestRecords>>,
    failed: RefCell<Option<io::Error>>,
}

impl PiecesOf {
    fn new(path: PathBuf, bytes: Range<u64>) -> PiecesOf {
        PiecesOf { path, bytes, only: OnceCell::new(), failed: RefCell::new(None) }
    }

    /// Says whether all pieces of the records could be read from the file so far.
    pub fn check(&self) -> Result<(), ReportError> {
        match self.failed.take() {
            Some(cause) => Err(ReportError::Read { path: self.path.clone(), cause: cause.to_string() }),
            None => Ok(()),
        }
    }

    /// All per-request records of the file, joined into one piece.
    pub fn together(&self) -> Result<RequestRecords, ReportError> {
        let mut all = RequestRecords::default();
        self.each(&mut |piece| all.append(piece));
        self.check().map(|()| all)
    }

    fn read(&self, f: &mut dyn FnMut(&RequestRecords)) -> io::Result<()> {
        let mut file = BufReader::with_capacity(BLOCK, File::open(&self.path)?);
        file.seek(SeekFrom::Start(self.bytes.start))?;
        let (mut at, mut bytes) = (self.bytes.start, Vec::new());
        while at < self.bytes.end {
            let mut length = [0; LENGTH];
            file.read_exact(&mut length)?;
            let length = u64::from_le_bytes(length);
            at += LENGTH as u64 + length;
            bytes.resize(length as usize, 0);
            file.read_exact(&mut bytes)?;
            let piece = postcard::from_bytes(&bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
            if LENGTH as u64 + length == self.bytes.end - self.bytes.start {
                f(self.only.get_or_init(|| Box::new(piece)));
            } else {
                f(&piece);
            }
        }
        Ok(())
    }
}

impl Pieces for PiecesOf {
    fn each(&self, f: &mut dyn FnMut(&RequestRecords)) {
        if let Some(only) = self.only.get() {
            f(only);
        } else if let Err(e) = self.read(f) {
            self.failed.borrow_mut().get_or_insert(e);
        }
    }
}

/// Splits a run's per-request records into pieces of at most [`PIECE`] requests.
pub(super) fn split(records: &RequestRecords) -> impl Iterator<Item = RequestRecords> {
    (0..records.len()).step_by(PIECE).map(|from| records.part(from..records.len().min(from + PIECE)))
}

/// The seal for the end of the file of a cell. `plan` is the plan's digest, `name` is the cell's name, and `digest` is
/// the digest of the file's bytes before the seal.
pub(super) fn seal((plan, name): &(blake3::Hash, String), digest: &blake3::Hash) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(plan.as_bytes());
    hasher.update(name.as_bytes()).update(digest.as_bytes());
    hasher.finalize()
}

/// Reads the file of a cell. Returns (the digest of the file's bytes without the seal, the seal that the file ends
/// with). A seal is a checksum. `None` if the file is too short to have a seal.
pub(super) fn digest(path: &Path) -> io::Result<Option<(blake3::Hash, [u8; blake3::OUT_LEN])>> {
    let mut file = File::open(path)?;
    let Some(mut left) = file.metadata()?.len().checked_sub(blake3::OUT_LEN as u64) else { return Ok(None) };
    let (mut hasher, mut block) = (blake3::Hasher::new(), vec![0; BLOCK]);
    while left > 0 {
        let read = &mut block[..BLOCK.min(usize::try_from(left).unwrap_or(BLOCK))];
        file.read_exact(read)?;
        hasher.update(read);
        left -= read.len() as u64;
    }
    let mut seal = [0; blake3::OUT_LEN];
    file.read_exact(&mut seal)?;
    Ok(Some((hasher.finalize(), seal)))
}

/// Reads an undamaged file of a cell. Returns (the bytes of all results other than the per-request records, the pieces
/// of the per-request records).
pub(super) fn parts(path: &Path) -> io::Result<(Vec<u8>, PiecesOf)> {
    let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let mut file = File::open(path)?;
    let end = file.metadata()?.len().checked_sub(END as u64).ok_or_else(short)?;
    file.seek(SeekFrom::Start(end))?;
    let mut length = [0; LENGTH];
    file.read_exact(&mut length)?;
    let pieces = end.checked_sub(u64::from_le_bytes(length)).ok_or_else(short)?;
    file.seek(SeekFrom::Start(pieces))?;
    let mut rest = vec![0; (end - pieces) as usize];
    file.read_exact(&mut rest)?;
    Ok((rest, PiecesOf::new(path.to_path_buf(), 0..pieces)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::Time;

    /// Per-request records that are written in pieces while a run goes on give the same file as records that are
    /// written at once.
    #[test]
    fn pieces_give_the_file_of_the_whole() {
        let dir = tempfile::tempdir().unwrap();
        let mut whole = RequestRecords::new(PIECE + 3);
        whole.arrival = (0..whole.len() as u64).map(Time).collect();
        let key = || (blake3::hash(b"plan"), "cell".to_owned());
        let write = |name: &str, pieces: Vec<RequestRecords>| {
            let path = dir.path().join(name);
            let mut file = CellFile::create(&path, key()).unwrap();
            assert!(pieces.into_iter().all(|piece| file.add(piece)));
            let mut seen = RequestRecords::default();
            let written = file.records().unwrap();
            written.pieces().each(&mut |piece| seen.append(piece));
            written.check().unwrap();
            drop(written);
            file.finish(&"rest").unwrap();
            let (rest, pieces) = parts(&path).unwrap();
            assert_eq!(postcard::from_bytes::<String>(&rest).unwrap(), "rest");
            assert_eq!(pieces.together().unwrap(), seen);
            (std::fs::read(&path).unwrap(), seen)
        };
        let at_once = write("at-once", split(&whole).collect());
        assert_eq!(at_once.1, whole);
        let first = whole.part(0..PIECE);
        let in_pieces = write("in-pieces", vec![first, whole.part(PIECE..PIECE + 3)]);
        assert!(at_once == in_pieces);
        assert!(write("small", vec![whole.part(0..9)]).1 == whole.part(0..9));
        assert_eq!(write("empty", vec![]).1.len(), 0);
    }
}
