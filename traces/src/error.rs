//! The error type of this crate: what is wrong, where, and what to do about it.
//!
//! `Display` says in one line what is wrong and where. [`TraceError::hint`] says what the user can do. Callers print
//! both.

use std::path::{Path, PathBuf};

/// A trace or a workload that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// A whole file is wrong: missing, unreadable, of another format, or without a usable request.
    #[error("{}: {what}", path.display())]
    File {
        /// Path of the file that is wrong.
        path: PathBuf,
        /// What is wrong with the file.
        what: String,
        /// What the user can do about the file.
        hint: String,
    },
    /// One row of a trace file is wrong.
    #[error("{}:{line}: {}{what}", path.display(), column_prefix(column))]
    Row {
        /// Path of the file with the wrong row.
        path: PathBuf,
        /// Line of the wrong row in the (decompressed) file, from 1.
        line: u64,
        /// Column (CSV) or key (JSON) of the wrong row that has the error, if one is known.
        column: Option<String>,
        /// What is wrong with the row.
        what: String,
        /// What the user can do about the row.
        hint: String,
    },
    /// A setting of the workload is wrong.
    #[error("workload.{key}: {what}")]
    Spec {
        /// Path of the wrong setting in an experiment's file, below `workload`.
        key: String,
        /// What is wrong with the setting.
        what: String,
        /// What the user can do about the setting.
        hint: String,
    },
}

impl TraceError {
    /// What the user can do about the error; empty if the text of `Display` already says it.
    pub fn hint(&self) -> &str {
        match self {
            TraceError::File { hint, .. } | TraceError::Row { hint, .. } | TraceError::Spec { hint, .. } => hint,
        }
    }

    pub(crate) fn file(path: &Path, what: impl Into<String>, hint: impl Into<String>) -> TraceError {
        TraceError::File { path: path.into(), what: what.into(), hint: hint.into() }
    }

    pub(crate) fn row(
        path: &Path,
        line: u64,
        column: Option<&str>,
        what: impl Into<String>,
        hint: impl Into<String>,
    ) -> TraceError {
        let column = column.map(str::to_owned);
        TraceError::Row { path: path.into(), line, column, what: what.into(), hint: hint.into() }
    }

    pub(crate) fn spec(key: impl Into<String>, what: impl Into<String>, hint: impl Into<String>) -> TraceError {
        TraceError::Spec { key: key.into(), what: what.into(), hint: hint.into() }
    }

    /// The error of opening or reading the file `path`, from the system's error. Damaged compressed data is reported in
    /// this way too.
    pub(crate) fn io(path: &Path, error: &std::io::Error) -> TraceError {
        use std::io::ErrorKind::{
            InvalidData, InvalidInput, IsADirectory, NotFound, PermissionDenied, QuotaExceeded, UnexpectedEof,
            Unsupported,
        };
        let (what, hint) = match error.kind() {
            QuotaExceeded => return TraceError::file(path, error.to_string(), crate::limits::raise()),
            Unsupported => (error.to_string(), "name a file"),
            NotFound => ("no such file".to_owned(), "check the path; relative paths start at the experiment's folder"),
            PermissionDenied => ("permission denied".to_owned(), "make the file readable"),
            IsADirectory => ("is a folder".to_owned(), "name one file in it"),
            UnexpectedEof => {
                ("ends in the middle of its compressed data".to_owned(), "the file is truncated: fetch it again")
            }
            InvalidInput | InvalidData => (
                format!("damaged data: {error}"),
                "the file is corrupt, or compressed in another way than gzip or zstd",
            ),
            _ => (format!("cannot be read: {error}"), ""),
        };
        TraceError::file(path, what, hint)
    }
}

fn column_prefix(column: &Option<String>) -> String {
    column.as_ref().map(|c| format!("column \"{c}\": ")).unwrap_or_default()
}

/// Longest unknown name, in bytes, for which similar names are searched.
const LONGEST_NAME: usize = 200;

/// Up to three names of `known` that are most similar to `name`, the most similar first, for "did you mean". Empty if
/// none is similar enough, or if `name` is longer than [`LONGEST_NAME`].
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    // A name longer than [`LONGEST_NAME`] is not compared: no column has such a long name, and the time of a comparison
    // grows with the length.
    let short = |name: &&str| name.len() <= LONGEST_NAME;
    if !short(&name) {
        return Vec::new();
    }
    let lower = name.to_lowercase();
    let mut scored: Vec<(f64, &str)> =
        known.into_iter().filter(short).map(|k| (strsim::jaro_winkler(&lower, &k.to_lowercase()), k)).collect();
    scored.retain(|(score, _)| *score > 0.7);
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().take(3).map(|(_, k)| k).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_place() {
        let e = TraceError::row(Path::new("a.csv"), 7, Some("Request tokens"), "\"x\" is not a number", "fix it");
        assert_eq!(e.to_string(), "a.csv:7: column \"Request tokens\": \"x\" is not a number");
        assert_eq!(e.hint(), "fix it");
        assert_eq!(TraceError::spec("arrivals.poisson.rate", "-1 is not positive", "").to_string(), {
            "workload.arrivals.poisson.rate: -1 is not positive"
        });
    }

    #[test]
    fn nearest_names_come_best_first() {
        assert_eq!(nearest("Request tokens", ["request_tokens", "Model", "Response tokens"])[0], "request_tokens");
        assert!(nearest("zzz", ["Model"]).is_empty());
        let long = "Model".repeat(1000);
        assert!(nearest(&long, ["Model", long.as_str()]).is_empty());
        assert_eq!(nearest("Modell", [long.as_str(), "Model"]), ["Model"]);
    }
}
