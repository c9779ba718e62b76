//! Published acceptance: golden mean lengths and speculation profiles. A drafter that has a golden curve takes it if
//! the experiment says nothing of acceptance. Notes say where numbers are from and what they do not hold for.

use crate::server::Server;
use crate::spec::document::{Document, Path};
use crate::spec::experiment::Experiment;
use crate::spec::problem::Result;
use crate::spec::read::trace_problem;
use foretoken_profiler::hardware::LatencySpec;
use foretoken_profiler::hardware::golden::{curve, of_drafter};
use foretoken_profiler::hardware::models::entry;
use foretoken_sim::Speculation;
use foretoken_sim::acceptance::{ProfileSource, Rates};
use foretoken_traces::truth::speculation_profile::SpeculationProfile;
use foretoken_traces::{ArrivalSpec, LengthSpec};

/// Gives an experiment without `acceptance.source` the golden curve of its drafter's preset, if there is one.
pub fn fill(document: &mut Document) -> Result<()> {
    let source = Path::of("acceptance.source");
    let kinds = "shares of all rounds, as vLLM counts them by position: marginal = { shares = [0.62, 0.36, 0.22] }; rates \
                 among the rounds that reach a place: by-depth = { rates = [0.62, 0.58, 0.61] }; tokens a round: \
                 mean-length = { lengths = [[3, 2.2]] }; accepted by drafted tokens: drafted-share = { share = 0.4, k = 3 }";
    let unnamed = |key: &str| document.get(&Path::of(&format!("acceptance.source{key}"))).is_some();
    if unnamed("[0]") || unnamed(".conditional") {
        let what = if unnamed("[0]") { "a list of numbers does not say its kind" } else { "rates have another name" };
        return Err(document.problem_at(&source, format!("acceptance.source: {what}")).help(kinds));
    }
    if document.get(&source).is_some() {
        return Ok(());
    }
    let model = |costs: &str| document.text_at(&Path::of("hardware.draft").key(costs).key("model"));
    let preset = ["roofline", "kernels"].into_iter().find_map(model);
    match preset.and_then(|preset| of_drafter(&preset)) {
        Some(curve) => {
            document.replace(&source, "the drafter's golden curve", &format!("{{ golden = \"{}\" }}", curve.name))
        }
        None => Ok(()),
    }
}

/// Replaces a speculation profile in an experiment's acceptance by what the file says. Returns notes: the file's
/// limits, and a target that is not the experiment's.
pub fn read_profile(document: &Document, experiment: &mut Experiment) -> Result<Vec<String>> {
    let Rates::Profile(ProfileSource { path }) = &experiment.acceptance.source else { return Ok(Vec::new()) };
    let read = SpeculationProfile::read(path).map_err(|e| trace_problem(document, &e))?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let mut notes = Vec::new();
    let longest = read.num_speculative_tokens;
    if experiment.engine.max_draft_len > longest {
        notes.push(format!("{name} measured up to {longest} drafts: deeper ones are never right"));
    }
    if read.verification_method.as_deref() == Some("block") {
        notes.push(format!(
            "{name} is of block verification, whose rates by position are simulated as a longest prefix"
        ));
    }
    let named = |costs: &LatencySpec| match costs {
        LatencySpec::Roofline(r) => Some(r.model.to_string()),
        _ => None,
    };
    let ours = named(&experiment.hardware.target);
    let published = ours.as_deref().map(|ours| entry(ours).map_or(ours, |e| e.model.as_str()));
    if let Some(ours) = published
        && let Some(theirs) = read.other_target(ours)
    {
        notes.push(format!(
            "{name} is of the target {theirs}, and this experiment's is {ours}: acceptance belongs to the pair"
        ));
    }
    experiment.acceptance.source = read.acceptance();
    Ok(notes)
}

