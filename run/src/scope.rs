//! The scope line of a report: the models, hardware, kind of costs, load and bounds for which the results hold. Pages
//! show this line under the title; the terminal shows it above the table.

use crate::cells::in_words;
use crate::plan::{Plan, Variant};
use crate::spec::experiment::{Experiment, SloSpec};
use foretoken_profiler::hardware::floors::floors;
use foretoken_profiler::hardware::{LatencySpec, RooflineSpec};
use foretoken_report::Swept;
use foretoken_sim::Drafting;
use foretoken_traces::{ArrivalSpec, LengthSpec, TraceSpec, Transform, WorkloadSpec};

/// The scope line of a plan: for which models, hardware, load and bounds its results hold. In the text of the line, a
/// swept setting has its first value. At the end of the line, each swept setting follows with its first and its last
/// value.
pub fn of(plan: &Plan) -> String {
    let e = &plan.variants[0].experiment;
    let swept = plan.variants[0].choices.iter().any(|choice| choice.path.to_string().ends_with("rate-scale"));
    let mut parts = machine_and_load(e, swept, true);
    parts.extend(bounds(&e.slo));
    line(plan, parts)
}

/// The scope line of a capacity search: for which models, hardware and load the result of the search holds. The line
/// has no request rate, because the search looks for the rate, and no latency bounds.
pub fn of_any_rate(plan: &Plan) -> String {
    line(plan, machine_and_load(&plan.variants[0].experiment, true, false))
}

/// Joins `parts` to a report's scope line. Adds the swept settings and the number of seeds.
fn line(plan: &Plan, mut parts: Vec<String>) -> String {
    let variant = &plan.variants[0];
    for choice in &variant.choices {
        let of = |v: &Variant| v.choices.iter().find(|c| c.path == choice.path).map(in_words);
        let values: Vec<Swept> = plan.variants.iter().filter_map(of).collect();
        let (Some(first), Some(last)) = (values.first(), values.last()) else { continue };
        let unit = if first.unit.is_empty() { String::new() } else { format!("\u{a0}{}", first.unit) };
        parts.push(format!("{} swept from {} to {}{unit}", first.name, first.shown(), last.shown()));
    }
    parts.push(match plan.seeds.len() {
        1 => "1 seed".to_owned(),
        n => format!("{n} seeds"),
    });
    parts.join(" · ")
}

/// The parts of a report's scope line about machine, fleet and load of one experiment. `scale_is_swept`: leave out the
/// factor of `rate-scale`, because the end of the line has it. `with_rate`: include the rate of generated arrivals?
fn machine_and_load(e: &Experiment, scale_is_swept: bool, with_rate: bool) -> Vec<String> {
    let mut parts = vec![machine(e)];
    if let Some(fleet) = &e.fleet {
        let replicas: u32 = fleet.replicas.kinds().iter().map(|kind| kind.count).sum();
        let scaled = fleet.scaling.as_ref().filter(|_| fleet.is_scaled());
        if let Some(scaling) = scaled {
            let (least, most, rule) = (scaling.min_replicas, scaling.max_replicas, scaling.rule.name());
            parts.push(format!("{least} to {most} replicas by {rule} behind {}", fleet.router.name()));
        } else if replicas > 1 {
            parts.push(format!("{replicas} replicas behind {}", fleet.router.name()));
        }
    }
    parts.push(load(&e.workload, scale_is_swept, with_rate));
    parts
}

/// The part of the scope line about models and hardware, such as `vicuna-7b, drafted by vicuna-68m, on a100-80g
/// (roofline)`.
fn machine(e: &Experiment) -> String {
    let hardware = &e.hardware;
    if let Some(profile) = &hardware.profile {
        let name = profile.file_name().unwrap_or(profile.as_os_str()).to_string_lossy();
        return format!("costs of the profile {name}");
    }
    let block = if hardware.drafting == Drafting::Parallel { " in one pass" } else { "" };
    match (&hardware.target, &hardware.draft) {
        (costs, draft) if let (Some(target), Some(draft)) = (costs.machine(), draft.machine()) => {
            let (target_gpus, draft_gpus) = (gpus(&target), gpus(&draft));
            let draft_on =
                if target_gpus == draft_gpus { String::new() } else { format!(", the draft on {draft_gpus}") };
            let how = how(costs);
            format!("{}, drafted by {}{block}, on {target_gpus}{draft_on} ({how})", target.model, draft.model)
        }
        // Costs of 0 stand for an observed server, whose experiment states no costs.
        (LatencySpec::Linear(target), _) if [target.alpha_s, target.gamma_s, target.delta_s] == [0.0; 3] => {
            "costs not known".to_owned()
        }
        (costs, _) if let Some(target) = costs.machine() => {
            format!("{} on {} ({}), drafts{block} at given costs", target.model, gpus(&target), how(costs))
        }
        (target, _) => match block {
            "" => format!("{} costs as given", target.name()),
            block => format!("{} costs as given, drafts{block}", target.name()),
        },
    }
}

