//! `foretoken explore`: writes the break-even explorer.

use super::print;
use crate::cli::ExploreArgs;
use foretoken_profiler::{Profile, Role, Truth};
use foretoken_report::Staged;
use foretoken_run::explorer::{Machine, PAGE, page};
use foretoken_run::profiled;
use foretoken_sim::Drafting;
use foretoken_spec::problem::{Problem, Result};
use std::path::Path;

/// Writes the page and prints its path.
pub fn run(args: &ExploreArgs) -> Result<()> {
    let machine = args.profile.as_deref().map(measured).transpose()?;
    let folder = &args.output;
    fs_err::create_dir_all(folder).map_err(|e| Problem::failed(e.to_string()).help("choose another folder with -o"))?;
    let path = folder.join(PAGE);
    Staged::write_all_to(&path, page(machine.as_ref()).as_bytes()).map_err(|e| Problem::failed(e.to_string()))?;
    print(&format!("{}\n", path.display()))
}

/// The machine of a profile: its measured tables.
fn measured(file: &Path) -> Result<Machine> {
    let text = foretoken_spec::text::read(file)
        .map_err(|e| Problem::bad_input(format!("cannot read the profile: {e}")).help("foretoken profile makes one"))?;
    let profile = profiled::read(&file.display().to_string(), &text)?;
    let changed = profiled::changed(&file.display().to_string(), &text);
    changed.iter().for_each(|why| eprintln!("warning: {why}"));
    Ok(Machine {
        name: format!(
            "profile {} + {} on {}",
            profile.target.model.name, profile.draft.model.name, profile.device.name
        ),
        target: profile.truth(Role::Target, Truth::Table),
        draft: profile.truth(Role::Draft, Truth::Table),
        context_reads: profile.reads(Role::Target, Truth::Table),
        drafting: Drafting::Autoregressive,
        // A profile has passes, not the host's time between them.
        step_overhead_s: 0.0,
        measured: true,
        note: note(&profile, changed),
    })
}

/// A note on the profile for the reader of the page.
fn note(profile: &Profile, changed: Option<String>) -> String {
    let mut parts =
        vec![format!("Profiled {} on {} ({}).", profile.measured_at, profile.device.name, profile.device.kind)];
    let range = &profile.target.range;
    parts.push(format!(
        "The target was measured up to {} requests, {} tokens and {} tokens of context a pass; beyond that its last line goes on.",
        range.requests, range.batched, range.context
    ));
    parts.extend(changed);
    parts.extend(profile.distrust());
    parts.join(" ")
}
