//! The figures of a report, each one SVG file. This file lists them; each kind of figure is drawn in a file of its own.
//!
//! Drawing is deterministic: it reads no font and no clock, and does not iterate a hash map. A policy has one colour,
//! dash and marker in all figures. If two policies of a report had the same look, one of them gets another dash and
//! marker (`view.rs`).

mod acceptance;
mod against;
mod arena;
mod axis;
mod by_policy;
mod canvas;
mod capacity;
mod curves;
mod emphasis;
mod fleets;
mod frontier;
mod gain;
mod heat;
mod ladder;
mod latency;
mod learnt;
mod light_svg;
mod names;
mod over_time;
mod page;
mod path;
mod predicted;
mod profile;
mod range;
mod replica_counts;
mod replicas;
mod shades;
mod sheet;
mod style;
#[cfg(test)]
mod tests;
mod thin;
mod tradeoff;
mod validation;
pub(crate) mod view;

pub use acceptance::{Accepted, acceptance_figures};
pub use arena::{ArenaMap, arena_figure};
pub use capacity::{CapacityWords, Carried, TriedRate, capacity_figures};
pub use frontier::{FrontierLine, FrontierPoint, FrontierWords, frontier_figure};
pub use gain::{GainAt, GainLine, GainOf, gain_figure};
pub use ladder::{LadderBar, ladder_figure};
pub use learnt::{AtPosition, cost_figure, positions_figure};
pub use predicted::{PREDICTED_EDGE, PredictedCell, PredictedNumber, predicted_figure};
pub use profile::{Profiled, ProfiledFit, ProfiledPass, profile_figures};
pub use range::range_bar;
pub use validation::{RunKind, Validated, ValidatedRun, validation_figures};

use crate::{Cell, Report, ReportError, Staged};
use against::{Mark, Quantity};
use axis::Axis;
use curves::Curves;
pub(crate) use fleets::{chosen as chosen_fleets, run_but_replicas, run_in_words};
use foretoken_sim::metrics::Range;
use latency::Latency;
use names::{combination, slug, unused};
use over_time::Course;
pub(crate) use shades::all as shades;
use sheet::Sheet;
use std::path::Path;
pub(crate) use style::{BEHIND, FONTS, GREY, GRID, INK, KEPT, PAPER, QUIET, RULE, Rgb, hex};
use view::{Scale, View};

/// The subject of a figure, such as speedup or latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Speedup: mean end-to-end latency of autoregressive decoding divided by the policy's.
    Speedup,
    /// How much longer a policy's mean end-to-end latency is than the fastest policy's.
    Behind,
    /// Throughput against time per token, a path through the loads for each policy.
    Tradeoff,
    /// Share of requests that met their SLO.
    Attainment,
    /// Decode batch size over time.
    BatchSize,
    /// Mean number of drafted tokens of a request in a step, over time.
    DraftLength,
    /// Distribution of end-to-end latency, TTFT or TPOT.
    Latency,
    /// Draft length that a policy chose, against the decode batch size.
    Chosen,
    /// Share of accepted draft tokens by the token's position in the draft of its step.
    Depth,
    /// Calibration of the draft model's confidence: the share of right draft tokens by confidence.
    Calibration,
    /// Goodput (emitted tokens per second inside steps) by batch size and draft length.
    Heat,
    /// Regret: how much longer a policy's mean end-to-end latency is than that of the oracle, which sees which draft
    /// tokens will be accepted. The difference is divided by the oracle's latency.
    Regret,
    /// Peak KV use of a run, or its number of preemptions.
    Memory,
    /// Relative change of a policy's mean end-to-end latency against other results, such as an earlier run's.
    Change,
    /// Pass times that a profile's fit predicts, against measured pass times; or the fit's relative errors.
    Fit,
    /// Live or observed runs together with their simulation.
    Validation,
    /// Gain in mean end-to-end latency of drafting over a server's present draft setting, by request rate.
    Gain,
    /// The highest request rate that policies carry within their SLO bounds; or the latency of a fleet against its
    /// price.
    Capacity,
    /// The requests on each replica of a fleet over time, or the number of replicas.
    Replicas,
    /// The loss in latency of each policy in each scenario (experiment) of the arena, in which all policies are
    /// compared.
    Arena,
    /// The parts (rungs) by cause of each policy's loss in latency against the best oracle, a policy that no server can
    /// run.
    Ladder,
}

