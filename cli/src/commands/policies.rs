//! `foretoken policies`: lists and describes the policies.

use super::print;
use crate::cli::format::Format;
use clap::{Args, Subcommand};
use foretoken_policies::PolicySpec;
use foretoken_policies::template::{CannotWrite, NewPolicy, new_policy};
use foretoken_run::load::with_defaults;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::spec::read::unknown_policy;
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};

pub const EXAMPLES: &str = "Examples:
  foretoken policies list
  foretoken policies show adaspec
  foretoken policies defaults adaspec";

const LIST_EXAMPLES: &str = "Examples:
  foretoken policies list
  foretoken policies list --format json";

const SHOW_EXAMPLES: &str = "Examples:
  foretoken policies show adaspec
  foretoken policies show sglang-gen3 --format json";

const NEW_EXAMPLES: &str = "Examples:
  foretoken policies new my-policy
  foretoken policies new my-policy --family confidence --source ../foretoken";

const DEFAULTS_EXAMPLES: &str = "Examples:
  foretoken policies defaults adaspec";

#[derive(Debug, Args)]
pub struct PoliciesArgs {
    #[command(subcommand)]
    pub command: PoliciesCommand,
}

#[derive(Debug, Subcommand)]
pub enum PoliciesCommand {
    /// List the policies
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// How to print the list
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Show a policy: what it does, what information it uses, its source and its differences from the source, its
    /// settings with defaults
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// Name of the policy
        name: String,
        /// How to print the policy
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Print a policy's settings with their defaults, as TOML for an experiment
    #[command(after_help = DEFAULTS_EXAMPLES)]
    Defaults {
        /// Name of the policy
        name: String,
    },
    /// Write the file of a new policy into Foretoken's source, from a template that works, and say which two lines to
    /// add to the table of policies
    #[command(after_help = NEW_EXAMPLES)]
    New {
        /// Name of the new policy, in kebab-case
        name: String,
        /// The folder of policies/src for the new policy
        #[arg(long, default_value = foretoken_policies::template::USUAL_FAMILY)]
        family: String,
        /// Folder of Foretoken's source
        #[arg(long, default_value = ".")]
        source: PathBuf,
    },
}

/// Lists the policies, shows one, prints its default settings, or writes a new one.
pub fn run(args: &PoliciesArgs) -> Result<()> {
    match &args.command {
        PoliciesCommand::List { format } => list(*format),
        PoliciesCommand::Show { name, format } => show(name, *format),
        PoliciesCommand::Defaults { name } => defaults(name),
        PoliciesCommand::New { name, family, source } => new(name, family, source),
    }
}

/// A policy's description, as printed in JSON.
#[derive(Serialize)]
struct Described {
    name: &'static str,
    summary: &'static str,
    source: &'static str,
    sees: &'static str,
    differences: &'static str,
    /// True if the policy uses hidden truth, such as which draft tokens will be accepted. No server can run such a
    /// policy; it is a bound on other policies.
    sees_hidden_truth: bool,
    /// The policy's settings with their defaults, as an entry of an experiment's `policies`, such as `{ fixed = { k = 3
    /// } }`.
    settings: PolicySpec,
}

impl Described {
    fn of(spec: PolicySpec) -> Described {
        Described {
            name: spec.name(),
            summary: spec.summary(),
            source: spec.source(),
            sees: spec.definition().about().sees,
            differences: spec.definition().about().differences,
            sees_hidden_truth: spec.sees_hidden_truth(),
            settings: spec,
        }
    }
}

/// Lists every policy with one line that says what the policy does, or all descriptions as JSON.
fn list(format: Format) -> Result<()> {
    if format == Format::Json {
        return print(&as_json()?);
    }
    let names = PolicySpec::all_names();
    let width = names.iter().map(|n| n.len()).max().unwrap_or(0);
    let mut text = String::new();
    for name in names {
        let spec = known(name)?;
        writeln!(text, "{name:width$}  {}", spec.summary()).expect("writing to a string cannot fail");
    }
    print(&text)
}

pub fn as_json() -> Result<String> {
    let all = PolicySpec::all_names().iter().map(|name| known(name).map(Described::of));
    Ok(json(&all.collect::<Result<Vec<_>>>()?))
}

/// Writes the file of a new policy into a source tree and prints the remaining steps.
fn new(name: &str, family: &str, source: &Path) -> Result<()> {
    let NewPolicy { file, table, module, row } = new_policy(source, name, family).map_err(|e| {
        let problem = Problem::bad_input(e.to_string());
        match e {
            CannotWrite::Family(_) => {
                problem.help("--family is a folder below policies/src, and --source the folder of Foretoken's source")
            }
            _ => problem,
        }
    })?;
    let (file, table) = (file.display(), table.display());
    print(&format!(
        "{file}: a policy that works; change it\nadd two lines to {table}:\n  in `mod {family}`, in alphabetical \
         order:\n{module}\n  in `policies!`, below the other rows of {family}:\n{row}\nnext: .ci/refresh makes the \
         generated files again; look at the diff\n"
    ))
}

/// Shows a policy: what it does, its source, what information it uses, how it differs from its source, and its
/// settings.
fn show(name: &str, format: Format) -> Result<()> {
    let spec = known(name)?;
    if format == Format::Json {
        return print(&json(&Described::of(spec)));
    }
    let truth =
        if spec.sees_hidden_truth() { "\nsees hidden truth: a bound, not a policy a server can run\n" } else { "" };
    print(&format!(
        "{name}: {}\nsource: {}\nsees: {}\ndiffers from the source: {}\n{truth}\nin an experiment, with its defaults:\n  policies = [{}]\n",
        spec.summary(),
        spec.source(),
        spec.definition().about().sees,
        spec.definition().about().differences,
        settings(&spec),
    ))
}

/// Prints a policy with its default settings, as an entry of an experiment's `policies`, such as `{ fixed = { k = 3 }
/// }`.
fn defaults(name: &str) -> Result<()> {
    print(&format!("{}\n", settings(&known(name)?)))
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).expect("plain data always serialises") + "\n"
}

fn settings(spec: &PolicySpec) -> String {
    toml::Value::try_from(spec).map(|v| v.to_string()).unwrap_or_default()
}

fn known(name: &str) -> Result<PolicySpec> {
    with_defaults(name).ok_or_else(|| unknown_policy(name, PolicySpec::all_names()))
}
