//! The drafter of a line as settings of an experiment: what a pass of it costs, and how the engine treats it.

use super::line::{Line, Word};
use super::models::{Model, find};
use super::server::Speculation;
use foretoken_profiler::hardware::models::{Attention, Bits, FeedForward, LayerGroup, ModelShape, entry};
use foretoken_run::spec::problem::Result;
use foretoken_servers::calibrate::recommend::Engine;
use foretoken_sim::DraftMethod;

#[derive(Clone, Debug)]
pub enum Cost {
    /// A model, which runs on the target's GPUs: the value of `roofline.model`.
    Model(toml::Value),
    /// A lookup in the host's memory, seconds a pass.
    Lookup(f64),
}

/// A drafter as settings.
#[derive(Clone, Debug)]
pub struct Drafter {
    pub cost: Cost,
    /// Its name in the answer.
    pub name: String,
    pub assumed: Vec<String>,
}

/// Time of a lookup (assumed): vLLM's n-gram proposer takes some tens of microseconds for a request.
const LOOKUP_S: f64 = 30e-6;

/// The method's name in vLLM's words.
pub fn method_name(method: DraftMethod) -> &'static str {
    foretoken_run::vllm_table::stated_method(method).unwrap_or("draft_model")
}

/// The drafter that the line asks for. `given`: a preset or a file in place of the line's name. `quantization`: the
/// drafter's own.
pub fn drafter(
    line: &Line,
    target: &Model,
    asked: &Speculation,
    engine: Engine,
    given: Option<&str>,
    quantization: Option<&Word>,
) -> Result<Drafter> {
    let method = asked.method;
    let named = given.or(asked.drafter.as_ref().map(|w| w.text.as_str()));
    let at = asked.drafter.as_ref().map_or(&asked.at.span, |w| &w.span);
    let wrong = |what: String| line.wrong(at, what);
    let of = |mut model: Model, name: String| -> Result<Drafter> {
        if let Some(flag) = quantization {
            model.quantise_as(line, flag, "the drafter's quantisation")?;
        }
        Ok(Drafter { cost: Cost::Model(model.value), name, assumed: model.assumed })
    };
    let called = |model: &Model| model.preset.map_or_else(|| model.shape.name.clone(), str::to_owned);
    match method {
        DraftMethod::Ngram | DraftMethod::Suffix => {
            if let Some(w) = asked.drafter.as_ref().filter(|w| !w.text.contains("ngram")) {
                return Err(
                    line.wrong(&w.span, format!("{} has no draft model: it looks the text up", method_name(method)))
                );
            }
            let assumed = vec![format!("a lookup takes {:.0} us", 1e6 * LOOKUP_S)];
            return Ok(Drafter { cost: Cost::Lookup(LOOKUP_S), name: "a lookup".into(), assumed });
        }
        DraftMethod::Mtp => {
            let Some(module) = &target.mtp else {
                return Err(line
                    .wrong(&asked.at.span, format!("{} has no module for multi-token prediction", target.shape.name))
                    .help(
                        "ask with --method eagle3, draft_model or ngram, or give the model's own file with --config",
                    ));
            };
            let name = module.as_str().map_or_else(|| "its MTP module".into(), str::to_owned);
            return Ok(Drafter { cost: Cost::Model(module.clone()), name, assumed: vec![] });
        }
        _ => {}
    }
    let kind = match method {
        DraftMethod::Eagle | DraftMethod::Eagle3 => "eagle3-",
        DraftMethod::Dflash => "dflash-",
        DraftMethod::Dspark | DraftMethod::DsparkFillIn => "dspark-",
        _ => "",
    };
    let found = named.map(find).transpose()?.flatten();
    if let Some(model) = found {
        let preset = model.preset.unwrap_or(kind);
        let of_a_kind = ["eagle3-", "dflash-", "dspark-"].into_iter().find(|k| preset.starts_with(k)).unwrap_or("");
        let is_head = kind == "eagle3-" && model.preset.is_none();
        if of_a_kind != kind && !is_head || preset.ends_with("-mtp") {
            return Err(wrong(format!("{} cannot draft with {preset}", method_name(method)))
                .help("the method and the draft model belong together: name another of the two"));
        }
        if !kind.is_empty() && model.shape.hidden != target.shape.hidden {
            let (own, wide) = (model.shape.hidden, target.shape.hidden);
            return Err(wrong(format!(
                "{} is for a model of width {own}, and {} has {wide}",
                called(&model),
                target.shape.name
            ))
            .help("it reads the target's hidden states: name a drafter that was trained for this model"));
        }
        if kind.is_empty() && engine == Engine::Vllm && model.shape.vocab != target.shape.vocab {
            let (own, of_target) = (model.shape.vocab, target.shape.vocab);
            return Err(wrong(format!(
                "{} has {own} words, and {} has {of_target}",
                called(&model),
                target.shape.name
            ))
            .help("vLLM refuses a draft model with another vocabulary"));
        }
        let name = called(&model);
        return of(model, name);
    }
    // A name that no preset has: the preset of this kind for the target stands for it.
    let beside = target.preset.and_then(|target| entry(&format!("{kind}{target}"))).filter(|_| !kind.is_empty());
    let stands = |name: &str| match named {
        Some(named) => vec![format!("{named} is like {name}")],
        None => vec![format!("the drafter is {name}")],
    };
    if let Some(entry) = beside {
        let assumed = stands(&entry.name);
        let value = entry.name.as_str().into();
        let model = Model { value, preset: Some(&entry.name), shape: entry.shape.clone(), mtp: None, assumed };
        return of(model, entry.name.clone());
    }
    let like = match method {
        DraftMethod::Eagle => head(&target.shape, false),
        DraftMethod::Eagle3 => head(&target.shape, true),
        _ => None,
    };
    if let Some(head) = like {
        let name = "a head of one layer of the target's widths";
        let called = head.name.clone();
        let value = toml::Value::try_from(&head).expect("a shape is plain data");
        return of(Model { value, preset: None, shape: head, mtp: None, assumed: stands(name) }, called);
    }
    let what =
        named.map_or("the line names no draft model".to_owned(), |name| format!("no preset has the shape of {name}"));
    Err(wrong(what).help("--draft FILE takes its config.json, --draft PRESET one of `foretoken models list`"))
}

