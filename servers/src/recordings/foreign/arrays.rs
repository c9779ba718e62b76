//! Checks the length of arrays that hold one value per request.

use crate::recordings::unread::Unread;
use std::path::Path;

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
    fn lengths_are_compared() {
        let check = |arrays| same_length(Path::new("f"), 3, arrays);
        assert_eq!(check(&[("a", Some(2)), ("b", None), ("c", Some(2))]), Ok(2));
        let bad = check(&[("a", Some(2)), ("b", None), ("c", Some(1))]).unwrap_err();
        assert_eq!(bad.to_string(), "f, line 3: c has 1 values, but a has 2");
    }
}