/// How costs that name a GPU and a model are computed.
fn how(costs: &LatencySpec) -> String {
    match costs {
        LatencySpec::Roofline(spec) => roofline(spec),
        LatencySpec::Kernels(spec) => spec.provenance().map_or("kernels".to_owned(), |times| times.source),
        _ => costs.name().to_owned(),
    }
}

/// How a roofline computes times: whether its kernels have floors, and on which GPU these were measured.
fn roofline(spec: &RooflineSpec) -> String {
    let Ok(gpu) = spec.gpu.gpu() else { return "roofline".to_owned() };
    match floors(&spec.gpu, &gpu).gpu.as_str() {
        _ if !spec.floors => "roofline".to_owned(),
        measured if measured == spec.gpu.to_string() => "roofline with floors".to_owned(),
        measured => format!("roofline with the floors of {measured}"),
    }
}

fn gpus(spec: &RooflineSpec) -> String {
    match spec.tensor_parallel {
        1 => spec.gpu.to_string(),
        n => format!("{n} x {}", spec.gpu),
    }
}

/// The part of the scope line about the load: arrivals, rate, number of requests, lengths.
fn load(w: &WorkloadSpec, scale_is_swept: bool, with_rate: bool) -> String {
    let mut text = arrivals(&w.arrivals);
    // What arrives at the experiment's rate: requests, or sessions of several requests.
    let unit = if w.sessions.is_some() { "sessions" } else { "requests" };
    let rate = match &w.arrivals {
        ArrivalSpec::Poisson(poisson) => Some(poisson.rate),
        ArrivalSpec::Gamma(gamma) => Some(gamma.rate),
        _ => None,
    };
    if let Some(rate) = rate.filter(|_| with_rate) {
        text += &format!(", {rate} {unit}/s");
    }
    for transform in &w.transform {
        if let Transform::RateScale(by) = transform
            && !scale_is_swept
        {
            text += &format!(" at {by} times its rate");
        }
    }
    match (w.requests, w.duration_s) {
        (Some(n), _) => text += &format!(", {n} {unit}"),
        (None, Some(s)) => text += &format!(", {s} s"),
        (None, None) => {}
    }
    if let Some(sessions) = &w.sessions {
        text += &format!(", {} turns a session, {} s between them", sessions.turns, sessions.gap_s);
    }
    if let Some(lengths) = &w.lengths {
        text += &format!(", {}", self::lengths(lengths));
    }
    text
}

fn arrivals(spec: &ArrivalSpec) -> String {
    match spec {
        ArrivalSpec::Trace(trace) => format!("trace {}", file(trace)),
        ArrivalSpec::ClosedLoop(1) => "one client in a closed loop".to_owned(),
        ArrivalSpec::ClosedLoop(n) => format!("{n} clients in closed loops"),
        ArrivalSpec::Batch(_) => "an offline batch".to_owned(),
        ArrivalSpec::Poisson(_) => "Poisson arrivals".to_owned(),
        ArrivalSpec::Gamma(_) => "gamma arrivals".to_owned(),
        ArrivalSpec::ServegenDay(_) => "a day like ServeGen's".to_owned(),
        ArrivalSpec::AzureConv(_) => "arrivals like Azure conversation".to_owned(),
        ArrivalSpec::AzureCode(_) => "arrivals like Azure code".to_owned(),
        ArrivalSpec::MooncakeTicks(_) => "arrivals like Mooncake conversation".to_owned(),
        ArrivalSpec::MooncakePoisson(_) => "arrivals like Mooncake synthetic".to_owned(),
        ArrivalSpec::AdaspecMooncake(_) => "arrivals like AdaSpec's Mooncake".to_owned(),
        ArrivalSpec::Burstgpt(_) => "arrivals of BurstGPT's generator".to_owned(),
        ArrivalSpec::T1(_) => "arrivals T1 of AdaSpec".to_owned(),
        ArrivalSpec::T2(_) => "arrivals T2 of AdaSpec".to_owned(),
        ArrivalSpec::T3(_) => "arrivals T3 of AdaSpec".to_owned(),
    }
}

