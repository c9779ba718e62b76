//! A place in a text: the line of the error and the lines around it, escaped for a terminal.

use crate::spec::shown::{clip, escape};
use miette::{LabeledSpan, MietteError, MietteSpanContents, SourceCode, SourceSpan, SpanContents};
use std::ops::Range;

/// For a line of an error message, the most characters that are shown of each of three parts: the text before the
/// error, the error, and the text after it.
const SHOWN: usize = 120;

/// The lines of a file to show in an error message, and where the error is in them.
#[derive(Debug)]
pub struct Place {
    name: String,
    /// The lines to show: the line of the error, and the lines before and after it if they exist.
    text: String,
    /// Range of bytes in `text` (the lines to show) that the error is about.
    label: Range<usize>,
    /// Three positions in the whole file, counted from 0: the number of the first line shown (`first_line`), and the
    /// line and the column of the error.
    first_line: usize,
    line: usize,
    column: usize,
}

impl Place {
    /// The place of the bytes `span` of `text`. `name` is the text's name in messages. A span over several lines is
    /// cut at the end of its first line.
    pub fn of(name: &str, text: &str, span: Range<usize>) -> Place {
        let start = floor(text, span.start);
        let end = floor(text, span.end.max(start));
        let begin = text[..start].rfind('\n').map_or(0, |n| n + 1);
        let stop = text[start..].find('\n').map_or(text.len(), |n| start + n);
        let (before, wrong, after) = (&text[begin..start], &text[start..end.min(stop)], &text[end.min(stop)..stop]);
        let line = text[..begin].matches('\n').count();
        let above = text[..begin].strip_suffix('\n').map(|t| &t[t.rfind('\n').map_or(0, |n| n + 1)..]);
        let below = text.get(stop + 1..).filter(|t| !t.is_empty()).map(|t| &t[..t.find('\n').unwrap_or(t.len())]);

        let mut out = String::new();
        let side = |line: &str| shown(line.trim_end_matches('\r'));
        out.extend(above.map(|line| side(line) + "\n"));
        out.push_str(&shown(before));
        let label = out.len();
        out.push_str(&shown(wrong));
        let label = label..out.len();
        out.push_str(&side(after));
        out.extend(below.map(|line| "\n".to_owned() + &side(line)));
        Place {
            name: clip(&escape(name), SHOWN).into_owned(),
            text: out,
            label,
            first_line: line - usize::from(above.is_some()),
            line,
            column: before.chars().count(),
        }
    }

    /// The piece of the file that the error is about.
    pub fn pointed_at(&self) -> &str {
        &self.text[self.label.clone()]
    }

    /// The place as `file:line:column`; line and column are counted from 1.
    pub fn in_words(&self) -> String {
        format!("{}:{}:{}", self.name, self.line + 1, self.column + 1)
    }

    /// The error as a label of the library miette, which prints errors.
    pub fn label(&self) -> LabeledSpan {
        LabeledSpan::new_with_span(Some("here".into()), (self.label.start, self.label.len()))
    }
}

fn shown(line: &str) -> String {
    clip(&escape(line), SHOWN).into_owned()
}

/// The last byte position at or before `at` where a character begins.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0)
}

impl SourceCode for Place {
    /// The library miette calls this function twice. With `before` 0 it wants the error's line and column. Otherwise it
    /// wants the lines around the error.
    fn read_span<'a>(
        &'a self,
        _: &SourceSpan,
        before: usize,
        _: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let (part, line, column) = match before {
            0 => (self.label.clone(), self.line, self.column),
            _ => (0..self.text.len(), self.first_line, 0),
        };
        let span = (part.start, part.len()).into();
        let bytes = &self.text.as_bytes()[part];
        Ok(Box::new(MietteSpanContents::new_named(self.name.clone(), bytes, span, line, column, 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_columns_and_the_lines_around() {
        let text = "a = 1\nb = \"x\"\r\nc = 3\n";
        let place = Place::of("f.toml", text, 10..13);
        assert_eq!((place.pointed_at(), place.line, place.column), ("\"x\"", 1, 4));
        assert_eq!((place.text.as_str(), place.first_line), ("a = 1\nb = \"x\"\nc = 3", 0));
        let first = Place::of("f.toml", text, 0..1);
        assert_eq!((first.text.as_str(), first.line, first.first_line), ("a = 1\nb = \"x\"", 0, 0));
        assert_eq!(Place::of("f.toml", "", 0..0).text, "");
        assert_eq!(Place::of("f.toml", "x", 7..9).pointed_at(), "");
        assert_eq!(Place::of("f.toml", "äx", 1..2).pointed_at(), "ä");
    }

    #[test]
    fn long_texts_are_clipped_and_control_characters_escaped() {
        let text = format!("k = \"{}\u{1b}[2J\" # {}", "y".repeat(5000), "z".repeat(5000));
        let place = Place::of("f\u{7}.toml", &text, 4..text.len() - 5003);
        assert!(place.text.len() < 600 && !place.text.contains('\u{1b}'), "{}", place.text);
        assert!(place.pointed_at().contains("\\u001b[2J"), "{}", place.pointed_at());
        assert_eq!(place.name, "f\\u0007.toml");
    }
}
