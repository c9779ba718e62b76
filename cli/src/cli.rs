//! The command line: the table of all commands, from which the parser and the help are made.

pub mod device;
#[cfg(test)]
mod examples;
pub mod format;
pub mod results;

use crate::commands;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use foretoken_run::spec::problem::Result;
use std::ffi::OsString;

/// How far ahead should this server speculate, for which request, at this moment?
#[derive(Debug, Parser)]
#[command(name = "foretoken", version, propagate_version = true, after_help = EXIT_CODES)]
#[command(help_template = template())]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// What the program says without arguments.
pub const INTRODUCTION: &str = "Foretoken: how many tokens should your vLLM or SGLang server draft?

  foretoken ask 'vllm serve MODEL …' --gpu h100   what to draft instead
  foretoken new mine.toml                         a first experiment
  foretoken run quickstart                        policies side by side
  foretoken --help                                all commands
";

const EXIT_CODES: &str = "Examples:
  foretoken ask 'vllm serve Qwen/Qwen3-8B' --gpu h100 --clients 16
  foretoken run quickstart
  foretoken explore

Exit codes: 0 ok, 1 failed, 2 bad input, 3 finished but the verdict is negative,
4 hardware missing, 130 interrupted, 134 out of memory after all (aborted; a run
goes on with --resume)

