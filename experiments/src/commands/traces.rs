//! `foretoken traces inspect`: what a trace holds.

use super::print;
use crate::cli::{Format, InspectArgs};
use crate::problem::{Problem, Result, nearest};
use foretoken_traces::{TraceFormat, TraceStats};

/// Prints a trace's statistics.
pub fn inspect(args: &InspectArgs) -> Result<()> {
    let format = args.format_of.as_deref().map(format_named).transpose()?;
    let stats = foretoken_traces::inspect(&args.file, format).map_err(|e| {
        let problem = Problem::bad_input(e.to_string());
        if e.hint().is_empty() { problem } else { problem.help(e.hint()) }
    })?;
    match args.format {
        Format::Json => print(&(serde_json::to_string_pretty(&stats).expect("plain data always serialises") + "\n")),
        Format::Table => print(&table(&stats)),
    }
}

fn format_named(name: &str) -> Result<TraceFormat> {
    TraceFormat::from_name(name).ok_or_else(|| {
        let all = TraceFormat::NAMES.join(", ");
        let problem = Problem::bad_input(format!("no trace format is called `{name}`"));
        match nearest(name, TraceFormat::NAMES) {
            Some(near) => problem.help(format!("did you mean `{near}`? All formats: {all}")),
            None => problem.help(format!("all formats: {all}")),
        }
    })
}

fn table(stats: &TraceStats) -> String {
    format!("{stats:#?}\n")
}
