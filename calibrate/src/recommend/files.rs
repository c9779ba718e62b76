//! Writes the folder of a recommendation: the answer as JSON, a page with a figure, and the engine's files.

use super::advice::Advice;
use super::page;
use crate::folder::{begin, check_free, put};
use foretoken_spec::problem::Result;
use std::path::Path;

/// File of the answer as JSON.
pub const ADVICE: &str = "recommendation.json";
/// File of the HTML page.
pub const PAGE: &str = "recommendation.html";
const FIGURE: &str = "gain-over-load.svg";
const OURS: [&str; 6] = [ADVICE, PAGE, FIGURE, "speculative_config.json", "adaptive_spec.json", "dspark-sps.json"];

/// Checks that the folder may be written to, before anything is simulated.
///
/// # Errors
/// The folder holds something else, or a recommendation and `overwrite` is false.
pub fn check(folder: &Path, overwrite: bool) -> Result<()> {
    check_free(folder, ADVICE, "a recommendation", overwrite)
}

/// Writes the recommendation into a folder. The folder must be new or empty, or hold a recommendation if `overwrite` is
/// true.
///
/// # Errors
/// The folder holds something else, or cannot be written.
pub fn write(advice: &Advice, folder: &Path, overwrite: bool) -> Result<()> {
    check(folder, overwrite)?;
    let _alone = begin(folder, ADVICE)?;
    OURS.iter().filter(|&&name| name != ADVICE).for_each(|name| drop(std::fs::remove_file(folder.join(name))));
    for start in &advice.starts {
        put(folder, &start.file, &start.text)?;
    }
    if let Some(svg) = page::figure(advice) {
        put(folder, FIGURE, svg)?;
    }
    put(folder, PAGE, page::page(advice).html())?;
    // This file is written last: a folder that has it is complete.
    put(folder, ADVICE, serde_json::to_string_pretty(advice).expect("plain data always serialises") + "\n")
}
