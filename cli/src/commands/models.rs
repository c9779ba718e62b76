//! `foretoken models`: lists and shows model presets, and shows what is read from a model's `config.json`.

use super::print;
use crate::cli::format::Format;
use clap::{Args, Subcommand};
use foretoken_profiler::hardware::config;
use foretoken_profiler::hardware::models::{Attention, FeedForward, LayerGroup, ModelShape, catalog, entry};
use foretoken_run::spec::problem::{Problem, Result, nearest};
use foretoken_run::spec::text;
use serde_json::json;
use std::fmt::Write;
use std::path::Path;

pub const EXAMPLES: &str = "Examples:
  foretoken models list
  foretoken models show qwen3-30b-a3b
  foretoken models show deepseek-v3 --format json";

const LIST_EXAMPLES: &str = "Examples:
  foretoken models list
  foretoken models list --format json";

const SHOW_EXAMPLES: &str = "Examples:
  foretoken models show deepseek-v3
  foretoken models show gpt-oss-120b --format json";

#[derive(Debug, Args)]
pub struct ModelsArgs {
    #[command(subcommand)]
    pub command: ModelsCommand,
}

#[derive(Debug, Subcommand)]
pub enum ModelsCommand {
    /// List the presets
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// How to print the list
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Show a model: its layers, weights and KV, and the features in its config.json that are not modelled
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// A preset, the path of a config.json or of its folder, or - for a config.json on standard input
        model: String,
        /// How to print the model
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
}

pub fn run(args: &ModelsArgs) -> Result<()> {
    match &args.command {
        ModelsCommand::List { format } => list(*format),
        ModelsCommand::Show { model, format } => show(model, *format),
    }
}

fn list(format: Format) -> Result<()> {
    if format == Format::Json {
        let all: Vec<_> = catalog().iter().map(|e| summary(&e.shape, &[("model", e.model.clone())])).collect();
        return print(&(serde_json::to_string_pretty(&all).expect("plain data always serialises") + "\n"));
    }
    let widest = catalog().iter().map(|e| e.name.len()).max().unwrap_or(0);
    let mut lines = format!("{:widest$}  parameters    active  KV, bytes a token  weights, GB\n", "preset");
    for e in catalog() {
        let (shape, work) = (&e.shape, e.shape.work());
        let (all, active) = (shape.parameters() * 1e-9, shape.active_parameters() * 1e-9);
        let (kv, weights) = (work.kv_bytes_token(1.0), work.weight_bytes * 1e-9);
        writeln!(lines, "{:widest$} {all:>9.3} B {active:>7.3} B {kv:>18.0} {weights:>12.1}", e.name)
            .expect("a string grows");
    }
    print(&lines)
}

fn show(model: &str, format: Format) -> Result<()> {
    let (shape, source, warnings, module) = match entry(model) {
        Some(e) => (e.shape.clone(), format!("{}; read from {}", e.model, e.source), e.warnings.clone(), None),
        None => {
            let read = read_file(model)?;
            (read.shape, model.to_owned(), read.warnings, read.mtp)
        }
    };
    if format == Format::Json {
        let mut said = summary(&shape, &[("source", source)]);
        said["shape"] = json!(shape);
        said["work"] = json!(shape.work());
        said["mtp"] = json!(module);
        said["warnings"] = json!(warnings);
        return print(&(serde_json::to_string_pretty(&said).expect("plain data always serialises") + "\n"));
    }
    print(&words(&shape, &source, &warnings, module.is_some()))
}

/// Reads a `config.json`, with the `hf_quant_config.json` beside it, from a path; or from standard input for `-`.
fn read_file(file: &str) -> Result<config::ReadConfig> {
    let text = match file {
        "-" => text::whole(std::io::stdin()).map(|text| (text, None)),
        _ => text::model_config(Path::new(file)),
    };
    let (text, quantization) = text.map_err(|e| {
        let near = nearest(file, catalog().iter().map(|e| e.name.as_str()));
        let problem = Problem::bad_input(format!("\"{file}\" is neither a preset nor a file that can be read: {e}"));
        problem.help(near.map_or_else(
            || "`foretoken models list` prints the presets".to_owned(),
            |near| format!("did you mean `{near}`? `foretoken models list` prints the presets"),
        ))
    })?;
    config::read_beside(&text, quantization.as_deref(), file).map_err(|e| Problem::bad_input(format!("{file}: {e}")))
}

