//! Measures the simulator's errors: a device's runs are replayed on the event clock, and every number is compared.
//!
//! [`Measuring`] makes the live runs in pieces ([`piece`]), between probes of the machine ([`probe`]), and [`runs`]
//! lists them. [`report`] compares twice: with the recorded acceptance, where the token flow must be the same and only
//! times differ, and with the modelled one. A piece in which the machine changed its speed is in no number. A run must
//! never be predicted with measurements of that run.

mod beside;
mod compare;
mod drift;
mod flow;
mod gather;
mod later;
mod maths;
mod measure;
mod numbers;
mod others;
mod pace;
mod page;
mod piece;
mod probe;
mod rank;
mod regions;
mod repeats;
mod report;
mod runs;
mod simulate;
mod slices;
mod standing;
mod stretch;
mod table;
mod tapes;
mod verdict;
mod watch;

pub use pace::{paces, usual_of, usual_passes};
pub use page::page;
pub use piece::{Measuring, first_slice};
pub use report::{Compared, PassCosts, Validation};
pub use runs::Runs;
pub use slices::Slices;
pub use table::render;
pub use tapes::{Recording, Tapes};
