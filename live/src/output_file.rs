//! The file that a measurement writes: checked before it begins, written in one piece.

use foretoken_report::Staged;
use foretoken_spec::problem::{Problem, Result};
use std::path::Path;

/// Refuses a place without a folder, and a finished file without `overwrite`. `what` names the file's content.
pub(crate) fn check(path: &Path, overwrite: bool, what: &str) -> Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        let message = format!("there is no folder {} for the {what}", folder.display());
        return Err(Problem::bad_input(message).help("make it, or choose another place with -o"));
    }
    if path.exists() && !overwrite {
        let message = format!("{} is already there", path.display());
        return Err(Problem::bad_input(message).help("replace it with --overwrite, or choose another name with -o"));
    }
    Ok(())
}

/// Writes the file. `help` says what to do if it cannot be written.
pub(crate) fn write(path: &Path, bytes: &[u8], help: &str) -> Result<()> {
    Staged::write_all_to(path, bytes).map_err(|e| Problem::failed(e.to_string()).help(help))
}
