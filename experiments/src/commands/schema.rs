//! `foretoken schema`: what an experiment may say, for editors.

use super::print;
use foretoken_spec::problem::Result;

/// Prints the JSON schema.
pub fn run() -> Result<()> {
    let text =
        serde_json::to_string_pretty(&foretoken_spec::schema::experiment()).expect("plain data always serialises");
    print(&format!("{text}\n"))
}
