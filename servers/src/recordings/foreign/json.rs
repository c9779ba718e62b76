//! Reads a file of vLLM, SGLang or a load generator that has one JSON value or several in a row. Errors name line and
//! field.

use super::{file, python};
use crate::recordings::unread::Unread;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Deserializer, Error};
use std::path::Path;

/// Every JSON value of a file with the content `bytes`, with the line on which the value begins. `hint` is a text for
/// errors that tells the user which file is expected.
///
/// A value may be on one line, as tools append it, or on several lines, as people print it.
pub(super) fn values<T: DeserializeOwned>(path: &Path, bytes: &[u8], hint: &str) -> Result<Vec<(usize, T)>, Unread> {
    let text = file::utf8(path, bytes)?;
    let text = python::constants(text);
    let mut values = Vec::new();
    let (mut start, mut line) = (0, 1);
    // The first pass only finds where each value ends, so that an error of the second pass can name a field.
    let mut ends = Deserializer::from_str(&text).into_iter::<IgnoredAny>();
    while let Some(value) = ends.next() {
        value.map_err(|e| malformed(path, &e, hint))?;
        let (space, value) = split_space(&text[start..ends.byte_offset()]);
        line += file::newlines(space.as_bytes());
        values.push((line, typed(path, line, value, hint)?));
        line += file::newlines(value.as_bytes());
        start = ends.byte_offset();
    }
    match values.is_empty() {
        true => Err(Unread::file(path, "is empty but for white space", hint)),
        false => Ok(values),
    }
}

/// The only value of a file with the content `bytes`. It is an error if the file has a second value.
pub(super) fn value<T: DeserializeOwned>(path: &Path, bytes: &[u8], hint: &str) -> Result<T, Unread> {
    let mut values = values(path, bytes, hint)?;
    match (values.pop(), values.is_empty()) {
        (Some((_, value)), true) => Ok(value),
        (last, _) => {
            let line = last.map_or(1, |(line, _)| line);
            Err(Unread::line(path, line, "is a second JSON value; there should be one", hint))
        }
    }
}

/// The error for a file whose text is not JSON. `hint` is a text that tells the user which file is expected.
pub(super) fn malformed(path: &Path, error: &Error, hint: &str) -> Unread {
    match error.is_eof() {
        true => Unread::line(path, error.line(), "is cut off: the JSON does not end", hint),
        false => Unread::line(path, error.line(), format!("is not valid JSON: {}", reason(error)), hint),
    }
}

fn typed<T: DeserializeOwned>(path: &Path, line: usize, text: &str, hint: &str) -> Result<T, Unread> {
    serde_path_to_error::deserialize(&mut Deserializer::from_str(text)).map_err(|e| {
        let field = e.path().to_string();
        let why = reason(e.inner());
        let what = if field == "." { why } else { format!("{field}: {why}") };
        Unread::line(path, line + e.inner().line().saturating_sub(1), what, hint)
    })
}

/// serde's message without its position in the text. serde counts lines from the start of the JSON value and not from
/// the start of the file, so its line number would be wrong.
fn reason(error: &Error) -> String {
    let message = error.to_string();
    message.split(" at line ").next().unwrap_or(&message).to_owned()
}

fn split_space(text: &str) -> (&str, &str) {
    text.split_at(text.len() - text.trim_start().len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Row {
        a: Vec<u32>,
    }

    fn read(text: &str) -> Result<Vec<(usize, Row)>, String> {
        values(Path::new("f"), text.as_bytes(), "hint").map_err(|e| e.to_string())
    }

    #[test]
    fn values_know_their_lines() {
        let rows = read("\n{\"a\": [1], \"more\": NaN}\n\n{\n\"a\":\n[2]\n}\n{\"a\":[]}").unwrap();
        assert_eq!(rows, [(2, Row { a: vec![1] }), (4, Row { a: vec![2] }), (8, Row { a: vec![] })]);
    }

    #[test]
    fn errors_name_line_and_field() {
        for (text, error) in [
            ("{\"a\": [1]}\n{\n\"a\": [1,\n-2]}", "f, line 4: a[1]: invalid value: integer `-2`, expected u32"),
            ("{\"a\": [99999999999]}", "f, line 1: a[0]: invalid value: integer `99999999999`, expected u32"),
            ("{\"a\": [NaN]}", "f, line 1: a[0]: invalid type: string \"NaN\", expected u32"),
            ("{}", "f, line 1: missing field `a`"),
            ("3", "f, line 1: invalid type: integer `3`, expected struct Row"),
            ("{\"a\": [1]}\n{\"a\": [", "f, line 2: is cut off: the JSON does not end"),
            ("{\"a\": [1]}\nvLLM", "f, line 2: is not valid JSON: expected value"),
            (" \n", "f: is empty but for white space"),
        ] {
            assert_eq!(read(text), Err(error.to_owned()), "{text}");
        }
    }

    #[test]
    fn deep_nesting_is_skipped_or_refused_without_a_crash() {
        let (open, close) = ("[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(read(&format!("{{\"a\": [1], \"more\": {open}{close}}}")).unwrap().len(), 1);
        assert!(read(&format!("{{\"a\": {open}{close}}}")).is_err());
        assert!(read(&format!("{open}{close}")).is_err());
    }

    #[test]
    fn a_second_value_is_refused() {
        let read = |text: &str| value::<Row>(Path::new("f"), text.as_bytes(), "hint");
        assert_eq!(read("{\"a\": [1]}").unwrap(), Row { a: vec![1] });
        assert_eq!(read("{\"a\": [1]}\n{\"a\": [2]}").unwrap_err().line, Some(2));
    }
}
