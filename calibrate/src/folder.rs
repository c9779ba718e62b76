//! Writes the folders of results that one command makes. A file is written as a whole or not at all.

use foretoken_report::Staged;
use foretoken_spec::problem::{Problem, Result};
use std::path::Path;

/// Writes `bytes` to the file `name` of a folder.
pub fn put(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) -> Result<()> {
    let path = folder.join(name);
    Staged::write_all_to(&path, bytes.as_ref())
        .map_err(|e| Problem::failed(format!("cannot write {}: {e}", path.display())))
}

/// Checks that a folder may be written to. The folder must not exist or must be empty, or `overwrite` is true and the
/// folder holds the file `marker`. `what` names the folder's content in messages.
pub fn check_free(folder: &Path, marker: &str, what: &str, overwrite: bool) -> Result<()> {
    let empty = std::fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none());
    let ours = folder.join(marker).exists();
    if empty || (overwrite && ours) {
        return Ok(());
    }
    let said = if ours { format!("holds {what}") } else { "is not empty".to_owned() };
    Err(Problem::bad_input(format!("{} {said}", folder.display()))
        .help(format!("choose another with -o, or --overwrite {what}")))
}

/// Makes a folder and the folders above it.
pub fn make(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|e| Problem::failed(format!("cannot make {}: {e}", folder.display())))
}
