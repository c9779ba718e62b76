//! Collects the rows of a trace into a workload. Checks the order of arrival times, lengths of 0 tokens and the options
//! that limit lengths. Counts the rows that are left out.

use super::trace::{Gives, Trace};
use crate::error::TraceError;
use crate::format::TraceFormat;
use crate::limits;
use crate::trace_spec::{FailedRows, Ties, TraceSpec, Unsorted, ZeroTokens};
use crate::transform::{pick, spread};
use foretoken_sim::{Recording, Request, RequestId, Time, Workload};
use std::collections::HashMap;
use std::path::PathBuf;

/// Names of a format's columns of times and lengths, for error messages.
#[derive(Clone, Copy)]
pub(super) struct Names<'n> {
    pub(super) time: &'n str,
    pub(super) prompt: &'n str,
    pub(super) output: &'n str,
}

/// Most categories of a trace. The limit is low because each new row's category is compared with all categories.
const MOST_CATEGORIES: usize = 4096;

/// Most bytes of a time that an error quotes.
const LONGEST_TIME: usize = 60;
/// Most models of a log that a note names.
const MOST_MODELS: usize = 8;

/// What is known of a session (conversation) of the log while its rows are read.
#[derive(Clone, Copy)]
struct Session {
    /// When its last row would be sent if all answers took no time.
    at: Time,
    /// The request of its last row that was not left out.
    last: Option<RequestId>,
    /// The gaps before the rows that were left out after `last`.
    waited: Time,
}

/// Collects the rows of a trace file and builds a workload from them.
pub(super) struct Collector<'a> {
    spec: &'a TraceSpec,
    format: TraceFormat,
    /// The time per output token of an unloaded server, seconds, in which AdaServe's relative latency limits are given.
    /// `None` if the caller does not know it.
    pub(super) baseline_tpot_s: Option<f64>,
    pub(super) gives: Gives,
    /// Arrival times in the order of the file. They are put into `workload.arrival` when all rows have been read.
    arrivals: Vec<Time>,
    workload: Workload,
    /// What to do with rows that are not in order of time, if the options do not say it.
    unsorted: Unsorted,
    /// The time of the row before as the file writes it, and the row's line; then the same of the current row.
    said: [(Vec<u8>, u64); 2],
    went_back: bool,
    /// The latest time of a row that has one.
    latest: Time,
    /// The sessions of the log by their names.
    sessions: HashMap<Box<str>, Session>,
    rows: u64,
    /// Memory, in bytes, that the collected requests will take in a run.
    memory: u64,
    failed: u64,
    zero: u64,
    raised: u64,
    too_long: u64,
    filtered: u64,
    /// Numbers of rows that the format leaves out, with what they are.
    left_out: Vec<(u64, &'static str)>,
    /// The models whose requests are read, if the format names them; at most [`MOST_MODELS`].
    models: Vec<String>,
    /// Number of requests that replay a recording (which draft tokens were right) and took the recording's output
    /// length, because the file of requests has a different output length.
    pub(super) relengthened: u64,
    pub(super) files: Vec<PathBuf>,
}

