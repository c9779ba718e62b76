//! The CSV log of any tool: the option `columns` of the workload names the log's columns.
//!
//! Times are numbers of one unit, or texts of date and time; the first row that is read decides which. They count from
//! the earliest row. The arithmetic is in whole picoseconds, so that seconds since 1970 lose no digit.

use super::clock::{Origin, instant};
use super::collector::{Collector, Names};
use super::number;
use super::table::Table;
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

impl Times {
    /// Finds out how the file writes its arrival times from `field`, its first time. If `unit` is set, times are
    /// numbers.
    fn of(field: &[u8], unit: Option<TimeUnit>) -> Times {
        match unit {
            None if instant(field).is_some() => Times::Texts,
            unit => Times::Numbers(unit.unwrap_or_default()),
        }
    }

    /// Parses an arrival time of the file as picoseconds since an origin that all times of the file share.
    fn read(self, field: &[u8]) -> Result<i128, number::Bad> {
        match self {
            Times::Texts => instant(field).ok_or("is not a time YYYY-MM-DD HH:MM:SS.fff, as the rows above it are"),
            Times::Numbers(unit) => number::picoseconds(field, unit.places()).map_err(|why| match why {
                "is not a number" => "is neither a number nor a time YYYY-MM-DD HH:MM:SS.fff",
                other => other,
            }),
        }
    }
}

pub(super) fn read(spec: &TraceSpec, mut collector: Collector) -> Result<Trace, TraceError> {
    let Some(columns) = &spec.columns else {
        let hint =
            "add columns = { arrival = \"time\", prompt = \"in\", output = \"out\" } beside format in the workload";
        return Err(TraceError::file(
            &spec.path,
            "has columns of no known names: the format columns needs theirs",
            hint,
        ));
    };
    let mut table = Table::open(&spec.path)?;
    let arrival = columns.arrival.as_deref().map(|name| table.column(name)).transpose()?;
    let category = columns.category.as_deref().map(|name| table.column(name)).transpose()?;
    let priority = columns.priority.as_deref().map(|name| table.column(name)).transpose()?;
    let (prompt, output) = (table.column(&columns.prompt)?, table.column(&columns.output)?);
    let time = columns.arrival.as_deref().unwrap_or_default();
    let names = Names { time, prompt: &columns.prompt, output: &columns.output };
    // A log may begin with its newest row. With the option `unsorted = "sort"`, later rows may therefore be up to 106
    // days earlier than the first row.
    let sorts = spec.unsorted == Some(Unsorted::Sort);
    let (mut origin, off_clock) = if sorts {
        (Origin::with_margin(106), "is over 106 days before or after the first row: is the unit right?")
    } else {
        (Origin::with_margin(1), "is over a day before or 212 days after the first row: are unit and unsorted right?")
    };
    let mut times = None;
    collector.gives.arrivals = arrival.is_some();
    while table.next()? {
        let at = match arrival {
            Some(arrival) => {
                let field = table.bytes(arrival);
                let times = *times.get_or_insert_with(|| Times::of(field, columns.unit));
                let at = times.read(field).map_err(|why| table.bad(arrival, why))?;
                origin.place(at).ok_or_else(|| table.bad(arrival, off_clock))?
            }
            None => Time::ZERO,
        };
        let mut request = Request::new(at, table.tokens(prompt)?, table.tokens(output)?);
        if let (Some(category), Some(name)) = (category, &columns.category) {
            request.category = collector.category_in(name, table.line(), table.text(category)?)?;
        }
        if let Some(priority) = priority {
            request.priority = table.whole(priority)?;
        }
        collector.push(table.line(), request, names)?;
    }
    collector.start_at_zero();
    collector.finish()
}