/// A drawn figure, one SVG file.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The figure's subject.
    pub kind: Kind,
    /// The file name, such as `speedup.svg`; unique in a report.
    pub file: String,
    /// The text of the SVG document.
    pub svg: String,
    /// The same for a phone, `None` if a page shows the figure smaller there.
    pub narrow: Option<String>,
}

const SPEEDUP: Quantity = Quantity {
    title: "Speedup over autoregressive",
    axis: "speedup in mean end-to-end latency (×)",
    of: |c| c.speedup,
    scale: Scale::Ratio,
    decimals: 2,
    less_is_better: false,
    reference: Some(1.0),
    title_note: of_batches,
    mark: Some(Mark {
        on: |c| c.over_overload,
        sign: "!",
        says: "over an overloaded run, so it depends on its length",
    }),
};

/// A quantity of which less is better, 0 at best.
const LOSS: Quantity = Quantity {
    title: "",
    axis: "",
    of: |_| None,
    scale: Scale::Change,
    decimals: 1,
    less_is_better: true,
    reference: Some(0.0),
    title_note: nothing,
    mark: None,
};

const BEHIND_FASTEST: Quantity = Quantity {
    title: "Behind the fastest",
    axis: "mean latency above the fastest policy's (%)",
    of: |c| c.behind.map(|b| b * 100.0),
    title_note: of_batches,
    ..LOSS
};

const MEAN_LATENCY: Quantity = Quantity {
    title: "Mean end-to-end latency",
    axis: "mean end-to-end latency (s)",
    of: Cell::e2e_mean_s,
    scale: Scale::Amount,
    decimals: 2,
    reference: None,
    ..LOSS
};

const ATTAINMENT: Quantity = Quantity {
    title: "SLO attainment",
    axis: "requests that met their SLO (%)",
    of: |c| c.summary.slo_attainment.map(|share| share * 100.0),
    scale: Scale::Percent,
    decimals: 1,
    less_is_better: false,
    reference: None,
    title_note: bound,
    mark: Some(Mark { on: Cell::attains_by_definition, sign: "*", says: "90 % by definition" }),
};

const BATCH_SIZE: Course = Course {
    title: "Batch size over time",
    axis: "decode batch size (requests)",
    of: over_time::batch_size,
    backdrop: true,
};

const DRAFT_LEN: Course = Course {
    title: "Draft length over time",
    axis: "draft length (tokens a request-step)",
    of: over_time::draft_len,
    backdrop: false,
};

const REGRET: Quantity = Quantity {
    title: "Regret to oracle-goodput",
    axis: "mean end-to-end latency in excess of the oracle's (%)",
    of: |c| c.regret.map(|r| r * 100.0),
    ..LOSS
};

const CHANGE: Quantity = Quantity {
    title: "Change in mean end-to-end latency",
    axis: "change of mean latency (%; below 0: faster)",
    of: |c| c.change.map(|r| r * 100.0),
    ..LOSS
};

const KV_USE: Quantity = Quantity {
    title: "Peak KV use",
    axis: "most KV blocks in use at once (% of those usable)",
    of: |c| Some(c.summary.kv_use_peak * 100.0),
    scale: Scale::Percent,
    reference: None,
    ..LOSS
};

const PREEMPTIONS: Quantity = Quantity {
    title: "Preemptions",
    axis: "preemptions per 1,000 requests",
    of: |c| Some(c.summary.preemptions as f64 * 1e3 / c.summary.requests as f64),
    scale: Scale::Amount,
    ..LOSS
};

const E2E: Latency = Latency {
    title: "End-to-end latency",
    axis: "end-to-end latency",
    unit: (1.0, "s"),
    whose: "finished requests",
    of: |c| &c.e2e,
    bound: |s| s.e2e_s,
};

const TTFT: Latency = Latency {
    title: "Time to first token",
    axis: "time to first token",
    unit: (1e3, "ms"),
    whose: "finished requests",
    of: |c| &c.ttft,
    bound: |s| s.ttft_s,
};

