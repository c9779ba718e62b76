//! A lock on a file, which one process can hold at a time. The operating system releases the lock when the process
//! ends, also if it is killed.

use foretoken_spec::problem::{Problem, Result};
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::Path;

/// A guard: as long as it lives, no other process gets the lock.
#[must_use]
pub struct Lock(#[expect(dead_code, reason = "closing the file releases the lock")] File);

impl Lock {
    /// Takes the lock. Returns `None` if another process has it.
    ///
    /// # Errors
    /// The file cannot be made or locked. On a file system without locks, the lock counts as taken: all processes write
    /// the same results, so nothing is lost without a lock.
    pub fn try_take(path: &Path) -> Result<Option<Lock>> {
        let file = open(path)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) if e.kind() != ErrorKind::Unsupported => Err(cannot(path, &e)),
            _ => Ok(Some(Lock(file))),
        }
    }

    /// Waits until no other process has the lock, then takes it.
    ///
    /// # Errors
    /// The file cannot be made or locked.
    pub fn wait(path: &Path) -> Result<Lock> {
        let file = open(path)?;
        match file.lock() {
            Err(e) if e.kind() != ErrorKind::Unsupported => Err(cannot(path, &e)),
            _ => Ok(Lock(file)),
        }
    }
}

fn open(path: &Path) -> Result<File> {
    File::options().create(true).truncate(false).write(true).open(path).map_err(|e| cannot(path, &e))
}

fn cannot(path: &Path, e: &std::io::Error) -> Box<Problem> {
    Problem::failed(format!("cannot lock {}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_by_one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.lock");
        let held = Lock::try_take(&path).unwrap();
        assert!(held.is_some() && Lock::try_take(&path).unwrap().is_none());
        drop(held);
        assert!(Lock::try_take(&path).unwrap().is_some());
        assert!(Lock::try_take(&dir.path().join("no/x.lock")).is_err());
    }
}
