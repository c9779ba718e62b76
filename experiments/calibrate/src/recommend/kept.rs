//! The folder of a recommendation: the answer as JSON and as a page with its figure, and what to start the engine with.

use super::advice::Advice;
use super::page;
use foretoken_report::Staged;
use foretoken_spec::problem::{Problem, Result};
use std::path::Path;

/// The answer.
pub const ADVICE: &str = "recommendation.json";
/// The page.
pub const PAGE: &str = "recommendation.html";
const FIGURE: &str = "gain-over-load.svg";
const OURS: [&str; 6] = [ADVICE, PAGE, FIGURE, "speculative_config.json", "adaptive_spec.json", "dspark-sps.json"];

/// Writes the folder. It must be new or empty, or hold a recommendation, which `overwrite` replaces.
///
/// # Errors
/// It holds something else, or cannot be written.
pub fn write(advice: &Advice, folder: &Path, overwrite: bool) -> Result<()> {
    ready(folder, overwrite)?;
    let put = |name: &str, text: &str| {
        Staged::write_all_to(&folder.join(name), text.as_bytes())
            .map_err(|e| Problem::failed(format!("cannot write {}: {e}", folder.join(name).display())))
    };
    for start in &advice.starts {
        put(&start.file, &start.text)?;
    }
    if let Some(svg) = page::figure(advice) {
        put(FIGURE, &svg)?;
    }
    put(PAGE, &page::page(advice).html())?;
    // Last: its presence says that all is there.
    put(ADVICE, &(serde_json::to_string_pretty(advice).expect("plain data always serialises") + "\n"))
}

fn ready(folder: &Path, overwrite: bool) -> Result<()> {
    let cannot = |e| Problem::failed(format!("cannot use the folder {}: {e}", folder.display()));
    std::fs::create_dir_all(folder).map_err(cannot)?;
    let names =
        std::fs::read_dir(folder).map_err(cannot)?.flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    let names: Vec<String> = names.collect();
    let ours = names.iter().any(|n| n == ADVICE);
    let free = names.is_empty() || (overwrite && ours);
    if !free {
        let what = if ours { "holds a recommendation" } else { "is not empty" };
        return Err(Problem::bad_input(format!("{} {what}", folder.display()))
            .help("choose another with -o, or replace a recommendation with --overwrite"));
    }
    OURS.iter().for_each(|name| drop(std::fs::remove_file(folder.join(name))));
    Ok(())
}
