//! Helpers for the tests of the readers of vLLM and SGLang files.

use crate::recordings::unread::Unread;
use std::io::Write;
use std::path::Path;
use tempfile::NamedTempFile;

/// A temporary file with the content `bytes`; it is deleted when the returned value is dropped.
pub(super) fn file(bytes: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

/// Calls `read` on a temporary file with the content `bytes`. An error is returned as text, with the line at fault
/// and with `f` as the file's name.
pub(super) fn of<T>(bytes: &[u8], read: fn(&Path) -> Result<T, Unread>) -> Result<T, String> {
    let file = file(bytes);
    read(file.path()).map_err(|e| {
        assert_eq!(e.path, file.path());
        assert!(!e.hint.is_empty());
        e.to_string().replace(&file.path().display().to_string(), "f")
    })
}

/// Calls the reader `read` with damaged copies of the file `good`. Asserts two things. First, `read` does not panic on
/// any cut or changed copy. Second, `read` returns an error for every cut copy, except copies whose length in bytes is
/// in `whole`.
pub(super) fn damage<T>(good: &[u8], whole: &[usize], read: fn(&Path) -> Result<T, Unread>) {
    for length in 0..good.len() {
        let cut = of(&good[..length], read);
        assert_eq!(cut.is_ok(), whole.contains(&length), "cut to {length} bytes: {:?}", cut.err());
    }
    // Each byte of the file is replaced by one other value only, because this test is no fuzzer.
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
