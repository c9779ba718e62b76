//! Timelines: one cell of a results folder as Chrome trace events, which Perfetto and `chrome://tracing` open.
//!
//! Two processes: the engine (its steps with their draft and target passes, prompts in them, counters) and the requests, in lanes. It
//! shows recorded facts and must not make any up: a target pass that verifies and runs prefill chunks is one pass, so it stands in
//! both rows whole.

mod event;
mod lanes;
mod select;
mod steps;

pub use event::write;
pub use select::{Wanted, choose};

use event::Event;
use foretoken_report::Key;
use foretoken_sim::{DeliverAt, RequestRecords, StepRecord, Time};
use serde_json::{Value, json};

/// The engine's process.
const ENGINE: u32 = 1;
/// The requests' process; its threads are lanes.
const REQUESTS: u32 = 2;

/// Steps of a timeline that nobody gave an end: what browsers open without complaint (about 10 MB).
const MOST_STEPS: usize = 20_000;

/// What a timeline is made of.
pub struct Recorded<'a> {
    /// The cell.
    pub key: &'a Key,
    /// Where its numbers come from.
    pub source: &'a str,
    /// Its steps, in order; at least one.
    pub steps: &'a [StepRecord],
    /// Its requests.
    pub requests: &'a RequestRecords,
    /// KV blocks that its requests could use, where that is known.
    pub blocks: Option<u32>,
    /// When its tokens left, where drafts were made behind its steps; `None` is before them.
    pub behind: Option<DeliverAt>,
}

/// The part of a run that is shown: steps that start from `from` on and before `to`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Its start on the clock.
    pub from: Time,
    /// Its end; `None` shows as much as a browser opens without complaint.
    pub to: Option<Time>,
}

/// A timeline, and what was left out of it.
pub struct Timeline {
    /// What it holds.
    pub events: Vec<Event>,
    /// What a reader must know of it.
    pub about: Value,
    /// What was cut, in words; `None` when nothing was.
    pub cut: Option<String>,
}

impl Timeline {
    /// Of a cell; `None` when no step starts in the window.
    pub fn of(recorded: &Recorded, window: Window) -> Option<Timeline> {
        let all = recorded.steps;
        let first = all.partition_point(|s| s.start < window.from);
        let last = match window.to {
            Some(to) => all.partition_point(|s| s.start < to),
            None => all.len().min(first + MOST_STEPS),
        };
        let shown = all.get(first..last).filter(|s| !s.is_empty())?;
        let whole = shown.len() == all.len();
        let from = if whole { Time::ZERO } else { window.from };
        let to = if whole { Time::MAX } else { shown[shown.len() - 1].end };
        let cut = (!whole).then(|| {
            format!(
                "shows {} of {} steps, {:.3} s to {:.3} s of a run of {:.3} s",
                shown.len(),
                all.len(),
                shown[0].start.as_s(),
                to.as_s(),
                all[all.len() - 1].end.as_s()
            )
        });
        let mut events = steps::names(recorded);
        steps::add(&mut events, shown, recorded);
        lanes::add(&mut events, recorded.requests, from, to, all[all.len() - 1].end);
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
