//! `foretoken acceptance`: lists and shows the golden acceptance lengths, which experiments name as their acceptance.

use super::print;
use crate::cli::format::Format;
use clap::{Args, Subcommand};
use foretoken_profiler::hardware::golden::{Golden, curve, curves};
use foretoken_run::spec::problem::{Problem, Result, nearest};
use std::fmt::Write;

pub const EXAMPLES: &str = "Examples:
  foretoken acceptance list
  foretoken acceptance show glm-5.2-mtp";

const LIST_EXAMPLES: &str = "Examples:
  foretoken acceptance list
  foretoken acceptance list --format json";

const SHOW_EXAMPLES: &str = "Examples:
  foretoken acceptance show deepseek-v4-pro-mtp
  foretoken acceptance show kimi-k3-dspark-block-thinking --format json";

#[derive(Debug, Args)]
pub struct AcceptanceArgs {
    #[command(subcommand)]
    pub command: AcceptanceCommand,
}

#[derive(Debug, Subcommand)]
pub enum AcceptanceCommand {
    /// List the golden curves: tokens a round by draft length, published for pairs of a model and a drafter
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// How to print the list
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Show a golden curve: its numbers, their source, what was measured, and how an experiment takes it
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// Name of the curve; without a thinking mode, the curve with thinking
        name: String,
        /// How to print the curve
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
}

/// Lists the golden curves, or shows one of them.
pub fn run(args: &AcceptanceArgs) -> Result<()> {
    match &args.command {
        AcceptanceCommand::List { format: Format::Json } => print(&json(&curves())),
        AcceptanceCommand::List { .. } => print(&list()),
        AcceptanceCommand::Show { name, format } => show(name, *format),
    }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).expect("plain data always serialises") + "\n"
}

fn list() -> String {
    let widest = curves().iter().map(|c| c.name.len()).max().unwrap_or(0);
    let longest = curves().iter().flat_map(|c| &c.lengths).map(|&(k, _)| k).max().unwrap_or(0);
    let mut lines = format!("{:widest$}", "tokens a round at K =");
    (1..=longest).for_each(|k| write!(lines, "{k:>6}").expect("a string grows"));
    for c in curves() {
        write!(lines, "\n{:widest$}", c.name).expect("a string grows");
        for k in 1..=longest {
            let tokens = c.lengths.iter().find(|&&(given, _)| given == k);
            lines += &tokens.map_or("     -".to_owned(), |(_, tokens)| format!("{tokens:>6.2}"));
        }
    }
    lines + "\n"
}

fn show(name: &str, format: Format) -> Result<()> {
    let Some(c) = curve(name) else {
        let near = nearest(name, curves().iter().map(|c| c.name.as_str()));
        let list = "`foretoken acceptance list` prints the curves";
        return Err(Problem::bad_input(format!("no curve of golden lengths is called \"{name}\""))
            .help(near.map_or_else(|| list.to_owned(), |near| format!("did you mean `{near}`? {list}"))));
    };
    print(&if format == Format::Json { json(c) } else { words(c) })
}

fn words(c: &Golden) -> String {
    let mut text = format!("{}: {}, method {}, {}\n\n", c.name, c.model, c.method, thinking(c));
    for (k, tokens) in &c.lengths {
        writeln!(text, "K = {k:<2} {tokens:>5.2} tokens a round").expect("a string grows");
    }
    text += "\nEach K is a server of its own. The target's own token is counted.\n";
    text +=
        "measured on SPEED-Bench's coding prompts, answers of up to 4096 tokens: other content accepts more or less\n";
    writeln!(text, "measured with {}", c.measured).expect("a string grows");
    writeln!(text, "source: {}; {}", c.source, c.date).expect("a string grows");
    text += &match &c.drafter {
        Some(drafter) => {
            format!("drafter: the preset {drafter}, which takes this curve if acceptance.source is left out\n")
        }
        None => "drafter: no preset; hardware.draft must say its shape or cost\n".to_owned(),
    };
    let name = &c.name;
    text + &format!(
        "as a setting: acceptance.source = {{ golden = \"{name}\" }}, or as benchmarks force it: {{ forced = {{ golden = \"{name}\" }} }}\n"
    )
}

fn thinking(c: &Golden) -> &'static str {
    if c.thinking { "the target thinks" } else { "the target does not think" }
}
