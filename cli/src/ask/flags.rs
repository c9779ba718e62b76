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

/// What the answer makes of a flag.
#[derive(Clone, Copy, Debug)]
pub enum Matters {
    Used,
    /// It changes nothing that the answer says.
    Not,
    /// It is left out, and the answer names this reason as an assumption.
    Assumed(&'static str),
    /// What it asks for is not simulated. With one of the values `unless` it asks for nothing.
    Refused {
        what: &'static str,
        help: &'static str,
        unless: &'static [&'static str],
    },
}

/// A flag of an engine: its names without dashes and with `|` between them (the first is the usual one), what follows
/// it, and what the answer makes of it.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    names: &'static str,
    kind: Kind,
    matters: Matters,
}

impl Flag {
    fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.names.split('|')
    }
}

/// The flags that matter, then the flags of the texts `others`, which do not: `NAME` is a switch, `NAME=` has a value,
/// and words up to the next flag follow `NAME+`.
pub fn table(matter: &[Flag], others: &[&'static str]) -> Vec<Flag> {
    let other = |word: &'static str| {
        let (names, kind) = match (word.strip_suffix('='), word.strip_suffix('+')) {
            (Some(names), _) => (names, Kind::Value),
            (_, Some(names)) => (names, Kind::Words),
            (None, None) => (word, Kind::Switch),
        };
        Flag { names, kind, matters: Matters::Not }
    };
    matter.iter().copied().chain(others.iter().flat_map(|text| text.split_whitespace()).map(other)).collect()
}

pub const fn used(names: &'static str, kind: Kind) -> Flag {
    Flag { names, kind, matters: Matters::Used }
}

pub const fn assumed(names: &'static str, kind: Kind, why: &'static str) -> Flag {
    Flag { names, kind, matters: Matters::Assumed(why) }
}

/// A flag for what is not simulated. With one of the values `unless` it asks for nothing.
pub const fn refused(
    names: &'static str,
    kind: Kind,
    unless: &'static [&'static str],
    what: &'static str,
    help: &'static str,
) -> Flag {
    Flag { names, kind, matters: Matters::Refused { what, help, unless } }
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
    /// What was left out, with its flag.
    pub assumed: Vec<String>,
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
        let level = head.strip_prefix('O').filter(|n| n.parse::<u8>().is_ok()).map(|_| "optimization-level");
        let (flag, on) = match named(tables, written, level.unwrap_or(&head)) {
            Named::Flag(flag, on) => (flag, on),
            _ if skip_unknown => {
                flags.unknown.push(written.to_owned());
                while words.next_if(|w| !is_flag(w)).is_some() {}
                continue;
            }
            Named::Several(names) => return Err(ambiguous(line, word, &names)),
            Named::Unknown => return Err(unknown(line, word, &head, tables)),
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
        let on = said.unwrap_or(true) == on;
        let text = value.as_ref().map_or("", |v| v.text.as_str());
        match flag.matters {
            Matters::Used => flags.given.push(Given {
                name: flag.names().next().expect("a flag has a name"),
                part,
                value: value.filter(|_| flag.kind != Kind::Switch),
                on,
                written: written.to_owned(),
                span,
            }),
            Matters::Assumed(why) if on => {
                let says = format!("{written}: {why}");
                flags.assumed.extend((!flags.assumed.contains(&says)).then_some(says));
            }
            Matters::Refused { what, help, unless } if on && !unless.contains(&text.to_lowercase().as_str()) => {
                return Err(line.wrong(&span, what).help(help));
            }
            Matters::Not | Matters::Assumed(_) | Matters::Refused { .. } => flags.no_matter.push(written.to_owned()),
        }
    }
    Ok(flags)
}

/// What a flag's name stands for.
enum Named<'t> {
    /// A flag, and whether it is on (`--no-NAME` turns a switch off).
    Flag(&'t Flag, bool),
    /// Names of several flags that begin so.
    Several(Vec<&'static str>),
    Unknown,
}

/// The flag with the name `head`, which is written `written`. As in argparse, the beginning of a long flag is enough if
/// only one flag begins so.
fn named<'t>(tables: &'t [Flag], written: &str, head: &str) -> Named<'t> {
    let find = |name: &str| tables.iter().find(|f| f.names().any(|n| n == name));
    let is_switch = |f: &&Flag| f.kind == Kind::Switch;
    if let Some(flag) = find(head) {
        return Named::Flag(flag, true);
    }
    let off = head.strip_prefix("no-");
    if let Some(flag) = off.and_then(find).filter(is_switch) {
        return Named::Flag(flag, false);
    }
    let start = off.unwrap_or(head);
    if !written.starts_with("--") || start.is_empty() {
        return Named::Unknown;
    }
    let begins = |f: &&Flag| f.names().any(|name| name.starts_with(start));
    let found: Vec<&Flag> = tables.iter().filter(begins).filter(|f| off.is_none() || is_switch(f)).collect();
    match found[..] {
        [] => Named::Unknown,
        [flag] => Named::Flag(flag, off.is_none()),
        _ => Named::Several(found.iter().flat_map(|f| f.names().find(|n| n.starts_with(start))).collect()),
    }
}

