//! `foretoken doctor`: what this machine can do.

use super::print;
use crate::problem::Result;

/// Prints what was found. Simulation needs none of it.
pub fn run() -> Result<()> {
    print(&format!("{}", foretoken_kernels::doctor()))
}
