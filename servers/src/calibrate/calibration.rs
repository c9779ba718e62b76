//! A calibration: costs, acceptance, settings and requests of a server, from observed runs and from files of vLLM and
//! SGLang.

use crate::calibrate::acceptance::Acceptance;
use crate::calibrate::costs::{StepRow, rows};
use crate::calibrate::fit::{CostFit, Costs, tells_apart};
use crate::calibrate::foreign::Foreign;
use crate::calibrate::frontend::frontend_s;
use crate::calibrate::held_out::{Error, HeldOut};
use crate::calibrate::one_server;
use crate::calibrate::scheduling::Schedules;
use crate::calibrate::source::Source;
use crate::calibrate::terms;
use crate::calibrate::verdict::{TRUSTED, Verdict, share, within};
use crate::recordings::bounds::max_model_len;
use foretoken_profiler::{CALIBRATED_VERSION, Calibrated, CalibratedModel, Range};
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_sim::config::DeliverAt;
use foretoken_sim::{ContextReads, EngineConfig, HostLaw};
use std::collections::BTreeSet;

/// The costs and the acceptance fitted to the observed runs of one server, with the runs themselves.
#[derive(Debug)]
pub struct Calibration {
    /// The observed runs of the server to which costs and acceptance are fitted.
    pub sources: Vec<Source>,
    /// The files of vLLM and SGLang (benchmark results or metrics of the server) that the calibration also reads.
    pub foreign: Vec<Foreign>,
    /// The timed steps of all observed runs and of all vLLM and SGLang files. The costs are fitted to these steps.
    pub rows: Vec<StepRow>,
    /// The fitted costs of the server's steps: target passes, draft passes and host; `None` if no step has a time.
    pub cost: Option<CostFit>,
    /// Errors of predicted step times, on steps that were left out of a fit and on the fitted steps.
    pub held_out: HeldOut,
    /// How often draft tokens were right in the observed runs, by their position among a request's draft tokens of one
    /// step; `None` if nothing was drafted.
    pub acceptance: Option<Acceptance>,
    /// The settings of the simulated engine, from the runs' experiments and the server's metrics.
    pub engine: EngineConfig,
    /// The seconds that a request and its answer spend between client and scheduler, both ways together. `None` without
    /// costs, or if too few requests came to an idle server.
    pub frontend: Option<f64>,
    /// True if the fit has separate costs for draft passes and target passes. Otherwise the target's passes get the
    /// whole cost of a step, and only the observed draft lengths can be predicted.
    pub separated: bool,
    /// Whether the fitted costs may be trusted; `None` without costs.
    pub verdict: Option<Verdict>,
    /// How far the log of each run agrees with a synchronous and with an asynchronous schedule. Empty if no log allows
    /// it.
    pub schedules: Vec<Schedules>,
    /// Warnings for the user, one sentence each, such as what the observed data does not show. The most serious warning
    /// comes first.
    pub warnings: Vec<String>,
}

/// If more than this share of a busy server's time lies outside of the logged step times, the server is taken to
/// schedule asynchronously. The logged step times are then not pass times.
const ASYNC: f64 = 0.5;
/// If the costs are fitted to fewer steps than this, the verdict on them is "not judged", and there is a warning.
const FEW: usize = 100;
/// Half a 95 % interval in standard deviations.
const WIDE: f64 = 1.96;

impl Calibration {
    /// Fits costs and acceptance to the observed runs `sources` and to the vLLM and SGLang files `foreign`.
    pub fn of(sources: Vec<Source>, foreign: Vec<Foreign>) -> Result<Calibration> {
        one_server::check(&sources)?;
        let mut engine = engine(&sources);
        let mut rows = rows(&sources, &engine);
        rows.extend(foreign.iter().flat_map(|f| f.rows.iter().copied()));
        let acceptance = Acceptance::of(&sources, &foreign);
        if rows.is_empty() && acceptance.is_none() {
            return Err(Problem::bad_input("these runs say neither what steps take nor what drafts get right").help(
                "observe with --step-log FILE for the times of steps; the server must log them with times in microseconds \
                 (VLLM_LOGGING_CONFIG_PATH=vllm-logging.json; foretoken new vllm-logging.json --copy vllm-logging)",
            ));
        }
        let free = (!rows.is_empty()).then(|| CostFit::to(&rows));
        let separated = free.as_ref().is_some_and(|fit| tells_apart(&rows, fit.noise));
        let costs = if separated { Costs::Apart } else { Costs::Together };
        let terms = if rows.is_empty() { Vec::new() } else { terms::chosen(&rows, costs) };
        let fit_to = |rows: &[StepRow]| CostFit::of(rows, costs, &terms);
        let cost = free.map(|_| fit_to(&rows));
        let held_out = cost.as_ref().map(|fit| HeldOut::of(fit, &rows, &fit_to)).unwrap_or_default();
        let frontend = cost.as_ref().and_then(|fit| frontend_s(&sources, fit.host_s + fit.host_request_s));
        engine.frontend_s = frontend.unwrap_or(engine.frontend_s);
        let mut c = Calibration {
            sources,
            foreign,
            rows,
            cost,
            held_out,
            acceptance,
            engine,
            frontend,
            separated,
            verdict: None,
            schedules: vec![],
            warnings: vec![],
        };
        if c.cost.is_some() {
            let rates = c.acceptance.as_ref().map_or_else(|| vec![0.0], Acceptance::hazards);
            let with_costs = |rows: Option<&[StepRow]>| match rows.map(fit_to) {
                Some(fit) => c.profile_of(&fit),
                None => c.profile().expect("there are costs"),
            };
            let mut engine = c.engine.clone();
            engine.max_draft_len = c.lengths().into_iter().max().unwrap_or(0);
            c.held_out.numbers = c.held_out.of_runs(&c.sources, &c.rows, &engine, &rates, &with_costs)?;
            c.verdict = Some(c.judged());
        }
        if let Some(profile) = c.profile() {
            c.schedules = c.sources.iter().filter_map(|s| Schedules::of(s, &c.engine, &profile)).collect();
        }
        c.warnings = c.warn();
        Ok(c)
    }

