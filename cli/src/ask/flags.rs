//! Reads flags by a table: which there are, what follows them, and whether they matter for the answer.

use super::line::{Line, Word};
use foretoken_run::spec::problem::{Problem, Result, nearest};
use std::ops::Range;

/// What follows a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Value,
    /// No value; vLLM's `--no-NAME` turns it off.
    Switch,
    /// Words up to the next flag.
    Words,
}

/// A flag of an engine: its names without dashes (the first is the usual one), what follows it, and whether the answer
/// uses it.
#[derive(Debug)]
pub struct Flag {
    pub names: &'static [&'static str],
    pub kind: Kind,
    pub used: bool,
}

/// A flag that the line has.
#[derive(Clone, Debug)]
pub struct Given {
    /// The flag's usual name, without dashes.
    pub name: &'static str,
    /// The part behind a dot in `--speculative-config.method`.
    pub part: Option<String>,
    /// The value; `None` for a switch.
    pub value: Option<Word>,
    /// False for `--no-NAME`.
    pub on: bool,
    pub written: String,
    /// The flag and its value in the line.
    pub span: Range<usize>,
}

/// The flags of a line, and its other words.
#[derive(Debug, Default)]
pub struct Flags {
    pub given: Vec<Given>,
    pub others: Vec<Word>,
    /// Flags as written, which do not matter for the answer.
    pub no_matter: Vec<String>,
    /// Flags as written, which are not known.
    pub unknown: Vec<String>,
}

/// Reads the flags in `words`. `skip_unknown`: list flags that are not in the tables, and go on?
pub fn read(line: &Line, words: &[Word], tables: &[Flag], skip_unknown: bool) -> Result<Flags> {
    let mut flags = Flags::default();
    let mut words = words.iter().peekable();
    let is_flag = |w: &Word| w.text.starts_with('-') && w.text.parse::<f64>().is_err();
    while let Some(word) = words.next() {
        if !is_flag(word) {
            flags.others.push(word.clone());
            continue;
        }
        let (written, glued) = match word.text.split_once('=') {
            Some((name, value)) => (name, Some(Word { text: value.to_owned(), span: word.span.clone() })),
            None => (word.text.as_str(), None),
        };
        let bare = written.trim_start_matches('-').replace('_', "-");
        let (head, part) = match bare.split_once('.') {
            Some((head, part)) => (head.to_owned(), Some(part.replace('-', "_"))),
            None => (bare.clone(), None),
        };
        let find = |name: &str| tables.iter().find(|f| f.names.contains(&name));
        let level = head.strip_prefix('O').filter(|n| n.parse::<u8>().is_ok()).map(|_| "optimization-level");
        let off = head.strip_prefix("no-").and_then(find).filter(|f| f.kind == Kind::Switch);
        let Some(flag) = find(&head).or_else(|| level.and_then(find)).or(off) else {
            if !skip_unknown {
                return Err(unknown(line, word, &head, tables));
            }
            flags.unknown.push(written.to_owned());
            while words.next_if(|w| !is_flag(w)).is_some() {}
            continue;
        };
        let mut span = word.span.clone();
        let value = match (flag.kind, glued) {
            (_, Some(value)) => Some(value),
            _ if level.is_some() => None,
            (Kind::Switch, None) => {
                let on_or_off = |w: &&Word| ["true", "false"].contains(&w.text.to_lowercase().as_str());
                words.next_if(|w| on_or_off(w)).cloned()
            }
            (Kind::Value, None) => match words.next_if(|w| !is_flag(w)) {
                Some(value) => Some(value.clone()),
                None => return Err(line.wrong(&word.span, format!("{written} lacks its value"))),
            },
            (Kind::Words, None) => {
                let mut last = None;
                while let Some(value) = words.next_if(|w| !is_flag(w)) {
                    span.end = value.span.end;
                    last.get_or_insert(value.clone());
                }
                last
            }
        };
        if let Some(value) = &value {
            span.end = span.end.max(value.span.end);
        }
        let said = value.as_ref().filter(|_| flag.kind == Kind::Switch).map(|v| !v.text.eq_ignore_ascii_case("false"));
        match flag.used {
            true => flags.given.push(Given {
                name: flag.names[0],
                part,
                value: value.filter(|_| flag.kind != Kind::Switch),
                on: said.unwrap_or(true) != off.is_some(),
                written: written.to_owned(),
                span,
            }),
            false => flags.no_matter.push(written.to_owned()),
        }
    }
    Ok(flags)
}

