//! Reads a file of vLLM, SGLang or a load generator as bytes or text.

use crate::recordings::unread::Unread;
use std::io::Error;
use std::path::Path;

/// All bytes of the file at `path`, which must be a regular file and not empty.
pub fn bytes(path: &Path) -> Result<Vec<u8>, Unread> {
    let io = |e: Error| Unread::file(path, format!("cannot be read: {e}"), "check the path and its permissions");
    // Only regular files are read: a device may never end.
    if !std::fs::metadata(path).map_err(io)?.is_file() {
        return Err(Unread::file(path, "is not a regular file", "save what it delivers to a file first"));
    }
    let bytes = std::fs::read(path).map_err(io)?;
    match bytes.is_empty() {
        true => Err(Unread::file(path, "is empty", "did the tool that wrote it end well?")),
        false => Ok(bytes),
    }
}

/// `bytes` as UTF-8 text. If `bytes` are not UTF-8, the error names the line of the first wrong byte.
pub(super) fn utf8<'a>(path: &Path, bytes: &'a [u8]) -> Result<&'a str, Unread> {
    std::str::from_utf8(bytes).map_err(|e| {
        let at = e.valid_up_to();
        let line = 1 + newlines(&bytes[..at]);
        let what = format!("is not UTF-8 text at byte {at}");
        Unread::line(path, line, what, "give the file as it was written; unpack it if it is compressed")
    })
}

pub(super) fn newlines(text: &[u8]) -> usize {
    text.iter().filter(|&&b| b == b'\n').count()
}

/// Returns the common length of `arrays`, which have one value per request. An entry is (name, length); an array that
/// is absent has the length `None` and is skipped. Returns an error if two arrays have different lengths.
pub(super) fn same_length(path: &Path, line: usize, arrays: &[(&str, Option<usize>)]) -> Result<usize, Unread> {
    let given: Vec<(&str, usize)> = arrays.iter().filter_map(|(name, length)| Some((*name, (*length)?))).collect();
    let (first, length) = given.first().copied().unwrap_or_default();
    match given.iter().find(|(_, other)| *other != length) {
        None => Ok(length),
        Some((name, other)) => {
            let what = format!("{name} has {other} values, but {first} has {length}");
            Err(Unread::line(path, line, what, "each has one value a request: the file is damaged"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_text_are_refused() {
        let bad = utf8(Path::new("f"), b"{}\n{\"a\": \"\xe9\"}").unwrap_err();
        assert_eq!((bad.line, bad.what.as_str()), (Some(2), "is not UTF-8 text at byte 10"));
        assert_eq!(bytes(tempfile::NamedTempFile::new().unwrap().path()).unwrap_err().what, "is empty");
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(bytes(folder.path()).unwrap_err().what, "is not a regular file");
        assert!(bytes(&folder.path().join("none")).unwrap_err().what.starts_with("cannot be read"));
    }
}

#[cfg(test)]
mod arrays_tests {
    use super::*;

    #[test]
    fn lengths_are_compared() {
        let check = |arrays| same_length(Path::new("f"), 3, arrays);
        assert_eq!(check(&[("a", Some(2)), ("b", None), ("c", Some(2))]), Ok(2));
        let bad = check(&[("a", Some(2)), ("b", None), ("c", Some(1))]).unwrap_err();
        assert_eq!(bad.to_string(), "f, line 3: c has 1 values, but a has 2");
    }
}