    /// The name of the run or file with index `source`, for the page's tables and for the names of loads. The indices
    /// count the observed runs first, then the files of vLLM and SGLang.
    pub fn name_of(&self, source: usize) -> String {
        let foreign = || self.foreign.get(source - self.sources.len()).and_then(|f| f.path.file_name());
        match self.sources.get(source) {
            Some(observed) => observed.name(),
            None => foreign().map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        }
    }

    /// The draft lengths of the steps to which the costs are fitted.
    pub fn lengths(&self) -> BTreeSet<u32> {
        self.rows.iter().map(|r| r.k).collect()
    }

    fn warn(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.cost.is_some() && !self.separated {
            let lengths: Vec<String> = self.lengths().iter().map(u32::to_string).collect();
            all.push(match lengths.as_slice() {
                [zero] if zero == "0" => "nothing was drafted in any run with times of steps: what drafts cost is not known; observe K = 3 next, and until then nothing that drafts can be predicted".to_owned(),
                _ => format!(
                    "drafts and verification cannot be told apart: all runs drafted {}; the target's passes have all of the cost, and no other length can be predicted; observe K = {} next",
                    lengths.join(", "),
                    if self.lengths().contains(&0) { 3 } else { 0 }
                ),
            });
        }
        if self.cost.is_none() {
            all.push("nothing tells what steps take: only acceptance and requests are calibrated".to_owned());
        } else if self.rows.len() < FEW {
            all.push(format!("the costs are fitted to {} steps only", self.rows.len()));
        }
        let batches: BTreeSet<u32> = self.rows.iter().map(|r| r.decodes).collect();
        if self.cost.is_some() && batches.len() < 3 {
            all.push("batches of one or two sizes only: what a request more costs is a guess; observe closed loops of 1, 4 and 8 clients".to_owned());
        }
        if self.cost.is_some() && self.frontend.is_none() {
            all.push("no request came to an idle server: the time between client and scheduler is not known and counts as none, so that first tokens are predicted too early; observe a closed loop of one client".to_owned());
        }
        all.extend(self.asynchronous());
        all.extend(self.schedules.iter().filter_map(Schedules::warning));
        match &self.acceptance {
            None => all.push("no run drafted: acceptance is not known".to_owned()),
            Some(a) => {
                if a.table.is_none() {
                    all.push("acceptance is known by position in a round only, not request by request: start vLLM with --per-request-spec-decode-metrics detailed".to_owned());
                }
                if a.broken > 0 {
                    all.push(format!("{} answers have steps without drafts, so that the positions of their rounds are not exact: they count by position in a round only", a.broken));
                }
                if a.positions[0].accepted == 0 {
                    all.push("not one drafted token was ever accepted".to_owned());
                }
            }
        }
        let silent = |s: &&Source| s.k.is_none() && !s.run.answers.iter().any(|a| a.rounds.is_some());
        let varying = self.sources.iter().filter(silent).count();
        if varying > 0 {
            all.push(format!(
                "{varying} runs drafted several lengths, and their answers do not tell their rounds: /metrics alone does not tell what such runs accepted by position; start vLLM with --per-request-spec-decode-metrics detailed"
            ));
        }
        all.extend(one_server::release_doubt(&self.sources));
        for source in &self.sources {
            let name = source.name();
            all.extend(source.findings.iter().map(|f| format!("{name}: {f}")));
            if let Some(overload) = backlog(source) {
                all.push(format!("{name}: {overload}"));
            }
        }
        for f in &self.foreign {
            let name = f.path.display();
            all.extend(f.notes.iter().map(|n| format!("{name} ({}): {n}", f.format)));
            all.extend(self.of_profile(f).map(|n| format!("{name}: {n}")));
        }
        all
    }

