//! Waits until files are on the disk, so that a power cut cannot undo a write that the program relies on.
//!
//! An operating system may keep written bytes, new names and renamings in memory for a while, and write them in any
//! order.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Waits until the file's bytes and the file's name in its folder are on the disk. `path` is the file's path.
pub fn settle(file: &File, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    settle_name(path)
}

/// Waits until the name of the file at `path` is on the disk. The caller has just made or renamed this file.
///
/// Returns `Ok` where the system or the file system cannot sync a folder, and where the folder cannot be opened.
pub fn settle_name(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(folder) = File::open(folder) else { return Ok(()) };
    match folder.sync_all() {
        Err(e) if matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Ok(()),
        // Windows refuses to sync a folder that is open for reading only.
        Err(_) if cfg!(windows) => Ok(()),
        result => result,
    }
}
