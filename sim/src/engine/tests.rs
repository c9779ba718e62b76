//! The invariants of INVARIANTS.md on random small worlds, and golden cases of the engine.

mod ends;
mod golden;
mod hosts;
mod invariants;
mod lives;
mod online;
mod order;
mod sessions;
mod speculation;
mod world;