    /// What a speculation profile is to this calibration: of another model, or beside rounds of the server, which count
    /// in its place.
    fn of_profile(&self, f: &Foreign) -> Option<String> {
        let profile = f.profile.as_ref()?;
        let model = self.sources.first().map(|s| s.recording.head.model.as_str());
        let other = model.and_then(|ours| Some((ours, profile.other_target(ours)?)));
        let (acceptance, k) = (self.acceptance.as_ref()?, profile.num_speculative_tokens);
        let theirs = 1.0 + profile.marginal_accept_rates.iter().sum::<f64>();
        Some(match (other, self.profile_counts()) {
            (Some((ours, theirs)), _) => {
                format!("it is of the target {theirs}, and the server has {ours}: acceptance belongs to the pair")
            }
            (None, false) => format!(
                "the server's own rounds count, {:.2} tokens a round at K = {k}; the file says {theirs:.2}",
                acceptance.tokens(k)
            ),
            (None, true) => format!(
                "no run drafted: acceptance is the file's (target {}), {theirs:.2} tokens a round at K = {k}",
                profile.target().unwrap_or("not said")
            ),
        })
    }

    /// Whether acceptance comes from speculation profiles: no round of the server was seen.
    fn profile_counts(&self) -> bool {
        let seen = |s: &Source| s.run.answers.iter().any(|a| a.rounds.as_ref().is_some_and(|r| !r.drafted.is_empty()));
        !self.sources.iter().any(|s| seen(s) || s.run.metrics.rounds_of_one_length().is_some())
            && self.foreign.iter().all(|f| f.rounds.is_empty())
    }

    /// A warning if the server schedules asynchronously; else `None`. The steps of an asynchronous server overlap.
    /// Its log gives for a step only the time for which the host still had to wait for the step's output, which is
    /// less than the step's time.
    pub(crate) fn asynchronous(&self) -> Option<String> {
        let (mut inside, mut outside) = (0.0, 0.0);
        for row in &self.rows {
            if let Some(host) = row.host_s {
                inside += row.elapsed_s;
                outside += host;
            }
        }
        (inside + outside > 0.0 && outside / (inside + outside) > ASYNC).then(|| {
            format!(
                "{:.0} % of a busy server's time lies outside of its steps: with asynchronous scheduling a step's time is what was left to wait for; start the server with --no-async-scheduling",
                100.0 * outside / (inside + outside)
            )
        })
    }

    /// The fitted costs as a calibrated profile, the content of `profile.toml`; `None` without costs.
    pub fn profile(&self) -> Option<Calibrated> {
        self.cost.as_ref().map(|cost| self.profile_of(cost))
    }

    fn profile_of(&self, cost: &CostFit) -> Calibrated {
        let most = |of: fn(&StepRow) -> u64| self.rows.iter().map(of).max().unwrap_or(0);
        let requests = most(|r| u64::from(r.decodes + r.prompts));
        let range = |batched: u64| Range { requests, batched, context: most(|r| r.context), pairs: 0 };
        let verified = most(|r| r.verified + r.prompt_tokens);
        let head = self.sources.first().map(|s| &s.recording.head);
        let server = head.map_or_else(
            || "files of other tools".to_owned(),
            |h| format!("{} of {} at {}", h.model, h.server.version.as_deref().unwrap_or("an unknown version"), h.url),
        );
        Calibrated {
            calibrated_version: CALIBRATED_VERSION,
            foretoken: env!("CARGO_PKG_VERSION").into(),
            server,
            distrust: self.verdict.as_ref().and_then(Verdict::distrust),
            warnings: self.warnings.clone(),
            step_overhead_s: cost.host_s,
            host: HostLaw { request_s: cost.host_request_s, ..HostLaw::default() },
            noise_cv: cost.noise,
            draft_lengths: self.lengths().into_iter().collect(),
            separated: self.separated,
            context_reads: ContextReads::Once,
            probes: vec![],
            fitted_to: vec![],
            target: CalibratedModel {
                cost: cost.target(),
                belief: cost.target_line(self.decode_tokens()),
                range: range(verified),
            },
            draft: CalibratedModel { cost: cost.draft_model(), belief: cost.draft, range: range(verified + requests) },
        }
    }

    /// Number of tokens of the largest observed step without prompts. The policies' linear cost model is fitted to
    /// passes of up to this size.
    fn decode_tokens(&self) -> u64 {
        self.rows.iter().filter(|r| r.prompts == 0).map(|r| r.verified).max().unwrap_or(1)
    }
}