FORETOKEN_MEMORY_GIB: memory that this program may use, in GiB [default: three
quarters of the machine's]. What would take more is refused before it begins";

/// Makes the enum [`Command`] and the list of commands in the help ([`GROUPS`]). Each group has a heading, and a row
/// for each command: its line in the help, its name, and its arguments. The command's file in
/// [`commands`](crate::commands) has the struct of the arguments, the constant `EXAMPLES` and the function `run`. If a
/// row says `needs` and a Cargo feature, `run` is in the command's file `work`, which is built only with this feature.
/// If a row says `with` and a value, `run` also gets this value.
macro_rules! commands {
    ($($heading:literal {
        $(#[doc = $says:literal] $name:ident, $file:ident::$args:ident $(, needs $feature:tt)? $(, with $value:expr)?;)+
    })+) => {
        #[derive(Debug, Subcommand)]
        pub enum Command {
            $($(#[doc = $says] #[command(after_help = commands::$file::EXAMPLES)] $name(commands::$file::$args),)+)+
        }

        /// The groups of commands in the help, each as (heading, commands); a command is (name, line).
        const GROUPS: &[(&str, &[(&str, &str)])] = &[$(($heading, &[$((stringify!($name), $says)),+])),+];

        impl Command {
            /// Runs the command that the user named, with its parsed arguments.
            pub fn run(&self) -> Result<()> {
                match self {
                    $($(Command::$name(args) => commands!(@run $file, args $(, needs $feature)? $(, with $value)?),)+)+
                }
            }
        }
    };
    (@run $file:ident, $args:ident $(, with $value:expr)?) => { commands::$file::run($args $(, $value)?) };
    (@run $file:ident, $args:ident, needs $feature:tt) => {{
        #[cfg(feature = $feature)]
        let ran = commands::$file::work::run($args);
        #[cfg(not(feature = $feature))]
        let ran = { let _ = $args; Err(built_without($feature)) };
        ran
    }};
}

commands! {
    "Ask" {
        /// Say what to draft instead, and by how much it is faster, for the line that starts a vLLM or SGLang server
        Ask, ask::AskArgs;
        /// Write a first experiment, from a few answers
        New, new::NewArgs;
        /// Run an experiment: replay a trace under several policies and compare them
        Run, run::RunArgs;
        /// Recommend how many tokens a server should draft for its traffic, with the gain and the engine's settings
        Recommend, recommend::RecommendArgs;
        /// Find the highest rate of requests at which each policy keeps the experiment's latency bounds
        Capacity, capacity::CapacityArgs;
        /// Find the fewest GPUs with which a fleet keeps the experiment's latency bounds at its own load
        Fleet, fleet::FleetArgs;
        /// Write a page that shows where speculation stops paying, as you move sliders
        Explore, explore::ExploreArgs;
        /// Split each policy's loss against the best oracle by cause, such as wrong costs or wrong acceptance rates
        Ladder, ladder::LadderArgs;
    }
    "Your server" {
        /// Send an experiment's workload to a running server and record its answers
        Observe, observe::ObserveArgs, needs "observe";
        /// Fit pass costs and acceptance to observed runs; write a profile, a truth table, traces and an experiment
        Calibrate, calibrate::CalibrateArgs;
        /// Run an experiment on a device and in the simulator, and say how far apart they are
        Validate, validate::ValidateArgs, needs "live";
        /// Write settings for vLLM and SGLang, and timelines
        Export, export::ExportArgs;
        /// Serve HTTP clients as a vLLM server does; a simulated engine times the answers
        Serve, serve::ServeArgs, needs "observe";
    }
    "Your device" {
        /// Report on which devices of this machine models can run
        Doctor, doctor::DoctorArgs, needs "live";
        /// Time the forward passes of a target and a draft on this machine, and write a profile
        Profile, profile::ProfileArgs, needs "live";
        /// Record which drafts of a draft model are right on a target's own text
        ProfileAcceptance, profile_acceptance::ProfileAcceptanceArgs, needs "live";
        /// Run an experiment on a device: the same engine and policies, real passes, a real clock
        Live, live::LiveArgs, needs "live";
    }
    "Look up" {
        /// List, describe or add policies
        Policies, policies::PoliciesArgs;
        /// List and describe model presets, or what is read from a config.json
        Models, models::ModelsArgs;
        /// List and describe GPU presets
        Hardware, hardware::HardwareArgs;
        /// List and describe golden acceptance lengths: published tokens a round of models and their drafters
        Acceptance, acceptance::AcceptanceArgs;
        /// Describe a request trace, or write documents as prompts
        Traces, traces::TracesArgs;
        /// Print the settings of an experiment: allowed values, default, meaning
        Settings, settings::SettingsArgs;
        /// Print the JSON schema of experiments, for editors
        Schema, schema::SchemaArgs;
        /// Print what each policy would draft for the requests of a server, whose state you write as JSON
        Decide, decide::DecideArgs;
    }
    "Results" {
        /// Make the page of a results folder, to be opened in a browser
        Report, report::ReportArgs;
        /// Show the page of a results folder in the browser
        Open, open::OpenArgs;
        /// Merge the finished shards of a run
        Merge, merge::MergeArgs;
    }
    "This program" {
        /// Print a script with which a shell completes foretoken's commands
        Completions, complete::CompletionsArgs, with Cli::command();
        /// Write manual pages
        Man, man::ManArgs, with Cli::command();
    }
}

/// Columns of a line of help.
const WIDTH: usize = 80;

/// The command line as it is parsed and helped with.
pub fn command() -> clap::Command {
    fn narrow_help(command: clap::Command) -> clap::Command {
        let help = command.get_after_help().map(|help| narrow(&help.to_string()));
        let command = match help {
            Some(help) => command.after_help(help),
            None => command,
        };
        command.mut_subcommands(narrow_help)
    }
    narrow_help(Cli::command().max_term_width(WIDTH))
}

/// Parses the program's arguments, of which the first is its name.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> clap::error::Result<Cli> {
    let mut matches = command().try_get_matches_from(arguments)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|e| e.format(&mut command()))
}

/// The text behind a command's options in lines of at most 80 columns. Indented lines are kept; an example that is too
/// long goes on behind a backslash, so that a shell reads it as one line. Other lines are paragraphs.
fn narrow(text: &str) -> String {
    fn end(paragraph: &mut Vec<&str>, lines: &mut Vec<String>) {
        if !paragraph.is_empty() {
            let options = textwrap::Options::new(WIDTH).break_words(false);
            lines.push(textwrap::fill(&paragraph.join(" "), options));
            paragraph.clear();
        }
    }
    let (mut lines, mut paragraph) = (Vec::new(), Vec::new());
    for line in text.lines() {
        if line.is_empty() || line.starts_with(' ') {
            end(&mut paragraph, &mut lines);
            lines.push(continued(line));
        } else {
            paragraph.push(line);
        }
    }
    end(&mut paragraph, &mut lines);
    lines.join("\n")
}

/// An example in lines of at most 80 columns, where its words allow it.
fn continued(example: &str) -> String {
    if example.chars().count() <= WIDTH || !example.trim_start().starts_with("foretoken ") {
        return example.to_owned();
    }
    // Words of a shell: spaces in quotes belong to a word.
    let mut quote = None;
    let mut words = vec![String::new()];
    for c in example.trim().chars() {
        match (quote, c) {
            (None, ' ') => words.push(String::new()),
            (None, '\'' | '"') => quote = Some(c),
            (Some(q), _) if q == c => quote = None,
            _ => {}
        }
        if quote.is_some() || c != ' ' {
            words.last_mut().expect("there is a word").push(c);
        }
    }
    let mut lines = vec!["  ".to_owned()];
    for word in words {
        let line = lines.last_mut().expect("there is a line");
        // Two columns are for the backslash.
        if line.chars().count() + word.chars().count() > WIDTH - 2 && !line.trim().is_empty() {
            line.push('\\');
            lines.push("      ".to_owned());
        }
        let line = lines.last_mut().expect("there is a line");
        line.push_str(&word);
        line.push(' ');
    }
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}

/// The help of the program: its commands in groups, in lines of at most 80 columns. Clap would list all of them in one
/// block and leave the lines to the terminal, which breaks words.
fn template() -> String {
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n\nCommands:\n".to_owned();
    for (heading, commands) in GROUPS {
        text += &format!("\n {heading}\n");
        for (name, says) in *commands {
            let first = format!("  {:<20}", kebab(name));
            let options =
                textwrap::Options::new(WIDTH).initial_indent(&first).subsequent_indent("                      ");
            text += &(textwrap::fill(says.trim(), options) + "\n");
        }
    }
    text + "\nOptions:\n{options}{after-help}"
}

/// A command's name as it is typed: `ProfileAcceptance` is `profile-acceptance`.
fn kebab(name: &str) -> String {
    let mut typed = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !typed.is_empty() {
            typed.push('-');
        }
        typed.push(letter.to_ascii_lowercase());
    }
    typed
}

/// The error for a command that needs the Cargo feature `feature`, if the program was built without this feature.
#[cfg(not(all(feature = "live", feature = "observe")))]
pub fn built_without(feature: &str) -> Box<foretoken_run::spec::problem::Problem> {
    let (what, help) = match feature {
        "observe" => (
            "a network",
            "the Python wheel has one (pip install ./python in a checkout), and so has cargo install --path cli --features \
             observe",
        ),
        _ => ("devices", "install it with them, in a checkout: cargo install --path cli --features live"),
    };
    foretoken_run::spec::problem::Problem::bad_input(format!("this program was built without {what}")).help(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_example_goes_on_behind_a_backslash() {
        let text = "Examples:
  foretoken run x
  foretoken ask 'vllm serve a/long-name-of-a-model --max-num-seqs 64 --port 8000' --gpu h100 --clients 8

One paragraph
of two lines.";
        let narrow = narrow(text);
        assert!(narrow.lines().all(|line| line.chars().count() <= WIDTH), "{narrow}");
        assert!(narrow.starts_with("Examples:\n  foretoken run x\n  foretoken ask \\\n      'vllm serve "), "{narrow}");
        assert!(narrow.ends_with("8\n\nOne paragraph of two lines."), "{narrow}");
        assert_eq!(narrow.replace(" \\\n     ", "").lines().nth(2), text.lines().nth(2));
    }
}
