//! Finds the fewest replicas with which a fleet keeps the experiment's bounds at the experiment's own load, and their
//! price. Also compares the found fleets with fleets that do not draft.
//!
//! Perfect scaling would need ⌈load / capacity of one replica⌉ replicas. The search of [`crate::run`] finds that
//! capacity, and the search for the fleet begins with the replicas for the load's busiest window. Every number of
//! replicas that was tried is stored.

pub mod answer;
pub mod kept;
pub mod plan;
mod probe;
pub mod run;
mod search;
mod store;
mod words;
