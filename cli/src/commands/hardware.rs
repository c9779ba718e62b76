//! `foretoken hardware`: lists and shows the GPU presets, from which roofline costs are computed, and the installed
//! kernel times.

use super::print;
use crate::cli::format::Format;
use clap::{Args, Subcommand};
use foretoken_profiler::hardware::floors::{KernelFit, floors, source};
use foretoken_profiler::hardware::gpus::{GpuChoice, GpuPreset, gpu, gpus};
use foretoken_profiler::hardware::kernel_tables::{NEEDED, Package, SYSTEMS, TESTED};
use foretoken_run::spec::problem::{Problem, Result, nearest};
use serde_json::{Value, json};
use std::fmt::Write;

pub const EXAMPLES: &str = "Examples:
  foretoken hardware list
  foretoken hardware show h100
  foretoken hardware kernels";

const LIST_EXAMPLES: &str = "Examples:
  foretoken hardware list
  foretoken hardware list --format json";

const SHOW_EXAMPLES: &str = "Examples:
  foretoken hardware show mi300x
  foretoken hardware show mi300x --format json";

const KERNELS_EXAMPLES: &str = "Examples:
  foretoken hardware kernels
  foretoken hardware kernels h200
  foretoken hardware kernels h200 --package FOLDER

The times are in the PyPI package aiconfigurator-core (Apache-2.0). It is looked for in FOLDER, in the folder that the
variable FORETOKEN_KERNELS names, and in the site-packages of the active environment, of the Pythons on the PATH and of
the user. An unpacked wheel will do.";

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
    /// Say which kernel times are installed: GPUs, engines, versions and tables
    #[command(after_help = KERNELS_EXAMPLES)]
    Kernels {
        /// Name of a GPU whose tables to list
        gpu: Option<String>,
        /// Folder of the package
        #[arg(long)]
        package: Option<String>,
    },
}

/// Lists the GPU presets, or shows one of them.
pub fn run(args: &HardwareArgs) -> Result<()> {
    match &args.command {
        HardwareCommand::List { format } => list(*format),
        HardwareCommand::Show { gpu, format } => show(gpu, *format),
        HardwareCommand::Kernels { gpu, package } => kernels(gpu.as_deref(), package.as_deref()),
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

/// Says what the installed package of kernel times has.
fn kernels(name: Option<&str>, folder: Option<&str>) -> Result<()> {
    let package = Package::find(folder).map_err(Problem::bad_input)?;
    let mut text = format!("{}\n{}\n\n", package.title(), package.systems.display());
    match name {
        None => systems(&package, &mut text),
        Some(name) => tables(&package, name, &mut text)?,
    }
    print(&text)
}

/// The GPUs, and for each engine the versions that have tables.
fn systems(package: &Package, text: &mut String) {
    let have = package.systems();
    for (preset, system) in SYSTEMS {
        if !have.iter().any(|name| name == system) {
            writeln!(text, "{preset:<13} no tables").expect("a string grows");
            continue;
        }
        let versions = package.versions(system);
        let of = |engine: &str| versions.get(engine).map(|all| format!("{engine} {}", all.join(", ")));
        let engines: Vec<String> = ["vllm", "sglang", "trtllm"].into_iter().filter_map(of).collect();
        writeln!(text, "{preset:<13} {}", engines.join("; ")).expect("a string grows");
        let lacks = missing(package, system);
        if !lacks.is_empty() {
            writeln!(text, "{:<13} missing: {}", "", lacks.join(", ")).expect("a string grows");
        }
    }
    writeln!(
        text,
        "\nhardware = {{ target = {{ kernels = {{ gpu = \"h200\", engine = \"vllm\", model = \"llama-3.3-70b\", \
         tensor_parallel = 4 }} }} }} sums a pass from them. Compared with measured servers: version {TESTED}."
    )
    .expect("a string grows");
}

/// The tables without which an engine's passes cannot be summed, and that it lacks.
fn missing(package: &Package, system: &str) -> Vec<String> {
    let tables = package.tables(system);
    let lacks = |engine: &str, (family, table): (&str, &str)| {
        !tables.iter().any(|t| t.engine == engine && t.family == family && t.table == table)
    };
    let engines = foretoken_profiler::hardware::kernel_tables::ENGINES
        .into_iter()
        .filter(|e| tables.iter().any(|t| t.engine == *e));
    engines
        .flat_map(|e| NEEDED.into_iter().filter(move |t| lacks(e, *t)).map(move |t| format!("{} of {e}", t.1)))
        .collect()
}

fn tables(package: &Package, name: &str, text: &mut String) -> Result<()> {
    let Some((_, system)) = SYSTEMS.into_iter().find(|(preset, _)| *preset == name) else {
        let problem = Problem::bad_input(format!("there are no kernel times of a GPU \"{name}\""));
        return Err(problem.help(nearest(name, SYSTEMS.into_iter().map(|(preset, _)| preset)).map_or_else(
            || "`foretoken hardware kernels` lists the GPUs".to_owned(),
            |near| format!("did you mean `{near}`? `foretoken hardware kernels` lists the GPUs"),
        )));
    };
    for table in package.tables(system) {
        let (engine, version) = (&table.engine, &table.version);
        writeln!(text, "{:<17} {:<34} {engine} {version}", table.family, table.table).expect("a string grows");
    }
    Ok(())
}

fn as_json(preset: &GpuPreset) -> Value {
    let mut value = json!(preset.gpu);
    value["name"] = preset.name.as_str().into();
    value["source"] = preset.source.as_str().into();
    value["floors"] = json!(floors(&GpuChoice::preset(&preset.name), &preset.gpu));
    value
}
