//! From the options of `ask` to its answer.

use super::answer::{Answer, Band, Made};
use super::drafter::method_name;
use super::experiment::text;
use super::line::Line;
use super::load;
use super::paste::line_with;
use super::prepare::{Options, Prepared, prepare};
use super::server::Server;
use foretoken_policies::PolicySpec;
use foretoken_report::Staged;
use foretoken_run::setting::Setting;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_servers::calibrate::recommend::{
    AskedLoad, AtLoad, Compared, Engine, Goal, Objective, Question, compare, doubling, gain_over,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Tokens that the closed loops of the table may make together, over all lengths: a few seconds of work. The
/// loads that would take more are left out, but never those up to the asked one.
const TOKENS: f64 = 40e6;

/// The comment above an experiment that `ask` writes.
const HEAD: &str = "Written by `foretoken ask`. The first policy is what the server runs now.";

pub fn ask(options: &Options, interrupt: &AtomicBool) -> Result<Answer> {
    let Prepared {
        line,
        server,
        speculation,
        target,
        drafter,
        gpu,
        table,
        now,
        longest,
        clients,
        gpus,
        assumed,
        bands,
    } = prepare(options)?;
    let file = options.out.clone().unwrap_or_else(|| PathBuf::from("ask.toml"));
    let question = Question {
        text: text(HEAD, &table, std::slice::from_ref(&now.spec))?,
        file: file.clone(),
        sets: vec![],
        engine: server.engine,
        objective: Objective { of: Goal::MeanE2e, p99_tpot_s: None },
        longest,
        now: now.clone(),
        method: Some(method_name(speculation.method).to_owned()),
        model: speculation.drafter.as_ref().map(|w| w.text.clone()),
        known: None,
    };
    let sizes = match options.batch_sizes.is_empty() {
        false => options.batch_sizes.clone(),
        true => sizes(&question, clients).map_err(|e| in_the_lines_words(e, &file, &line, &server))?,
    };
    let compared = compare(&question, Some(&sizes), interrupt);
    let compared = compared.map_err(|e| in_the_lines_words(e, &file, &line, &server))?;
    let bands = bands.into_iter().map(|(says, others)| band(&question, &compared, says, &others, interrupt));
    let bands = bands.collect::<Result<Vec<Band>>>()?;
    let policies = in_order(&now.spec, &compared.specs);
    if let Some(out) = &options.out {
        write(out, &text(HEAD, &table, &policies)?)?;
    }
    let paste = |spec: &PolicySpec| line_with(&line, &server, &speculation, spec);
    let made = Made {
        gpus,
        price: options.price,
        subject: subject(&server, &target, &drafter, (gpus, gpu)),
        used: server.used.clone(),
        no_matter: server.no_matter.clone(),
        unknown: server.unknown.clone(),
        assumed,
        bands,
        experiment: options.out.clone(),
        multiple_lines: line.only_changes,
        read: options.says.is_some().then(|| line.text.clone()),
    };
    Ok(Answer::of(&question, compared, made, &paste))
}

/// An error without its place in the experiment, which the user has not written. If a property of the model is the
/// reason, the model is shown in the line.
fn in_the_lines_words(error: Box<Problem>, file: &Path, line: &Line, server: &Server) -> Box<Problem> {
    if let Some(("", why)) = error.message().split_once("engine.state_blocks: ") {
        return line.wrong(&server.model.span, format!("this model cannot be simulated: {why}"));
    }
    let ours = error.place().is_some_and(|place| place.starts_with(&file.display().to_string()));
    match ours {
        true => Problem::new(error.exit, format!("this server cannot be simulated: {}", error.message()))
            .help(error.help_text().to_owned()),
        false => error,
    }
}

/// The numbers of clients of the table: 1, 2, 4, … as far as the work allows, and those up to the asked load.
fn sizes(question: &Question, clients: u32) -> Result<Vec<u32>> {
    let plan = question.plan(&AskedLoad::Own)?;
    let workload = Setting::new(&plan.variants[0], plan.seeds[0])?.workload;
    let output = workload.output_len.iter().map(|&n| f64::from(n)).sum::<f64>() / workload.len().max(1) as f64;
    let runs = f64::from(question.longest + 2);
    let mut made = 0.0;
    let most = plan.variants[0].experiment.engine.max_num_seqs;
    let fits = |&n: &u32| {
        made += f64::from((12 * n).max(200)) * output * runs;
        made <= TOKENS || n <= clients
    };
    let mut sizes: Vec<u32> = doubling(most).take_while(fits).collect();
    if sizes.is_empty() {
        sizes.push(1);
    }
    Ok(sizes)
}

/// How the answer would be with other values in the place of an assumption.
fn band(
    question: &Question,
    compared: &Compared,
    says: String,
    others: &[load::Other],
    interrupt: &AtomicBool,
) -> Result<Band> {
    let now = compared.specs.iter().position(|s| *s == question.now.spec).expect("what runs now is a candidate");
    let mut found = Vec::new();
    for (name, sets) in others {
        let ask = Question { sets: sets.clone(), ..question.clone() };
        let at = AtLoad::of(&ask, &AskedLoad::Own, &ask.plan(&AskedLoad::Own)?, &compared.specs, interrupt)?;
        let gain = compared.found.best.and_then(|best| gain_over(&at, now, best));
        found.push((name.clone(), at.best_name.clone(), gain));
    }
    Ok(Band { says, others: found })
}

/// What runs now first, then the other candidates.
fn in_order(now: &PolicySpec, all: &[PolicySpec]) -> Vec<PolicySpec> {
    [now].into_iter().chain(all.iter().filter(|spec| *spec != now)).cloned().collect()
}

fn write(path: &Path, text: &str) -> Result<()> {
    Staged::write_all_to(path, text.as_bytes())
        .map_err(|e| Problem::failed(format!("cannot write the experiment: {e}")))
}

fn subject(server: &Server, target: &str, drafter: &str, (gpus, gpu): (u32, &str)) -> String {
    let engine = if server.engine == Engine::Vllm { "vLLM" } else { "SGLang" };
    let gpus = if gpus > 1 { format!("{gpus} x {gpu}") } else { gpu.to_owned() };
    format!("{target}, drafted by {drafter}, on {gpus}, {engine}")
}