const TPOT: Latency = Latency {
    title: "Time per output token",
    axis: "time per output token after the first",
    unit: (1e3, "ms"),
    whose: "finished requests of more than one token",
    of: |c| &c.tpot,
    bound: |s| s.tpot_s,
};

const CHOSEN: Curves = Curves {
    title: "Draft length against batch size",
    x_name: "decode batch size (requests)",
    y_name: "mean draft length (tokens a request-step)",
    counts: curves::lengths,
    range: Range::FromZero,
    axes: |(least, most), top| {
        (Axis::batch_sizes(least / 1.12, most * 1.12), Axis::linear(0.0, top.max(1.0) * 1.02, 6))
    },
    diagonal: false,
};

const DEPTH: Curves = Curves {
    title: "Acceptance by draft position",
    x_name: "draft position (1 is the first)",
    y_name: "accepted, of those whose predecessors all were (%)",
    counts: curves::by_depth,
    range: Range::Percent,
    axes: |(_, most), _| (Axis::positions(most as u32), Axis::linear(0.0, 100.0, 5)),
    diagonal: false,
};

const CALIBRATION: Curves = Curves {
    title: "Confidence calibration",
    x_name: "mean confidence of the draft (%)",
    y_name: "accepted (%)",
    counts: curves::calibration,
    range: Range::Percent,
    axes: |_, _| (Axis::linear(0.0, 100.0, 5), Axis::linear(0.0, 100.0, 5)),
    diagonal: true,
};

fn nothing(_: &[&Cell]) -> String {
    String::new()
}

fn of_batches(cells: &[&Cell]) -> String {
    if cells.iter().any(|c| c.entry.batch) { "of the time until the batch ends".to_owned() } else { String::new() }
}

/// The SLO bounds of the runs as text. A note follows if a TPOT bound is a multiple of the P90 TPOT of an overloaded
/// run.
fn bound(cells: &[&Cell]) -> String {
    let from = if cells.iter().any(|c| c.bound_of_overload) { "bound of an overloaded run" } else { "" };
    view::joined([view::bounds(cells), from.to_owned()])
}

/// Draws every figure for which the runs have data, in a fixed order. The first figures show the distance to the
/// fastest policy, speedup, SLO attainment, regret (distance to the oracle) and change against other results: each by
/// policy, and over each swept number. The next ones show mean latency over each swept number, and throughput against
/// time per token by load. Batch size and draft length over time follow, with one file per combination of swept values.
/// Then come latencies, chosen draft lengths, acceptance, calibration, goodput, KV use and preemptions. The replicas of
/// a fleet are last.
pub fn figures(report: &Report) -> Vec<Figure> {
    let mut figures = drawn(report, Sheet::Screen);
    // The courses over time are many and fold away; a phone shows them smaller.
    let on_phones = |f: &Figure| !matches!(f.kind, Kind::BatchSize | Kind::DraftLength);
    for phone in drawn(report, Sheet::Phone).into_iter().filter(on_phones) {
        figures.iter_mut().filter(|f| f.file == phone.file).for_each(|f| f.narrow = Some(phone.svg.clone()));
    }
    figures
}

/// The figures with a row for each policy: subject, file and quantity.
const BY_POLICY: [(Kind, &str, &Quantity); 5] = [
    (Kind::Behind, "behind", &BEHIND_FASTEST),
    (Kind::Speedup, "speedup", &SPEEDUP),
    (Kind::Attainment, "slo-attainment", &ATTAINMENT),
    (Kind::Regret, "regret", &REGRET),
    (Kind::Change, "change", &CHANGE),
];

/// Draws the figures of [`figures`] for a column of a paper: 3.3 inches wide, type of 8 points, without title and
/// source.
pub fn column_figures(report: &Report) -> Vec<Figure> {
    drawn(report, Sheet::Column)
}

impl Figure {
    /// A figure without a form for phones.
    pub fn new(kind: Kind, file: impl Into<String>, svg: String) -> Figure {
        Figure { kind, file: file.into(), svg, narrow: None }
    }

    /// A figure with a form for phones: `draw` draws it for a screen and for a phone. `None` if it draws nothing.
    pub fn on_both(kind: Kind, file: impl Into<String>, draw: impl Fn(Sheet) -> Option<String>) -> Option<Figure> {
        Some(Figure { narrow: draw(Sheet::Phone), ..Figure::new(kind, file, draw(Sheet::Screen)?) })
    }

