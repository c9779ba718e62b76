//! The `[live]` table of an experiment: the device, the models and the prompts of a live run.

use crate::spec::document::{Document, Path};
use crate::spec::problem::{Problem, Result};
use crate::spec::prompts::Prompts;
use foretoken_profiler::hardware::models::{SHIPPED, entry};
use serde::{Deserialize, Serialize};

/// The `[live]` table: the device and the models of live runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LiveSpec {
    /// The device that runs the models: `cpu`, or `cuda:N` for the GPU with number N, from 0. The option `--device`
    /// overrides it.
    #[serde(default = "cpu")]
    pub device: String,
    /// Number of threads of the CPU device, at least 1; absent: one for each core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// Vector instructions of the CPU's kernels; absent: the best level that the CPU has. The level changes times,
    /// not results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Instructions>,
    /// The target model: the name of a preset or of a shipped model (`tiny-target`), or the path of a Hugging Face
    /// folder.
    pub target: String,
    /// The draft model: the name of a preset or of a shipped model (`tiny-draft`), or the path of a Hugging Face
    /// folder.
    pub draft: String,
    /// Where the models' weights come from.
    #[serde(default)]
    pub weights: WeightSource,
    /// The prompts of the requests.
    #[serde(default)]
    pub prompts: Prompts,
    /// What decides which draft tokens are accepted.
    #[serde(default)]
    pub acceptance: LiveAcceptance,
    /// What the server's thread does while it waits for requests.
    #[serde(default)]
    pub waiting: Waiting,
    /// Factor on the speed of arrivals, above 0: with 10, requests arrive ten times as fast as in the workload, both
    /// live and in the simulator.
    #[serde(default = "one")]
    pub time_scale: f64,
    /// Number of requests that are served in a closed loop before each policy's clock starts, so that caches, clock
    /// rates and buffers settle. No result includes these requests.
    #[serde(default = "warm_up")]
    pub warm_up_requests: u32,
}

/// What the server's thread does while it waits for requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Waiting {
    /// The thread spins. The core keeps its clock rate and its caches, so passes after a wait take no longer than
    /// passes that follow each other, as in the measurement of a profile.
    #[default]
    Spin,
    /// The thread sleeps and leaves the core to other threads. Passes after a wait may take longer.
    Sleep,
}

/// Vector instructions of a CPU. Each level includes the instructions of the levels before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub enum Instructions {
    /// No vector instructions beyond the compiler's default.
    #[serde(rename = "plain")]
    Plain,
    /// AVX2 with FMA.
    #[serde(rename = "avx2")]
    Avx2,
    /// AVX-512.
    #[serde(rename = "avx-512")]
    Avx512,
}

impl Instructions {
    /// All levels of vector instructions, from the oldest to the newest.
    pub const ALL: [Instructions; 3] = [Instructions::Plain, Instructions::Avx2, Instructions::Avx512];

    /// The name of the level of vector instructions in settings and flags.
    pub fn key(self) -> &'static str {
        match self {
            Instructions::Plain => "plain",
            Instructions::Avx2 => "avx2",
            Instructions::Avx512 => "avx-512",
        }
    }
}

impl std::str::FromStr for Instructions {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Instructions, String> {
        Instructions::ALL
            .into_iter()
            .find(|i| i.key() == text)
            .ok_or_else(|| "expected plain, avx2 or avx-512".to_owned())
    }
}

/// Where the models' weights come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WeightSource {
    /// The weights of the checkpoint in the model's folder, or the weights that ship with the pair of tiny models.
    #[default]
    Checkpoint,
    /// Random weights drawn from the run's seed. Pass times are real. Acceptance means something only with `acceptance
    /// = "declared"`.
    Random,
}

