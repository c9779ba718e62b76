//! The file that a measurement writes at its end. Before the measurement begins, [`check`] makes sure that the file can
//! be made at its path.

use foretoken_report::Staged;
use foretoken_run::spec::problem::{Problem, Result};
use std::path::Path;

/// Returns an error if the folder of `path` does not exist, or if the file exists and `overwrite` is false. `what` is
/// the name of the file's content in the error message.
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

/// Writes `bytes` as the whole content of the file `path`. If the writing fails, the error gives the advice `help`.
pub(crate) fn write(path: &Path, bytes: &[u8], help: &str) -> Result<()> {
    Staged::write_all_to(path, bytes).map_err(|e| Problem::failed(e.to_string()).help(help))
}
