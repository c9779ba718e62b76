//! `foretoken serve`: serves HTTP clients with a simulated engine, which runs in real time.

use super::ServeArgs;
use crate::shipped;
use crate::work;
use foretoken_run::plan::{Plan, Variant};
use foretoken_run::scope;
use foretoken_run::setting::Setting;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::workload::refuse_sessions;
use foretoken_servers::serve::{Served, Settings, serve};
use std::net::SocketAddr;

/// Serves the experiment's one policy over HTTP until Ctrl-C. Then says what the server did.
pub fn run(args: &ServeArgs) -> Result<()> {
    let plan = Plan::of(shipped::read_document(&args.file, &args.sets)?, shipped::folder(&args.file))?;
    let variant = one(&plan)?;
    refuse_sessions(variant, "clients bring their own requests")?;
    let asked: Vec<_> = plan.policies.iter().filter(|policy| !policy.implied).collect();
    let [policy] = asked.as_slice() else {
        let labels: Vec<String> = asked.iter().map(|policy| policy.spec.label()).collect();
        let message = format!("a server runs one policy, and the experiment has {}", labels.join(", "));
        return Err(Problem::bad_input(message).help("choose one: --set 'policies=[{ fixed = { k = 3 } }]'"));
    };
    plan.warnings().iter().for_each(|w| eprintln!("warning: {w}"));
    let setting = Setting::new(variant, plan.seeds[0])?;
    setting.belief_notes.iter().for_each(|note| eprintln!("warning: {note}"));
    setting.notes.iter().for_each(|note| eprintln!("note: {note}"));
    if !policy.spec.definition().tries(setting.engine(true).max_draft_len).is_empty() {
        let message = format!("`{}` chooses in hindsight, and a server knows no hindsight", policy.spec.label());
        return Err(Problem::bad_input(message).help("`foretoken policies` lists policies; `fixed` has one length"));
    }
    let named = || variant.experiment.hardware.target.machine().map(|machine| machine.model.to_string());
    let model = args.served_model_name.clone().or_else(named).unwrap_or_else(|| plan.name.clone());
    let settings = Settings {
        address: SocketAddr::new(args.host, args.port),
        model: model.clone(),
        max_waiting: args.max_waiting,
        tokenizer: args.tokenizer.clone(),
        bytes_per_token: args.bytes_per_token.into(),
        step_log: args.step_log.clone(),
    };
    let (drafts, interrupt) = (setting.drafts(&policy.spec), work().interrupt.flag());
    let slo_tpot_s = setting.slo(None).tpot_s.unwrap_or(f64::INFINITY);
    let watch = work().interrupt.watch();
    let served = setting.online(&policy.spec, slo_tpot_s, interrupt, |engine| {
        serve(engine, setting.engine(drafts), &setting.workload, &settings, interrupt, |address| {
            let label = policy.spec.label();
            eprintln!("{}\nserving {model} by {label} at http://{address}/v1 (simulated)", scope::of_any_rate(&plan));
        })
    })?;
    drop(watch);
    eprintln!("{}", said(&served));
    Ok(())
}

/// The only variant of the experiment. An error if the experiment has a fleet or sweeps a setting.
fn one(plan: &Plan) -> Result<&Variant> {
    if plan.variants.iter().any(Variant::is_fleet) {
        let message = "the experiment has a fleet, and a server is one engine";
        return Err(Problem::bad_input(message).help("leave [fleet] out, and start one server for each replica"));
    }
    match plan.variants.as_slice() {
        [variant] => Ok(variant),
        several => {
            let message =
                format!("the experiment sweeps a setting over {} values, and a server has one", several.len());
            Err(Problem::bad_input(message).help("choose a value with --set"))
        }
    }
}

/// One line that says what the server did: requests, tokens, and the delay in ms from the end of a step until its
/// tokens were sent (median and 99th percentile).
fn said(served: &Served) -> String {
    let Served { answered, aborted, refused, tokens, late_s: [p50, p99] } = served;
    let late = format!("tokens left {:.2} ms late in the median, {:.2} ms at p99", 1e3 * p50, 1e3 * p99);
    format!("served {answered} requests, {tokens} tokens; {aborted} aborted, {refused} refused (429); {late}")
}
