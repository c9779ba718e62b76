//! Reads a model's shape from a Hugging Face `config.json`: `model = { config = "FILE" }`.
//!
//! The shape replaces the name of the file in the experiment. So the experiment that is stored with the results does
//! not need the file.

use crate::locate::locate;
use crate::spec::document::{Document, Path, Step};
use crate::spec::problem::Result;
use crate::spec::text;
use foretoken_profiler::hardware::config::{self, ReadConfig};
use foretoken_profiler::hardware::models::{ConfigFile, ModelShape};
use std::path::Path as FilePath;

/// The file name of a model's configuration that stands for standard input.
const STDIN: &str = "-";

/// Replaces every `{ config = "FILE" }` in the `model` of a roofline or of kernels by the model's shape, also in a
/// sweep. Returns warnings, one sentence each, about entries of the files that the simulator does not model. Relative
/// paths start at `folder`.
pub fn read_configs(document: &mut Document, folder: &FilePath) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    let mut stdin = None;
    for (role, costs) in ["target", "draft"].into_iter().flat_map(|role| ["roofline", "kernels"].map(|c| (role, c))) {
        let model = Path::of("hardware").key(role).key(costs).key("model");
        let listed = (0..).map(|i| model.then(Step::Index(i))).take_while(|path| document.get(path).is_some());
        for path in [model.clone()].into_iter().chain(listed).collect::<Vec<_>>() {
            if document.text_at(&path.key("config")).is_some() {
                let read = read_one(document, &path, folder, &mut stdin)?;
                warnings.extend(read);
            }
        }
    }
    Ok(warnings)
}

/// Reads the file that the table at `path` names, and replaces the table by the model's shape. `stdin` stores the text
/// of standard input, which can be read only once.
fn read_one(
    document: &mut Document,
    path: &Path,
    folder: &FilePath,
    stdin: &mut Option<String>,
) -> Result<Vec<String>> {
    let wrong = |document: &Document, message: String| document.problem_at(path, message);
    let file: ConfigFile = match document.value_at(path).map(toml::Value::try_into) {
        Some(Ok(file)) => file,
        Some(Err(e)) => return Err(wrong(document, format!("{path}: {}", e.message()))),
        None => return Err(wrong(document, format!("{path} is no table"))),
    };
    let read = if file.config == STDIN {
        match stdin {
            Some(text) => Ok((text.clone(), None)),
            None => text::whole(std::io::stdin()).inspect(|text| *stdin = Some(text.clone())).map(|text| (text, None)),
        }
    } else {
        let full = folder.join(locate(document, &file.config)?);
        text::model_config(&full)
    };
    let (text, quantization) = read.map_err(|e| {
        let problem = wrong(document, format!("{path}: cannot read {}: {e}", file.config));
        problem.help("a relative path starts at the experiment's folder; \"-\" reads standard input")
    })?;
    let name = file.name.clone().unwrap_or_else(|| called(&file.config));
    let read = config::read_beside(&text, quantization.as_deref(), &name).map_err(|e| {
        let problem = wrong(document, format!("{path}: {}: {e}", file.config));
        problem.help("`foretoken models show FILE` prints what is read from a config.json")
    })?;
    let ReadConfig { shape, mtp, warnings } = read;
    let shape = match (file.mtp, mtp) {
        (false, _) => shape,
        (true, Some(module)) => module,
        (true, None) => {
            let problem = wrong(document, format!("{path}: {} has no MTP module", file.config));
            return Err(problem.help("its num_nextn_predict_layers is missing or 0; leave mtp out"));
        }
    };
    put(document, path, &file.config, &shape)?;
    Ok(warnings.into_iter().map(|warning| format!("{name}: {warning}")).collect())
}

fn put(document: &mut Document, path: &Path, given: &str, shape: &ModelShape) -> Result<()> {
    let value = toml::Value::try_from(shape)
        .map_err(|e| document.problem_at(path, format!("{path}: the shape of {given} cannot be written: {e}")))?;
    document.replace(path, given, &value.to_string())
}

/// The name of a model that is read from `file`: the name of the folder for a `config.json` or a
/// `hf_quant_config.json`, `model` for standard input, else the file's name without its ending.
fn called(file: &str) -> String {
    let path = FilePath::new(file);
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("model");
    let folder = path.parent().and_then(FilePath::file_name).and_then(|name| name.to_str());
    match (stem, folder) {
        ("config" | "hf_quant_config", Some(folder)) => folder.to_owned(),
        ("-", _) => "model".to_owned(),
        _ => stem.to_owned(),
    }
}
