//! The log of any tool, CSV or JSON: the option `columns` of the workload names the log's columns or keys.
//!
//! Times are numbers of one unit, or texts of date and time; the first row that is read decides which. They count from
//! the earliest row. The arithmetic is in whole picoseconds, so that seconds since 1970 lose no digit.

use super::clock::{Origin, beyond_2100, instant, unit_of_date, year};
use super::collector::{Collector, Names};
use super::mooncake::{BLOCK, another_block};
use super::number;
use super::table::{Column, Table};
use super::trace::Trace;
use crate::error::TraceError;
use crate::trace_spec::{TimeUnit, TraceSpec, Unsorted};
use foretoken_sim::{Request, Time};

/// How a trace file writes its arrival times: as numbers in a unit, or as texts of date and time.
#[derive(Clone, Copy)]
enum Times {
    Numbers(TimeUnit),
    Texts,
}

/// The arrival times of a log: how they are written, and where its clock starts.
pub(super) struct Clock {
    unit: Option<TimeUnit>,
    times: Option<Times>,
    origin: Origin,
    off_clock: &'static str,
    /// The earliest and the latest time of the log, picoseconds of its own clock.
    seen: Option<(i128, i128)>,
    /// Line of the log's first row.
    first_line: u64,
}

impl Clock {
    /// The clock of a log whose times have this unit, if they are numbers. A log may begin with its newest row. If
    /// `sorts`, later rows may therefore be up to 106 days earlier than the first row.
    pub(super) fn new(unit: Option<TimeUnit>, sorts: bool) -> Clock {
        let (margin, off_clock) = match sorts {
            true => (106, "is over 106 days before or after the first row: is the unit right?"),
            false => (1, "is over a day before or 212 days after the first row: are unit and unsorted right?"),
        };
        Clock { unit, times: None, origin: Origin::with_margin(margin), off_clock, seen: None, first_line: 0 }
    }

    /// The engine's time of the current row.
    pub(super) fn read(&mut self, table: &Table, column: Column) -> Result<Time, TraceError> {
        let field = table.bytes(column);
        // If the unit is set, times are numbers. Otherwise the first time decides.
        let times = *self.times.get_or_insert_with(|| match self.unit {
            None if instant(field).is_some() => Times::Texts,
            unit => Times::Numbers(unit.unwrap_or_default()),
        });
        let at = match times {
            Times::Texts => instant(field).ok_or("is not a time YYYY-MM-DD HH:MM:SS.fff, as the rows above it are"),
            Times::Numbers(unit) => number::picoseconds(field, unit.places()).map_err(|why| match why {
                "is not a number" => "is neither a number nor a time YYYY-MM-DD HH:MM:SS.fff",
                other => other,
            }),
        };
        let at = at.map_err(|why| table.bad(column, why))?;
        if beyond_2100(at) {
            return Err(too_late(table, column, at, times));
        }
        if self.seen.is_none() {
            self.first_line = table.line();
        }
        let (first, last) = self.seen.unwrap_or((at, at));
        self.seen = Some((first.min(at), last.max(at)));
        self.origin.place(at).ok_or_else(|| table.bad(column, self.off_clock))
    }

    /// Refuses a log whose times are all dates, if they are read in a unit that is longer than the given one. Then
    /// seconds since 1970 were read as milliseconds, for example.
    pub(super) fn finish(&self, spec: &TraceSpec, column: &str) -> Result<(), TraceError> {
        let (Some(Times::Numbers(unit)), Some((first, last))) = (self.times, self.seen) else { return Ok(()) };
        let Some((longer, date)) = unit_of_date(first, unit) else { return Ok(()) };
        let factor = 10i128.pow(longer.places().saturating_sub(unit.places()) as u32);
        // A log that is longer than the engine's clock in the other unit was not written in it.
        if factor == 1 || (last - first) * factor > i128::from(u64::MAX) {
            return Ok(());
        }
        let [unit, longer] = [unit, longer].map(TimeUnit::name);
        let what = format!(
            "the times are read as {unit} and lie {:.0} s after their start; as {longer} since 1970 they lie in {date}",
            first as f64 / 1e12
        );
        let hint =
            format!("set columns.unit = \"{longer}\"; if they are {unit}, let them count from the first request");
        Err(TraceError::row(&spec.path, self.first_line, Some(column), what, hint))
    }
}

/// The error about a time after the year 2100. It names the unit in which the time is a date.
fn too_late(table: &Table, column: Column, at: i128, times: Times) -> TraceError {
    let Times::Numbers(unit) = times else {
        return table.bad(column, "is later than the year 2100");
    };
    let why = format!("{} since 1970 is the year {}", unit.name(), year(at));
    match unit_of_date(at, unit) {
        Some((fits, date)) => {
            let hint = format!("set columns.unit = \"{}\": then it is in {date}", fits.name());
            table.bad_with(column, &why, hint)
        }
        None => table.bad_with(column, &why, "set columns.unit to the unit of the times: s, ms, us or ns"),
    }
}

