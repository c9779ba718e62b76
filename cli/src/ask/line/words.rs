//! Splits a shell line into words by the rules of POSIX: quotes, backslashes, comments, continued lines. Each word
//! keeps its place, so that an error can point at it; the crate `shlex` gives no places.

use super::given::{Line, Word};
use foretoken_run::spec::problem::Problem;
use std::ops::Range;

pub fn shell(name: &str, text: &str) -> foretoken_run::spec::problem::Result<Line> {
    let words = split(text).map_err(|(span, message)| {
        let help = "in a shell, JSON stands in single quotes: --speculative-config '{\"method\": …}'";
        Problem::bad_input(message).at(name, text, span).help(help)
    })?;
    Ok(Line { name: name.to_owned(), text: text.to_owned(), words, only_changes: false, config: None })
}

/// The words of a shell line.
pub fn split(text: &str) -> Result<Vec<Word>, (Range<usize>, String)> {
    let mut words = Vec::new();
    let mut chars = text.char_indices().peekable();
    let mut word: Option<Word> = None;
    while let Some((at, c)) = chars.next() {
        if c.is_whitespace() {
            words.extend(word.take());
            continue;
        }
        if c == '#' && word.is_none() {
            while chars.next_if(|(_, c)| *c != '\n').is_some() {}
            continue;
        }
        if c == '\\' {
            // A backslash at the end of a line joins the next line. Spaces behind it are a common slip, which a shell
            // would not forgive.
            let rest = &text[at + 1..];
            let line = rest.split('\n').next().unwrap_or("");
            if line.trim().is_empty() {
                words.extend(word.take());
                while chars.next_if(|(_, c)| *c != '\n').is_some() {}
                continue;
            }
        }
        let word = word.get_or_insert_with(|| Word { text: String::new(), span: at..at });
        match c {
            '\'' => loop {
                match chars.next() {
                    Some((_, '\'')) => break,
                    Some((_, c)) => word.text.push(c),
                    None => return Err((at..text.len(), "this ' does not end".to_owned())),
                }
            },
            '"' => loop {
                match chars.next() {
                    Some((_, '"')) => break,
                    Some((_, '\\')) => match chars.next() {
                        Some((_, '\n')) => {}
                        Some((_, c @ ('"' | '\\' | '$' | '`'))) => word.text.push(c),
                        Some((_, c)) => word.text.extend(['\\', c]),
                        None => return Err((at..text.len(), "this \" does not end".to_owned())),
                    },
                    Some((_, c)) => word.text.push(c),
                    None => return Err((at..text.len(), "this \" does not end".to_owned())),
                }
            },
            '\\' => word.text.extend(chars.next().map(|(_, c)| c)),
            c => word.text.push(c),
        }
        word.span.end = chars.peek().map_or(text.len(), |(at, _)| *at);
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<String> {
        split(line).unwrap().into_iter().map(|w| w.text).collect()
    }

    #[test]
    fn words_are_those_of_a_shell() {
        assert_eq!(texts(r#"a 'b c'"d\"e" f\ g '' # h"#), ["a", "b cd\"e", "f g", ""]);
        assert_eq!(texts("vllm serve \\\n  --x '{\"k\": 1}' \\ \n --y"), ["vllm", "serve", "--x", "{\"k\": 1}", "--y"]);
        assert_eq!(texts("a\\\"b \"c\\n\""), ["a\"b", "c\\n"]);
    }

    #[test]
    fn a_word_has_its_place_with_its_quotes() {
        let words = split("ä --x '{1}' y").unwrap();
        let at: Vec<&str> = words.iter().map(|w| &"ä --x '{1}' y"[w.span.clone()]).collect();
        assert_eq!(at, ["ä", "--x", "'{1}'", "y"]);
    }

    #[test]
    fn a_quote_that_does_not_end_is_shown() {
        assert_eq!(split("a 'b c").unwrap_err(), (2..6, "this ' does not end".to_owned()));
        assert_eq!(split("a \"b\\").unwrap_err().0, 2..5);
    }
}