    /// The drawing for a page: the SVG, and its form for phones, of which the page's style shows one.
    pub fn on_a_page(&self) -> String {
        match &self.narrow {
            None => self.svg.clone(),
            Some(narrow) => format!("<div class=\"broad\">{}</div><div class=\"phone\">{narrow}</div>", self.svg),
        }
    }

    /// The figure's caption: the title, the names of the axes, and the source, read from the SVG.
    pub fn caption(&self) -> String {
        let part = |tag: &str| {
            let text =
                self.svg.split_once(&format!("<{tag}>")).and_then(|(_, rest)| rest.split_once(&format!("</{tag}>")));
            text.map_or("", |(text, _)| text)
                .replace("&lt;", "<")
                .replace("&gt;", ">")
                .replace("&quot;", "\"")
                .replace("&amp;", "&")
        };
        // A figure with a row for each policy has only one named axis, so its description begins with " against ".
        format!("{}: {}.", part("title"), part("desc").trim_start_matches(" against "))
    }
}

fn drawn(report: &Report, sheet: Sheet) -> Vec<Figure> {
    let mut view = View::new(report);
    view.sheet = sheet;
    view.quiet = emphasis::quiet(report, &view);
    let mut figures: Vec<Figure> = Vec::new();
    let mut add = |kind, file: String, svg: String| {
        let file = unused(|name| figures.iter().any(|f| f.file == name), &file);
        figures.push(Figure::new(kind, file, svg));
    };
    for (kind, name, quantity) in BY_POLICY {
        by_policy::draw(&view, quantity).into_iter().for_each(|svg| add(kind, name.to_owned(), svg));
        against::draw(&view, quantity).into_iter().for_each(|(path, svg)| add(kind, slug(name, &path), svg));
    }
    against::draw(&view, &MEAN_LATENCY)
        .into_iter()
        .for_each(|(path, svg)| add(Kind::Speedup, slug("mean-latency", &path), svg));
    tradeoff::draw(&view).into_iter().for_each(|(path, svg)| add(Kind::Tradeoff, slug("tradeoff", &path), svg));
    for (kind, name, course) in
        [(Kind::BatchSize, "batch-size", &BATCH_SIZE), (Kind::DraftLength, "draft-length", &DRAFT_LEN)]
    {
        over_time::draw(&view, course).into_iter().for_each(|(at, svg)| add(kind, slug(name, &combination(at)), svg));
    }
    for (name, which) in [("e2e-latency", &E2E), ("ttft", &TTFT), ("tpot", &TPOT)] {
        latency::draw(&view, which).into_iter().for_each(|svg| add(Kind::Latency, name.to_owned(), svg));
    }
    for (kind, name, which) in [
        (Kind::Chosen, "length-by-batch-size", &CHOSEN),
        (Kind::Depth, "acceptance-by-depth", &DEPTH),
        (Kind::Calibration, "calibration", &CALIBRATION),
    ] {
        curves::draw(&view, which).into_iter().for_each(|svg| add(kind, name.to_owned(), svg));
    }
    heat::draw(&view).into_iter().for_each(|svg| add(Kind::Heat, "goodput-map".to_owned(), svg));
    by_policy::draw(&view, &KV_USE).into_iter().for_each(|svg| add(Kind::Memory, "kv-use".to_owned(), svg));
    if report.cells.iter().any(|c| !c.entry.implied && c.summary.preemptions > 0) {
        by_policy::draw(&view, &PREEMPTIONS)
            .into_iter()
            .for_each(|svg| add(Kind::Memory, "preemptions".to_owned(), svg));
    }
    if sheet == Sheet::Screen {
        for (name, at, policy, svg) in fleets::draw(report, &view) {
            add(Kind::Replicas, slug(&slug(name, &combination(at)), policy), svg);
        }
    }
    figures
}

/// Draws every figure into `folder`, which must exist, and returns the file names.
///
/// # Errors
/// When a file cannot be written.
pub fn write_figures(folder: &Path, figures: &[Figure]) -> Result<(), ReportError> {
    figures.iter().try_for_each(|figure| Staged::write_all_to(&folder.join(&figure.file), figure.svg.as_bytes()))
}
