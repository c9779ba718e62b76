//! The invariants of INVARIANTS.md on small random simulations, and golden cases of the engine.

mod ends;
mod fixture;
mod golden;
mod hosts;
mod invariants;
mod lives;
mod online;
mod order;
mod sessions;
mod speculation;
