//! Timelines: a cell (run) of a results folder as Chrome trace events, which Perfetto and `chrome://tracing` open.
//!
//! A timeline has two processes. The first is the engine: steps with their draft and target passes, prompts, and
//! counters. The second is the requests, in rows called lanes. A timeline shows only recorded facts. A target pass may
//! verify drafts and also run prefill chunks. Such a pass has its full length in the row of steps and also in the row
//! of prefill.

mod cell;
mod event;
mod lanes;
mod select;
mod steps;

pub use cell::Cell;
pub use event::write;
pub use select::Wanted;

use event::Event;
use foretoken_report::Key;
use foretoken_sim::{DeliverAt, RequestRecords, StepRecord, Time};
use serde_json::{Value, json};

/// Process id, in the trace file, of the engine's rows.
const ENGINE: u32 = 1;
/// Process id, in the trace file, of the requests' rows (lanes).
const REQUESTS: u32 = 2;

/// Without an end of the window, a timeline has at most this number of steps. Browsers open such a file (about 10 MB)
/// without trouble.
const MOST_STEPS: usize = 20_000;

/// The recorded data of a cell, from which a timeline is made.
pub struct Recorded<'a> {
    /// The cell that is shown.
    pub key: &'a Key,
    /// Where the cell's numbers come from: simulated, measured on a device, or observed on a server.
    pub source: &'a str,
    /// One record per step of the cell, in order; at least one.
    pub steps: &'a [StepRecord],
    /// The records of the cell's requests.
    pub requests: &'a RequestRecords,
    /// Number of KV blocks that the requests could use; `None` if it is not known.
    pub blocks: Option<u32>,
    /// When output tokens leave a step, if drafts are made at the end of a step. `None` if drafts are made at the start
    /// of a step.
    pub behind: Option<DeliverAt>,
}

/// The part of a run that a timeline shows: the steps that start at `from` or later and before `to`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Start of the window on the run's clock.
    pub from: Time,
    /// End of the window on the run's clock; `None`: the timeline shows the first [`MOST_STEPS`] steps from `from` on.
    pub to: Option<Time>,
}

/// A timeline of a cell, and a note on the part of the run that it leaves out.
pub struct Timeline {
    /// The events of the timeline, in any order.
    pub events: Vec<Event>,
    /// The timeline's metadata, as a JSON object.
    pub about: Value,
    /// A sentence on the part of the run that the timeline shows; `None` if it shows the whole run.
    pub cut: Option<String>,
}

impl Timeline {
    /// Makes the timeline of a cell; `None` if no step starts in the window.
    pub fn of(recorded: &Recorded, window: Window) -> Option<Timeline> {
        let steps = recorded.steps;
        let first = steps.partition_point(|s| s.start < window.from);
        let last = match window.to {
            Some(to) => steps.partition_point(|s| s.start < to),
            None => steps.len().min(first + MOST_STEPS),
        };
        let shown = steps.get(first..last).filter(|s| !s.is_empty())?;
        let whole = shown.len() == steps.len();
        let from = if whole { Time::ZERO } else { window.from };
        let to = if whole { Time::MAX } else { shown[shown.len() - 1].end };
        let cut = (!whole).then(|| {
            format!(
                "shows {} of {} steps, {:.3} s to {:.3} s of a run of {:.3} s",
                shown.len(),
                steps.len(),
                shown[0].start.as_s(),
                to.as_s(),
                steps[steps.len() - 1].end.as_s()
            )
        });
        let mut events = steps::names(recorded);
        steps::add(&mut events, shown, recorded);
        lanes::add(&mut events, recorded.requests, from, to, steps[steps.len() - 1].end);
        let about = json!({
            "made by": format!("Foretoken {}", env!("CARGO_PKG_VERSION")),
            "source": recorded.source,
            "cell": recorded.key.to_string(),
            "cut": cut.clone().unwrap_or_else(|| "nothing".into()),
            "target pass": "verify and prefill of one step are one pass: both rows show it whole",
        });
        Some(Timeline { events, about, cut })
    }
}
