//! Tests of fleets: against single engines, against queueing theory, and of invariants.

mod alike;
mod conservation;
mod flows;
mod queueing;
mod ranks;
mod scaling;
mod setup;
mod silence;
mod split;
