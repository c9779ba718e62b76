//! Writes the lines of a recorded run in the format of `tests/vllm/README.md`.

use crate::chance::mix;
use crate::scheduler::{Output, Scheduler};
use crate::update::Fate;
use std::collections::HashMap;
use std::fmt::Write;

pub struct Lines {
    pub text: String,
    /// The end of the last call that a line was written for, µs.
    pub now: i64,
    free: i64,
    k: i64,
    skip: bool,
    hash: u64,
    /// For each request, the number of its KV blocks that are in the hash over block tables.
    known: HashMap<usize, usize>,
}

impl Lines {
    pub fn new(k: i64) -> Lines {
        Lines { text: String::new(), now: 0, free: 0, k, skip: false, hash: 0, known: HashMap::new() }
    }

    /// Writes the line of a recording of vLLM for a call of `schedule`, except the end of the line.
    pub fn schedule(&mut self, s: &Scheduler, out: &Output, start: i64) {
        out.preempted.iter().for_each(|id| self.forget(*id));
        let before = self.hash;
        for entry in &out.entries {
            let (id, table) = (entry.id, &s.r(entry.id).table);
            let known = self.known.entry(id).or_default();
            for &block in &table[*known..] {
                self.hash = mix(self.hash ^ ((id as u64) << 32 | block as u64));
            }
            *known = table.len();
        }
        self.text.push('S');
        for entry in &out.entries {
            write!(self.text, "({}:{}", entry.id, entry.tokens).unwrap();
            if entry.drafts > 0 {
                write!(self.text, "/{}", entry.drafts).unwrap();
            }
            if let Some(cached) = entry.admitted {
                write!(self.text, "+{cached}").unwrap();
            }
            self.text.push(')');
        }
        self.time_and_free(start, s.pool.num_free());
        if out.k != self.k {
            write!(self.text, " k{}", out.k).unwrap();
        }
        if out.skip_drafts != self.skip {
            write!(self.text, " s{}", i64::from(out.skip_drafts)).unwrap();
        }
        (self.k, self.skip) = (out.k, out.skip_drafts);
        self.list('-', &out.preempted);
        if self.hash != before {
            write!(self.text, " #{:03x}", self.hash & 0xFFF).unwrap();
        }
    }

    /// Writes the line of a recording of vLLM for a call of `update_from_output`, except the end of the line.
    pub fn update(&mut self, s: &Scheduler, fates: &[Fate], start: i64) {
        self.text.push('U');
        for fate in fates {
            match (fate.gone, fate.stale) {
                (true, _) => self.text.push('x'),
                (false, true) => write!(self.text, "!{}", digit(fate.tokens)).unwrap(),
                (false, false) => self.text.push(digit(fate.tokens)),
            }
        }
        self.time_and_free(start, s.pool.num_free());
    }

    fn time_and_free(&mut self, start: i64, free: i64) {
        if start != self.now {
            write!(self.text, " @{}", start - self.now).unwrap();
        }
        if free != self.free {
            write!(self.text, " f{}", free - self.free).unwrap();
        }
        self.free = free;
    }

    /// Adds the requests that ended to the line of the recording that is being written, and ends the line.
    pub fn end_line(&mut self, ended: &[usize], end: i64) {
        self.list('.', ended);
        self.text.push('\n');
        ended.iter().for_each(|id| self.forget(*id));
        self.now = end;
    }

    fn list(&mut self, mark: char, ids: &[usize]) {
        if !ids.is_empty() {
            let ids: Vec<String> = ids.iter().map(usize::to_string).collect();
            write!(self.text, " {mark}{}", ids.join(",")).unwrap();
        }
    }

    fn forget(&mut self, id: usize) {
        self.known.remove(&id);
    }

    /// Adds to the recording (of a run of the model, in vLLM's format) a line for each refused request, and the line
    /// that says how the run ended.
    pub fn end(&mut self, refused: &[usize], kind: &str) {
        refused.iter().for_each(|id| writeln!(self.text, "X {id}").unwrap());
        writeln!(self.text, "E {kind} {} {:016x}", self.now, self.hash).unwrap();
    }
}

fn digit(tokens: i64) -> char {
    char::from_digit(tokens as u32, 36).unwrap()
}
