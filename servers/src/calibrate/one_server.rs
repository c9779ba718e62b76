//! A calibration describes one server. All runs that it is made from, and all runs that it predicts, must have one
//! model, one release and the same settings.

use crate::calibrate::source::Source;
use crate::recordings::bounds::max_model_len;
use crate::recordings::recording::Ending;
use crate::recordings::stated::{release_of, series};
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_sim::EngineConfig;
use foretoken_sim::Version;
use serde::{Deserialize, Serialize};

/// Keys of `[engine]` that must be equal in all runs of one server. The list leaves out keys that depend on drafting,
/// and keys whose values the server reports itself (blocks, lengths).
const SAME: [&str; 11] = [
    "max_num_seqs", "max_num_batched_tokens", "max_num_active_seqs", "scheduling_policy", "chunked_prefill",
    "long_prefill_token_threshold", "long_prefill_token_threshold_adaptive", "prefill_schedule_interval",
    "prefix_caching", "scheduler_reserve_full_isl", "watermark",
];

/// The server whose runs a calibration was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// The server's URL without passwords or keys.
    #[serde(default)]
    pub url: String,
    /// The name of the model that the runs' requests asked for.
    pub model: String,
    /// The server's version; `None` if the server does not report its version.
    pub version: Option<String>,
}

impl Server {
    /// The server of the runs `sources`: the address and the model of the first run, and the first version that a run
    /// reports. `None` if there are no runs.
    pub fn of(sources: &[Source]) -> Option<Server> {
        let first = sources.first()?;
        let version = sources.iter().find_map(|s| s.recording.head.server.version.clone());
        let head = &first.recording.head;
        Some(Server { url: head.url.clone(), model: head.model.clone(), version })
    }

    /// Checks that all runs are of this server's model and release. The release of a run is not checked if the run or
    /// this server has no version.
    pub fn check(&self, runs: &[Source]) -> Result<()> {
        for run in runs {
            let head = &run.recording.head;
            let (file, other) = (run.path.display(), |version: &str| series(version).ok_or(version.to_owned()));
            let what = match (&self.version, &head.server.version) {
                _ if head.model != self.model => {
                    format!("{file} is of model `{}`, and the calibration is of `{}`", head.model, self.model)
                }
                (Some(ours), Some(its)) if other(ours) != other(its) => {
                    format!("{file} is of release {its}, and the calibration is of {ours}")
                }
                _ => continue,
            };
            return Err(Problem::bad_input(what).help("a calibration predicts the server that it is made from"));
        }
        Ok(())
    }
}

pub fn check(sources: &[Source]) -> Result<()> {
    for fact in facts() {
        let mut known = sources.iter().filter_map(|s| Some((s, fact.value(s)?)));
        let Some((first, ours)) = known.next() else { continue };
        if let Some((other, its)) = known.find(|(_, its)| *its != ours) {
            let (a, b) = (first.path.display(), other.path.display());
            return Err(Problem::bad_input(format!(
                "{a} and {b} are of two servers: {} is {ours} and {its}",
                fact.name
            ))
            .help("calibrate each server by itself, with its runs alone"));
        }
    }
    Ok(())
}

/// A function that reads from a run a value that all runs of one server share; `None` if the run does not have it.
type ReadValue = dyn Fn(&Source) -> Option<String>;

/// A value that all runs of one server share, such as the model: its name in messages, and the function that reads it
/// from a run.
struct Fact {
    name: &'static str,
    value: Box<ReadValue>,
}

impl Fact {
    fn new(name: &'static str, value: impl Fn(&Source) -> Option<String> + 'static) -> Fact {
        Fact { name, value: Box::new(value) }
    }

    fn value(&self, source: &Source) -> Option<String> {
        (self.value)(source)
    }
}

fn facts() -> Vec<Fact> {
    let version = |s: &Source| s.recording.head.server.version.clone();
    let release = move |v: &str| series(v).map_or_else(|| v.to_owned(), |(a, b)| format!("{a}.{b}"));
    let stated = |key: &'static str| {
        Fact::new(key, move |s| {
            let engine = toml::Value::try_from(s.engine.as_ref()?).ok()?;
            Some(engine.get(key).map_or_else(|| "not set".to_owned(), ToString::to_string))
        })
    };
    let mut all = vec![
        Fact::new("the model", |s| Some(format!("`{}`", s.recording.head.model)).filter(|m| m != "``")),
        Fact::new("the release", move |s| version(s).map(|v| release(&v))),
        Fact::new("engine.version", |s| {
            let silent = s.recording.head.server.version.is_none();
            s.engine.as_ref().filter(|_| silent).map(|e| e.version.name().to_owned())
        }),
        Fact::new("the KV block size", |s| s.run.metrics.block_size.map(|n| n.to_string())),
        Fact::new("max_model_len", |s| max_model_len(&s.recording).map(|n| n.to_string())),
    ];
    all.extend(SAME.map(stated));
    all
}

/// Checks that no run was interrupted or broke off.
pub fn check_whole(runs: &[Source]) -> Result<()> {
    let part = runs.iter().find(|run| run.recording.ending != Some(Ending::Done));
    part.map_or(Ok(()), |run| {
        let (sent, planned) = (run.run.answers.len(), run.recording.head.asked.len());
        let file = run.path.display();
        let how = match &run.recording.ending {
            Some(Ending::Interrupted) => "was interrupted",
            Some(Ending::Lost(_)) => "ends with the loss of the server",
            Some(Ending::Done) | None => "breaks off",
        };
        Err(Problem::bad_input(format!("{file} is a part of a run: it {how} after {sent} of {planned} requests"))
            .help("observe the rest: foretoken observe … --resume; a part is not held against a prediction"))
    })
}

/// The vLLM release whose scheduling rules a calibration simulates, and the reason as text. It is the release that the
/// server reports, if Foretoken knows its rules. Otherwise it is the experiment's `engine.version`, or else the
/// default.
pub fn release(sources: &[Source]) -> (Version, String) {
    let server = sources.iter().find_map(|s| s.recording.head.server.version.as_deref());
    // The text goes into a comment of experiment.toml. A line break in it would begin a setting, so it is escaped.
    let server = server.map(|version| version.escape_debug().to_string());
    let stated = sources.iter().find_map(|s| s.engine.as_ref()).map(|engine| engine.version);
    let or_else = stated.unwrap_or(EngineConfig::default().version);
    let whose = if stated.is_some() { "the observed experiment says it" } else { "it is the default" };
    match (&server, server.as_deref().and_then(release_of)) {
        (Some(server), Some(version)) => (version, format!("the server says that it is {server}")),
        (Some(server), None) => {
            let unknown = format!("the server says that it is {server}, whose rules Foretoken does not know");
            (or_else, format!("{whose}; {unknown}"))
        }
        (None, _) => (or_else, format!("{whose}, and the server does not say its version")),
    }
}

/// A warning if the simulated release is not the release that the experiment states, or if Foretoken does not know
/// the server's release. `None` without a reason for a warning, or if the server reports no version.
pub fn release_doubt(sources: &[Source]) -> Option<String> {
    let (version, why) = release(sources);
    let server = sources.iter().find_map(|s| s.recording.head.server.version.as_deref())?;
    let stated = sources.iter().find_map(|s| s.engine.as_ref()).map(|engine| engine.version);
    let other = stated.filter(|stated| *stated != version).map(|stated| format!(" in place of {}", stated.name()));
    (other.is_some() || release_of(server).is_none()).then(|| {
        format!("the calibration takes engine.version = \"{}\"{}: {why}", version.name(), other.unwrap_or_default())
    })
}
