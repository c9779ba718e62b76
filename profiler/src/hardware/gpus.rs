//! GPUs: the numbers of their datasheets, as a preset or given by the user.

use crate::hardware::bad::{BadLatency, bad, unknown};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

const TEXT: &str = include_str!("../../gpus.json");

/// The numbers of a GPU's datasheet, each above 0. Peaks of arithmetic are those without structured sparsity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// Device memory that programs can use, bytes.
    pub memory_bytes: f64,
    /// Bandwidth of the device memory, bytes/s.
    pub bandwidth_bytes_s: f64,
    /// Peak arithmetic of matrix products in bf16, FLOP/s.
    pub bf16_flops: f64,
    /// Peak arithmetic of matrix products in fp8, FLOP/s. Absent: the GPU cannot compute in fp8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp8_flops: Option<f64>,
    /// Peak arithmetic of matrix products in fp4, FLOP/s. Absent: the GPU cannot compute in fp4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp4_flops: Option<f64>,
    /// Bandwidth to another GPU in one direction, bytes/s. It acts with `tensor_parallel` above 1. Default: 32 GB/s
    /// (PCIe 4.0 x16).
    #[serde(default = "pcie_4")]
    pub link_bytes_s: f64,
}

/// Bandwidth of PCIe 4.0 x16 in one direction, bytes/s.
fn pcie_4() -> f64 {
    32e9
}

/// A GPU with a name and the numbers of its datasheet.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuPreset {
    /// The name of the preset GPU in experiment files.
    pub name: String,
    pub gpu: Gpu,
    /// The datasheet that the numbers come from.
    pub source: String,
}

static GPUS: LazyLock<Vec<GpuPreset>> =
    LazyLock::new(|| serde_json::from_str(TEXT).unwrap_or_else(|e| panic!("gpus.json is a list of presets: {e}")));

/// All preset GPUs, in the order of `gpus.json`.
pub fn gpus() -> &'static [GpuPreset] {
    &GPUS
}

/// The preset GPU with this name; `None` if there is none.
pub fn gpu(name: &str) -> Option<&'static GpuPreset> {
    GPUS.iter().find(|g| g.name == name)
}

/// A GPU: the name of a preset, or the numbers of a datasheet.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum GpuChoice {
    /// A preset GPU, by its name.
    Preset(GpuName),
    /// The numbers of a GPU's datasheet.
    Numbers(Gpu),
}

/// The name of a preset GPU, as `foretoken hardware list` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct GpuName(#[schemars(extend("enum" = names()))] pub String);

fn names() -> Vec<&'static str> {
    gpus().iter().map(|g| g.name.as_str()).collect()
}

/// A text is a preset, a table the numbers. Their own errors are kept: they name the key that is missing.
impl<'de> Deserialize<'de> for GpuChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<GpuChoice, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(name) => Ok(GpuChoice::Preset(GpuName(name))),
            numbers => serde_json::from_value(numbers).map(GpuChoice::Numbers).map_err(D::Error::custom),
        }
    }
}

impl GpuChoice {
    /// Chooses the preset `name`. [`gpu`](Self::gpu) later checks that the preset exists.
    pub fn preset(name: &str) -> GpuChoice {
        GpuChoice::Preset(GpuName(name.to_owned()))
    }

    /// The datasheet numbers of the chosen GPU.
    pub fn gpu(&self) -> Result<Cow<'_, Gpu>, BadLatency> {
        match self {
            GpuChoice::Preset(GpuName(name)) => match gpu(name) {
                Some(preset) => Ok(Cow::Borrowed(&preset.gpu)),
                None => Err(unknown("gpu", name, names().into_iter())),
            },
            GpuChoice::Numbers(gpu) => gpu.check().map(|()| Cow::Borrowed(gpu)),
        }
    }
}

impl fmt::Display for GpuChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GpuChoice::Preset(GpuName(name)) => f.write_str(name),
            GpuChoice::Numbers(g) => {
                let (memory, speed) = (g.memory_bytes / (1u64 << 30) as f64, g.bandwidth_bytes_s * 1e-9);
                write!(f, "a GPU of {memory:.0} GiB at {speed:.0} GB/s")
            }
        }
    }
}

impl Gpu {
    fn check(&self) -> Result<(), BadLatency> {
        let numbers = [
            ("memory_bytes", Some(self.memory_bytes)),
            ("bandwidth_bytes_s", Some(self.bandwidth_bytes_s)),
            ("bf16_flops", Some(self.bf16_flops)),
            ("fp8_flops", self.fp8_flops),
            ("fp4_flops", self.fp4_flops),
            ("link_bytes_s", Some(self.link_bytes_s)),
        ];
        let wrong = |x: &f64| !(*x > 0.0 && x.is_finite());
        match numbers.into_iter().find_map(|(key, x)| x.filter(wrong).map(|x| (key, x))) {
            Some((key, x)) => Err(bad(&format!("gpu.{key}"), format!("{x} is not a finite number above 0"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_sound_and_named_once() {
        for preset in gpus() {
            assert_eq!(preset.gpu.check(), Ok(()), "{}", preset.name);
            assert!(!preset.source.is_empty(), "{} has no source", preset.name);
        }
        let mut names = names();
        names.sort_unstable();
        assert_eq!(names.windows(2).find(|pair| pair[0] == pair[1]), None);
    }

    #[test]
    fn a_number_that_is_missing_is_named() {
        let fault = |text: &str| serde_json::from_str::<GpuChoice>(text).unwrap_err().to_string();
        let without = fault(r#"{ "memory_bytes": 80e9, "bf16_flops": 989e12 }"#);
        assert_eq!(without, "missing field `bandwidth_bytes_s`");
        assert!(
            fault(r#"{ "memory": 80e9 }"#).starts_with("unknown field `memory`"),
            "{}",
            fault(r#"{ "memory": 80e9 }"#)
        );
        assert_eq!(serde_json::from_str::<GpuChoice>("\"h100\"").unwrap(), GpuChoice::preset("h100"));
    }

    #[test]
    fn a_number_that_is_not_above_0_is_named() {
        let none = Gpu { bandwidth_bytes_s: 0.0, ..gpu("h100").unwrap().gpu };
        let fault = GpuChoice::Numbers(none).gpu().unwrap_err().to_string();
        assert!(fault.starts_with("gpu.bandwidth_bytes_s: 0 "), "{fault}");
    }
}
