//! Writes the folders of results that one command makes. A file is written as a whole or not at all.
//!
//! One file is the folder's marker: it is written last, so that the folder is complete if it has its contents. From the
//! first file on, it is there and says that the folder is unfinished.

use foretoken_report::Staged;
use foretoken_run::cells::Lock;
use foretoken_spec::problem::{Problem, Result};
use std::path::Path;

/// Writes `bytes` to the file `name` of a folder.
pub fn put(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) -> Result<()> {
    let path = folder.join(name);
    Staged::write_all_to(&path, bytes.as_ref())
        .map_err(|e| Problem::failed(format!("cannot write {}: {e}", path.display())))
}

/// The text of the marker of a folder that is being written, or whose command was killed.
const UNFINISHED: &str = "{ \"unfinished\": \"the command that wrote this folder did not end\" }\n";

/// Checks that a folder may be written to. The folder must not exist or must be empty, or `overwrite` is true and the
/// folder holds the file `marker`. `what` names the folder's content in messages.
pub fn check_free(folder: &Path, marker: &str, what: &str, overwrite: bool) -> Result<()> {
    let half = |name: &std::ffi::OsStr| name.to_str() == Some(&format!("{marker}.partial"));
    let empty = std::fs::read_dir(folder).map_or(true, |entries| entries.flatten().all(|e| half(&e.file_name())));
    let ours = folder.join(marker).exists();
    if empty || (overwrite && ours) {
        return Ok(());
    }
    let said = if is_unfinished(&folder.join(marker)) {
        format!("holds {what} that was not finished")
    } else if ours {
        format!("holds {what}")
    } else {
        "is not empty".to_owned()
    };
    Err(Problem::bad_input(format!("{} {said}", folder.display()))
        .help(format!("choose another with -o, or --overwrite {what}")))
}

/// Makes a folder and writes its marker, which says that the folder is unfinished. While the returned lock lives, no
/// other process begins to write there.
pub fn begin(folder: &Path, marker: &str) -> Result<Lock> {
    make(folder)?;
    let Some(lock) = Lock::try_folder(folder, false) else {
        return Err(Problem::bad_input(format!("another command is at work in {}", folder.display()))
            .help("wait until it ends, or choose another folder with -o"));
    };
    put(folder, marker, UNFINISHED)?;
    Ok(lock)
}

/// Is this the marker of a folder that was not finished?
pub fn is_unfinished(marker: &Path) -> bool {
    std::fs::read(marker).is_ok_and(|bytes| bytes == UNFINISHED.as_bytes())
}

/// Makes a folder and the folders above it.
pub fn make(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|e| Problem::failed(format!("cannot make {}: {e}", folder.display())))
}
