//! From the options of `ask` to an experiment: the line, what it starts, what it drafts with, the load, the acceptance.

use super::acceptance::{self, Acceptance};
use super::drafter::{drafter, method_name};
use super::experiment::{Parts, experiment, fits};
use super::line::{self, Line, Program, Word};
use super::load::{self, Said};
use super::models;
use super::served::{self, Served};
use super::server::{Server, Speculation};
use super::{sglang, vllm};
use foretoken_policies::{PolicySpec, VllmDynamic};
use foretoken_profiler::hardware::models::entry;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::spec::text as files;
use foretoken_servers::calibrate::recommend::Now;
use foretoken_servers::recordings::says::Says;
use foretoken_sim::DraftMethod;
use std::path::PathBuf;

/// What the user asks.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The line, a file with it, `-` for standard input, or a server's address with flags behind it.
    pub line: String,
    /// What the server at the address says of itself.
    pub says: Option<Says>,
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

/// A question before anything is simulated.
pub struct Prepared {
    pub line: Line,
    pub server: Server,
    pub speculation: Speculation,
    /// Names of the target, of the drafter and of the GPU.
    pub target: String,
    pub drafter: String,
    pub gpu: &'static str,
    /// The experiment without its policies.
    pub table: toml::Table,
    pub now: Now,
    /// The longest draft that is tried.
    pub longest: u32,
    /// Clients of the asked closed loop for each replica; 0 for another load.
    pub clients: u32,
    /// GPUs that the target model runs on.
    pub gpus: u32,
    pub assumed: Vec<String>,
    /// Assumptions with other values in their place.
    pub bands: Vec<(String, Vec<load::Other>)>,
}

/// Reads the line and everything else that the options name.
pub fn prepare(options: &Options) -> Result<Prepared> {
    let Some(says) = &options.says else {
        let line = match options.line.as_str() {
            "-" => line::read(&files::whole(std::io::stdin()).map_err(|e| Problem::bad_input(e.to_string()))?)?,
            given => line::read(given)?,
        };
        return of_line(options, line, vec![], None);
    };
    let Served { line, k, accept, clients, means, mut assumed } = served::read(&options.line, says)?;
    let mut options = options.clone();
    let given = &mut options.load;
    // What the user says goes before what the server counted.
    let lengths = given.input.is_some() || given.output.is_some() || given.lengths.is_some() || given.log.is_some();
    if let Some(((input, output), words)) = means.filter(|_| !lengths) {
        (given.input, given.output) = (Some(input), Some(output));
        assumed.push(words);
    }
    let load = given.clients.is_some() || given.rate.is_some() || given.log.is_some();
    if let Some((n, words)) = clients.filter(|_| !load) {
        given.clients = Some(n);
        assumed.push(words);
    }
    if let Some((rates, words)) = accept.filter(|_| options.accept.is_none()) {
        options.accept = Some(rates);
        assumed.push(words);
    }
    of_line(&options, line, assumed, k)
}

/// The question about this line. `said`: what is assumed already; `k`: the draft length that a running server
/// shows, if its flags do not say it.
fn of_line(options: &Options, mut line: Line, said: Vec<String>, k: Option<u32>) -> Result<Prepared> {
    let (program, words) = line::program(&line)?;
    let words = line::with_config(&mut line, words)?;
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
    let mut assumed = said;
    assumed.append(&mut server.assumed);
    assumed.extend(target.assumed.iter().cloned());
    let speculation = match server.speculation.clone() {
        Some(speculation) => speculation,
        None => none_yet(&line, &server, options, target.preset, k, &mut assumed)?,
    };
    if k.is_some() {
        server.speculation.get_or_insert(speculation.clone());
    }
    let quantization = server.draft_quantization.as_ref();
    let drafts = drafter(&line, &target, &speculation, server.engine, options.draft.as_deref(), quantization)?;
    assumed.extend(drafts.assumed.iter().cloned());
    assumed.extend(asked.assumed.iter().cloned());
    let mut bands = asked.bands.clone();
    let k_now = server.speculation.as_ref().map(|s| s.k);
    let acceptance = match &options.accept {
        // A mean length belongs to one draft length, which a policy that adapts does not have.
        Some(given) => acceptance::read(given, k_now.filter(|_| server.adaptive.is_none()))?,
        None => {
            let acceptance::Assumed { says, middle, others } = acceptance::assumed(speculation.method, &drafts.name);
            let set =
                |(name, a): (&str, Acceptance)| (name.to_owned(), vec![format!("acceptance.source={}", a.source)]);
            bands.push((format!("drafts accepted as by {says}"), others.map(set).to_vec()));
            middle
        }
    };
    let published = target.preset.and_then(entry).map_or(target.shape.name.as_str(), |e| e.model.as_str());
    assumed.extend(acceptance::doubts(&acceptance, published));
    let longest = options.longest.unwrap_or(acceptance.positions.min(8)).max(k_now.unwrap_or(0)).max(1);
    let ranks = server.ranks(&target.shape);
    let apart = server.replicas / ranks;
    if apart > 1 {
        assumed.push(format!("one of {apart} replicas, with its share of the load"));
    }
    let parts = Parts {
        line: &line,
        server: &server,
        speculation: &speculation,
        target: &target,
        drafter: &drafts,
        gpu,
        load: &asked,
        ranks,
        acceptance: &acceptance,
        longest,
    };
    let (table, more) = experiment(&parts)?;
    assumed.extend(more);
    fits(&parts, &table)?;
    Ok(Prepared {
        now: now(&server),
        clients: asked.clients(server.replicas),
        gpus: server.tensor_parallel * ranks,
        target: target.shape.name.clone(),
        drafter: drafts.name,
        line,
        server,
        speculation,
        gpu,
        table,
        longest,
        assumed,
        bands,
    })
}

/// The speculation to ask about for a line that has none: by `--method`, or what presets have for the model. `k`: the
/// length that a running server drafts.
fn none_yet(
    line: &Line,
    server: &Server,
    options: &Options,
    preset: Option<&str>,
    k: Option<u32>,
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
        let name = method_name(method);
        assumed.push(match k {
            None => format!("the line does not speculate, so {name} is asked about"),
            Some(k) => format!("the server drafts {k} tokens and does not say how: {name} (--method)"),
        });
    }
    Ok(Speculation { method, drafter: None, k: k.unwrap_or(0), table: vec![], at })
}

fn now(server: &Server) -> Now {
    if let Some(policy) = &server.adaptive {
        // Another setting of the same policy may be advised.
        return Now { name: "its adaptive lengths".into(), ..Now::of(policy.clone(), "as the line says") };
    }
    match &server.speculation {
        None => Now::fixed(0, "as the line says"),
        Some(s) if s.table.is_empty() => Now::fixed(s.k, "as the line says"),
        Some(s) => {
            let table = VllmDynamic { num_speculative_tokens_per_batch_size: s.table.clone() };
            Now::of(PolicySpec::VllmDynamic(table), "as the line says")
        }
    }
}
