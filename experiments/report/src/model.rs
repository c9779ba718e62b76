//! What a report is made of: plain data, handed over by whoever ran the cells.

use crate::Cdf;
use foretoken_sim::Summary;
use foretoken_sim::metrics::Series;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Where the numbers come from; every figure says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Predicted on the event clock.
    Simulated,
    /// Predicted on the event clock, with costs of passes that were measured.
    Profiled,
    /// Measured on hardware while serving.
    Live,
    /// Replayed from a recording.
    Recorded,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Simulated => "simulated",
            Source::Profiled => "simulated on profiled costs",
            Source::Live => "live",
            Source::Recorded => "recorded",
        })
    }
}

/// Dash of a policy's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dash {
    /// ────
    Solid,
    /// ─ ─ ─
    Dashed,
    /// · · ·
    Dotted,
    /// ── ── ──, longer than `Dashed`
    LongDash,
}

/// Marker of a policy's points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Marker {
    /// ●
    Circle,
    /// ■
    Square,
    /// ▲
    Triangle,
    /// ▼
    TriangleDown,
    /// ◆
    Diamond,
    /// ×
    Cross,
    /// +
    Plus,
    /// ○
    Ring,
}

/// How a policy looks, in every figure of every report the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Look {
    /// Red, green, blue.
    pub colour: (u8, u8, u8),
    /// Dash of its lines.
    pub dash: Dash,
    /// Marker of its points.
    pub marker: Marker,
}

/// One swept setting of a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Swept {
    /// Its path in the experiment, such as `workload.rate_scale`.
    pub path: String,
    /// Its value as text.
    pub value: String,
    /// Its value, when it is a finite number.
    pub number: Option<f64>,
}

/// Which cell a row belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// The policy's display label, unique in a report.
    pub policy: String,
    /// The swept settings; every cell of a report has the same paths in the same order.
    pub sweep: Vec<Swept>,
    /// The seed.
    pub seed: u64,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.policy)?;
        self.sweep.iter().try_for_each(|s| write!(f, ", {} = {}", s.path, s.value))?;
        write!(f, ", seed {}", self.seed)
    }
}

/// One finished cell: a policy at one combination of swept values with one seed.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Which one.
    pub key: Key,
    /// The look of its policy.
    pub look: Look,
    /// Its numbers.
    pub summary: Summary,
    /// Mean E2E of autoregressive / mean E2E of this policy on the same draws; `None` when there is no such run.
    pub speedup: Option<f64>,
    /// Added as the yardstick and not asked for: in the tables, left out of the figures.
    pub implied: bool,
    /// Load over time.
    pub series: Series,
    /// End-to-end latencies of its finished requests.
    pub e2e: Cdf,
}

/// Everything the tables and figures of one result folder are made from.
#[derive(Clone, Debug)]
pub struct Report {
    /// The experiment's name.
    pub name: String,
    /// Where its numbers come from.
    pub source: Source,
    /// Its cells, in the order they shall appear.
    pub cells: Vec<Cell>,
}
