//! Writes a file so that it has its final name only when it is complete.
//!
//! The file is written as `NAME.partial` in the same folder and then renamed. The bytes are on the disk before the file
//! is renamed, and the new name is on the disk before [`Staged::commit`] returns. So a power cut leaves the old file or
//! the new file. If two files are committed one after the other, a power cut cannot leave the second file without the
//! first. The partial name is always the same. So a killed run leaves at most one partial file, and the run that
//! resumes it overwrites this file. A pipe or a device cannot be replaced by renaming, so it is written directly. If
//! the path is a link, the file to which the link points is replaced.

use crate::ReportError;
use crate::disk;
use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The paths of all half-written files of this process.
static PARTIAL: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn partial_files() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    // The set of paths of half-written files stays valid even if a thread panicked while it held the lock.
    PARTIAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a file that gets its final name when it is complete. If the writer is dropped before [`Staged::commit`], the
/// partial file is removed, and an earlier file with the final name stays.
pub struct Staged {
    // The open file, to which the bytes are written; `None` once the file is complete. On drop, the file is closed
    // before the partial file is removed.
    out: Option<BufWriter<std::fs::File>>,
    /// The `.partial` file; `None` if bytes go directly to a pipe or a device.
    partial: Option<PathBuf>,
    path: PathBuf,
}

impl Staged {
    /// Starts writing the file that gets the path `path` when it is complete. The folder must exist.
    pub fn create(path: &Path) -> Result<Staged, ReportError> {
        let buffered = |file| Some(BufWriter::with_capacity(1 << 18, file));
        let path = &std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        if std::fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
            let file = std::fs::OpenOptions::new().write(true).open(path).map_err(ReportError::write(path))?;
            return Ok(Staged { out: buffered(file), partial: None, path: path.clone() });
        }
        let mut name = path.file_name().expect("a result file has a name").to_owned();
        name.push(".partial");
        let partial = path.with_file_name(name);
        let mut all = partial_files();
        let file = std::fs::File::create(&partial).map_err(ReportError::write(path))?;
        all.insert(partial.clone());
        Ok(Staged { out: buffered(file), partial: Some(partial), path: path.clone() })
    }

    /// The path that the complete file will have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Passes all bytes written so far to the operating system. Returns the path at which they can be read while the
    /// file is not complete.
    pub fn readable(&mut self) -> io::Result<&Path> {
        self.flush()?;
        Ok(self.partial.as_ref().unwrap_or(&self.path))
    }

    /// Gives the complete file its final name, in place of any earlier file.
    pub fn commit(mut self) -> Result<(), ReportError> {
        self.complete()
    }

    /// Does the work of [`Staged::commit`] for a writer that is inside another object and cannot be moved out. Nothing
    /// can be written to the file afterwards.
    pub(crate) fn complete(&mut self) -> Result<(), ReportError> {
        let out = self.out.take().expect("a file is completed once");
        let file = out.into_inner().map_err(|e| ReportError::write(&self.path)(e.into_error()))?;
        if self.partial.is_some() {
            file.sync_all().map_err(ReportError::write(&self.path))?;
        }
        drop(file);
        // Holds the lock, so that no other thread removes the partial file before it is renamed.
        let mut all = partial_files();
        if let Some(partial) = &self.partial {
            std::fs::rename(partial, &self.path).map_err(ReportError::write(&self.path))?;
            all.remove(partial);
        }
        drop(all);
        match self.partial {
            Some(_) => disk::settle_name(&self.path).map_err(ReportError::write(&self.path)),
            None => Ok(()),
        }
    }

    /// Removes every partial file of this process, which is about to end. Afterwards, no thread can begin or complete a
    /// file, because this call never releases the lock on the set of partial files.
    pub fn abandon_all() {
        let all = partial_files();
        all.iter().for_each(|partial| drop(std::fs::remove_file(partial)));
        std::mem::forget(all);
    }

    /// Writes `bytes` as a complete file at `path`, in place of any earlier file.
    pub fn write_all_to(path: &Path, bytes: &[u8]) -> Result<(), ReportError> {
        let mut file = Staged::create(path)?;
        file.write_all(bytes).map_err(ReportError::write(path))?;
        file.commit()
    }
}

impl Write for Staged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.as_mut().expect("not written after its end").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.as_mut().expect("not written after its end").flush()
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // After a successful rename there is nothing to remove. Otherwise the buffered bytes are dropped, not written.
        if let Some(out) = self.out.take() {
            drop(out.into_parts());
        }
        let mut all = partial_files();
        if let Some(partial) = self.partial.as_ref().filter(|partial| all.remove(*partial)) {
            let _ = std::fs::remove_file(partial);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn appears_only_when_complete_and_leaves_nothing_otherwise() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        let mut file = Staged::create(&path).unwrap();
        file.write_all(b"half").unwrap();
        assert_eq!(names(dir.path()), ["a.txt.partial"]);
        drop(file);
        assert!(names(dir.path()).is_empty());
        Staged::write_all_to(&path, b"whole").unwrap();
        Staged::write_all_to(&path, b"again").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"again");
        assert_eq!(names(dir.path()), ["a.txt"]);
    }

    /// A pipe, a device or a link is written through and not replaced.
    #[cfg(unix)]
    #[test]
    fn replaces_no_pipe_device_or_link() {
        use std::os::unix::fs::FileTypeExt;
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let reader = {
            let pipe = pipe.clone();
            std::thread::spawn(move || std::fs::read(pipe).unwrap())
        };
        Staged::write_all_to(&pipe, b"through").unwrap();
        assert_eq!(reader.join().unwrap(), b"through");
        assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo());
        assert!(Staged::write_all_to(Path::new("/dev/full"), b"x").unwrap_err().to_string().contains("No space left"));
        assert!(std::fs::metadata("/dev/full").unwrap().file_type().is_char_device());
        let (link, file) = (dir.path().join("link"), dir.path().join("file"));
        std::fs::write(&file, b"before").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        Staged::write_all_to(&link, b"after").unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read(&file).unwrap(), b"after");
        assert_eq!(names(dir.path()), ["file", "link", "pipe"]);
    }

    #[test]
    fn the_error_names_the_file_and_the_cause() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("missing/a.txt");
        let message = Staged::write_all_to(&path, b"x").unwrap_err().to_string();
        assert!(message.starts_with(&format!("cannot write {}: ", path.display())), "{message}");
        assert!(message.contains("No such file"), "{message}");
    }
}
