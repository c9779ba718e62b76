//! Finds the models and the GPU that names stand for: presets, a `config.json`, or a preset with other bits.

use super::line::{Line, Word};
use super::option;
use foretoken_profiler::hardware::config;
use foretoken_profiler::hardware::gpus::gpus;
use foretoken_profiler::hardware::models::{Entry, ModelShape, catalog, entry};
use foretoken_run::spec::problem::{Problem, Result, nearest};
use foretoken_run::spec::text;
use std::path::{Path, PathBuf};

/// A model as a setting of an experiment.
#[derive(Clone, Debug)]
pub struct Model {
    /// The value of `roofline.model`.
    pub value: toml::Value,
    /// The preset that it is or that it comes from; `None` for a file.
    pub preset: Option<&'static str>,
    pub shape: ModelShape,
    /// Does the model have a module for multi-token prediction? Its value of `roofline.model`.
    pub mtp: Option<toml::Value>,
    /// What was taken for granted.
    pub assumed: Vec<String>,
}

/// How weights are quantised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quant {
    Fp8,
    Int4,
    Int8,
    Fp4,
}

impl Quant {
    fn of_suffix(suffix: &str) -> Option<Quant> {
        match suffix {
            "-fp8" | "-fp8-dynamic" | "-fp8-kv" => Some(Quant::Fp8),
            "-awq" | "-gptq" | "-int4" | "-gptq-int4" | "-w4a16" | "-quantized.w4a16" | "-awq-int4" => {
                Some(Quant::Int4)
            }
            "-int8" | "-gptq-int8" | "-w8a16" | "-w8a8" | "-quantized.w8a8" => Some(Quant::Int8),
            "-nvfp4" | "-fp4" | "-mxfp4" => Some(Quant::Fp4),
            _ => None,
        }
    }

    /// What `--quantization` makes of weights; the inner `None` if the model's own file says it.
    fn of_flag(name: &str) -> Option<Option<Quant>> {
        match name.to_lowercase().replace('-', "_").as_str() {
            "fp8" | "modelopt" | "modelopt_fp8" | "fbgemm_fp8" | "ptpc_fp8" | "w8a8_fp8" | "fp8_per_tensor"
            | "fp8_per_block" | "deepspeedfp" => Some(Some(Quant::Fp8)),
            "awq" | "gptq" | "awq_marlin" | "gptq_marlin" | "bitsandbytes" | "moe_wna16" | "auto_round" => {
                Some(Some(Quant::Int4))
            }
            "modelopt_fp4" | "nvfp4" | "petit_nvfp4" => Some(Some(Quant::Fp4)),
            "w8a8_int8" | "experts_int8" => Some(Some(Quant::Int8)),
            "compressed_tensors" | "mxfp4" | "gpt_oss_mxfp4" | "quark" | "inc" | "torchao" | "auto" | "none" => {
                Some(None)
            }
            _ => None,
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            Quant::Fp8 => "FP8",
            Quant::Int4 => "4-bit",
            Quant::Int8 => "8-bit",
            Quant::Fp4 => "FP4",
        }
    }

    /// The shape with weights of these bits; scales count. Head and embedding stay as they are.
    fn on(self, mut shape: ModelShape) -> ModelShape {
        let (weights, activations) = match self {
            Quant::Fp8 => (8.0, 8.0),
            Quant::Int4 => (4.25, 16.0),
            Quant::Int8 => (8.0, 16.0),
            Quant::Fp4 => (4.5, 4.0),
        };
        let bits = &mut shape.bits;
        (bits.weights, bits.experts, bits.dense) = (weights, weights, None);
        (bits.activations, bits.expert_activations, bits.dense_activations) = (activations, activations, None);
        shape
    }
}

/// Endings of published names that do not change a model's shape.
const SAME_SHAPE: [&str; 26] = [
    "-instruct", "-it", "-chat", "-hf", "-base", "-bf16", "-2507", "-2508", "-0324", "-0528", "-0905", "-thinking",
    "-v0.1", "-v0.2", "-v0.3", "-v1.3", "-v1.5", "-terminus", "-reasoning", "-latest", "-dynamic", "-text", "-gguf",
    "-2407", "-2501", "-2411",
];

/// Names of models that have the shape of a preset.
const ALIKE: [(&str, &str); 10] = [
    ("deepseek-v3.1", "deepseek-v3"),
    ("qwen3-coder-30b-a3b", "qwen3-30b-a3b"),
    ("qwen3-coder-next", "qwen3-coder-next-80b-a3b"),
    ("llama-3-8b", "llama-3.1-8b"),
    ("llama-3-70b", "llama-3.1-70b"),
    ("llama-3.3-70b", "llama-3.3-70b"),
    ("mistral-small-3.1-24b", "mistral-small-24b"),
    ("mistral-small-3.2-24b", "mistral-small-24b"),
    ("qwen2.5-coder-7b", "qwen2.5-7b"),
    ("glm-4.7-fp8", "glm-4.7"),
];

