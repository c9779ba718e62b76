//! `foretoken schema`: what an experiment may say, for editors.

use super::print;
use crate::problem::Result;

/// Prints the JSON schema.
pub fn run() -> Result<()> {
    print(&crate::schema::text())
}