/// The bytes of a flag's name in the line, without a value behind `=`.
fn name_in(word: &Word) -> Range<usize> {
    let written = word.text.split('=').next().unwrap_or_default();
    word.span.start..word.span.end.min(word.span.start + written.len().max(1))
}

fn ambiguous(line: &Line, word: &Word, names: &[&str]) -> Box<Problem> {
    const SHOWN: usize = 6;
    let more = if names.len() > SHOWN { ", …" } else { "" };
    let names = names.iter().take(SHOWN).map(|name| format!("--{name}")).collect::<Vec<_>>().join(", ");
    let written = word.text.split('=').next().unwrap_or_default();
    line.wrong(&name_in(word), format!("{written} may be several flags")).help(format!("{names}{more}"))
}

fn unknown(line: &Line, word: &Word, head: &str, tables: &[Flag]) -> Box<Problem> {
    let near = nearest(head, tables.iter().flat_map(|f| f.names()));
    let near = near.map_or(String::new(), |near| format!("did you mean --{near}? "));
    let written = word.text.split('=').next().unwrap_or_default();
    line.wrong(&name_in(word), format!("{written} is not known"))
        .help(format!("{near}--skip-unknown goes on without it"))
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

    /// A flag that stands twice in an engine's table would be read by its first entry alone.
    #[test]
    fn no_two_flags_of_an_engine_have_one_name() {
        for table in [&*super::super::vllm_flags::FLAGS, &*super::super::sglang_flags::FLAGS] {
            let mut names: Vec<&str> = table.iter().flat_map(|f| f.names()).collect();
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all);
        }
    }

    const MATTER: [Flag; 6] = [
        used("max-num-seqs", Kind::Value),
        used("max-num-batched-tokens", Kind::Value),
        used("enable-prefix-caching", Kind::Switch),
        assumed("enable-lora", Kind::Switch, "adapters take no time"),
        refused("cpu-offload-gb", Kind::Value, &["0"], "offloading is not simulated", "leave it out"),
        refused("enable-tiers", Kind::Switch, &[], "tiers are not simulated", "leave it out"),
    ];

    fn read_line(text: &str, skip: bool) -> Result<Flags> {
        let line = line::read(text).unwrap();
        read(&line, &line.words, &table(&MATTER, &["port|p=", "names+"]), skip)
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
        let wrong = read_line("m --max-num-seqz=8", false).unwrap_err();
        assert_eq!(wrong.pointed_at(), Some("--max-num-seqz"));
        assert!(wrong.help_text().starts_with("did you mean --max-num-seqs?"), "{}", wrong.help_text());
        assert_eq!(read_line("m --zzz 8 --port 1", true).unwrap().unknown, ["--zzz"]);
        assert_eq!(read_line("m --max-num-seqs", false).unwrap_err().message(), "--max-num-seqs lacks its value");
    }

    #[test]
    fn a_flag_may_be_shortened_if_one_flag_begins_so() {
        let flags = read_line("m --max-num-s 8 --no-enable-pre --po=1", false).unwrap();
        let first = &flags.given[0];
        assert_eq!((first.name, first.text(), first.written.as_str()), ("max-num-seqs", "8", "--max-num-s"));
        assert_eq!((flags.given[1].name, flags.given[1].on), ("enable-prefix-caching", false));
        assert_eq!(flags.no_matter, ["--po"]);
        let wrong = read_line("m --max-num=8", false).unwrap_err();
        assert_eq!((wrong.pointed_at(), wrong.message()), (Some("--max-num"), "--max-num may be several flags"));
        assert_eq!(wrong.help_text(), "--max-num-seqs, --max-num-batched-tokens");
        assert_eq!(read_line("m --max-num 8", true).unwrap().unknown, ["--max-num"]);
        // A short flag has no beginning.
        assert!(read_line("m -max-num-s 8", false).is_err());
    }

    #[test]
    fn what_is_not_simulated_is_refused_where_it_is_asked_for() {
        let flags = read_line("m --enable-lora --cpu-offload-gb 0 --no-enable-tiers", false).unwrap();
        assert_eq!(flags.assumed, ["--enable-lora: adapters take no time"]);
        assert_eq!(flags.no_matter, ["--cpu-offload-gb", "--no-enable-tiers"]);
        for (line, at) in [("m --cpu-offload-gb 4", "--cpu-offload-gb 4"), ("m --enable-tiers", "--enable-tiers")] {
            assert_eq!(read_line(line, false).map(drop).unwrap_err().pointed_at(), Some(at));
        }
    }
}
