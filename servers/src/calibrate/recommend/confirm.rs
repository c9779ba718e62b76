//! The command-line argument with which vLLM follows a recommendation, and the command that checks the recommendation
//! on the server.

use super::question::{Engine, Question};
use super::starts::Start;
use crate::calibrate::loads::SeenRun;
use foretoken_policies::PolicySpec;
use foretoken_run::plan::Plan;
use foretoken_run::vllm_table::{WITHOUT_MODEL, stated_method};
use std::path::Path;

/// The draft method in vLLM's words, such as `ngram`. The user's option `--method` comes first, then the experiment's
/// draft method. `None` if the user gave no method and the experiment has the default method, a draft model.
pub fn method(ask: &Question, plan: &Plan) -> Option<String> {
    let stated = stated_method(plan.variants[0].experiment.engine.method);
    ask.method.clone().or_else(|| stated.map(str::to_owned))
}

/// Returns two texts: the command-line argument with which vLLM reads the first of the files `starts`, and what the
/// user must add to this argument. Each text is `None` if the engine is SGLang or `starts` is empty. The second text
/// is also `None` if nothing must be added.
pub fn paste(ask: &Question, starts: &[Start]) -> (Option<String>, Option<String>) {
    let Some(start) = starts.first().filter(|_| ask.engine == Engine::Vllm) else { return (None, None) };
    let argument = format!("--speculative-config '{}'", start.text.trim());
    let without_model = ask.method.as_deref().is_some_and(|m| WITHOUT_MODEL.contains(&m));
    let lacks = match (&ask.method, &ask.model) {
        (Some(_), Some(_)) => None,
        (Some(_), None) if without_model => None,
        (Some(_), None) => Some("it lacks the draft model: add --model NAME, or \"model\" as the server has it now"),
        (None, Some(_)) => Some("it lacks the method: add --method NAME, or \"method\" as the server has it now"),
        (None, None) => Some(
            "it lacks method and draft model: add --method NAME --model NAME, or \"method\" and \"model\" as the \
             server has them now",
        ),
    };
    (Some(argument), lacks.map(str::to_owned))
}

/// A command `foretoken observe` that observes the server with the policy `spec`. The command names the experiment of
/// the latest run in `runs`. Without runs, or if that experiment's file does not exist any more, the command names the
/// experiment of the question `ask`.
pub fn command(ask: &Question, spec: &PolicySpec, runs: &[SeenRun]) -> String {
    let known = ask.known.as_ref();
    let url = known.and_then(|k| k.server.as_ref()).map_or("http://HOST:PORT", |server| server.url.as_str());
    let observed = runs.iter().max_by_key(|run| run.started_unix_us).and_then(|run| {
        let folder = Path::new(&run.recording).parent()?.parent()?;
        let file = folder.join("experiment.toml");
        file.exists().then_some(file)
    });
    let file = observed.unwrap_or_else(|| ask.file.clone());
    let policy = toml::Value::try_from(spec).map_or_else(|_| spec.label(), |value| value.to_string());
    let to = match spec {
        PolicySpec::Autoregressive(_) => "results/confirm-k0".to_owned(),
        PolicySpec::Fixed(p) => format!("results/confirm-k{}", p.k),
        _ => "results/confirm".to_owned(),
    };
    let step_log = if known.is_some() { " --step-log server.log" } else { "" };
    // `foretoken observe` refuses a TPOT bound that is a multiple of plain decoding's latency. If the experiment has
    // such a bound, the command removes all bounds.
    let no_slo = if known.is_none() { scaled_bound(ask) } else { "" };
    format!("foretoken observe {url} {} --set 'policies=[{policy}]'{no_slo}{step_log} -o {to}", quoted(&file))
}

fn scaled_bound(ask: &Question) -> &'static str {
    let scaled = ask.experiment().is_ok_and(|p| p.variants[0].experiment.slo.adaspec_scale.is_some());
    if scaled { " --set 'slo={}'" } else { "" }
}

/// A file's path, quoted for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if text.chars().all(fine) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