/// A published name without its owner and the endings that do not matter, and the quantisation that an ending names.
fn core(name: &str) -> (String, Option<Quant>) {
    let mut name = name.trim_end_matches('/').rsplit('/').next().unwrap_or(name).to_lowercase();
    name = name.strip_prefix("meta-").map_or(name.clone(), str::to_owned);
    let mut quant = None;
    loop {
        let cut = (1..name.len()).rev().filter(|&at| name.as_bytes()[at] == b'-').find_map(|at| {
            let suffix = &name[at..];
            let of = Quant::of_suffix(suffix);
            (of.is_some() || SAME_SHAPE.contains(&suffix)).then_some((at, of))
        });
        match cut {
            Some((at, of)) => {
                quant = quant.or(of);
                name.truncate(at);
            }
            None => return (name, quant),
        }
    }
}

/// The preset of a published name, and the quantisation that the name has and the preset has not.
fn preset_of(name: &str) -> Option<(&'static Entry, Option<Quant>)> {
    let lower = name.to_lowercase();
    let exact = catalog().iter().find(|e| e.name == lower || e.model.to_lowercase() == lower);
    if let Some(entry) = exact {
        return Some((entry, None));
    }
    let (given, quant) = core(name);
    let given = ALIKE.iter().find(|(alike, _)| *alike == given).map_or(given.as_str(), |(_, preset)| preset);
    let same = |e: &&Entry| core(&e.name).0 == given || core(&e.model).0 == given;
    let of_preset = |e: &Entry| core(&e.model).1.or(core(&e.name).1);
    let fits = catalog().iter().filter(same).min_by_key(|e| (of_preset(e) != quant, of_preset(e).is_some()))?;
    // A preset that is quantised as published keeps its own bits.
    let own = fits.shape.bits.weights < 16.0 || fits.shape.bits.experts < 16.0;
    Some((fits, quant.filter(|_| !own && of_preset(fits) != quant)))
}

/// A file that a name stands for: a folder with a `config.json`, or the file itself.
fn file_of(name: &str) -> Option<PathBuf> {
    let path = Path::new(name);
    let file = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
    (file.is_file() && file.extension().is_some_and(|e| e == "json")).then_some(file)
}

fn of_file(path: &Path) -> Result<Model> {
    let shown = path.display();
    let (text, quantization) =
        text::model_config(path).map_err(|e| Problem::bad_input(format!("cannot read {shown}: {e}")))?;
    let name = path.parent().and_then(Path::file_name).map_or("model".into(), |n| n.to_string_lossy().into_owned());
    let read = config::read_beside(&text, quantization.as_deref(), &name).map_err(|e| {
        Problem::bad_input(format!("{shown}: {e}")).help("`foretoken models show FILE` prints what is read from a file")
    })?;
    let full = std::path::absolute(path).unwrap_or(path.to_owned()).display().to_string();
    let value = |mtp: bool| {
        let mut table: toml::Table = [("config".to_owned(), toml::Value::from(full.clone()))].into_iter().collect();
        table.extend(mtp.then(|| ("mtp".to_owned(), true.into())));
        toml::Value::Table(table)
    };
    Ok(Model {
        value: value(false),
        preset: None,
        shape: read.shape,
        mtp: read.mtp.map(|_| value(true)),
        assumed: vec![],
    })
}

/// The model that a preset's name, a published name or a path stands for; `None` if it is none of these.
pub fn find(name: &str) -> Result<Option<Model>> {
    if let Some(path) = file_of(name) {
        return of_file(&path).map(Some);
    }
    let Some((entry, quant)) = preset_of(name) else { return Ok(None) };
    let mut model = Model {
        value: entry.name.as_str().into(),
        preset: Some(&entry.name),
        shape: entry.shape.clone(),
        mtp: module(&entry.name),
        assumed: vec![],
    };
    let same = |id: &str| id.eq_ignore_ascii_case(name);
    if !same(&entry.name) && !same(&entry.model) && quant.is_none() {
        model.assumed.push(format!("{name} has the shape of {}", entry.name));
    }
    if let Some(quant) = quant {
        model.quantise(quant, format!("{name} is {} with {} weights", entry.name, quant.in_words()));
    }
    Ok(Some(model))
}

fn module(preset: &str) -> Option<toml::Value> {
    entry(&format!("{preset}-mtp")).map(|e| e.name.as_str().into())
}

impl Model {
    fn quantise(&mut self, quant: Quant, why: String) {
        self.shape = quant.on(self.shape.clone());
        self.value = toml::Value::try_from(&self.shape).expect("a shape is plain data");
        self.assumed.push(why);
    }

