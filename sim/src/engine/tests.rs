//! Tests of the engine: the invariants of INVARIANTS.md and further properties on small random simulations, and cases
//! computed by hand.

mod drafters_limits;
mod ends;
mod fixture;
mod golden;
mod handed;
mod hosts;
mod invariants;
mod lives;
mod online;
mod order;
mod sessions;
mod sglang;
mod speculation;
mod states;
