//! From the options of `ask` to its answer.

use super::acceptance::{self, Acceptance};
use super::answer::{Answer, Band, Made};
use super::drafter::{drafter, method_name};
use super::experiment::{Parts, experiment, fits, text};
use super::line::{self, Line, Program, Word};
use super::load::{self, Said};
use super::models;
use super::paste::line_with;
use super::server::{Server, Speculation};
use super::{sglang, vllm};
use foretoken_policies::{PolicySpec, VllmDynamic};
use foretoken_profiler::hardware::models::entry;
use foretoken_report::Staged;
use foretoken_run::setting::Setting;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::spec::text as files;
use foretoken_servers::calibrate::recommend::{
    AskedLoad, AtLoad, Compared, Engine, Goal, Now, Objective, Question, compare, doubling, gain_over,
};
use foretoken_sim::DraftMethod;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// What the user asks.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The line, a file with it, or `-` for standard input.
    pub line: String,
    pub gpu: String,
    pub load: Said,
    pub accept: Option<String>,
    /// A `config.json` or a preset in place of the line's model, and of its drafter.
    pub config: Option<String>,
    pub draft: Option<String>,
    /// The method to ask about if the line has none.
    pub method: Option<String>,
    /// The longest draft to try.
    pub longest: Option<u32>,
    /// Clients of the closed loops of the table.
    pub batch_sizes: Vec<u32>,
    /// Price of a GPU for an hour.
    pub price: Option<f64>,
    pub skip_unknown: bool,
    /// Where the experiment is written.
    pub out: Option<PathBuf>,
}

/// Tokens that the closed loops of the table may make together, over all lengths: a few seconds of work. The
/// loads that would take more are left out, but never those up to the asked one.
const TOKENS: f64 = 40e6;

/// Answers the question.
///
/// # Errors
/// The line or an option is wrong, the server cannot be simulated, or the work is interrupted.
pub fn ask(options: &Options, interrupt: &AtomicBool) -> Result<Answer> {
    let line = match options.line.as_str() {
        "-" => line::read(&files::whole(std::io::stdin()).map_err(|e| Problem::bad_input(e.to_string()))?)?,
        given => line::read(given)?,
    };
    let (program, words) = line::program(&line)?;
    let mut server = match program {
        Program::Vllm => vllm::server(&line, &words, options.skip_unknown)?,
        Program::Sglang => sglang::server(&line, &words, options.skip_unknown)?,
    };
    let gpu = models::gpu(&options.gpu)?;
    let most = server.settings.get("max_model_len").and_then(toml::Value::as_integer).map(|n| n as f64);
    let asked = load::read(&Said { most, ..options.load.clone() })?;
    if let (Some(most), Some(input), Some(output), Some(at)) =
        (most, options.load.input, options.load.output, &server.longest_at)
        && input + output > most
    {
        let what = format!("requests of {input} and {output} tokens are longer than {most}");
        return Err(line.wrong(at, what).help("the server refuses them: raise this limit, or ask about shorter ones"));
    }
    let target = models::target(&line, &server.model, options.config.as_deref(), server.quantization.as_ref())?;
    let mut assumed = std::mem::take(&mut server.assumed);
    assumed.extend(target.assumed.iter().cloned());
    let speculation = match server.speculation.clone() {
        Some(speculation) => speculation,
        None => none_yet(&line, &server, options, target.preset, &mut assumed)?,
    };
    let now = now(&server);
    let drafts = drafter(&line, &target, &speculation, server.engine, options.draft.as_deref())?;
    assumed.extend(drafts.assumed.iter().cloned());
    assumed.extend(asked.assumed.iter().cloned());
    let mut bands = asked.bands.clone();
    let k_now = server.speculation.as_ref().map(|s| s.k);
    let acceptance = match &options.accept {
        Some(given) => acceptance::read(given, k_now)?,
        None => {
            let acceptance::Assumed { says, middle, others } = acceptance::assumed(speculation.method, &drafts.name);
            let set =
                |(name, a): (&str, Acceptance)| (name.to_owned(), vec![format!("acceptance.source={}", a.source)]);
            bands.push((format!("drafts accepted as by {says}"), others.map(set).to_vec()));
            middle
        }
    };
    let longest = options.longest.unwrap_or(acceptance.positions.min(8)).max(k_now.unwrap_or(0)).max(1);
    if server.replicas > 1 {
        assumed.push(format!("one of {} replicas, with its share of the load", server.replicas));
    }
    let parts = Parts {
        line: &line,
        server: &server,
        speculation: &speculation,
        target: &target,
        drafter: &drafts,
        gpu,
        load: &asked,
        acceptance: &acceptance,
        longest,
    };
    let (table, more) = experiment(&parts)?;
    assumed.extend(more);
    fits(&parts, &table)?;
    let file = options.out.clone().unwrap_or_else(|| PathBuf::from("ask.toml"));
    let question = Question {
        text: text(&table, std::slice::from_ref(&now.spec))?,
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
        true => sizes(&question, asked.clients(server.replicas)).map_err(|e| in_the_lines_words(e, &file))?,
    };
    let compared = compare(&question, Some(&sizes), interrupt).map_err(|e| in_the_lines_words(e, &file))?;
    let bands = bands.into_iter().map(|(says, others)| band(&question, &compared, says, &others, interrupt));
    let bands = bands.collect::<Result<Vec<Band>>>()?;
    let policies = in_order(&now.spec, &compared.specs);
    if let Some(out) = &options.out {
        write(out, &text(&table, &policies)?)?;
    }
    let paste = |spec: &PolicySpec| line_with(&line, &server, &speculation, spec);
    let made = Made {
        gpus: server.tensor_parallel,
        price: options.price,
        subject: subject(&server, &target.shape.name, &drafts.name, gpu),
        used: server.used.clone(),
        no_matter: server.no_matter.clone(),
        unknown: server.unknown.clone(),
        assumed,
        bands,
        experiment: options.out.clone(),
        multiple_lines: line.yaml,
    };
    Ok(Answer::of(&question, compared, made, &paste))
}

