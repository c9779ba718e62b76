//! Whole-system tests: theory, agreement with other simulators, real data. One binary.

mod agreement;
mod queueing;
mod world;
