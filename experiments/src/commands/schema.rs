//! `foretoken schema`: what an experiment may say, for editors.

use super::print;
use foretoken_spec::problem::Result;

/// Prints the JSON schema.
pub fn run() -> Result<()> {
    print(&foretoken_spec::schema::text())
}
