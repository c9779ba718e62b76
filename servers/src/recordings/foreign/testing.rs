//! Helpers for the tests of the readers of vLLM and SGLang files.

use crate::recordings::unread::Unread;
use std::path::Path;

/// A reader of a file's content. The path is the file's name in errors.
type Parse<T> = fn(&Path, &[u8]) -> Result<T, Unread>;

/// Calls `parse` on a file `f` with the content `bytes`. An error is returned as text, with the line at fault.
pub(super) fn of<T>(bytes: &[u8], parse: Parse<T>) -> Result<T, String> {
    parse(Path::new("f"), bytes).map_err(|e| {
        assert_eq!(e.path, Path::new("f"));
        assert!(!e.hint.is_empty());
        e.to_string()
    })
}

/// Calls the reader `parse` with damaged copies of the file `good`. Asserts two things. First, `parse` does not panic
/// on any cut or changed copy. Second, `parse` returns an error for every cut copy, except copies whose length in bytes
/// is in `whole`.
pub(super) fn damage<T>(good: &[u8], whole: &[usize], parse: Parse<T>) {
    for length in 0..good.len() {
        let cut = of(&good[..length], parse);
        assert_eq!(cut.is_ok(), whole.contains(&length), "cut to {length} bytes: {:?}", cut.err());
    }
    // Each byte of the file is replaced by one other value only, because this test is no fuzzer.
    for (at, other) in (0..good.len()).zip([b'-', b'9', b'"', b'[', 0xff, 0x00, b'N'].into_iter().cycle()) {
        let mut changed = good.to_vec();
        changed[at] = other;
        let _ = of(&changed, parse);
    }
}

/// Returns `text` with `from` replaced by `to`. Panics if `text` does not contain `from`.
pub(super) fn with(text: &str, from: &str, to: &str) -> Vec<u8> {
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1).into_bytes()
}