/// Notes about the mean lengths of an experiment's acceptance: their source, content that they were not measured on,
/// lengths that fall, and draft lengths that have no number. `categories` are the requests' categories.
pub fn notes(experiment: &Experiment, categories: &[String], server: &Server) -> Vec<String> {
    let mut notes = Vec::new();
    let source = &experiment.acceptance.source;
    if let Rates::ByDepth { rates } = source
        && let Some((as_rates, as_shares)) = perhaps_marginal(rates)
    {
        notes.push(format!(
            "by-depth takes rates among the rounds that reach a place: {as_rates:.2} tokens a round with {} drafts. If \
             these are shares of all rounds (vLLM's counters by position), write marginal = {{ shares = … }}: \
             {as_shares:.2} tokens",
            rates.strip_suffix(&[0.0]).unwrap_or(rates).len()
        ));
    }
    let Some(of) = source.mean_lengths() else { return notes };
    if let Some(curve) = of.golden.as_deref().and_then(curve) {
        let coding = if is_code(experiment, categories) {
            ""
        } else {
            "; the workload does not say that it is code, and other content accepts more or less"
        };
        notes.push(format!(
            "acceptance is the golden curve {}: tokens a round on SPEED-Bench's coding prompts ({}, {}, {}){coding}",
            curve.name, curve.model, curve.measured, curve.date
        ));
    }
    for pair in of.lengths.windows(2).filter(|pair| pair[1].1 < pair[0].1) {
        let [(shorter, more), (longer, less)] = [pair[0], pair[1]];
        notes.push(format!("a run with K = {longer} emits {less} tokens a round, fewer than the {more} with K = {shorter}: taken as given"));
    }
    let mut asked: Vec<u32> = experiment
        .policies
        .iter()
        .map(|policy| match server.speculation(policy) {
            Speculation::Off => 0,
            Speculation::Policy(policy) => policy.limits().max_depth,
            Speculation::Oracle(oracle) => oracle.limit(),
        })
        .map(|longest| longest.min(server.with_drafter.max_draft_len))
        .collect();
    asked.sort_unstable();
    asked.dedup();
    for k in asked.into_iter().filter(|&k| k > 0) {
        if k > of.longest() {
            let end = of.longest();
            notes.push(format!(
                "no length is given for K = {k}: the one of K = {end} is held, drafts beyond it are never right"
            ));
        } else if of.at(k).is_none() {
            notes.push(format!(
                "no length is given for K = {k}: its drafts are the first ones of the next longer length"
            ));
        }
    }
    notes
}

/// Rates by depth that look like shares of all rounds, which fall much faster than rates among the rounds that reach a
/// depth: the tokens of a round if they are rates, and if they are shares. `None` if they do not look so.
pub fn perhaps_marginal(rates: &[f64]) -> Option<(f64, f64)> {
    let rates = rates.strip_suffix(&[0.0]).unwrap_or(rates);
    if rates.len() < 3 || rates.windows(2).any(|pair| pair[1] > 0.7 * pair[0]) {
        return None;
    }
    let reached = rates.iter().scan(1.0, |reached, rate| {
        *reached *= rate;
        Some(*reached)
    });
    Some((1.0 + reached.sum::<f64>(), 1.0 + rates.iter().sum::<f64>()))
}

/// Whether the workload says that its requests are code: by the names of its categories, or of its trace.
fn is_code(experiment: &Experiment, categories: &[String]) -> bool {
    let code = |name: &str| ["code", "coding"].iter().any(|word| name.to_lowercase().contains(word));
    if !categories.is_empty() {
        return categories.iter().all(|category| code(category));
    }
    match (&experiment.workload.arrivals, &experiment.workload.lengths) {
        (_, Some(LengthSpec::Trace(trace))) | (ArrivalSpec::Trace(trace), None) => {
            trace.path.file_name().is_some_and(|name| code(&name.to_string_lossy()))
        }
        (ArrivalSpec::AzureCode(_), None) => true,
        _ => false,
    }
}
