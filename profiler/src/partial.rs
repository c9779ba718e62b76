//! The side file of a measuring: the setup, then a line for each visit, written as it ends. What Ctrl-C or a kill leaves
//! behind is whole but for its last line.

use crate::{Setup, Stop, Visit};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A side file that visits are appended to.
#[derive(Debug)]
pub struct Partial {
    file: File,
    path: PathBuf,
}

/// A side file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PartialError {
    /// It cannot be read or written.
    #[error("{}: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's words.
        cause: std::io::Error,
    },
    /// It is of another measuring.
    #[error("{} holds another measuring: {}", path.display(), differences.join("; "))]
    Other {
        /// The file.
        path: PathBuf,
        /// What differs.
        differences: Vec<String>,
    },
}

impl Partial {
    /// The side file of a profile that will be `out`.
    pub fn path_for(out: &Path) -> PathBuf {
        let mut name = out.file_name().unwrap_or_default().to_owned();
        name.push(".measured.partial");
        out.with_file_name(name)
    }

    /// Opens or begins the side file, and hands over the visits it holds. A file without a whole first line counts as new; from a
    /// line on that is no visit of this setup the rest is dropped and measured again.
    ///
    /// # Errors
    /// See [`PartialError`].
    pub fn open(path: &Path, setup: &Setup) -> Result<(Partial, Vec<Visit>), PartialError> {
        let failed = |cause| PartialError::Io { path: path.to_owned(), cause };
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        let bytes = std::fs::read(path).map_err(failed)?;
        let text = String::from_utf8_lossy(&bytes);
        let mut lines = text.split_inclusive('\n');
        let head = lines.next().filter(|line| line.ends_with('\n'));
        let was: Option<Setup> = head.and_then(|line| serde_json::from_str(line).ok());
        let mut visits = Vec::new();
        let mut whole = 0;
        match was {
            Some(was) => {
                // Through the text, as the file's own numbers went: what is equal to the reader must be equal here.
                let now: Setup = serde_json::from_str(&line(setup)).expect("a setup reads back");
                let differences = was.differences(&now);
                if !differences.is_empty() {
                    return Err(PartialError::Other { path: path.to_owned(), differences });
                }
                whole += head.map_or(0, str::len);
                for (stop, line) in setup.stops().into_iter().zip(lines) {
                    let Some(visit) = visit(line, &stop) else { break };
                    whole += line.len();
                    visits.push(visit);
                }
                file.set_len(whole as u64).map_err(failed)?;
            }
            None => {
                file.set_len(0).map_err(failed)?;
                file.write_all(line(setup).as_bytes()).map_err(failed)?;
            }
        }
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        Ok((Partial { file, path: path.to_owned() }, visits))
    }

    /// Adds a visit.
    ///
    /// # Errors
    /// The disk's.
    pub fn keep(&mut self, visit: &Visit) -> Result<(), PartialError> {
        let failed = |cause| PartialError::Io { path: self.path.clone(), cause };
        self.file.write_all(line(visit).as_bytes()).map_err(failed)
    }

    /// Removes it: the profile is written.
    ///
    /// # Errors
    /// The system's.
    pub fn remove(self) -> Result<(), PartialError> {
        let Partial { file, path } = self;
        drop(file);
        std::fs::remove_file(&path).map_err(|cause| PartialError::Io { path, cause })
    }
}

fn line(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("plain data always serialises") + "\n"
}

/// The visit of a whole line, if it is of this stop and has times.
fn visit(line: &str, stop: &Stop) -> Option<Visit> {
    let visit: Visit = serde_json::from_str(line.strip_suffix('\n')?).ok()?;
    let good = visit.stop == *stop && !visit.seconds.is_empty() && visit.seconds.iter().all(|&s| s > 0.0);
    good.then_some(visit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{line, setup, visits};

    #[test]
    fn visits_come_back_and_a_torn_line_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = Partial::path_for(&dir.path().join("p.toml"));
        assert!(path.ends_with("p.toml.measured.partial"));
        let all = visits(line, 0.02);
        let (mut file, none) = Partial::open(&path, &setup()).unwrap();
        assert!(none.is_empty());
        all[..5].iter().for_each(|v| file.keep(v).unwrap());
        drop(file);
        let (mut file, kept) = Partial::open(&path, &setup()).unwrap();
        assert_eq!(kept, all[..5]);
        file.keep(&all[5]).unwrap();
        drop(file);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
        let (mut file, kept) = Partial::open(&path, &setup()).unwrap();
        assert_eq!(kept, all[..5]);
        file.keep(&all[5]).unwrap();
        drop(file);
        let (file, kept) = Partial::open(&path, &setup()).unwrap();
        assert_eq!(kept, all[..6]);
        file.remove().unwrap();
        assert!(!path.exists());
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
        // What never got a whole first line can be begun anew.
        std::fs::write(&path, "{\"fore").unwrap();
        assert!(Partial::open(&path, &other).unwrap().1.is_empty());
        assert!(matches!(Partial::open(&dir.path().join("a/b"), &other), Err(PartialError::Io { .. })));
    }
}