impl<'a> Collector<'a> {
    pub(super) fn new(spec: &'a TraceSpec, format: TraceFormat, baseline_tpot_s: Option<f64>) -> Collector<'a> {
        Collector {
            spec,
            format,
            baseline_tpot_s,
            gives: Gives { arrivals: true, lengths: true },
            arrivals: Vec::new(),
            workload: Workload::default(),
            unsorted: spec.unsorted.unwrap_or_default(),
            said: Default::default(),
            went_back: false,
            latest: Time::ZERO,
            sessions: HashMap::new(),
            rows: 0,
            memory: 0,
            failed: 0,
            zero: 0,
            raised: 0,
            too_long: 0,
            filtered: 0,
            left_out: Vec::new(),
            models: Vec::new(),
            relengthened: 0,
            files: vec![spec.path.clone()],
        }
    }

    /// The index of the category `name`. Adds the category if it is new.
    pub(super) fn category(&mut self, line: u64, name: &str) -> Result<u16, TraceError> {
        self.category_in("category", line, name)
    }

    /// The index of the category `name`. Adds the category if it is new. `column` is the name of the file's column or
    /// key of categories, for error messages.
    pub(super) fn category_in(&mut self, column: &str, line: u64, name: &str) -> Result<u16, TraceError> {
        let known = self.workload.categories.iter().position(|c| c == name);
        let index = known.unwrap_or(self.workload.categories.len());
        if index >= MOST_CATEGORIES {
            let what = format!("is the category number {}: more than {MOST_CATEGORIES} are no categories", index + 1);
            let hint = "is it the right column? A category is what requests have in common";
            return Err(TraceError::row(&self.spec.path, line, Some(column), what, hint));
        }
        if known.is_none() {
            self.workload.categories.push(name.to_owned());
        }
        Ok(index as u16)
    }

    /// Adds to `memory` the bytes that the request takes in a run. Fails if the sum exceeds the memory limit, or if
    /// there are more prefix ids than 32 bits can number.
    fn hold(&mut self, line: u64, request: &Request) -> Result<(), TraceError> {
        let recording = request.recording.map_or(0, |r| self.workload.recordings[r as usize].bits.len());
        self.memory += limits::REQUEST + 8 * request.prefix.len() as u64 + 16 * recording as u64;
        let prefixes = self.workload.prefix_ids.len() + request.prefix.len();
        if self.memory <= limits::memory() && u32::try_from(prefixes).is_ok() {
            return Ok(());
        }
        let what = format!("{} requests are all that memory holds", self.arrivals.len());
        let hint = format!("take a part of the file: {}", limits::raise());
        Err(TraceError::row(&self.spec.path, line, None, what, hint))
    }

    /// Adds a recording (which draft tokens of a request were right) to the workload and returns its index.
    pub(super) fn recording(&mut self, recording: Recording) -> u32 {
        self.workload.recordings.push(recording);
        u32::try_from(self.workload.recordings.len() - 1).expect("fewer than 2^32 recordings")
    }

    /// Sets the number of tokens of a shared prefix block in this trace.
    pub(super) fn prefix_block(&mut self, tokens: u32) {
        self.workload.prefix_block = tokens;
    }

    /// For formats whose files are not in order of time: sorts the rows, unless the option `unsorted` says otherwise.
    pub(super) fn sorts(&mut self) {
        self.unsorted = self.spec.unsorted.unwrap_or(Unsorted::Sort);
    }

    /// Keeps the time of the current row as the file writes it, for the error about the order of rows.
    pub(super) fn at(&mut self, line: u64, time: &[u8]) {
        let [_, (text, of)] = &mut self.said;
        text.clear();
        text.extend_from_slice(&time[..time.len().min(LONGEST_TIME)]);
        *of = line;
    }

    /// Does the option `model` leave out a request of the model `name`? If it does not, the model is kept for a note.
    pub(super) fn is_of_other_model(&mut self, name: &str) -> bool {
        if self.spec.model.as_deref().is_some_and(|wanted| wanted != name) {
            return true;
        }
        if self.models.len() < MOST_MODELS && !self.models.iter().any(|known| known == name) {
            self.models.push(name.chars().take(60).collect());
        }
        false
    }

    /// Counts a row that the format leaves out. `what` says what such rows are.
    pub(super) fn leave_out(&mut self, what: &'static str) {
        self.rows += 1;
        match self.left_out.iter_mut().find(|(_, known)| *known == what) {
            Some((count, _)) => *count += 1,
            None => self.left_out.push((1, what)),
        }
    }

    /// Counts a row that is left out because of the options `model`, `log_type` or `turns`.
    pub(super) fn skip(&mut self) {
        self.rows += 1;
        self.filtered += 1;
    }

    /// Adds a row of a log that has failed requests too. For a row with 0 response tokens the option `failed_rows`
    /// decides: the row is left out, is kept with 1 response token, or is an error. A row with 0 prompt tokens too is
    /// never kept.
    pub(super) fn push_or_failed(
        &mut self,
        line: u64,
        mut request: Request,
        names: Names<'_>,
    ) -> Result<(), TraceError> {
        if request.output_len > 0 {
            return self.push(line, request, names);
        }
        match self.spec.failed_rows.unwrap_or_default() {
            FailedRows::KeepAsPromptOnly if request.prompt_len > 0 => {
                request.output_len = 1;
                self.raised += 1;
                self.push(line, request, names)
            }
            FailedRows::Drop | FailedRows::KeepAsPromptOnly => {
                self.rows += 1;
                self.failed += 1;
                Ok(())
            }
            FailedRows::Error => {
                let hint = "set failed_rows = \"drop\" or \"keep-as-prompt-only\"";
                Err(TraceError::row(&self.spec.path, line, Some(names.output), "is 0: a failed request", hint))
            }
        }
    }

    /// Is there a row above of the same conversation?
    pub(super) fn knows(&self, session: &str) -> bool {
        self.sessions.contains_key(session)
    }

    /// Adds a row of the session `session`. With a `gap`, the request is sent this long after the answer to the row
    /// before it in the session, which must be known. Its arrival time is then the one that it would have if all
    /// answers took no time. If a row is left out, the next row of its session follows the row before it, after both
    /// gaps.
    pub(super) fn push_turn(
        &mut self,
        line: u64,
        mut request: Request,
        names: Names<'_>,
        session: &str,
        gap: Option<Time>,
    ) -> Result<(), TraceError> {
        let before = gap.and_then(|gap| Some((gap, *self.sessions.get(session)?)));
        if let Some((gap, before)) = before {
            request.arrival = before.at + gap;
            if request.arrival == Time::MAX {
                let hint = "are the unit and the column of delays right?";
                let what = "is sent beyond the engine's clock of 213 days";
                return Err(TraceError::row(&self.spec.path, line, None, what, hint));
            }
        }
        let (at, own) = (request.arrival, self.workload.len());
        let added = self.add(line, request, names)?.then_some(own as RequestId);
        let gap = before.map_or(Time::ZERO, |(gap, before)| before.waited + gap);
        let last = before.and_then(|(_, before)| before.last);
        match (added, last) {
            (Some(own), Some(last)) => {
                let w = &mut self.workload;
                w.next_turn.resize(w.arrival.len(), RequestId::MAX);
                w.gap.resize(w.arrival.len(), Time::ZERO);
                (w.next_turn[last as usize], w.gap[last as usize]) = (own, gap);
            }
            (Some(_), None) if before.is_none() => self.check_order(line, at, names.time)?,
            _ => {}
        }
        let waited = if added.is_some() { Time::ZERO } else { gap };
        self.sessions.insert(session.into(), Session { at, last: added.or(last), waited });
        Ok(())
    }

    /// Adds a row as a request, unless an option leaves the row out. Fails if an option forbids the row.
    pub(super) fn push(&mut self, line: u64, request: Request, names: Names<'_>) -> Result<(), TraceError> {
        let at = request.arrival;
        match self.add(line, request, names)? {
            true => self.check_order(line, at, names.time),
            false => Ok(()),
        }
    }

    /// Adds a row as a request, in whatever order of time. Returns false if an option leaves the row out.
    fn add(&mut self, line: u64, mut request: Request, names: Names<'_>) -> Result<bool, TraceError> {
        self.rows += 1;
        if request.prompt_len == 0 || request.output_len == 0 {
            match self.spec.zero_tokens.unwrap_or_default() {
                ZeroTokens::Drop => {
                    self.zero += 1;
                    return Ok(false);
                }
                ZeroTokens::RaiseToOne => {
                    self.raised += 1;
                    request.prompt_len = request.prompt_len.max(1);
                    request.output_len = request.output_len.max(1);
                }
                ZeroTokens::Error => {
                    let column = if request.prompt_len == 0 { names.prompt } else { names.output };
                    let hint = "set zero_tokens = \"drop\" or \"raise-to-one\"";
                    return Err(TraceError::row(&self.spec.path, line, Some(column), "is 0 tokens", hint));
                }
            }
        }
        if self.is_too_long(&request) {
            self.too_long += 1;
            return Ok(false);
        }
        self.hold(line, &request)?;
        self.arrivals.push(request.arrival);
        request.arrival = Time::ZERO;
        self.workload.push(request);
        Ok(true)
    }

    fn is_too_long(&self, r: &Request) -> bool {
        let over = |limit: Option<u32>, len: u64| limit.is_some_and(|l| len > u64::from(l));
        let (prompt, output) = (u64::from(r.prompt_len), u64::from(r.output_len));
        over(self.spec.max_prompt_len, prompt)
            || over(self.spec.max_output_len, output)
            || over(self.spec.max_total_len, prompt + output)
    }

    fn check_order(&mut self, line: u64, at: Time, column: &str) -> Result<(), TraceError> {
        let before = at < self.latest;
        self.latest = self.latest.max(at);
        if before && self.unsorted == Unsorted::Error {
            let [above, own] = self.said.each_ref().map(|(text, _)| String::from_utf8_lossy(text));
            let what = format!("{own} is before the row above it ({above}, line {})", self.said[0].1);
            let hint = "set unsorted = \"sort\" if the order does not matter";
            return Err(TraceError::row(&self.spec.path, line, Some(column), what, hint));
        }
        self.went_back |= before;
        self.said.swap(0, 1);
        Ok(())
    }

    /// Shifts the arrival times of all requests so that the earliest one is at 0.
    pub(super) fn start_at_zero(&mut self) {
        let first = self.arrivals.iter().min().copied().unwrap_or_default();
        self.arrivals.iter_mut().for_each(|t| *t = *t - first);
    }

    /// Finishes the trace: sorts the requests if an arrival time was earlier than the time before it, and spreads equal
    /// arrival times if the option `ties` says so. Fails if there is no request.
    pub(super) fn finish(mut self) -> Result<Trace, TraceError> {
        let notes = self.notes();
        if self.arrivals.is_empty() {
            let why = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
            let hint = "check the options that leave rows out, and that the file is complete";
            let what = format!("has no usable request in {} rows{why}", self.rows);
            return Err(TraceError::file(&self.spec.path, what, hint));
        }
        if !self.workload.next_turn.is_empty() {
            self.workload.next_turn.resize(self.arrivals.len(), RequestId::MAX);
            self.workload.gap.resize(self.arrivals.len(), Time::ZERO);
        }
        if !self.arrivals.is_sorted() {
            let mut order: Vec<usize> = (0..self.arrivals.len()).collect();
            order.sort_by_key(|&i| self.arrivals[i]);
            self.workload = pick(&self.workload, order.iter().map(|&i| (self.arrivals[i], i)));
        } else {
            self.workload.arrival = self.arrivals;
        }
        if self.spec.ties == Some(Ties::Spread) {
            spread(&mut self.workload.arrival, Time::from_s(1.0));
        }
        let Collector { format, workload, gives, rows, files, .. } = self;
        Ok(Trace { format, workload, gives, rows, notes, files })
    }

    /// A note if the log has requests of several models, and the option `model` does not pick one of them.
    fn models(&self) -> Option<String> {
        let [first, others @ ..] = self.models.as_slice() else { return None };
        let all = format!("{first}, {}", others.join(", "));
        (!others.is_empty())
            .then(|| format!("requests of several models are read as one load ({all}): model picks one"))
    }

    fn notes(&self) -> Vec<String> {
        let sorted = u64::from(self.went_back);
        let turns = self.workload.next_turn.iter().filter(|&&next| next != RequestId::MAX).count() as u64;
        [
            (self.failed, "failed rows (0 response tokens) left out"),
            (self.zero, "rows with 0 tokens left out"),
            (self.raised, "rows with 0 tokens kept with 1"),
            (self.too_long, "rows over the length limits left out"),
            (self.filtered, "rows not asked for (model, log type or turn) left out"),
            (self.relengthened, "outputs have the length of the recorded run, which differs from the request's"),
            (sorted, "time or more the timestamps went back; sorted"),
            (turns, "turns are sent after the answer before them; their times here are as if answers took no time"),
        ]
        .into_iter()
        .chain(self.left_out.iter().copied())
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| format!("{n} {what}"))
        .chain(self.models())
        .collect()
    }
}
