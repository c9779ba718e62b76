//! Reads texts that people write, such as experiments, prompts and server states for `decide`. Pipes are read like
//! files. A text without an end is refused, because the length is limited.

use foretoken_traces::limits;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// The text of the file at `path`.
///
/// # Errors
/// The file cannot be read, is not UTF-8, or is longer than the limit for texts.
pub fn read(path: &Path) -> Result<String> {
    let named = |e: Error| Error::new(e.kind(), format!("{}: {e}", path.display()));
    foretoken_traces::raw(path).and_then(whole).map_err(named)
}

/// Reads all of `from`, which must be UTF-8 and end within the limit.
///
/// # Errors
/// `from` cannot be read, is not UTF-8, or is longer than the limit.
pub fn whole(from: impl Read) -> Result<String> {
    let most = limits::text();
    let mut text = String::new();
    from.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        let what = format!("is longer than {}; {}", limits::bytes(most), limits::raise());
        return Err(Error::new(ErrorKind::FileTooLarge, what));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_text_is_refused() {
        assert_eq!(whole(&b"name = 1"[..]).unwrap(), "name = 1");
        let error = whole(std::io::repeat(b'x')).unwrap_err().to_string();
        assert!(error.starts_with("is longer than") && error.contains("FORETOKEN_MEMORY_GIB"), "{error}");
        let missing = read(Path::new("no/such.toml")).unwrap_err().to_string();
        assert!(missing.starts_with("no/such.toml: "), "{missing}");
    }
}
