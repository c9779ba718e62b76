//! The file in which an unfinished measurement is kept: frames with JSON bodies. The first frame is the setup. Each
//! visit, which times one shape once, is appended when it ends. After Ctrl-C or a kill at most the last frame is
//! incomplete. Visits whose frames are damaged are measured again.

use crate::measure::{Stop, Visit};
use crate::setup::Setup;
use foretoken_intact::frames::{FrameError, Kind, Next, Reader, Writer};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};

const KIND: Kind = Kind { name: b"FTKMEAS", version: b'1' };

/// A side file to which visits are appended.
#[derive(Debug)]
pub struct Partial {
    file: Writer<File>,
    path: PathBuf,
}

/// What [`Partial::open`] read from a side file.
#[derive(Debug, Default)]
pub struct Kept {
    /// The visits that can be used.
    pub visits: Vec<Visit>,
    /// Why later visits were dropped and will be measured again; `None` if the file only ends early, as after a kill.
    pub dropped: Option<String>,
}

/// Why a side file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PartialError {
    /// The file cannot be read or written.
    #[error("{}: {cause}", path.display())]
    Io {
        /// Path of the side file.
        path: PathBuf,
        /// The error of the operating system.
        cause: std::io::Error,
    },
    /// The file belongs to another measurement.
    #[error("{} holds another measurement: {}", path.display(), differences.join("; "))]
    Other {
        /// Path of the side file.
        path: PathBuf,
        /// The settings that differ, one text each.
        differences: Vec<String>,
    },
    /// The file's head or setup cannot be read.
    #[error("{} cannot be continued: {why}", path.display())]
    Unreadable {
        /// Path of the side file.
        path: PathBuf,
        /// What is wrong with the file.
        why: String,
    },
}

impl Partial {
    /// The path of the side file for the profile `out`.
    pub fn path_for(out: &Path) -> PathBuf {
        let mut name = out.file_name().unwrap_or_default().to_owned();
        name.push(".measured.partial");
        out.with_file_name(name)
    }

    /// Opens or begins the side file. Returns it with the visits that it holds. A file that ends within its setup
    /// counts as new. From the first frame that is damaged, or is no visit of this setup, the rest is dropped and
    /// measured again.
    ///
    /// # Errors
    /// See [`PartialError`].
    pub fn open(path: &Path, setup: &Setup) -> Result<(Partial, Kept), PartialError> {
        let failed = |cause| PartialError::Io { path: path.to_owned(), cause };
        let unreadable = |e: FrameError| match e {
            FrameError::Io(cause) => failed(cause),
            e => PartialError::Unreadable { path: path.to_owned(), why: e.to_string() },
        };
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
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
            return Ok((Partial { file, path: path.to_owned() }, Kept::default()));
        };
        let was: Setup = serde_json::from_slice(&body)
            .map_err(|e| PartialError::Unreadable { path: path.to_owned(), why: format!("its setup: {e}") })?;
        // Read back from text, because rounding must be the same as for the numbers in the file.
        let now: Setup = serde_json::from_slice(&json(setup)).expect("a setup reads back");
        let differences = was.differences(&now);
        if !differences.is_empty() {
            return Err(PartialError::Other { path: path.to_owned(), differences });
        }
        let mut kept = Kept::default();
        let mut whole = frames.at();
        for stop in setup.stops() {
            match frames.next(&mut body) {
                Ok(Next::Frame) => {}
                Ok(Next::End | Next::Cut(_)) => break,
                Err(e) => {
                    kept.dropped = Some(e.to_string());
                    break;
                }
            }
            let Some(visit) = visit(&body, &stop) else {
                kept.dropped = Some(format!("frame {} is no visit of this measurement", whole.frames));
                break;
            };
            kept.visits.push(visit);
            whole = frames.at();
        }
        file.set_len(whole.bytes).map_err(failed)?;
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        Ok((Partial { file: Writer::go_on(file, whole), path: path.to_owned() }, kept))
    }

    /// Appends a visit.
    ///
    /// # Errors
    /// The disk fails.
    pub fn keep(&mut self, visit: &Visit) -> Result<(), PartialError> {
        self.file.frame(&json(visit)).map_err(|cause| PartialError::Io { path: self.path.clone(), cause })
    }
}

fn json(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain data always serialises")
}

/// Parses a visit; `None` if it is of another stop or has no times.
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
        let (mut file, kept) = Partial::open(&path, &setup()).unwrap();
        assert_eq!((&kept.visits[..], kept.dropped), (&all[..5], None));
        file.keep(&all[5]).unwrap();
        drop(file);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
        let (mut file, kept) = Partial::open(&path, &setup()).unwrap();
        assert_eq!((&kept.visits[..], kept.dropped), (&all[..5], None));
        file.keep(&all[5]).unwrap();
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        let (_, kept) = Partial::open(&path, &setup()).unwrap();
        assert_eq!(kept.visits, all[..6]);
    }

    /// A flipped bit in the setup: the file is refused. In a visit: this visit and the later ones are dropped with a
    /// reason.
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
                Ok((_, kept)) => {
                    assert!(at >= setup_ends && kept.visits.len() < 3 && kept.visits == all[..kept.visits.len()]);
                    assert!(kept.dropped.unwrap().contains("is damaged"), "byte {at}");
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
        // A file without a whole setup is begun anew; a file of another kind is not touched.
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
