//! The side file that stores an unfinished measurement as frames; a frame has a checksum and JSON. The first frame is
//! the setup. Each finished visit is appended as a frame. After Ctrl-C or a kill, at most the last frame is incomplete.
//! If the frame of a visit is damaged, this visit and all later visits are measured again.

use crate::measure::{Stop, Visit};
use crate::setup::Setup;
use foretoken_traces::intact::frames::{FrameError, Kind, Next, Reader, Writer};
use std::fs::{File, TryLockError};
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};

const KIND: Kind = Kind { name: b"FTKMEAS", version: b'1' };

/// An open side file, which stores an unfinished measurement. Finished visits are appended to it.
#[derive(Debug)]
pub struct Partial {
    file: Writer<File>,
    path: PathBuf,
}

/// The finished visits that [`Partial::open`] read from the side file of an unfinished measurement.
#[derive(Debug, Default)]
pub struct SavedVisits {
    /// The undamaged visits that the file of an unfinished measurement stores, in the order in which they were planned.
    pub visits: Vec<Visit>,
    /// Why visits were dropped and will be measured again; `None` if the whole file is undamaged. A file that ends in
    /// the middle of a visit, as after a kill, is not damaged.
    pub dropped: Option<String>,
}

/// Why the side file, which stores an unfinished measurement, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PartialError {
    /// The file of an unfinished measurement cannot be read or written.
    #[error("{}: {cause}", path.display())]
    Io {
        /// Path of the file of the unfinished measurement.
        path: PathBuf,
        cause: std::io::Error,
    },
    /// Another process is writing to the file of the unfinished measurement.
    #[error("another command is measuring into {}", path.display())]
    Busy {
        /// Path of the file of the unfinished measurement.
        path: PathBuf,
    },
    /// The file stores an unfinished measurement with other settings.
    #[error("{} holds another measurement: {}", path.display(), differences.join("; "))]
    Other {
        /// Path of the file of the unfinished measurement.
        path: PathBuf,
        /// The settings that differ, one text each.
        differences: Vec<String>,
    },
    /// The header or the setup in the file of an unfinished measurement cannot be read.
    #[error("{} cannot be continued: {why}", path.display())]
    Unreadable {
        /// Path of the file of the unfinished measurement.
        path: PathBuf,
        /// What is wrong with the header or the setup in the file.
        why: String,
    },
}

impl Partial {
    /// Returns the path of the file that stores the unfinished measurement for the profile `out`: in the same folder,
    /// with `.measured.partial` added to the name of the profile's file.
    pub fn path_for(out: &Path) -> PathBuf {
        let mut name = out.file_name().unwrap_or_default().to_owned();
        name.push(".measured.partial");
        out.with_file_name(name)
    }

    /// Opens the file of an unfinished measurement at `path`, or begins a new one. Returns the file and its visits. A
    /// file that ends within its setup counts as new. The file is cut off before the first visit that is damaged or
    /// that is not the next planned visit of `setup`. The visits from this one on are measured again.
    pub fn open(path: &Path, setup: &Setup) -> Result<(Partial, SavedVisits), PartialError> {
        let failed = |cause| PartialError::Io { path: path.to_owned(), cause };
        let unreadable = |e: FrameError| match e {
            FrameError::Io(cause) => failed(cause),
            e => PartialError::Unreadable { path: path.to_owned(), why: e.to_string() },
        };
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        // On a file system without locks, `try_lock` fails with another error. Then the side file is used without
        // protection from other processes.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(PartialError::Busy { path: path.to_owned() });
        }
        let bytes = std::fs::read(path).map_err(failed)?;
        let mut body = Vec::new();
        let head = match Reader::begin(bytes.as_slice(), KIND).map_err(unreadable)? {
            Some(mut frames) => (frames.next(&mut body).map_err(unreadable)? == Next::Frame).then_some(frames),
            None => None,
        };
        let Some(mut frames) = head else {
            file.set_len(0).map_err(failed)?;
            let mut file = Writer::begin(file, KIND).map_err(failed)?;
            file.frame(&json(setup)).map_err(failed)?;
            return Ok((Partial { file, path: path.to_owned() }, SavedVisits::default()));
        };
        let was: Setup = serde_json::from_slice(&body)
            .map_err(|e| PartialError::Unreadable { path: path.to_owned(), why: format!("its setup: {e}") })?;
        // The present setup (settings) is written as JSON and read back, so that its numbers are rounded like the
        // numbers in the file.
        let now: Setup = serde_json::from_slice(&json(setup)).expect("a setup reads back");
        let differences = was.differences(&now);
        if !differences.is_empty() {
            return Err(PartialError::Other { path: path.to_owned(), differences });
        }
        let mut saved = SavedVisits::default();
        let mut whole = frames.at();
        for stop in setup.stops() {
            match frames.next(&mut body) {
                Ok(Next::Frame) => {}
                Ok(Next::End | Next::Cut(_)) => break,
                Err(e) => {
                    saved.dropped = Some(e.to_string());
                    break;
                }
            }
            let Some(visit) = visit(&body, &stop) else {
                saved.dropped = Some(format!("frame {} is no visit of this measurement", whole.frames));
                break;
            };
            saved.visits.push(visit);
            whole = frames.at();
        }
        file.set_len(whole.bytes).map_err(failed)?;
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        Ok((Partial { file: Writer::go_on(file, whole), path: path.to_owned() }, saved))
    }

    /// Appends a finished visit to the file.
    pub fn keep(&mut self, visit: &Visit) -> Result<(), PartialError> {
        self.file.frame(&json(visit)).map_err(|cause| PartialError::Io { path: self.path.clone(), cause })
    }
}

