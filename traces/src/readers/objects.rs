//! The objects of a JSON file: one a line, several after one another, or the elements of one array, on any number of
//! lines.

use super::json::malformed;
use crate::error::TraceError;
use crate::open::Lines;
use serde_json::{Map, Value};
use std::path::Path;

/// The objects of a JSON file, one after another.
pub(crate) struct Objects<'a> {
    path: &'a Path,
    lines: Lines<'a>,
    /// The line that is being read, and its number.
    line: String,
    number: u64,
    /// Byte of `line` at which reading goes on.
    at: usize,
    /// Number of arrays around the place at which reading goes on.
    arrays: i32,
}

/// The number of the line in which an object begins, and the object.
type Numbered = (u64, Map<String, Value>);

impl<'a> Objects<'a> {
    pub(crate) fn open(path: &'a Path) -> Result<Objects<'a>, TraceError> {
        Ok(Objects { path, lines: Lines::open(path)?, line: String::new(), number: 0, at: 0, arrays: 0 })
    }

    /// The next object, with the number of the line in which it begins. `None` at the end of the file.
    pub(crate) fn next(&mut self) -> Result<Option<Numbered>, TraceError> {
        loop {
            // What stands between the elements of an array, and its brackets, is no object.
            for (at, c) in self.line[self.at..].char_indices() {
                match c {
                    '[' => self.arrays += 1,
                    ']' => self.arrays -= 1,
                    ',' | '\u{feff}' => {}
                    _ if c.is_whitespace() => {}
                    _ => {
                        self.at += at;
                        return self.object().map(Some);
                    }
                }
            }
            if !self.next_line()? {
                break;
            }
        }
        if self.arrays == 0 {
            return Ok(None);
        }
        let hint = "the file is malformed or cut off: fetch it again";
        Err(TraceError::row(self.path, self.number, None, "does not close the array that the file begins", hint))
    }

    /// Moves to the next line of the file. Returns false at its end.
    fn next_line(&mut self) -> Result<bool, TraceError> {
        let Some((number, text)) = self.lines.next()? else { return Ok(false) };
        self.line.clear();
        self.line.push_str(text);
        (self.number, self.at) = (number, 0);
        Ok(true)
    }

    /// Reads the object that begins here.
    fn object(&mut self) -> Result<(u64, Map<String, Value>), TraceError> {
        let first = self.number;
        if !self.line[self.at..].starts_with('{') {
            let hint = "one object a line, or an array of objects, is expected";
            return Err(TraceError::row(self.path, first, None, "is not a JSON object", hint));
        }
        let mut text = String::new();
        let mut scan = Scan::default();
        loop {
            let rest = &self.line[self.at..];
            let end = scan.end(rest);
            text.push_str(&rest[..end.unwrap_or(rest.len())]);
            if let Some(end) = end {
                self.at += end;
                break;
            }
            // A text of JSON ends in the line in which it begins: the line is cut off.
            if scan.in_text || !self.next_line()? {
                break;
            }
            text.push('\n');
        }
        serde_json::from_str(&text).map(|object| (first, object)).map_err(|e| {
            let line = first + e.line().saturating_sub(1) as u64;
            malformed(self.path, line, text.lines().nth(e.line().saturating_sub(1)).unwrap_or_default(), &e)
        })
    }
}

/// Finds the end of an object.
#[derive(Default)]
struct Scan {
    depth: u32,
    in_text: bool,
    escaped: bool,
}

impl Scan {
    /// The byte behind the object's last bracket, if it lies in `part`, which follows the parts before it.
    fn end(&mut self, part: &str) -> Option<usize> {
        for (at, byte) in part.bytes().enumerate() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_text => self.escaped = true,
                b'"' => self.in_text = !self.in_text,
                _ if self.in_text => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }
}