pub(super) fn read(spec: &TraceSpec, mut collector: Collector) -> Result<Trace, TraceError> {
    let Some(columns) = &spec.columns else {
        let hint =
            "add columns = { arrival = \"time\", prompt = \"in\", output = \"out\" } beside format in the workload";
        return Err(TraceError::file(
            &spec.path, "has columns of no known names: the format columns needs theirs", hint,
        ));
    };
    let mut table = Table::open(&spec.path)?;
    let arrival = columns.arrival.as_deref().map(|name| table.column(name)).transpose()?;
    let category = columns.category.as_deref().map(|name| table.column(name)).transpose()?;
    let priority = columns.priority.as_deref().map(|name| table.column(name)).transpose()?;
    let prefix = columns.prefix.as_deref().map(|name| table.optional(name)).transpose()?;
    let turns = match (&columns.session, &columns.delay) {
        (Some(session), Some(delay)) => Some((table.optional(session)?, table.optional(delay)?)),
        (None, None) => None,
        _ => {
            let hint = "give columns.session and columns.delay, or neither of them";
            return Err(TraceError::file(&spec.path, "has sessions only with both of their columns", hint));
        }
    };
    let (prompt, output) = (table.column(&columns.prompt)?, table.column(&columns.output)?);
    let time = columns.arrival.as_deref().unwrap_or_default();
    let names = Names { time, prompt: &columns.prompt, output: &columns.output };
    let mut clock = Clock::new(columns.unit, spec.unsorted == Some(Unsorted::Sort));
    let block = spec.block_size.unwrap_or(BLOCK);
    if prefix.is_some() {
        collector.prefix_block(block);
    }
    collector.gives.arrivals = arrival.is_some();
    while table.next()? {
        let mut at = Time::ZERO;
        let wait = turns.map(|(_, delay)| gap(&table, delay, columns.unit)).transpose()?.flatten();
        let session = turns.map(|(session, _)| table.text(session)).transpose()?.filter(|name| !name.is_empty());
        let begins = session.is_none_or(|name| !collector.knows(name));
        if let Some(arrival) = arrival.filter(|_| begins || wait.is_none()) {
            at = clock.read(&table, arrival)?;
            collector.at(table.line(), table.bytes(arrival));
        }
        let mut request = Request::new(at, table.tokens(prompt)?, table.tokens(output)?);
        if let (Some(category), Some(name)) = (category, &columns.category) {
            request.category = collector.category_in(name, table.line(), table.text(category)?)?;
        }
        if let Some(priority) = priority {
            request.priority = table.whole(priority)?;
        }
        if let Some(prefix) = prefix {
            request.prefix = prefix_ids(&table, prefix, request.prompt_len, block)?;
        }
        match session {
            Some(name) => collector.push_turn(table.line(), request, names, name, wait.filter(|_| !begins))?,
            None => collector.push(table.line(), request, names)?,
        }
    }
    clock.finish(spec, time)?;
    collector.start_at_zero();
    collector.finish()
}

/// How long after the answer before it the current row is sent. `None` if the row has no delay.
fn gap(table: &Table, column: Column, unit: Option<TimeUnit>) -> Result<Option<Time>, TraceError> {
    let field = table.bytes(column);
    if field.is_empty() {
        return Ok(None);
    }
    let ps = number::picoseconds(field, unit.unwrap_or_default().places()).map_err(|why| table.bad(column, why))?;
    match u64::try_from(ps) {
        Ok(ps) => Ok(Some(Time(ps))),
        Err(_) if ps < 0 => Err(table.bad(column, "is negative")),
        Err(_) => Err(table.bad_with(column, number::TOO_LATE, "set columns.unit to the unit of times and delays")),
    }
}

/// The ids of the full blocks of a prompt of `tokens` tokens. The list may have an id of the last, partial block.
fn prefix_ids(table: &Table, column: Column, tokens: u32, block: u32) -> Result<Vec<u64>, TraceError> {
    let text = table.text(column)?.trim().trim_start_matches('[').trim_end_matches(']');
    let words = text.split([',', ';', '|', ' ']).filter(|word| !word.is_empty());
    let ids: Result<Vec<u64>, _> = words.map(str::parse).collect();
    let mut ids = ids.map_err(|_| table.bad(column, "is not a list of whole numbers, such as 1 2 3"))?;
    let full = (tokens / block) as usize;
    if !ids.is_empty() && ids.len() != full && ids.len() != tokens.div_ceil(block) as usize {
        let what = format!("has {} ids, but {tokens} tokens are {} blocks", ids.len(), tokens.div_ceil(block));
        return Err(table.bad_with(column, &what, another_block(tokens, ids.len(), block)));
    }
    ids.truncate(full);
    Ok(ids)
}
