//! The invariants of INVARIANTS.md on random small worlds, and the engine's own golden cases.

mod golden;
mod invariants;
mod order;
mod speculation;
mod world;