/// An error without its place in the experiment, which the user has not written.
fn in_the_lines_words(error: Box<Problem>, file: &Path) -> Box<Problem> {
    let ours = error.place().is_some_and(|place| place.starts_with(&file.display().to_string()));
    match ours {
        true => Problem::new(error.exit, format!("this server cannot be simulated: {}", error.message()))
            .help(error.help_text().to_owned()),
        false => error,
    }
}

/// The speculation to ask about for a line that has none: by `--method`, or what presets have for the model.
fn none_yet(
    line: &Line,
    server: &Server,
    options: &Options,
    preset: Option<&str>,
    assumed: &mut Vec<String>,
) -> Result<Speculation> {
    let at = server.model.clone();
    let beside = |kind: &str, end: &str| preset.is_some_and(|p| entry(&format!("{kind}{p}{end}")).is_some());
    let method = match &options.method {
        Some(name) => vllm::method(line, &Word { text: name.clone(), span: at.span.clone() }, name)?,
        None if beside("eagle3-", "") => DraftMethod::Eagle3,
        None if beside("", "-mtp") => DraftMethod::Mtp,
        None => DraftMethod::Ngram,
    };
    if options.method.is_none() {
        assumed.push(format!("the line does not speculate, so {} is asked about", method_name(method)));
    }
    Ok(Speculation { method, drafter: None, k: 0, table: vec![], at })
}

/// What the server runs now.
fn now(server: &Server) -> Now {
    match &server.speculation {
        None => Now::fixed(0, "as the line says"),
        Some(s) if s.table.is_empty() => Now::fixed(s.k, "as the line says"),
        Some(s) => {
            let table = VllmDynamic { num_speculative_tokens_per_batch_size: s.table.clone() };
            Now::of(PolicySpec::VllmDynamic(table), "as the line says")
        }
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
        let at = AtLoad::of(&ask, &AskedLoad::Own, &mut ask.plan(&AskedLoad::Own)?, &compared.specs, interrupt)?;
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

fn subject(server: &Server, target: &str, drafter: &str, gpu: &str) -> String {
    let engine = if server.engine == Engine::Vllm { "vLLM" } else { "SGLang" };
    let gpus = if server.tensor_parallel > 1 { format!("{} x {gpu}", server.tensor_parallel) } else { gpu.to_owned() };
    format!("{target}, drafted by {drafter}, on {gpus}, {engine}")
}
