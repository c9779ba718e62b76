//! `foretoken export llm-d`: values for llm-d's chart `llm-d-modelservice`.

use super::sweep::{DeployArgs, Swept, quoted};
use crate::commands::print;
use foretoken_run::spec::problem::Result;

pub const EXAMPLES: &str = "Examples:
  foretoken export llm-d experiments/quickstart.toml --method eagle3 --model HEAD --target MODEL > values.yaml

The lengths are found as `export vllm` finds them. Helm takes the file with -f beside your own values; its list of
containers replaces theirs. The chart's schema (v0.4.12) accepts such values, and vLLM 0.33's own parser their flags.";

pub fn run(args: &DeployArgs) -> Result<()> {
    let swept = args.sweep.run()?;
    print(&text(&swept, args.target(&swept)?)?)
}

pub fn text(swept: &Swept, target: &str) -> Result<String> {
    Ok(format!(
        "\
# llm-d-modelservice v0.4.12, vLLM 0.33
modelArtifacts:
  name: {name}
  uri: {uri}
decode:
  parallelism:
    tensor: {tensor}
  containers:
  - name: vllm
    image: vllm/vllm-openai:v0.33.0
    modelCommand: vllmServe
    args:
    - --speculative-config
    - {config}
    mountModelVolume: true
",
        name = quoted(target),
        uri = quoted(&format!("hf://{target}")),
        tensor = swept.tensor_parallel,
        config = quoted(&swept.speculative_config()?),
    ))
}
