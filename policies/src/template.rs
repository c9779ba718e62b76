//! Makes a new policy from a template: writes the policy's file into a source tree, and says which two lines of the
//! table of policies make it known.

use crate::PolicySpec;
use crate::name::{self, BadName};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const TEMPLATE: &str = include_str!("template/policy.txt");

/// The family of a new policy, a folder below `policies/src`, if none is given.
pub const USUAL_FAMILY: &str = "plain";

/// A new policy's file, and the two lines that its author adds to the table of policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPolicy {
    /// The policy's file: a working policy, to be changed into the new one.
    pub file: PathBuf,
    /// The file with the table of policies.
    pub table: PathBuf,
    /// The line for the block `mod family { … }`.
    pub module: String,
    /// The row for the table `policies! { … }`, beside the rows of its family.
    pub row: String,
}

/// Why no file was written for a new policy.
#[derive(Debug, thiserror::Error)]
pub enum CannotWrite {
    /// The policy's name cannot be used.
    #[error(transparent)]
    Name(#[from] BadName),
    /// The folder of the policy's family does not exist.
    #[error("{} is no family of policies", .0.display())]
    Family(PathBuf),
    /// The file cannot be written; it may exist already.
    #[error("cannot write {}: {cause}", path.display())]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
}

/// Writes a policy called `name` into the folder of `family` in the source tree at `root` (the folder of the
/// workspace).
///
/// # Errors
/// A name that is not in kebab-case or is taken, an unknown family, a file that exists already or cannot be written.
pub fn new_policy(root: &Path, name: &str, family: &str) -> Result<NewPolicy, CannotWrite> {
    name::kebab_case(name)?;
    name::free(name, PolicySpec::all_names().iter().copied())?;
    let source = root.join("policies/src");
    let folder = source.join(family);
    if !family.bytes().all(|b| b.is_ascii_lowercase()) || !folder.is_dir() {
        return Err(CannotWrite::Family(folder));
    }
    let word = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
    let (module, settings) = (name.replace('-', "_"), name.split('-').map(word).collect::<String>());
    let path = folder.join(format!("{module}.rs"));
    let text = TEMPLATE.replace("{{name}}", name).replace("{{Type}}", &settings);
    let written = OpenOptions::new().write(true).create_new(true).open(&path);
    let written = written.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|cause| CannotWrite::Io { path: path.clone(), cause })?;
    Ok(NewPolicy {
        file: path,
        table: source.join("lib.rs"),
        row: format!("    {family}::{module}::{settings} {{ {settings} = \"{name}\"; }}"),
        module: format!("    pub(crate) mod {module};"),
    })
}

#[cfg(test)]
#[path = "template/tests.rs"]
mod tests;
