//! What the readers' tests share.

use crate::unread::Unread;
use std::io::Write;
use std::path::Path;
use tempfile::NamedTempFile;

/// A file with these bytes, for as long as the value lives.
pub(super) fn file(bytes: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

/// What a reader makes of these bytes; of an error its line and words.
pub(super) fn of<T>(bytes: &[u8], read: fn(&Path) -> Result<T, Unread>) -> Result<T, String> {
    let file = file(bytes);
    read(file.path()).map_err(|e| {
        assert_eq!(e.path, file.path());
        assert!(!e.hint.is_empty());
        e.to_string().replace(&file.path().display().to_string(), "f")
    })
}

/// No cut and no changed byte makes a reader panic. Every cut is an error, but for those at `whole` lengths.
pub(super) fn damage<T>(good: &[u8], whole: &[usize], read: fn(&Path) -> Result<T, Unread>) {
    for length in 0..good.len() {
        let cut = of(&good[..length], read);
        assert_eq!(cut.is_ok(), whole.contains(&length), "cut to {length} bytes: {:?}", cut.err());
    }
    // One other byte at each place: a test is no fuzzer.
    for (at, other) in (0..good.len()).zip([b'-', b'9', b'"', b'[', 0xff, 0x00, b'N'].into_iter().cycle()) {
        let mut changed = good.to_vec();
        changed[at] = other;
        let _ = of(&changed, read);
    }
}

/// The text with one thing replaced, which it must have.
pub(super) fn with(text: &str, from: &str, to: &str) -> Vec<u8> {
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1).into_bytes()
}
