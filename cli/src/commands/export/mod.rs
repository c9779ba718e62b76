//! `foretoken export`: what engines and deployments read, one file a format, and timelines of runs for Perfetto.

#[cfg(test)]
mod checked;
mod dynamo;
mod llm_d;
mod perfetto;
mod sglang;
mod sweep;
mod tensorrt_llm;
mod vllm;
mod vllm_context;

use clap::{Args, Subcommand};
use foretoken_run::spec::problem::Result;
use sweep::{DeployArgs, SweepArgs};

pub const EXAMPLES: &str = "Examples:
  foretoken export sglang sglang-gen3
  foretoken export vllm experiments/quickstart.toml
  foretoken export vllm-context experiments/quickstart.toml --contexts 1000,8000
  foretoken export perfetto results/small -o timeline.json";

#[derive(Debug, Args)]
pub struct ExportArgs {
    #[command(subcommand)]
    pub command: ExportCommand,
}

#[derive(Debug, Subcommand)]
pub enum ExportCommand {
    /// vLLM's speculative_config with the best length for each batch size, found by a sweep
    #[command(after_help = vllm::EXAMPLES)]
    Vllm(SweepArgs),
    /// A table by batch size and context in the form of vLLM's open RFC #48627, and what it gains over a table by batch
    #[command(after_help = vllm_context::EXAMPLES)]
    VllmContext(vllm_context::ContextArgs),
    /// SGLang's flags with the best length for each batch size, and the file that they name
    #[command(after_help = sglang::FLAGS_EXAMPLES)]
    SglangFlags(sglang::SglangFlagsArgs),
    /// TensorRT-LLM's speculative_config with the best length for each batch size
    #[command(after_help = tensorrt_llm::EXAMPLES)]
    TensorrtLlm(tensorrt_llm::TensorrtLlmArgs),
    /// Values for llm-d's chart, with vLLM's speculative_config
    #[command(after_help = llm_d::EXAMPLES)]
    LlmD(DeployArgs),
    /// A DynamoGraphDeployment with vLLM's worker and its speculative_config
    #[command(after_help = dynamo::EXAMPLES)]
    Dynamo(DeployArgs),
    /// SGLang's adaptive_spec.json of a policy
    #[command(after_help = sglang::EXAMPLES)]
    Sglang(sglang::ExportSglangArgs),
    /// A timeline for Perfetto (Chrome trace events) of one run in a results folder: one policy with one seed
    #[command(after_help = perfetto::EXAMPLES)]
    Perfetto(perfetto::ExportPerfettoArgs),
}

/// Exports to the format that the user named.
pub fn run(args: &ExportArgs) -> Result<()> {
    match &args.command {
        ExportCommand::Vllm(args) => vllm::run(args),
        ExportCommand::VllmContext(args) => vllm_context::run(args),
        ExportCommand::SglangFlags(args) => sglang::flags(args),
        ExportCommand::TensorrtLlm(args) => tensorrt_llm::run(args),
        ExportCommand::LlmD(args) => llm_d::run(args),
        ExportCommand::Dynamo(args) => dynamo::run(args),
        ExportCommand::Sglang(args) => sglang::policy(args),
        ExportCommand::Perfetto(args) => perfetto::perfetto(args),
    }
}