/// What decides which draft tokens are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum LiveAcceptance {
    /// The models decide: the target takes its likeliest token, and a draft token is right when it is that token.
    #[default]
    Greedy,
    /// The models decide by exact rejection sampling.
    Sampled {
        /// Softmax temperature with which the target and the draft model sample, above 0.
        temperature: f64,
    },
    /// The experiment's `[acceptance]` table decides. Its outcomes are forced onto the real passes: times are real,
    /// acceptance is known.
    Declared,
}

fn cpu() -> String {
    "cpu".into()
}

fn one() -> f64 {
    1.0
}

fn warm_up() -> u32 {
    8
}

impl LiveSpec {
    /// Returns the settings `target` and `draft` as far as they are paths of folders, so that the caller can change the
    /// paths. Names of presets and of shipped models are left out.
    pub fn folders_mut(&mut self) -> impl Iterator<Item = &mut String> {
        [&mut self.target, &mut self.draft]
            .into_iter()
            .filter(|name| !SHIPPED.contains(&name.as_str()) && entry(name).is_none())
    }

    /// Checks every value of the `[live]` table that serde cannot check.
    pub fn check(&self, doc: &Document) -> Result<()> {
        let problem_at =
            |key: &str, message: String| doc.problem_at(&Path::of("live").key(key), format!("live.{key}: {message}"));
        if !(self.time_scale > 0.0 && self.time_scale.is_finite()) {
            return Err(problem_at("time_scale", format!("{} is not a factor above 0", self.time_scale))
                .help("expected a finite number above 0: 10 plays a trace ten times as fast"));
        }
        if self.threads == Some(0) {
            return Err(problem_at("threads", "0 threads run nothing".into()).help("leave it out for all cores"));
        }
        Device::parse(&self.device).map_err(|why| problem_at("device", why).help("expected cpu, or cuda:0"))?;
        if let LiveAcceptance::Sampled { temperature } = self.acceptance
            && !(temperature > 0.0 && temperature.is_finite())
        {
            let message = format!("{temperature} is not a temperature above 0");
            return Err(problem_at("acceptance", message).help("write acceptance = \"greedy\" for temperature 0"));
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The CPU of this machine.
    Cpu,
    /// The CUDA GPU with this index, from 0.
    Cuda(u32),
}

impl Device {
    /// Reads `cpu`, `cuda:N`, or `cuda`, which is `cuda:0`.
    pub fn parse(text: &str) -> std::result::Result<Device, String> {
        match text.split_once(':') {
            None if text == "cpu" => Ok(Device::Cpu),
            None if text == "cuda" => Ok(Device::Cuda(0)),
            Some(("cuda", n)) => n.parse().map(Device::Cuda).map_err(|_| format!("\"{n}\" is not the number of a GPU")),
            _ => Err(format!("\"{text}\" is no device")),
        }
    }
}

/// A copy of the `[live]` table `live` in which `device` and `instructions` from the command line replace the table's
/// values if they are given.
pub fn with_device(live: &LiveSpec, device: Option<&str>, instructions: Option<Instructions>) -> LiveSpec {
    let mut live = live.clone();
    live.instructions = instructions.or(live.instructions);
    if let Some(device) = device {
        device.clone_into(&mut live.device);
    }
    live
}

/// The `[live]` table of the experiment `name`, for a command that needs it.
pub fn required<'a>(live: Option<&'a LiveSpec>, name: &str) -> Result<&'a LiveSpec> {
    live.ok_or_else(|| {
        Problem::bad_input(format!("`{name}` has no [live] table, which names the device and the models"))
            .help("add [live] with target = \"tiny-target\" and draft = \"tiny-draft\"; experiments/live-cpu.toml is an example")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_names() {
        assert_eq!(Device::parse("cpu"), Ok(Device::Cpu));
        assert_eq!(Device::parse("cuda"), Ok(Device::Cuda(0)));
        assert_eq!(Device::parse("cuda:3"), Ok(Device::Cuda(3)));
        assert!(Device::parse("cuda:x").unwrap_err().contains("not the number of a GPU"));
        assert!(Device::parse("tpu").unwrap_err().contains("no device"));
    }
}
