//! Pass times that are summed from measured kernels: the latency model `kernels`.
//!
//! The PyPI package aiconfigurator-core has times of matrix products, attention, experts and all-reduces on several
//! GPUs and engines. It is read where it is installed; none of its files is part of this repository. A pass is the sum
//! of its kernels, whose sizes follow from the model's shape. The sum is computed once, when an experiment is loaded:
//! the simulation only interpolates.

mod attention;
mod curve;
mod experts;
mod latent;
mod package;
mod pass;
mod products;
mod recurrent;
mod settings;
mod sum;
mod table;
mod table_set;
mod terms;
#[cfg(test)]
mod tests;

pub use package::{ENGINES, NEEDED, PACKAGE, Package, SYSTEMS, TESTED, TableFile, VARIABLE};
pub use pass::{KernelPass, Provenance};
pub use settings::{Engine, KernelsSpec, restore, store};
