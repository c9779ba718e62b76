//! Makes text safe to print on a terminal. Names, keys and values in files may hold any characters. Characters that
//! move the cursor, ring the bell or reverse the writing are escaped, and messages are clipped.

use std::borrow::Cow;

/// Most characters of an error message.
const MESSAGE: usize = 2000;
/// A number with this number of digits or more, before or after its point, is shown as a power of ten.
const DIGITS: usize = 25;

/// True for control characters, invisible characters, and characters that change the direction of writing. False for
/// line ends and tabs.
fn needs_escape(c: char) -> bool {
    let format = matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    c.is_control() && c != '\n' && c != '\t' || format
}

/// The text with control characters, invisible characters and characters that change the direction of writing escaped,
/// like `\u001b`. JSON and TOML read this form back. Line ends and tabs stay.
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(needs_escape) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match needs_escape(c) {
            true => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// The text, with its middle left out when it has more than `most` characters.
pub fn clip(text: &str, most: usize) -> Cow<'_, str> {
    // No character is shorter than a byte. If the text has at most `most` bytes, its characters need not be counted.
    if text.len() <= most || text.chars().count() <= most {
        return Cow::Borrowed(text);
    }
    let (first, last) = (most * 2 / 3, most / 3);
    let start = text.char_indices().nth(first).map_or(text.len(), |(at, _)| at);
    let end = text.char_indices().nth_back(last.max(1) - 1).map_or(start, |(at, _)| at).max(start);
    let left_out = text[start..end].chars().count();
    Cow::Owned(format!("{} [{left_out} characters left out] {}", &text[..start], &text[end..]))
}

/// The text of an error message: escaped and clipped, with very long numbers as powers of ten.
pub fn message(text: &str) -> String {
    clip(&escape(&round_numbers(text)), MESSAGE).into_owned()
}

/// The text with very long numbers as powers of ten: `1e308` for `1000…000` of 309 digits. Texts above 64 KiB are not
/// searched.
fn round_numbers(text: &str) -> Cow<'_, str> {
    let digit = |b: &u8| b.is_ascii_digit();
    if text.len() > 1 << 16 || !text.as_bytes().windows(DIGITS).any(|w| w.iter().all(digit)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(start);
        let whole = from.bytes().take_while(u8::is_ascii_digit).count();
        let fraction = from[whole..].strip_prefix('.').map_or(0, |f| f.bytes().take_while(u8::is_ascii_digit).count());
        let end = if fraction > 0 { whole + 1 + fraction } else { whole };
        out.push_str(before);
        match from[..end].parse::<f64>().ok().filter(|x| whole.max(fraction) >= DIGITS && x.is_finite()) {
            Some(x) => out.push_str(&format!("{x:e}")),
            None => out.push_str(&from[..end]),
        }
        rest = &from[end..];
    }
    Cow::Owned(out + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(
            escape("a\u{1b}[2J\u{7}\0b\u{9b}c\u{202e}d\u{2066}\r"),
            "a\\u001b[2J\\u0007\\u0000b\\u009bc\\u202ed\\u2066\\u000d"
        );
        for harmless in ["two\nlines\tand a tab", "α, ≤, …, 日本", "─→"] {
            assert!(matches!(escape(harmless), Cow::Borrowed(same) if same == harmless));
        }
        let json = serde_json::to_string("x\u{202e}\u{9b}\u{1b}").unwrap();
        assert_eq!(serde_json::from_str::<String>(&escape(&json)).unwrap(), "x\u{202e}\u{9b}\u{1b}");
    }

    #[test]
    fn long_texts_lose_their_middle() {
        let long = format!("{}END", "ä".repeat(10_000));
        let short = clip(&long, 30);
        assert!(
            short.starts_with("ääää") && short.ends_with("END") && short.contains("characters left out"),
            "{short}"
        );
        assert!(short.chars().count() < 80);
        assert_eq!(clip("short", 30), "short");
        assert!(message(&"x".repeat(10 << 20)).len() < 3000);
    }

    #[test]
    fn numbers_are_not_written_out() {
        let text = format!("{}, {:.1} and {} are too long, 0.125 and 123456789012 are not", 1e308, -1e200, 1e-300);
        assert_eq!(message(&text), "1e308, -1e200 and 1e-300 are too long, 0.125 and 123456789012 are not");
    }
}
