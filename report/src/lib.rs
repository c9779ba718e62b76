//! Writes results as files: Parquet tables, SVG figures and HTML pages of finished cells.
//!
//! This is the only crate that depends on parquet and plotters. It draws and writes the cells that it is given. It must
//! never run a simulation or compute its results anew, read a clock, or print. The same cells in the same order give
//! the same bytes.

// A part of the program: CONTRIBUTING.md says which comments it has.
#![allow(missing_docs)]

mod cdf;
pub mod disk;
mod error;
mod figures;
#[cfg(test)]
mod fixtures;
mod fleet;
pub mod html;
mod mark;
mod model;
mod number;
mod rank;
mod run_page;
mod staged;
mod tables;
mod text_table;
mod which;
mod why;

pub use cdf::Cdf;
pub use error::ReportError;
pub use figures::view::words;
pub use figures::{
    Accepted, ArenaMap, AtPosition, CapacityWords, Carried, Figure, FrontierLine, FrontierPoint, FrontierWords, GainAt,
    GainLine, GainOf, Kind, LadderBar, PREDICTED_EDGE, PredictedCell, PredictedNumber, Profiled, ProfiledFit,
    ProfiledPass, RunKind, TriedRate, Validated, ValidatedRun, acceptance_figures, arena_figure, capacity_figures,
    column_figures, cost_figure, figures, frontier_figure, gain_figure, ladder_figure, positions_figure,
    predicted_figure, profile_figures, range_bar, validation_figures, write_figures,
};
pub use fleet::{FleetCell, FleetEntry};
pub use mark::{Mark, Marked};
pub use model::{Cell, Dash, Entry, Key, Look, Marker, Report, Role, ScaledBound, Source, Swept, relate};
pub use number::{fixed, percent, signed_percent, spread};
pub use run_page::{Compared, Explorer, Pair, RunFacts, TIMING, advised, headline, run_page};
pub use staged::Staged;
pub use tables::{
    Column, FleetColumns, FlowRow, ReplicaRow, RequestsWriter, ScaledRow, StepsWriter, Value, Values, column,
    not_finite, read_cells, write_calibration, write_decisions, write_flows, write_lengths, write_lives,
    write_positions, write_replica_counts, write_replicas, write_rows, write_series, write_summary,
};
pub use tables::{
    Route, read_keys, read_kv_peaks, read_requests, read_routes, read_scaling, read_step_replicas, read_steps,
};
pub use text_table::{narrow, plain_table, table_lines};
pub use which::{AS_GOOD, Choice, which};
pub use why::{WORDS, Why};
