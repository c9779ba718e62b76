//! Observes the runs that an experiment plans on a server, one after the other. A run, or cell, is one variant of the
//! experiment with one seed. Each result is stored when its run ends.

use crate::observe::body::body;
use crate::observe::client::{Client, Met};
use crate::observe::drive::{Load, drive};
use crate::observe::progress::Progress;
use crate::observe::prompts::{self, Prompt, prompts};
use crate::observe::recorder::Recorder;
use crate::observe::tail::Tail;
use crate::observe::waiting::Waiting;
use crate::recordings::findings::{findings, late_p99};
use crate::recordings::order::Order;
use crate::recordings::recording::{
    Asked, Ended, Ending, Event, Head, Recording, RecordingWriter, Server, read_recording,
};
use crate::recordings::run::ObservedRun;
use crate::recordings::stated;
use foretoken_run::cells::{CellId, Folder, RECORDINGS, Speed, Store, Stored, make_folder};
use foretoken_run::plan::Plan;
use foretoken_run::setting::Setting;
use foretoken_run::spec::observe::{ObserveSpec, Send};
use foretoken_run::spec::problem::{Exit, Problem, Result};
use foretoken_run::spec::shown::clip;
use foretoken_run::workload::refuse_sessions;
use foretoken_sim::metrics::Summary;
use foretoken_sim::{Arrivals, Workload};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The content of `observed.json`: facts on the server and on each run that other result files do not have.
#[derive(Debug, Serialize)]
pub struct ObserveReport {
    /// The server's URL without user name and password.
    pub url: String,
    /// The server's version; `None` if it does not state one.
    pub server: Option<String>,
    /// The name of the model that the requests ask for.
    pub model: String,
    /// The observed runs (one combination of swept values with one seed each), in the order in which they were planned.
    pub cells: Vec<ObservedCell>,
}

/// One observed run: the path of its recording, and its main results.
#[derive(Debug, Serialize)]
pub struct ObservedCell {
    /// Path of the run's recording, relative to the results folder.
    pub recording: String,
    /// Seed of the random draws of the run's workload.
    pub seed: u64,
    /// How the run ended: `done`, `interrupted`, `killed`, or a text that says how the server was lost.
    pub ended: String,
    pub sent: usize,
    /// Number of requests of the run that were answered to their end.
    pub answered: u64,
    /// Answered requests of the run per second, from the first request to the last answer.
    pub answered_req_s: Option<f64>,
    /// Output tokens of answered requests of the run per second, from the first request to the last answer.
    pub answered_tok_s: f64,
    /// Mean time to first token of the run's answered requests, seconds.
    pub ttft_mean_s: Option<f64>,
    /// Mean TPOT (time per output token, without the first token) of the run's answered requests, seconds.
    pub tpot_mean_s: Option<f64>,
    /// Mean end-to-end latency of the run's answered requests, seconds.
    pub e2e_mean_s: Option<f64>,
    /// 99th percentile of the delay between a request's due time and its sending, in seconds. `None` in a closed loop,
    /// where requests have no due time.
    pub late_p99_s: Option<f64>,
    /// Share (0 to 1) of the prompt tokens that the server found in its prefix cache, from the usage of the answers or
    /// from its counters. `None` if it reports neither.
    pub cached_prompt_share: Option<f64>,
    /// Number of engine steps of the run that the server's step log lists.
    pub steps: usize,
    /// Notes for the reader of the results: what the server did not report, and what disturbed the run.
    pub findings: Vec<String>,
}

/// How the observed server is reached: its HTTP connection, and the path of its step log.
pub struct Site {
    /// The HTTP connection to the server.
    pub client: Client,
    /// Path of the server's step log; `None` if the user named none.
    pub step_log: Option<PathBuf>,
}

/// The results of observing the planned runs of an experiment on a server.
pub struct Observed {
    /// Facts on the server and the runs, for `observed.json`.
    pub report: ObserveReport,
    /// Number of runs and the time that they took, for the last line of output.
    pub speed: Speed,
    /// Number of cells whose results are stored. These are the first cells of the plan.
    pub cells: usize,
    /// Why observing ended early; `None` if all cells are done.
    pub ended: Option<Box<Problem>>,
}