fn lengths(spec: &LengthSpec) -> String {
    match spec {
        LengthSpec::Fixed(f) => format!("{} + {} tokens", f.prompt, f.output),
        LengthSpec::LogNormal(_) => "log-normal lengths".to_owned(),
        LengthSpec::Table(_) => "lengths of a quantile table".to_owned(),
        LengthSpec::Categories(_) => "lengths by category".to_owned(),
        LengthSpec::SpecBench(_) => "Spec-Bench lengths".to_owned(),
        LengthSpec::Trace(trace) => format!("lengths of {}", file(trace)),
    }
}

/// The name of a trace's file without its folder, because the folder differs between machines.
fn file(trace: &TraceSpec) -> String {
    trace.path.file_name().unwrap_or(trace.path.as_os_str()).to_string_lossy().into_owned()
}

fn bounds(slo: &SloSpec) -> Option<String> {
    let mut bounds: Vec<String> = Vec::new();
    let seconds = [("TTFT", slo.ttft_s), ("TPOT", slo.tpot_s), ("E2E", slo.e2e_s)];
    // Seconds as milliseconds, rounded to whole nanoseconds, so that 0.0191 s is 19.1 ms and not 19.099999999999998 ms.
    let ms = |s: f64| (1e9 * s).round() / 1e6;
    bounds.extend(seconds.into_iter().filter_map(|(name, s)| Some(format!("{name} at most {} ms", ms(s?)))));
    bounds.extend(slo.adaspec_scale.map(|scale| format!("TPOT at most {scale} times plain decoding's P90")));
    (!bounds.is_empty()).then(|| format!("SLO: {}", bounds.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::document::Document;
    use std::path::Path;

    fn scope_of(text: &str) -> String {
        of(&Plan::of(Document::parse("x.toml", text).unwrap(), Path::new(".")).unwrap())
    }

    #[test]
    fn the_line_names_models_hardware_load_bounds_and_seeds() {
        let text = r#"name = "x"
seeds = [1, 2]
policies = [{ fixed = {} }]
slo = { tpot_s = 0.0191 }

[hardware]
target = { roofline = { gpu = "h100", model = "vicuna-7b", tensor_parallel = 2 } }
draft = { roofline = { gpu = "h100", model = "vicuna-68m" } }

[workload]
arrivals = { poisson = { rate = { sweep = [2.0, 4.0] } } }
lengths = { fixed = { prompt = 128, output = 64 } }
requests = 50

[acceptance.source]
constant = { rate = 0.7 }
"#;
        assert_eq!(
            scope_of(text),
            "vicuna-7b, drafted by vicuna-68m, on 2 x h100, the draft on h100 (roofline with floors) · Poisson arrivals, \
             2 requests/s, 50 requests, 128 + 64 tokens · SLO: TPOT at most 19.1 ms · request rate swept from 2.0 to \
             4.0\u{a0}requests/s · 2 seeds"
        );
        let plain = text.replace("model = \"vicuna-7b\"", "model = \"vicuna-7b\", floors = false");
        assert!(scope_of(&plain).contains("(roofline) · "), "{}", scope_of(&plain));
        let relative = text.replace("gpu = \"h100\", model = \"vicuna-7b\"", "gpu = \"gh200\", model = \"vicuna-7b\"");
        assert!(scope_of(&relative).contains("(roofline with the floors of h100)"), "{}", scope_of(&relative));
        let linear = text
            .replace(
                "roofline = { gpu = \"h100\", model = \"vicuna-7b\", tensor_parallel = 2 }",
                "linear = { alpha_s = 0.0, gamma_s = 1e-5, delta_s = 1e-3 }",
            )
            .replace(
                "roofline = { gpu = \"h100\", model = \"vicuna-68m\" }",
                "linear = { alpha_s = 0.0, gamma_s = 1e-6, delta_s = 1e-4 }",
            );
        assert!(scope_of(&linear).starts_with("linear costs as given · Poisson"), "{}", scope_of(&linear));
        let unknown = linear.replace("gamma_s = 1e-5, delta_s = 1e-3", "gamma_s = 0.0, delta_s = 0.0");
        assert!(scope_of(&unknown).starts_with("costs not known · Poisson"), "{}", scope_of(&unknown));
        let sessions = text.replace("requests = 50", "requests = 50\nsessions = { turns = 4.0, gap_s = 5.0 }");
        let load = "2 sessions/s, 50 sessions, 4 turns a session, 5 s between them, 128 + 64 tokens";
        assert!(scope_of(&sessions).contains(load), "{}", scope_of(&sessions));
    }
}
