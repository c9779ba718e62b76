//! Numbers that Python writes into JSON files and JSON does not have.

use std::borrow::Cow;

/// The text with `Infinity`, `-Infinity` and `NaN` outside of texts replaced by null, as Nemotron-H's files have them
/// (`time_step_limit`). No key that decides a shape can have such a value: null counts as missing there.
pub fn to_json(text: &str) -> Cow<'_, str> {
    if !["Infinity", "NaN"].iter().any(|word| text.contains(word)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut quoted) = (text, false);
    while let Some(c) = rest.chars().next() {
        let word = ["-Infinity", "Infinity", "NaN"].into_iter().find(|word| !quoted && rest.starts_with(word));
        // A backslash takes the character behind it along, so that \" does not end a text.
        let escaped = if quoted && c == '\\' { rest[1..].chars().next().map_or(0, char::len_utf8) } else { 0 };
        let length = word.map_or(c.len_utf8() + escaped, str::len);
        out.push_str(if word.is_some() { "null" } else { &rest[..length] });
        quoted ^= c == '"';
        rest = &rest[length..];
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::to_json;

    #[test]
    fn words_of_python_become_null_and_texts_stay() {
        assert_eq!(to_json("[0.0, Infinity, -Infinity, NaN]"), "[0.0, null, null, null]");
        assert_eq!(to_json(r#"{"NaN \" NaN": "\\", "é": NaN}"#), r#"{"NaN \" NaN": "\\", "é": null}"#);
        assert_eq!(to_json(r#"{"a": 1}"#), r#"{"a": 1}"#);
    }
}
