//! `foretoken hardware`: lists and shows the GPU presets, from which roofline costs are computed.

use super::print;
use crate::cli::format::Format;
use clap::{Args, Subcommand};
use foretoken_hardware::floors::{KernelFit, floors, source};
use foretoken_hardware::gpus::{GpuChoice, GpuPreset, gpu, gpus};
use foretoken_spec::problem::{Problem, Result, nearest};
use serde_json::{Value, json};
use std::fmt::Write;

pub const EXAMPLES: &str = "Examples:
  foretoken hardware list
  foretoken hardware show h100";

const LIST_EXAMPLES: &str = "Examples:
  foretoken hardware list
  foretoken hardware list --format json";

const SHOW_EXAMPLES: &str = "Examples:
  foretoken hardware show mi300x
  foretoken hardware show mi300x --format json";

#[derive(Debug, Args)]
pub struct HardwareArgs {
    #[command(subcommand)]
    pub command: HardwareCommand,
}

#[derive(Debug, Subcommand)]
pub enum HardwareCommand {
    /// List the presets
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// How to print the list
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Show a GPU: its numbers, their source, and how to give a GPU that is not a preset
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// Name of the GPU
        gpu: String,
        /// How to print the GPU
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
}

/// Lists the GPU presets, or shows one of them.
pub fn run(args: &HardwareArgs) -> Result<()> {
    match &args.command {
        HardwareCommand::List { format } => list(*format),
        HardwareCommand::Show { gpu, format } => show(gpu, *format),
    }
}

fn list(format: Format) -> Result<()> {
    if format == Format::Json {
        let all: Vec<Value> = gpus().iter().map(as_json).collect();
        return print(&(serde_json::to_string_pretty(&all).expect("plain data always serialises") + "\n"));
    }
    let mut lines = "preset        memory, GiB  GB/s  bf16, TFLOP/s    fp8    fp4  link, GB/s\n".to_owned();
    for preset in gpus() {
        let g = &preset.gpu;
        let peak = |flops: Option<f64>| flops.map_or("-".to_owned(), |f| format!("{:.0}", f * 1e-12));
        let (memory, bandwidth) = (g.memory_bytes / (1u64 << 30) as f64, g.bandwidth_bytes_s * 1e-9);
        let (bf16, fp8, fp4) = (peak(Some(g.bf16_flops)), peak(g.fp8_flops), peak(g.fp4_flops));
        let link = g.link_bytes_s * 1e-9;
        writeln!(
            lines,
            "{:<13} {memory:>11.1} {bandwidth:>5.0} {bf16:>14} {fp8:>6} {fp4:>6} {link:>11.0}",
            preset.name
        )
        .expect("a string grows");
    }
    print(&lines)
}

fn show(name: &str, format: Format) -> Result<()> {
    let Some(preset) = gpu(name) else {
        let problem = Problem::bad_input(format!("no GPU preset is called \"{name}\""));
        return Err(problem.help(nearest(name, gpus().iter().map(|g| g.name.as_str())).map_or_else(
            || "`foretoken hardware list` prints the presets".to_owned(),
            |near| format!("did you mean `{near}`? `foretoken hardware list` prints the presets"),
        )));
    };
    if format == Format::Json {
        return print(&(serde_json::to_string_pretty(&as_json(preset)).expect("plain data always serialises") + "\n"));
    }
    let numbers = toml::to_string(&preset.gpu).expect("plain numbers can be written as TOML");
    let inline = numbers.trim_end().replace('\n', ", ");
    let floors = words(&GpuChoice::preset(name), preset);
    print(&format!(
        "{}: {}\n\n{numbers}\nthe same as a setting: gpu = {{ {inline} }}\n\n{floors}",
        preset.name, preset.source
    ))
}

/// The floors that kernels of the GPU have in a roofline, and where they were measured.
fn words(choice: &GpuChoice, preset: &GpuPreset) -> String {
    let fits = floors(choice, &preset.gpu);
    let mut text = format!("floors of kernels, measured on {}:\n", fits.gpu);
    let mut line = |what: &str, floor_s: f64, shares: String, misfit: f64| {
        let (us, percent) = (floor_s * 1e6, misfit * 100.0);
        writeln!(text, "  {what:<21} {us:>6.1} us, then {shares}; misfit {percent:.0} %").expect("a string grows");
    };
    let share = |of: f64, what: &str| format!("{:.0} % of {what}", of * 100.0);
    let both =
        |fit: &KernelFit| format!("{} and {}", share(fit.bandwidth, "bandwidth"), share(fit.flops, "arithmetic"));
    for (what, kinds) in [("product", &fits.products), ("experts", &fits.experts)] {
        for (kind, fit) in
            [("bf16", &kinds.bf16), ("fp8", &kinds.fp8), ("fp4", &kinds.fp4), ("weight-only", &kinds.weight_only)]
        {
            line(&format!("{what}, {kind}"), fit.floor_s, both(fit), fit.misfit);
        }
    }
    let a = &fits.attention;
    line("attention of a layer", a.floor_s, share(a.bandwidth, "bandwidth"), a.misfit);
    let others =
        [("recurrence of a layer", &fits.recurrent, "bandwidth"), ("all-reduce", &fits.all_reduce, "the link")];
    for (what, fit, of) in others.into_iter().chain([("small kernel", &fits.small, "bandwidth")]) {
        line(what, fit.floor_s, share(fit.bandwidth, of), fit.misfit);
    }
    let borrowed = fits.borrowed();
    if !borrowed.is_empty() {
        writeln!(text, "not measured there, so taken from others: {}", borrowed.join(", ")).expect("a string grows");
    }
    text + source() + "\n"
}

fn as_json(preset: &GpuPreset) -> Value {
    let mut value = json!(preset.gpu);
    value["name"] = preset.name.as_str().into();
    value["source"] = preset.source.as_str().into();
    value["floors"] = json!(floors(&GpuChoice::preset(&preset.name), &preset.gpu));
    value
}
