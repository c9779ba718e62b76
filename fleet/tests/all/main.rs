//! Fleets against single engines, queueing theory, and their invariants.

mod alike;
mod conservation;
mod queueing;
mod setup;
