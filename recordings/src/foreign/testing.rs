//! Helpers for the tests of the readers of other tools' files.

use crate::unread::Unread;
use std::io::Write;
use std::path::Path;
use tempfile::NamedTempFile;

/// A temporary file with these bytes; it is deleted when the value is dropped.
pub(super) fn file(bytes: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

/// Calls `read` on a file with the given bytes. An error is returned as text with its line.
pub(super) fn of<T>(bytes: &[u8], read: fn(&Path) -> Result<T, Unread>) -> Result<T, String> {
    let file = file(bytes);
    read(file.path()).map_err(|e| {
        assert_eq!(e.path, file.path());
        assert!(!e.hint.is_empty());
        e.to_string().replace(&file.path().display().to_string(), "f")
    })
}

/// Asserts two things about the reader `read`, with damaged copies of `good`. No cut and no changed byte makes it
/// panic. Every cut is an error, except at the lengths in `whole`.
pub(super) fn damage<T>(good: &[u8], whole: &[usize], read: fn(&Path) -> Result<T, Unread>) {
    for length in 0..good.len() {
        let cut = of(&good[..length], read);
        assert_eq!(cut.is_ok(), whole.contains(&length), "cut to {length} bytes: {:?}", cut.err());
    }
    // Only one other value is tried for each byte of the file, because this test is no fuzzer.
    for (at, other) in (0..good.len()).zip([b'-', b'9', b'"', b'[', 0xff, 0x00, b'N'].into_iter().cycle()) {
        let mut changed = good.to_vec();
        changed[at] = other;
        let _ = of(&changed, read);
    }
}

/// Returns `text` with `from` replaced by `to`. Panics if `text` does not contain `from`.
pub(super) fn with(text: &str, from: &str, to: &str) -> Vec<u8> {
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1).into_bytes()
}