fn unknown(line: &Line, word: &Word, head: &str, tables: &[Flag]) -> Box<Problem> {
    let near = nearest(head, tables.iter().flat_map(|f| f.names.iter().copied()));
    let near = near.map_or(String::new(), |near| format!("did you mean --{near}? "));
    let written = word.text.split('=').next().unwrap_or_default();
    let flag = word.span.start..word.span.end.min(word.span.start + written.len().max(1));
    line.wrong(&flag, format!("{written} is not known")).help(format!("{near}--skip-unknown goes on without it"))
}

impl Given {
    /// The value as a number of type `T`.
    pub fn number<T: std::str::FromStr>(&self, line: &Line) -> Result<T> {
        let value = self.value.as_ref().expect("a flag with a value");
        value
            .text
            .parse()
            .map_err(|_| line.wrong(&value.span, format!("{} is no number for {}", value.text, self.written)))
    }

    /// The value as a count, which may end in k, K, m or M as vLLM reads it.
    pub fn count(&self, line: &Line) -> Result<u32> {
        let value = self.value.as_ref().expect("a flag with a value");
        let (digits, unit) = match value.text.char_indices().last() {
            Some((at, 'k')) => (&value.text[..at], 1e3),
            Some((at, 'K')) => (&value.text[..at], 1024.0),
            Some((at, 'm')) => (&value.text[..at], 1e6),
            Some((at, 'M')) => (&value.text[..at], 1024.0 * 1024.0),
            _ => (value.text.as_str(), 1.0),
        };
        let count = digits.parse::<f64>().ok().map(|n| n * unit).filter(|n| n.fract() == 0.0);
        count.filter(|n| (1.0..=f64::from(1u32 << 30)).contains(n)).map(|n| n as u32).ok_or_else(|| {
            line.wrong(&value.span, format!("{} is no whole number above 0 for {}", value.text, self.written))
        })
    }

    /// The value as text; empty for a switch.
    pub fn text(&self) -> &str {
        self.value.as_ref().map_or("", |v| v.text.as_str())
    }

    pub fn place(&self) -> &Range<usize> {
        self.value.as_ref().map_or(&self.span, |v| &v.span)
    }
}

#[cfg(test)]
mod tests {
    use super::super::line;
    use super::*;

    const TABLE: [Flag; 4] = [
        Flag { names: &["max-num-seqs"], kind: Kind::Value, used: true },
        Flag { names: &["enable-prefix-caching"], kind: Kind::Switch, used: true },
        Flag { names: &["port", "p"], kind: Kind::Value, used: false },
        Flag { names: &["names"], kind: Kind::Words, used: false },
    ];

    fn read_line(text: &str, skip: bool) -> Result<Flags> {
        let line = line::read(text).unwrap();
        read(&line, &line.words, &TABLE, skip)
    }

    #[test]
    fn values_switches_and_words_are_told_apart() {
        let flags =
            read_line("m --max_num_seqs=8k -p 1 --no-enable-prefix-caching --names a b --max-num-seqs 7", false);
        let flags = flags.unwrap();
        let line = line::read("x").unwrap();
        assert_eq!(flags.given[0].count(&line).unwrap(), 8000);
        assert_eq!((flags.given[1].on, flags.given[2].text()), (false, "7"));
        assert_eq!(flags.no_matter, ["-p", "--names"]);
        assert_eq!(flags.others[0].text, "m");
    }

    #[test]
    fn an_unknown_flag_is_shown_in_the_line() {
        let wrong = read_line("m --max-num-seq 8", false).unwrap_err();
        assert_eq!(wrong.pointed_at(), Some("--max-num-seq"));
        assert!(wrong.help_text().starts_with("did you mean --max-num-seqs?"), "{}", wrong.help_text());
        assert_eq!(read_line("m --zzz 8 --port 1", true).unwrap().unknown, ["--zzz"]);
        assert_eq!(read_line("m --max-num-seqs", false).unwrap_err().message(), "--max-num-seqs lacks its value");
    }
}