/// An EAGLE head of one layer: attention as the target's, and a dense block as wide as the target's. Published heads of
/// mixtures of experts have blocks of six times the hidden size (gpt-oss-120b's: 17,280 for 2,880).
fn head(target: &ModelShape, third: bool) -> Option<ModelShape> {
    let attention = target.layers.iter().find_map(|g| match g.attention {
        Attention::Grouped { heads, kv_heads, head_dim, .. } => Some((heads, kv_heads, head_dim)),
        _ => None,
    });
    let (heads, kv_heads, head_dim) = attention?;
    let intermediate = target.layers.iter().find_map(|g| match g.feed_forward {
        FeedForward::Dense { intermediate, .. } => Some(intermediate),
        _ => None,
    });
    let hidden = target.hidden;
    let attention = Attention::Grouped {
        heads,
        kv_heads,
        head_dim,
        value_dim: None,
        input: third.then_some(2 * hidden),
        window: None,
        gated: false,
        values_from_keys: false,
        selection: None,
    };
    let feed_forward = FeedForward::Dense { intermediate: intermediate.unwrap_or(6 * hidden), gated: true };
    Some(ModelShape {
        name: format!("{}-{}-like", if third { "eagle3" } else { "eagle" }, target.name),
        hidden,
        vocab: if third { target.vocab.min(32_000) } else { target.vocab },
        tied: false,
        layers: vec![LayerGroup { count: 1, attention, feed_forward }],
        joining_parameters: f64::from(if third { 3 } else { 2 }) * f64::from(hidden).powi(2),
        bits: Bits::default(),
    })
}
