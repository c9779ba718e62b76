//! Running an experiment on a device: the same engine, scheduler and policies as `run`, on a wall clock.

pub mod tape;
