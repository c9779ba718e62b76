//! `foretoken export dynamo`: a `DynamoGraphDeployment` with vLLM's worker.

use super::sweep::{DeployArgs, Swept, quoted};
use crate::commands::print;
use foretoken_run::spec::problem::Result;

pub const EXAMPLES: &str = "Examples:
  foretoken export dynamo experiments/quickstart.toml --method eagle3 --model HEAD --target MODEL > graph.yaml

The lengths are found as `export vllm` finds them. The resource is Dynamo's v1alpha1: all keys are known to the typed
model of it in AIConfigurator 0.12, and vLLM 0.33's own parser accepts the flags. Set the image to your Dynamo's.";

pub fn run(args: &DeployArgs) -> Result<()> {
    let swept = args.sweep.run()?;
    print(&text(&swept, args.target(&swept)?)?)
}

pub fn text(swept: &Swept, target: &str) -> Result<String> {
    // A name of Kubernetes: small letters, digits and dashes.
    let short = target.rsplit('/').next().unwrap_or(target).to_lowercase();
    let name: String = short.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    Ok(format!(
        "\
# DynamoGraphDeployment v1alpha1, flags of vLLM 0.33
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata:
  name: {name}
spec:
  services:
    Frontend:
      componentType: frontend
      replicas: 1
      extraPodSpec:
        mainContainer:
          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.4.0
    VllmDecodeWorker:
      componentType: worker
      replicas: 1
      resources:
        limits:
          gpu: '{tensor}'
      extraPodSpec:
        mainContainer:
          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.4.0
          command: [python3, -m, dynamo.vllm]
          args:
          - --model
          - {target}
          - --tensor-parallel-size
          - '{tensor}'
          - --speculative-config
          - {config}
",
        name = quoted(name.trim_matches('-')),
        tensor = swept.tensor_parallel,
        target = quoted(target),
        config = quoted(&swept.speculative_config()?),
    ))
}
