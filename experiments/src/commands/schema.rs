//! `foretoken schema`: the JSON schema of experiments, for editors.

use super::print;
use foretoken_spec::problem::Result;

/// Prints the JSON schema.
pub fn run() -> Result<()> {
    print(&foretoken_spec::schema::text())
}
