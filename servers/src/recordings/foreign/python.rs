//! Makes Python's JSON valid. Python's `json` module writes `NaN`, `Infinity` and `-Infinity`, which JSON does not
//! have.

use std::borrow::Cow;

const CONSTANTS: [&str; 3] = ["NaN", "-Infinity", "Infinity"];

/// Returns `text` with `NaN`, `Infinity` and `-Infinity` put in quotes. If no reader uses a field with such a
/// constant, the field does no harm. If a reader needs a number in the field, the field is refused, and the error
/// quotes the constant.
pub(super) fn constants(text: &str) -> Cow<'_, str> {
    if !CONSTANTS.iter().any(|word| text.contains(word)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 64);
    // In the search for Python's constants, `copied` is the end of the text that was copied so far, and `at` is the
    // position of the search. `quoted` is true inside a string.
    let (mut copied, mut at, mut quoted) = (0, 0, false);
    while let Some(&byte) = text.as_bytes().get(at) {
        match byte {
            // In JSON, a character after a backslash does not end a string, so it is skipped.
            b'\\' if quoted => at += 1,
            b'"' => quoted = !quoted,
            b'N' | b'I' | b'-' if !quoted => {
                if let Some(word) = CONSTANTS.iter().find(|word| text[at..].starts_with(**word)) {
                    out.push_str(&text[copied..at]);
                    out.push('"');
                    out.push_str(word);
                    out.push('"');
                    at += word.len();
                    copied = at;
                    continue;
                }
            }
            _ => {}
        }
        at += 1;
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_bare_constants_change() {
        let given = r#"{"a": NaN, "NaN": [-Infinity, Infinity, -1], "b": "is \"NaN, é\\"}"#;
        let wanted = r#"{"a": "NaN", "NaN": ["-Infinity", "Infinity", -1], "b": "is \"NaN, é\\"}"#;
        assert_eq!(constants(given), wanted);
        assert!(matches!(constants("{}"), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn json_stays_as_it_is(text in ".*") {
            let json = serde_json::json!({ "NaN": text, "b": ["Infinity"] }).to_string();
            prop_assert_eq!(constants(&json), json.as_str());
        }

        #[test]
        fn nothing_panics(text in r#"(NaN|-|Infinity|"|\\|é|,)*"#) {
            let _ = constants(&text);
        }
    }
}