/// Observes every cell of the experiment's plan on the server `site`. A cell is not observed again if its complete
/// recording is already in the results folder.
pub fn observe(
    plan: &Plan,
    spec: &ObserveSpec,
    site: &Site,
    folder: &Folder,
    interrupt: &Arc<AtomicBool>,
) -> Result<Observed> {
    let why = "what a server answers is not known before, so prompts cannot repeat it";
    plan.variants.iter().try_for_each(|variant| refuse_sessions(variant, why))?;
    // If the server's step log cannot be read, the command fails before any request is sent.
    site.step_log.as_deref().map(Tail::open).transpose()?;
    let waiting = Waiting::new(interrupt)?;
    let Met { server, no_metrics, doubt } = waiting.on(site.client.server())??;
    doubt.iter().for_each(|doubt| eprintln!("warning: {doubt}"));
    let no_metrics = no_metrics.map(|why| format!("{why}: the run has no metrics of the server"));
    no_metrics.iter().for_each(|why| eprintln!("warning: {why}"));
    let model = model(spec, &server)?;
    let store = Store::open(folder, &plan.digest())?;
    make_folder(&folder.path().join(RECORDINGS))?;
    for variant in &plan.variants {
        // A run may take an hour, so a difference between the server's vLLM release and the experiment's is reported
        // before the run too.
        let version = variant.experiment.engine.version;
        if let Some(other) = stated::release(version, server.version.as_deref()) {
            eprintln!("warning: {other}");
            break;
        }
    }
    let report =
        ObserveReport { url: site.client.url(), server: server.version.clone(), model: model.clone(), cells: vec![] };
    let mut observed = Observed { report, speed: Speed::default(), cells: 0, ended: None };
    let runner = Runner { plan, spec, site, folder, waiting, server, no_metrics, model };
    let started = Instant::now();
    for variant in 0..plan.variants.len() {
        for seed in 0..plan.seeds.len() {
            let id = CellId { variant, seed, policy: 0 };
            let CellResult { cell, stored, ended } = match runner.kept_result(id)? {
                Some(result) => result,
                None => runner.cell(id)?,
            };
            observed.speed.cells += 1;
            observed.speed.request_steps += stored.summary.request_steps;
            observed.report.cells.push(cell);
            let ended = ended.or_else(|| runner.waiting.is_asked().then(interrupted));
            if stored.summary.finished > 0 {
                store.save(id, &stored)?;
                observed.cells += 1;
            }
            if ended.is_some() {
                observed.ended = ended;
                observed.speed.wall_s = started.elapsed().as_secs_f64();
                return Ok(observed);
            }
        }
    }
    observed.speed.wall_s = started.elapsed().as_secs_f64();
    Ok(observed)
}

/// Most characters of the names of a server's models in a message.
const NAMES: usize = 300;

/// The name of the model that requests ask for: the experiment's, or else the only model that the server has.
fn model(spec: &ObserveSpec, server: &Server) -> Result<String> {
    let served = clip(&server.models.join("`, `"), NAMES).into_owned();
    match &spec.model {
        Some(name) if server.models.contains(name) => Ok(name.clone()),
        Some(name) => Err(Problem::bad_input(format!("the server has no model `{name}`"))
            .help(format!("it serves `{served}`: set observe.model"))),
        None if server.models.len() == 1 => Ok(server.models[0].clone()),
        None => Err(Problem::bad_input(format!("the server has {} models", server.models.len()))
            .help(format!("set observe.model to one of `{served}`"))),
    }
}

/// The path of the recording of one cell, relative to the results folder.
pub fn recording_name(variant: usize, seed: usize) -> String {
    format!("{RECORDINGS}/v{variant}-s{seed}.obs")
}

struct Runner<'a> {
    plan: &'a Plan,
    spec: &'a ObserveSpec,
    site: &'a Site,
    folder: &'a Folder,
    waiting: Waiting,
    server: Server,
    /// Why the server's metrics are not read during the run. `None` if they are read, or if the server has no metrics.
    no_metrics: Option<String>,
    model: String,
}

