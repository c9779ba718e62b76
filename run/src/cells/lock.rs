//! Locks on a file or a folder. One process holds a lock, or several processes share it. The operating system releases
//! a lock when its process ends, even if the process is killed.

use crate::spec::problem::{Problem, Result};
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::Path;

/// A lock on a file or a folder. As long as this value lives, no other process gets a lock that conflicts with it. Two
/// shared locks do not conflict; any other two locks on the same file or folder do.
#[must_use]
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "closing the file releases the lock")] Option<File>);

impl Lock {
    /// Tries to lock the file at `path`. Returns `None` if another process has the lock.
    pub fn try_take(path: &Path) -> Result<Option<Lock>> {
        let file = open(path)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) if e.kind() != ErrorKind::Unsupported => Err(cannot(path, &e)),
            _ => Ok(Some(Lock(Some(file)))),
        }
    }

    /// Takes a lock on the folder at `path` itself, without a lock file. `None` if another process holds a conflicting
    /// lock. With `shared`, several processes may hold the lock at once, but no process can then hold it alone.
    ///
    /// A folder that cannot be locked (as on Windows, or on some network file systems) gives no error, and the returned
    /// lock does not keep other processes out.
    fn try_folder(path: &Path, shared: bool) -> Option<Lock> {
        let Ok(folder) = File::open(path) else { return Some(Lock(None)) };
        let taken = if shared { folder.try_lock_shared() } else { folder.try_lock() };
        match taken {
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Error(_)) => Some(Lock(None)),
            Ok(()) => Some(Lock(Some(folder))),
        }
    }

    /// Locks the folder at `path` as `try_folder` does, but returns an error in place of `None` if another process
    /// holds a conflicting lock.
    pub fn take_folder(path: &Path, shared: bool) -> Result<Lock> {
        Lock::try_folder(path, shared).ok_or_else(|| {
            Problem::bad_input(format!("another command is at work in {}", path.display()))
                .help("wait until it ends, or choose another folder with -o")
        })
    }

    /// Waits until no other process has the lock on the file at `path`, then takes it.
    pub fn wait(path: &Path) -> Result<Lock> {
        let file = open(path)?;
        match file.lock() {
            Err(e) if e.kind() != ErrorKind::Unsupported => Err(cannot(path, &e)),
            _ => Ok(Lock(Some(file))),
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

    #[test]
    fn a_folder_is_held_by_one_or_shared() {
        let dir = tempfile::tempdir().unwrap();
        let take = |shared| Lock::try_folder(dir.path(), shared);
        let alone = take(false);
        assert!(alone.is_some() && take(false).is_none() && take(true).is_none());
        drop(alone);
        let shared = [take(true), take(true)];
        assert!(shared.iter().all(Option::is_some) && take(false).is_none());
        drop(shared);
        assert!(take(false).is_some());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "no file is left");
    }
}