/// The simulated engine's settings: the settings of the first run that has an experiment, else the defaults. If the
/// server's version, its metrics or the observed steps give a value, this value replaces the setting.
fn engine(sources: &[Source]) -> EngineConfig {
    let stated = sources.iter().find_map(|s| s.engine.clone());
    let mut engine = stated.unwrap_or_default();
    engine.version = one_server::release(sources).0;
    // Defaults for two settings that the experiment may lack. Scheduling is not asynchronous: the host works between
    // two steps. A step delivers its tokens after its draft passes, because a logged step includes its draft passes.
    engine.async_scheduling.get_or_insert(false);
    if !engine.release().sglang {
        engine.deliver_at.get_or_insert(DeliverAt::Drafted);
    }
    for source in sources {
        let m = &source.run.metrics;
        if let Some(blocks) = m.num_gpu_blocks {
            engine.num_gpu_blocks = blocks;
        }
        if let Some(size) = m.block_size {
            engine.block_size = size;
        }
        if let Some(len) = max_model_len(&source.recording) {
            engine.max_model_len = len;
        }
        let seen = source.run.steps.iter().map(|s| s.logged.generation_requests + s.logged.context_requests).max();
        engine.max_num_seqs = engine.max_num_seqs.max(seen.unwrap_or(0));
    }
    engine
}

/// A warning if the server fell behind the arrivals of the run; else `None`. The latencies of such a run measure the
/// server's growing queue and not its speed. A closed loop never falls behind.
fn backlog(source: &Source) -> Option<String> {
    if source.recording.head.clients.is_some() {
        return None;
    }
    foretoken_sim::metrics::overload(&source.run.run.records).map(|o| format!("the server was saturated: {o}"))
}

impl Calibration {
    /// The verdict on the fitted costs, from their errors on steps and runs that were held out of a fit.
    fn judged(&self) -> Verdict {
        let c = self;
        if let Some(why) = c.asynchronous() {
            return Verdict { trusted: Some(false), why };
        }
        if c.rows.len() < FEW {
            let why = format!("the costs are fitted to {} steps, and {FEW} are needed to judge them", c.rows.len());
            return Verdict { trusted: None, why };
        }
        let (later, runs) = (&c.held_out.by_time, &c.held_out.by_run);
        let mut held: Vec<(String, Error)> = Vec::new();
        if later.steps > 0 {
            held.push(("later steps".into(), *later));
        }
        held.extend(runs.iter().map(|(run, e)| (format!("run {} by the others", c.name_of(*run)), *e)));
        let off: Vec<String> = held
            .iter()
            .filter(|(_, e)| !within(e.bias))
            .map(|(what, e)| format!("{what}: off by {}", share(e.bias)))
            .collect();
        if !off.is_empty() {
            let why = format!("{} (at most {:.0} % is trusted)", off.join(", "), 100.0 * TRUSTED);
            return Verdict { trusted: Some(false), why };
        }
        let form = WIDE * c.held_out.misfit.hypot(c.held_out.numbers.tpot.max(c.held_out.numbers.e2e));
        if !within(form) {
            let why = format!(
                "the form of the costs does not say what steps take: 95 % of latencies are known to ± {:.0} % (at most {:.0} % is trusted)",
                100.0 * form,
                100.0 * TRUSTED
            );
            return Verdict { trusted: Some(false), why };
        }
        if held.is_empty() {
            return Verdict { trusted: None, why: "nothing could be held out to judge the costs by".into() };
        }
        let worst = |errors: &mut dyn Iterator<Item = f64>| 100.0 * errors.map(f64::abs).fold(0.0, f64::max);
        let mut parts = Vec::new();
        if later.steps > 0 {
            parts.push(format!("later steps within {:.1} %", worst(&mut [later.bias].into_iter())));
        }
        parts.push(match runs.len() {
            0 => "no run could be held out".to_owned(),
            _ => format!("runs it has not seen within {:.1} %", worst(&mut runs.iter().map(|(_, e)| e.bias))),
        });
        parts.push(format!("costs and schedule to ± {:.1} % (95 %)", 100.0 * form));
        Verdict { trusted: Some(true), why: format!("{}: {}", c.covers(), parts.join(", ")) }
    }

    /// The draft lengths and the numbers of requests in a step for which the fitted costs hold, as text.
    fn covers(&self) -> String {
        let lengths: Vec<String> = self.lengths().iter().map(u32::to_string).collect();
        let alone = if self.separated { "" } else { " alone" };
        let most = self.rows.iter().map(|r| r.decodes + r.prompts).max().unwrap_or(0);
        let requests = if most == 1 { "1 request".to_owned() } else { format!("up to {most} requests") };
        format!("K = {}{alone}, steps of {requests}", lengths.join(", "))
    }
}
