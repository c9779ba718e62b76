//! `foretoken observe`: sends an experiment's workload to a server, and writes a results folder like that of `run`.

use super::ObserveArgs;
use crate::cli::format::Format;
use crate::cli::results::mode;
use crate::commands::print;
use crate::shipped;
use crate::work;
use foretoken_policies::PolicySpec;
use foretoken_run::cells::{Folder, OBSERVED_JSON};
use foretoken_run::keep_runs::{RunsMade, keep};
use foretoken_run::plan::Plan;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::table;
use foretoken_run::vllm_table::stated_method;
use foretoken_servers::calibrate::acceptance::Acceptance;
use foretoken_servers::calibrate::source;
use foretoken_servers::observe::client::Client;
use foretoken_servers::observe::run::{Observed, Site, observe};
use foretoken_traces::truth::speculation_profile::SPECULATION_PROFILE;
use std::path::PathBuf;

/// Sends the experiment's requests to the server, records the answers, and prints the comparison of the policies.
pub fn run(args: &ObserveArgs) -> Result<()> {
    let document = shipped::read_document(&args.file, &args.sets)?;
    let mut plan = Plan::to_observe(document, shipped::folder(&args.file))?;
    let spec = plan.variants[0].experiment.observe.clone().unwrap_or_default();
    let client = Client::new(&args.url, key(args.api_key_env.as_deref())?, args.ca.as_deref())?;
    let site = Site { client, step_log: args.step_log.clone() };
    if site.step_log.is_some() {
        // The server's step log gives the steps of each run, so the results folder keeps them (`steps.parquet`).
        plan.variants.iter_mut().for_each(|v| v.experiment.output.steps = true);
    }
    let usual = || PathBuf::from("results").join(format!("observed-{}-{}", plan.name, &plan.digest()[..8]));
    let path = args.output.clone().unwrap_or_else(usual);
    let (folder, complete) = Folder::open(path, &plan, mode(args.resume, args.overwrite))?;
    if complete {
        eprintln!("results: {} (complete)", folder.path().display());
        return Ok(());
    }
    let watch = work().interrupt.watch();
    let seen = observe(&plan, &spec, &site, &folder, work().interrupt.flag()).inspect_err(|_| folder.abandon())?;
    work().interrupt.keeps("what was observed is kept", "foretoken report DIR makes a page of it");
    drop(watch);
    let json = serde_json::to_string_pretty(&seen.report).expect("plain data always serialises");
    folder.write(OBSERVED_JSON, (json + "\n").as_bytes())?;
    write_profile(&plan, &folder)?;
    let count = plan.cells();
    let made = RunsMade {
        cells: seen.cells,
        whole: seen.cells == count && seen.ended.is_none(),
        partial: part(&seen, count),
        speed: &seen.speed,
        figures: !args.no_figures,
    };
    let kept = keep(&mut plan, &folder, made)?;
    if let Some(results) = kept.results {
        results.comparison.warnings.iter().for_each(|w| eprintln!("warning: {w}"));
        match args.format {
            Format::Table => print(&table::render(&results.comparison, false, table::Width::Narrow))?,
            Format::Json => print(&(serde_json::to_string_pretty(&results.comparison).expect("plain data") + "\n"))?,
        }
    } else {
        let findings = seen.report.cells.iter().flat_map(|c| &c.findings);
        findings.for_each(|finding| eprintln!("warning: {finding}"));
    }
    if let Some(page) = kept.page {
        eprintln!("report: {}", page.display());
    }
    eprintln!("results: {} (observed at {})", folder.path().display(), seen.report.url);
    if seen.ended.is_none() {
        eprintln!("next: {}", next(&plan, &folder));
    }
    seen.ended.map_or(Ok(()), Err)
}

/// What follows an observation: the same server with another draft length, and then both runs together.
fn next(plan: &Plan, folder: &Folder) -> String {
    let plain = plan.policies.iter().all(|entrant| matches!(entrant.spec, PolicySpec::Autoregressive(_)));
    let other = match plain {
        true => "start the server with drafts, and observe it so",
        false => "start the server without drafts, and observe it with --set 'policies=[{ autoregressive = {} }]'",
    };
    format!("{other}; then foretoken calibrate {} OTHER -o calibrated", folder.path().display())
}

/// Writes which drafts the server accepted as a `speculation_profile.json`, if it drafted and reports its rounds.
fn write_profile(plan: &Plan, folder: &Folder) -> Result<()> {
    let Ok(sources) = source::open_all(&[folder.path().to_path_buf()]) else { return Ok(()) };
    let method = stated_method(plan.variants[0].experiment.engine.method).unwrap_or("draft_model");
    let model = sources.first().map(|s| s.recording.head.model.as_str());
    let profile = Acceptance::of(&sources, &[]).and_then(|seen| seen.speculation_profile(method, model));
    profile.map_or(Ok(()), |profile| folder.write(SPECULATION_PROFILE, profile.to_json().as_bytes()))
}

/// The bearer token for the server, read from an environment variable. `named` is the variable that the user named; it
/// must be set. Without `named`, the default variable is read, and the token is `None` if that variable is not set.
pub fn key(named: Option<&str>) -> Result<Option<String>> {
    const HELP: &str = "set it to the server's bearer token, or leave --api-key-env out";
    let name = named.unwrap_or("FORETOKEN_API_KEY");
    let missing = |what: &str| match named {
        Some(_) => Err(Problem::bad_input(format!("--api-key-env {name}: the environment variable {what}")).help(HELP)),
        None => Ok(None),
    };
    match std::env::var(name) {
        Ok(key) if key.trim().is_empty() => missing("is empty"),
        Ok(key) if key.bytes().all(|b| b.is_ascii_graphic()) => Ok(Some(key)),
        Ok(_) | Err(std::env::VarError::NotUnicode(_)) => Err(Problem::bad_input(format!(
            "{name} holds no bearer token: it has spaces or other characters that none has"
        ))),
        Err(std::env::VarError::NotPresent) => missing("is not set"),
    }
}

/// A note with the number of runs that ended and the number of planned runs; `None` if all runs ended.
fn part(seen: &Observed, cells: usize) -> Option<String> {
    let begun = &seen.report.cells;
    let ended: Vec<String> =
        begun.iter().filter(|c| c.ended != "done").map(|c| format!("; seed {}: {}", c.seed, c.ended)).collect();
    let done = seen.cells - ended.len().min(seen.cells);
    (done < cells).then(|| format!("PART OF A RUN: {done} of {cells} runs ended{}", ended.concat()))
}