fn summary(shape: &ModelShape, more: &[(&str, String)]) -> serde_json::Value {
    let work = shape.work();
    let mut said = json!({
        "name": shape.name,
        "parameters": shape.parameters(),
        "active_parameters": shape.active_parameters(),
        "weight_bytes": work.weight_bytes,
        "kv_bytes_token": work.kv_bytes_token(1.0),
        "state_bytes": work.state_bytes,
        "request_bytes": work.request_bytes,
        "window_bytes_token": work.windows(1.0).map(|w| w.bytes_token),
        "sliding_window": work.windows(1.0).map(|w| w.tokens),
    });
    more.iter().for_each(|(key, value)| said[*key] = value.as_str().into());
    said
}

fn words(shape: &ModelShape, source: &str, warnings: &[String], has_mtp: bool) -> String {
    let work = shape.work();
    let mut text = format!("{}: {source}\n\n", shape.name);
    let (all, active) = (shape.parameters() * 1e-9, shape.active_parameters() * 1e-9);
    let weights = work.weight_bytes / (1u64 << 30) as f64;
    text += &format!("weights     {all:.3} B, of which a token uses {active:.3} B; {weights:.1} GiB\n");
    text += &format!("width       {} hidden, {} words in the vocabulary\n", shape.hidden, shape.vocab);
    text += &format!("KV          {:.0} bytes a token", work.kv_bytes_token(1.0));
    if work.state_bytes > 0.0 {
        text += &format!(", and a state of {:.1} MB a request", work.state_bytes * 1e-6);
    }
    if work.request_bytes > 0.0 {
        text += &format!(", and {:.1} MB a request in windows and compressors", work.request_bytes * 1e-6);
    }
    if let Some(windows) = work.windows(1.0) {
        text += &format!(", {:.0} of them only for the newest {} tokens", windows.bytes_token, windows.tokens);
    }
    let b = shape.bits;
    text += &format!(
        "\nbits        {} a weight,{} {} an expert's, {} the head's, {} KV\n",
        b.weights,
        b.dense.map_or(String::new(), |bits| format!(" {bits} a dense block's,")),
        b.experts,
        b.head,
        b.kv
    );
    for (i, group) in shape.layers.iter().enumerate() {
        let head = if i == 0 { "layers" } else { "" };
        text += &format!("{head:<12}{} × {}\n", group.count, layer(group));
    }
    if has_mtp {
        text += "MTP         it has a module that drafts: model = { config = \"FILE\", mtp = true }\n";
    }
    warnings.iter().for_each(|warning| text += &format!("warning: {warning}\n"));
    text
}

/// A group of equal layers of a model as text: their attention, such as the number of heads, and their feed-forward
/// block.
fn layer(group: &LayerGroup) -> String {
    let chosen = |what: &str| match group.attention.selection() {
        Some(s) if s.taken => format!(" to {} {what} that a layer before it chose", s.tokens),
        Some(s) => format!(" to {} chosen {what}", s.tokens),
        None => String::new(),
    };
    let attention = match group.attention {
        Attention::Grouped { heads, kv_heads, head_dim, window, .. } => {
            let reach = window.map_or_else(|| chosen("tokens"), |tokens| format!(" over the newest {tokens} tokens"));
            format!("attention of {heads} heads of {head_dim}, {kv_heads} for keys and values{reach}")
        }
        Attention::Latent { heads, kv_rank, rope_dim, .. } => {
            let reach = chosen("tokens");
            format!("latent attention of {heads} heads{reach}, {kv_rank} + {rope_dim} numbers kept a token")
        }
        Attention::Compressed { heads, head_dim, window, ratio, .. } => {
            let entries = match ratio {
                0 => String::new(),
                ratio if group.attention.selection().is_some() => {
                    format!(" and{} of {ratio} tokens", chosen("entries"))
                }
                ratio => format!(" and to all entries of {ratio} tokens"),
            };
            format!(
                "attention of {heads} heads of {head_dim}, one for keys and values, to the newest {window} tokens{entries}"
            )
        }
        Attention::Recurrent { state_bytes, .. } => format!("a state of {:.2} MB a request", state_bytes * 1e-6),
        Attention::None => "no attention".to_owned(),
    };
    let feed_forward = match group.feed_forward {
        FeedForward::Dense { intermediate, .. } => format!("dense block of {intermediate}"),
        FeedForward::Experts { total, active, intermediate, shared_intermediate, latent, .. } => {
            let shared = match shared_intermediate {
                0 => String::new(),
                width => format!(" and a shared one of {width}"),
            };
            let latent = latent.map_or(String::new(), |width| format!(" behind a projection into {width}"));
            format!("{active} of {total} experts of {intermediate}{latent}{shared}")
        }
        FeedForward::None => "no feed-forward block".to_owned(),
    };
    format!("{attention}; {feed_forward}")
}
