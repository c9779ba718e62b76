//! Timelines: a cell (run) of a results folder as Chrome trace events, which Perfetto and `chrome://tracing` open.
//!
//! A timeline has two processes. The first is the engine: steps with their draft and target passes, prompts, and
//! counters. The second is the requests, in rows called lanes. A fleet has an engine process for each replica, and a
//! process for the router. A timeline shows only recorded facts. A target pass may verify draft tokens and also run
//! prefill chunks. Such a pass has its full length in the row of steps and also in the row of prefill.

mod cell;
mod event;
mod fleet;
mod lanes;
mod recorded;
mod select;
mod steps;

pub use cell::Cell;
pub use event::write;
pub use select::Wanted;

use event::Event;
use fleet::Fleet;
use foretoken_sim::Time;
use recorded::{ENGINE, REQUESTS, Recorded};
use serde_json::{Value, json};

/// The most steps in a timeline whose end the user did not choose. Browsers open such a file (about 10 MB) without
/// trouble.
const MOST_STEPS: usize = 20_000;

/// The part of a run that a timeline shows: the steps that start at `from` or later and before `to`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Simulated or measured time at which the timeline starts, counted from the start of the run.
    pub from: Time,
    /// Time at which the timeline ends, counted from the start of the run; `None`: the timeline shows the first
    /// [`MOST_STEPS`] steps from `from` on.
    pub to: Option<Time>,
}

/// A timeline of one run, and a sentence on the part of the run that it shows.
pub struct Timeline {
    pub events: Vec<Event>,
    /// The metadata of the timeline's file, as a JSON object.
    pub about: Value,
    /// A sentence on the part of the run that the timeline shows; `None` if it shows the whole run.
    pub cut: Option<String>,
}

impl Timeline {
    /// Makes the timeline of a run; `None` if no step starts in the window. `fleet`: the replicas and the router,
    /// `None` for a single engine.
    pub fn of(recorded: &Recorded, fleet: Option<&Fleet>, window: Window) -> Option<Timeline> {
        let steps = recorded.steps;
        let first = steps.partition_point(|s| s.start < window.from);
        let last = match window.to {
            Some(to) => steps.partition_point(|s| s.start < to),
            None => steps.len().min(first + MOST_STEPS),
        };
        let shown = steps.get(first..last).filter(|s| !s.is_empty())?;
        let whole = shown.len() == steps.len();
        let from = if whole { Time::ZERO } else { window.from };
        let to = if whole { Time::MAX } else { shown.iter().map(|s| s.end).max().unwrap_or(Time::MAX) };
        let ends = steps.iter().map(|s| s.end).max().unwrap_or(Time::MAX);
        let cut = (!whole).then(|| {
            format!(
                "shows {} of {} steps, {:.3} s to {:.3} s of a run of {:.3} s",
                shown.len(),
                steps.len(),
                shown[0].start.as_s(),
                to.as_s(),
                ends.as_s()
            )
        });
        let mut events = Vec::new();
        match fleet {
            None => {
                let title = format!("engine: {} ({})", recorded.key, recorded.source);
                steps::names(&mut events, ENGINE, &title, 0, recorded.behind.is_some());
                events.extend(names_of_requests(1));
                events.extend(recorded.behind.map(|_| steps::name_of_behind(ENGINE)));
                steps::add(&mut events, shown, recorded, ENGINE);
                lanes::add(&mut events, recorded.requests, (from, to, ends), |_| None);
            }
            Some(fleet) => {
                fleet.add(&mut events, (first, shown), recorded);
                events.extend(names_of_requests(fleet.names.len() as u32 + 1));
                fleet.add_decisions(&mut events, recorded.requests, (from, to));
                let transfer = |i: usize| fleet.transfer(i);
                let placed = lanes::add(&mut events, recorded.requests, (from, to, ends), transfer);
                fleet.add_arrows(&mut events, &placed, recorded.requests, (first, shown));
            }
        }
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

/// Events that name the timeline's process of requests and give it the place `index` among the processes.
fn names_of_requests(index: u32) -> [Event; 2] {
    [
        Event::about("process_name", (REQUESTS, 0), json!({ "name": "requests" })),
        Event::about("process_sort_index", (REQUESTS, 0), json!({ "sort_index": index })),
    ]
}