    /// Takes the quantisation that the word `flag` names. `said`: where the line says so. Weights that are quantised
    /// already stay as they are.
    pub fn quantise_as(&mut self, line: &Line, flag: &Word, said: &str) -> Result<()> {
        let Some(quant) = Quant::of_flag(&flag.text) else {
            let known =
                ["fp8", "awq", "gptq", "modelopt", "modelopt_fp4", "compressed-tensors", "bitsandbytes", "mxfp4"];
            let near = nearest(&flag.text, known).map_or(String::new(), |near| format!("did you mean {near}? "));
            let help = format!("{near}known are {}", known.join(", "));
            return Err(line.wrong(&flag.span, format!("no quantisation is called {}", flag.text)).help(help));
        };
        let plain = self.shape.bits.weights >= 16.0 && self.shape.bits.experts >= 16.0;
        if let Some(quant) = quant.filter(|_| plain) {
            self.quantise(quant, format!("{said} {} makes {} weights", flag.text, quant.in_words()));
        }
        Ok(())
    }
}

/// The target model of a line. `config`: a `config.json` or a preset in place of the line's name.
pub fn target(line: &Line, word: &Word, config: Option<&str>, quantization: Option<&Word>) -> Result<Model> {
    let name = config.unwrap_or(&word.text);
    let Some(mut model) = find(name)? else {
        let near = nearest(&core(name).0, catalog().iter().map(|e| e.name.as_str()));
        let near = near.map_or(String::new(), |near| format!("the nearest preset is {near}; "));
        let what = match word.text.contains('$') {
            true => "the shell's variable has no value here".to_owned(),
            false => format!("no preset has the shape of {name}"),
        };
        return Err(line.wrong(&word.span, what).help(format!(
            "{near}--config FILE takes its config.json, --config PRESET one of `foretoken models list`"
        )));
    };
    if let Some(flag) = quantization {
        model.quantise_as(line, flag, "--quantization")?;
    }
    Ok(model)
}

/// The preset GPU that a name stands for.
pub fn gpu(given: &str) -> Result<&'static str> {
    let mut name = given.to_lowercase().replace([' ', '_'], "-");
    for prefix in ["nvidia-", "amd-", "geforce-", "instinct-", "tesla-"] {
        name = name.strip_prefix(prefix).map_or(name.clone(), str::to_owned);
    }
    let known = |name: &str| gpus().iter().find(|g| g.name == name).map(|g| g.name.as_str());
    let cut = ["-sxm", "-sxm4", "-sxm5", "-80gb", "-141gb", "-80gb-hbm3", "-sxm5-80gb", "-192gb", "-180gb"];
    let plain = cut.iter().find_map(|end| name.strip_suffix(end));
    let other = match name.as_str() {
        "a100" | "a100-80gb" | "a100-sxm4-80gb" | "a100-sxm" => Some("a100-80g"),
        "a100-40gb" => Some("a100-40g"),
        "4090" | "3090" | "5090" => known(&format!("rtx-{name}")),
        "rtx4090" | "rtx3090" | "rtx5090" => known(&format!("rtx-{}", &name[3..])),
        _ => None,
    };
    known(&name).or(other).or(plain.and_then(known)).ok_or_else(|| {
        let names: Vec<&str> = gpus().iter().map(|g| g.name.as_str()).collect();
        let near = nearest(&name, names.iter().copied()).map_or(String::new(), |n| format!("did you mean {n}? "));
        option::wrong("--gpu", given, format!("--gpu {given}: no preset has this name"))
            .help(format!("{near}There are {}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preset(name: &str) -> (&'static str, f64) {
        let model = find(name).unwrap().unwrap_or_else(|| panic!("{name}"));
        (model.preset.unwrap(), model.shape.bits.weights)
    }

    #[test]
    fn published_names_are_presets() {
        for (name, found) in [
            ("openai/gpt-oss-120b", ("gpt-oss-120b", 16.0)),
            ("meta-llama/Llama-3.1-8B-Instruct", ("llama-3.1-8b", 16.0)),
            ("meta-llama/Meta-Llama-3.1-70B-Instruct", ("llama-3.1-70b", 16.0)),
            ("mistralai/Mistral-7B-Instruct-v0.3", ("mistral-7b", 16.0)),
            ("Qwen/Qwen3-32B-FP8", ("qwen3-32b-fp8", 8.0)),
            ("Qwen/Qwen3-32B-AWQ", ("qwen3-32b", 4.25)),
            ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", ("llama-3.3-70b", 8.0)),
            ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", ("qwen3-235b-a22b", 8.0)),
            ("deepseek-ai/DeepSeek-R1-0528", ("deepseek-r1", 8.0)),
            ("qwen3-8b", ("qwen3-8b", 16.0)),
        ] {
            assert_eq!(preset(name), found, "{name}");
        }
        assert!(find("acme/secret-9b").unwrap().is_none());
    }

    #[test]
    fn gpus_have_their_sellers_names() {
        for (name, found) in [
            ("H200", "h200"),
            ("NVIDIA H100 SXM5", "h100"),
            ("A100", "a100-80g"),
            ("rtx4090", "rtx-4090"),
            ("h100-80gb", "h100"),
        ] {
            assert_eq!(gpu(name).unwrap(), found);
        }
        let wrong = gpu("h2000").unwrap_err();
        assert!(wrong.help_text().starts_with("did you mean h200?") && wrong.pointed_at() == Some("h2000"));
    }
}
