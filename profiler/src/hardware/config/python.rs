//! Repairs JSON files that Python wrote with numbers that JSON does not have: infinity and NaN.

use std::borrow::Cow;

/// Replaces `Infinity`, `-Infinity` and `NaN` outside of strings by null. Nemotron-H's files have such values
/// (`time_step_limit`). No key from which a shape is read may have such a value, and a null counts as a missing key.
pub fn to_json(text: &str) -> Cow<'_, str> {
    if !["Infinity", "NaN"].iter().any(|word| text.contains(word)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut quoted) = (text, false);
    while let Some(c) = rest.chars().next() {
        let word = ["-Infinity", "Infinity", "NaN"].into_iter().find(|word| !quoted && rest.starts_with(word));
        // A backslash and the character after it are copied together, so that \" does not end the string.
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