/// The results of one cell, computed from its recording.
struct CellResult {
    cell: ObservedCell,
    stored: Stored,
    /// The problem if the run is incomplete or no request was answered; `None` otherwise.
    ended: Option<Box<Problem>>,
}

impl Runner<'_> {
    /// The results of the cell `id` if an earlier call observed it completely, else `None`. If the cell's recording is
    /// incomplete, has no answered request or cannot be read, the file is renamed, so that the cell can run again.
    fn kept_result(&self, id: CellId) -> Result<Option<CellResult>> {
        let path = self.folder.path().join(recording_name(id.variant, id.seed));
        if !path.exists() {
            return Ok(None);
        }
        let result = match read_recording(&path) {
            Ok(recording) => Some(self.result_of(id, &recording)?),
            Err(e) => {
                eprintln!("warning: {e}: it is kept beside the others, and the run is asked for again");
                None
            }
        };
        if let Some(CellResult { ended: None, .. }) = result {
            return Ok(result);
        }
        let aside = (1..).map(|n| path.with_extension(format!("part{n}.obs"))).find(|p| !p.exists());
        let aside = aside.expect("some number is free");
        std::fs::rename(&path, &aside)
            .map_err(|e| Problem::failed(format!("cannot rename {} to {}: {e}", path.display(), aside.display())))?;
        Ok(None)
    }

    /// Runs one cell: warms up, sends the requests and records them in the folder, and computes the results.
    fn cell(&self, id: CellId) -> Result<CellResult> {
        let (variant, number) = (&self.plan.variants[id.variant], self.plan.seeds[id.seed]);
        let mut setting = Setting::new(variant, number)?;
        let before = id.variant * self.plan.seeds.len() + id.seed;
        let cell = prompts::Cell { seed: number, variant: id.variant, before };
        let asked = prompts(self.spec, &mut setting.workload, cell)?;
        setting.notes.iter().for_each(|note| eprintln!("note: {note}"));
        self.refuse_lengths(&setting.workload);
        let which = format!("[{} of {}] {}", before + 1, self.plan.cells(), self.label());
        let name = recording_name(id.variant, id.seed);
        let path = self.folder.path().join(&name);
        let warm = prompts::warm_up(self.spec, &setting.workload, &asked, cell)?;
        self.warm_up(&setting, &warm, &path, &which)?;
        let load = self.load(&setting, &asked, format!("foretoken-v{}-s{number}", id.variant), usize::MAX)?;
        self.drive(&path, self.head(&setting, number), load, Progress::new(which))?;
        self.folder.enter(&[&name])?;
        let recording = read_recording(&path).map_err(|e| Problem::failed(e.to_string()).help(e.hint.clone()))?;
        self.result_of(id, &recording)
    }

    fn result_of(&self, id: CellId, recording: &Recording) -> Result<CellResult> {
        let setting = Setting::new(&self.plan.variants[id.variant], self.plan.seeds[id.seed])?;
        let run = ObservedRun::of(recording);
        let mut warnings = findings(recording, &run);
        let engine = setting.engine(false);
        warnings.extend(stated::release(engine.version, recording.head.server.version.as_deref()));
        warnings.extend(Order::of(&run).and_then(|order| order.warning(engine.async_scheduling)));
        warnings.extend(self.no_metrics.clone());
        let block_size = run.metrics.block_size.unwrap_or(engine.block_size);
        let own = &run.workload.slo_tpot_s;
        let (of, slo) = (&run.run, setting.slo(None));
        let mut summary = Summary::new(&of.records, &of.totals, slo, own, of.usable_blocks, block_size);
        let ending = recording.ending.as_ref();
        if setting.arrivals() == Arrivals::Open && ending == Some(&Ending::Done) {
            summary = summary.with_overload(&of.records);
        }
        warnings.extend(summary.overload.as_ref().map(ToString::to_string));
        let cell = ObservedCell {
            recording: recording_name(id.variant, id.seed),
            seed: recording.head.seed,
            ended: match ending {
                Some(Ending::Done) => "done".into(),
                Some(Ending::Interrupted) => "interrupted".into(),
                Some(Ending::Lost(why)) => format!("the server was lost: {why}"),
                None => "killed".into(),
            },
            sent: run.answers.len(),
            answered: summary.finished,
            answered_req_s: (summary.duration_s > 0.0).then(|| summary.finished as f64 / summary.duration_s),
            answered_tok_s: summary.token_goodput_tok_s,
            ttft_mean_s: summary.ttft.map(|q| q.mean),
            tpot_mean_s: summary.tpot.map(|q| q.mean),
            e2e_mean_s: summary.e2e.map(|q| q.mean),
            late_p99_s: late_p99(recording, &run.answers).map(|t| t.as_s()),
            cached_prompt_share: run.cached_prompt_share().map(|(share, _)| share),
            steps: run.steps.len(),
            findings: warnings.clone(),
        };
        let ended = self.problem(ending, &summary, &run);
        Ok(CellResult { cell, stored: Stored::of(run.run, summary, warnings), ended })
    }

    fn label(&self) -> String {
        self.plan.policies[0].spec.label()
    }

    /// Warns about requests of the workload that are longer than the server's `max_model_len`.
    fn refuse_lengths(&self, workload: &Workload) {
        let Some(most) = self.server.max_model_len else { return };
        let lengths = workload.prompt_len.iter().zip(&workload.output_len);
        let long = lengths.filter(|(p, o)| u64::from(**p) + u64::from(**o) > u64::from(most)).count();
        if long > 0 {
            let all = workload.len();
            eprintln!(
                "warning: {long} of {all} requests are longer than the server's max_model_len of {most}: it will refuse them"
            );
        }
    }

    /// Sends `observe.warm_up_requests` requests one after the other, as long as the first ones of the run and with
    /// prompts of their own, and deletes their recording. Fails if the user interrupted, or if the server answered no
    /// request and refused or failed one.
    fn warm_up(&self, setting: &Setting, asked: &[Prompt], path: &Path, which: &str) -> Result<()> {
        let n = self.spec.warm_up_requests as usize;
        if n == 0 {
            return Ok(());
        }
        let mut load = self.load(setting, asked, "foretoken-warm-up".into(), n)?;
        (load.arrivals, load.metrics) = (Arrivals::Closed { clients: 1 }, false);
        let path = &path.with_extension("warm-up.partial");
        let ending = self.drive(path, self.head(setting, 0), load, Progress::new(format!("{which}, warming up")))?;
        let recording = read_recording(path).map_err(|e| Problem::failed(e.to_string()))?;
        let _ = std::fs::remove_file(path);
        let refused = recording.events.iter().find_map(|e| match e {
            Event::Ended { how: how @ (Ended::Refused { .. } | Ended::Failed { .. }), .. } => Some(how),
            _ => None,
        });
        let any = recording.events.iter().any(|e| matches!(e, Event::Ended { how: Ended::Finished { .. }, .. }));
        for event in &recording.events {
            if let Event::Note { text, .. } = event {
                eprintln!("warning: while warming up: {text}");
            }
        }
        match (ending, refused) {
            (Ending::Interrupted, _) => Err(interrupted()),
            (_, Some(how)) if !any => Err(self.refusal(how)),
            _ => Ok(()),
        }
    }

    /// The error for a warm-up or a run in which no request was answered. `how` says how one of its requests ended.
    fn refusal(&self, how: &Ended) -> Box<Problem> {
        match how {
            Ended::Refused { status, said, .. } => {
                Problem::failed(format!("the server refuses what it is asked ({status}): {said}")).help(match status {
                    401 | 403 => "put the server's key into the environment variable FORETOKEN_API_KEY, or name another with --api-key-env",
                    404 => "it must have /v1/completions, and the model: set observe.model",
                    429 | 503 => "it has too much to do; ask later, or set observe.retries",
                    _ if self.spec.send == Send::TokenIds => {
                        "not every server takes token ids as prompts: observe.send = \"text\"; what else is sent can be changed with observe.extra and observe.ignore_eos"
                    }
                    _ => "what is sent can be changed with observe.extra and observe.ignore_eos",
                })
            }
            Ended::Failed { said, .. } => Problem::failed(format!("the server does not answer: {said}"))
                .help("look into its log; a first request may take long: observe.timeout_s"),
            Ended::Finished { .. } => Problem::failed("nothing was refused"),
        }
    }

    fn load(&self, setting: &Setting, asked: &[Prompt], name: String, most: usize) -> Result<Load> {
        let lengths = asked.iter().zip(&setting.workload.output_len).take(most);
        let caching = setting.engine(false).prefix_caching;
        let body_of = |(prompt, &n): (&Prompt, &u32)| body(self.spec, &self.server, &self.model, prompt, n, caching);
        let bodies = lengths.map(body_of).collect::<Result<_>>()?;
        let due = setting.workload.arrival.iter().take(most).map(|at| Duration::from_nanos(at.0 / 1000)).collect();
        let tokens = setting.workload.output_len.iter().take(most).copied().collect();
        Ok(Load { bodies, tokens, due, arrivals: setting.arrivals(), name, metrics: self.server.metrics })
    }

    fn head(&self, setting: &Setting, seed: u64) -> Head {
        let w = &setting.workload;
        let clients = match setting.arrivals() {
            Arrivals::Open | Arrivals::Sessions => None,
            Arrivals::Closed { clients } => Some(clients),
        };
        let asked = (0..w.len()).map(|i| Asked {
            due: if clients.is_some() { Default::default() } else { w.arrival[i] },
            prompt_len: w.prompt_len[i],
            output_len: w.output_len[i],
            category: w.category[i],
        });
        Head {
            foretoken: env!("CARGO_PKG_VERSION").into(),
            policy: self.label(),
            seed,
            url: self.site.client.url(),
            model: self.model.clone(),
            server: self.server.clone(),
            started_unix_us: 0,
            clients,
            token_ids: self.spec.send == Send::TokenIds,
            temperature: self.spec.temperature,
            categories: w.categories.clone(),
            asked: asked.collect(),
        }
    }

    fn drive(&self, path: &Path, mut head: Head, load: Load, progress: Progress) -> Result<Ending> {
        let log = self.site.step_log.as_deref().map(Tail::open).transpose()?;
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        head.started_unix_us = unix.as_micros() as u64;
        let writer = RecordingWriter::create(path, &head).map_err(|e| {
            Problem::failed(format!("cannot write the recording {}: {e}", path.display()))
                .help("free some space or choose another folder with -o")
        })?;
        let interrupt = self.waiting.interrupt();
        let (recorder, writing) = Recorder::start(writer, log, progress, interrupt.clone());
        let run = drive(self.site.client.to(&self.server), recorder, load, self.spec.clone(), interrupt.clone());
        let ending = self.waiting.on_local(run);
        self.waiting.on_thread(writing)??;
        Ok(ending)
    }

    fn problem(&self, ending: Option<&Ending>, summary: &Summary, run: &ObservedRun) -> Option<Box<Problem>> {
        match ending {
            Some(Ending::Done) if summary.finished == 0 => {
                let first = run.answers.iter().find_map(|a| a.ended.as_ref());
                Some(first.map_or_else(|| Problem::failed("nothing was sent"), |(_, how)| self.refusal(how)))
            }
            Some(Ending::Done) => None,
            Some(Ending::Interrupted) | None => Some(interrupted()),
            Some(Ending::Lost(why)) => Some(
                Problem::failed(format!("the server does not answer any more: {why}"))
                    .help("what was observed is kept; start the server and go on with --resume"),
            ),
        }
    }
}

fn interrupted() -> Box<Problem> {
    Problem::new(Exit::Interrupted, "interrupted: what was observed is kept".to_owned())
        .help("`foretoken calibrate` reads the recordings of a part, too; --resume goes on")
}
