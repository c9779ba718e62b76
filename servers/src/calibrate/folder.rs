//! Writes the folders of results that one command makes. A file is written as a whole or not at all.
//!
//! One file of the folder is its marker. The marker is written first, with a text that says that the folder is
//! unfinished. It gets its contents after all other files, so a marker with contents shows a complete folder.

use foretoken_report::Staged;
use foretoken_run::cells::{Lock, make_folder};
use foretoken_run::spec::problem::{Problem, Result};
use std::path::Path;

/// Writes `bytes` to the file `name` of a results folder, completely or not at all.
pub fn put(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) -> Result<()> {
    let path = folder.join(name);
    Staged::write_all_to(&path, bytes.as_ref())
        .map_err(|e| Problem::failed(format!("cannot write {}: {e}", path.display())))
}

/// The text of a folder's marker file while a command writes the folder. It stays if the command is killed.
const UNFINISHED: &str = "{ \"unfinished\": \"the command that wrote this folder did not end\" }\n";

/// Checks that a command may write its results to a folder. The folder must not exist or must be empty, or `overwrite`
/// is true and the folder holds the file `marker` of earlier results. `what` names the folder's content in messages.
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

/// Makes the results folder `folder` and writes the file `marker`, which says that the folder is unfinished. No other
/// process can begin to write into the folder while the returned lock lives.
pub fn begin(folder: &Path, marker: &str) -> Result<Lock> {
    make_folder(folder)?;
    let lock = Lock::take_folder(folder, false)?;
    put(folder, marker, UNFINISHED)?;
    Ok(lock)
}

pub fn is_unfinished(marker: &Path) -> bool {
    std::fs::read(marker).is_ok_and(|bytes| bytes == UNFINISHED.as_bytes())
}
