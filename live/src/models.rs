//! Finds a model by its name, which is a preset or a Hugging Face folder. The caller chooses between the model's own
//! weights and random ones; most presets have no weights.

use foretoken_kernels::model::{LlamaShape, SHIPPED, preset, read_config};
use foretoken_kernels::weights::{Checkpoint, Dtype, RandomWeights, TensorData, Weights};
use foretoken_profiler::hardware::models::catalog;
use foretoken_run::spec::problem::{Problem, Result, nearest};
use std::path::Path;

/// A model that was found, before it is loaded onto a device.
pub struct Model {
    /// The model's name, as the user gave it.
    pub name: String,
    /// The model's shape: numbers of layers and heads, and widths.
    pub shape: LlamaShape,
    pub weights: AnyWeights,
}

pub enum AnyWeights {
    Random(RandomWeights),
    /// The weights of a folder or of the shipped target or draft.
    Checkpoint(Checkpoint),
}

impl Weights for AnyWeights {
    fn tensor(&self, name: &str) -> TensorData<'_> {
        match self {
            AnyWeights::Random(w) => w.tensor(name),
            AnyWeights::Checkpoint(w) => w.tensor(name),
        }
    }

    fn dtype(&self) -> Dtype {
        match self {
            AnyWeights::Random(w) => w.dtype(),
            AnyWeights::Checkpoint(w) => w.dtype(),
        }
    }
}

impl Model {
    /// Finds the model `name`. `key` is the setting that gave the name, for error messages. If `random` is a seed, the
    /// model gets random weights in place of its own.
    pub fn find(key: &str, name: &str, random: Option<u64>) -> Result<Model> {
        let folder = Path::new(name);
        let shape = match preset(name) {
            Some(shape) => shape,
            None if folder.is_dir() => {
                read_config(&folder.join("config.json")).map_err(|e| Problem::bad_input(format!("{key}: {e}")))?
            }
            None => return Err(unknown(key, name)),
        };
        let weights = match random {
            Some(seed) => AnyWeights::Random(RandomWeights { seed, dtype: Dtype::Bf16 }),
            None if folder.is_dir() => AnyWeights::Checkpoint(
                Checkpoint::open(folder, &shape).map_err(|e| Problem::bad_input(format!("{key}: {e}")))?,
            ),
            None => AnyWeights::Checkpoint(Checkpoint::shipped(name).ok_or_else(|| no_weights(key, name))?),
        };
        Ok(Model { name: name.to_owned(), shape, weights })
    }
}

fn unknown(key: &str, name: &str) -> Box<Problem> {
    let presets = catalog().iter().map(|e| e.name.as_str()).filter(|n| preset(n).is_some());
    let known: Vec<&str> = SHIPPED.into_iter().chain(presets).collect();
    let problem = Problem::bad_input(format!("{key}: \"{name}\" is neither a preset nor a folder with a checkpoint"));
    // Names in an experiment file are joined with the file's folder. Therefore only the last part of the name is
    // compared with the presets.
    let asked = Path::new(name).file_name().and_then(|last| last.to_str()).unwrap_or(name);
    match nearest(asked, known.iter().copied()) {
        Some(near) => problem.help(format!("did you mean \"{near}\"? Presets: {}", known.join(", "))),
        None => problem.help(format!("presets: {}", known.join(", "))),
    }
}

fn no_weights(key: &str, name: &str) -> Box<Problem> {
    Problem::bad_input(format!("{key}: the preset \"{name}\" is a shape without weights"))
        .help(match key.starts_with("live.") {
            true => "give the folder of its checkpoint, or live.weights = \"random\": its times are real then, its words are not",
            false => "give the folder of its checkpoint (config.json and *.safetensors), or one of the shipped pair, tiny-target and tiny-draft",
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(name: &str, random: Option<u64>) -> String {
        let problem = Model::find("live.target", name, random).err().expect("must be refused");
        format!("{problem} {}", problem.help_text())
    }

    #[test]
    fn presets_need_weights_from_somewhere() {
        let model = Model::find("live.target", "vicuna-68m", Some(1)).unwrap();
        assert_eq!((model.shape.vocab, model.weights.dtype()), (32_000, Dtype::Bf16));
        assert_eq!(Model::find("live.target", "tiny-target", None).unwrap().shape.vocab, 256);
        assert!(said("vicuna-68m", None).contains("live.target: the preset \"vicuna-68m\" is a shape without weights"));
        assert!(said("vicuna-68m", None).contains("live.weights = \"random\""));
        let refused = Model::find("--target", "vicuna-7b", None).err().expect("a shape alone");
        assert!(refused.help_text().contains("tiny-target") && !refused.help_text().contains("random"));
        assert!(said("vicuna-68", Some(1)).contains("did you mean \"vicuna-68m\"?"));
        assert!(said("/experiments/tiny-targett", None).contains("did you mean \"tiny-target\"?"));
        assert!(said("/nowhere", Some(1)).contains("neither a preset nor a folder"));
        assert!(said(std::env::temp_dir().to_str().unwrap(), Some(1)).contains("config.json"));
    }
}