fn json(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain data always serialises")
}

/// Parses a finished visit. `None` if the visit does not belong to the planned visit `stop`, has no times, or has a
/// time that is not above 0.
fn visit(body: &[u8], stop: &Stop) -> Option<Visit> {
    let visit: Visit = serde_json::from_slice(body).ok()?;
    let good = visit.stop == *stop && !visit.seconds.is_empty() && visit.seconds.iter().all(|&s| s > 0.0);
    good.then_some(visit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{line, setup, visits};

    #[test]
    fn visits_come_back_and_a_torn_one_is_measured_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = Partial::path_for(&dir.path().join("p.toml"));
        assert!(path.ends_with("p.toml.measured.partial"));
        let all = visits(line, 0.02);
        let (mut file, none) = Partial::open(&path, &setup()).unwrap();
        assert!(none.visits.is_empty());
        all[..5].iter().for_each(|v| file.keep(v).unwrap());
        drop(file);
        let (mut file, saved) = Partial::open(&path, &setup()).unwrap();
        assert_eq!((&saved.visits[..], saved.dropped), (&all[..5], None));
        file.keep(&all[5]).unwrap();
        drop(file);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
        let (mut file, saved) = Partial::open(&path, &setup()).unwrap();
        assert_eq!((&saved.visits[..], saved.dropped), (&all[..5], None));
        file.keep(&all[5]).unwrap();
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        let (_, saved) = Partial::open(&path, &setup()).unwrap();
        assert_eq!(saved.visits, all[..6]);
    }

    /// One bit of the file is flipped. If the bit is in the setup, the file cannot be used. If it is in a visit, this
    /// visit and all later visits are dropped, with a reason.
    #[test]
    fn damaged_frames_are_never_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let all = visits(line, 0.02);
        let (mut file, _) = Partial::open(&path, &setup()).unwrap();
        let setup_ends = std::fs::metadata(&path).unwrap().len() as usize;
        all[..3].iter().for_each(|v| file.keep(v).unwrap());
        drop(file);
        let bytes = std::fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1 << (at % 8);
            std::fs::write(&path, &other).unwrap();
            match Partial::open(&path, &setup()) {
                Err(PartialError::Unreadable { .. }) => assert!(at < setup_ends, "byte {at}"),
                Ok((_, saved)) => {
                    assert!(at >= setup_ends && saved.visits.len() < 3 && saved.visits == all[..saved.visits.len()]);
                    assert!(saved.dropped.unwrap().contains("is damaged"), "byte {at}");
                }
                other => panic!("byte {at}: {other:?}"),
            }
        }
    }

    #[test]
    fn another_setup_is_refused_with_what_differs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        drop(Partial::open(&path, &setup()).unwrap());
        let mut other = setup();
        other.device.threads = 7;
        let error = Partial::open(&path, &other).unwrap_err().to_string();
        assert!(error.ends_with("device.threads: was 2, now 7"), "{error}");
        // A side file that is cut off within its setup (settings) is begun again. A file of another format is refused
        // and left unchanged.
        let bytes = std::fs::read(&path).unwrap();
        for cut in [0, 5, 8, 30, bytes.len() - 1] {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            assert!(Partial::open(&path, &other).unwrap().1.visits.is_empty());
        }
        std::fs::write(&path, "{\"foretoken\": 1}\n").unwrap();
        assert!(matches!(Partial::open(&path, &other), Err(PartialError::Unreadable { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"{\"foretoken\": 1}\n");
        assert!(matches!(Partial::open(&dir.path().join("a/b"), &other), Err(PartialError::Io { .. })));
    }
}
