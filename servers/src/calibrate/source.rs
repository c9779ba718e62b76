//! The observed runs of a server from which a calibration is made.

use crate::calibrate::step_lengths::step_lengths;
use crate::recordings::Unread;
use crate::recordings::findings::findings;
use crate::recordings::recording::{Recording, read_recording};
use crate::recordings::request::Answer;
use crate::recordings::run::ObservedRun;
use crate::recordings::seat_log::{SeatLog, Seated, is_seat_log, read_seat_log};
use foretoken_run::cells::{Manifest, RECORDINGS};
use foretoken_run::plan::Plan;
use foretoken_run::spec::experiment::Experiment;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_sim::EngineConfig;
use std::path::{Path, PathBuf};

/// An observed run of a server, read from its recording.
#[derive(Debug)]
pub struct Source {
    /// Path of the run's recording, a file with the sent requests and their answers, with times.
    pub path: PathBuf,
    /// BLAKE3 digest of the run's recording, in hexadecimal.
    pub digest: String,
    /// The content of the recording: the sent requests, their answers and the server's reports, with times.
    pub recording: Recording,
    /// The run's answers and steps, rebuilt from the recording.
    pub run: ObservedRun,
    /// Notes for the user on what the recording lacks or what disturbed the run.
    pub findings: Vec<String>,
    /// The draft length with which the server ran; `None` if the server chose several lengths.
    pub k: Option<u32>,
    /// The engine's settings in the experiment of the run's results folder; `None` without an experiment.
    pub engine: Option<EngineConfig>,
    /// The experiment of the run's results folder, with the load, the priorities and the policy. `None` if the folder
    /// has no experiment.
    pub stated: Option<Experiment>,
    /// What the policy in the engine's seat did, if the run was logged by a seat.
    pub seat: Option<Seated>,
}

impl Source {
    /// Reads an observed run from its recording, or from the log of a seat.
    pub fn open(path: &Path) -> Result<Source> {
        let bytes = fs_err::read(path).map_err(|e| Problem::bad_input(e.to_string()))?;
        let (recording, seat, logged) = match is_seat_log(path) {
            true => {
                let SeatLog { recording, seat, engine } = read_seat_log(path).map_err(unread)?;
                (recording, Some(seat), Some(engine))
            }
            false => (read_recording(path).map_err(unread)?, None, None),
        };
        let run = ObservedRun::of(&recording);
        let findings = findings(&recording, &run);
        let k = draft_length(&run);
        let digest = blake3::hash(&bytes).to_hex().to_string();
        let stated = stated(path).filter(|_| seat.is_none());
        let engine = logged.or_else(|| stated.as_ref().map(|experiment| experiment.engine.clone()));
        Ok(Source { path: path.to_path_buf(), digest, recording, run, findings, k, engine, stated, seat })
    }

    /// The run's name in tables. If the recording lies in a results folder, the name is the folder's name, followed by
    /// the recording's file name. The file name is left out if it is `v0-s0`: first combination of swept values, first
    /// seed. Outside of a results folder, the name is the recording's file name.
    pub fn name(&self) -> String {
        let folder = self.path.parent().and_then(Path::parent);
        let name = folder.filter(|f| f.join(RECORDINGS).is_dir()).and_then(Path::file_name);
        let cell = self.path.file_stem().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        match name {
            Some(folder) if cell == "v0-s0" => folder.to_string_lossy().into_owned(),
            Some(folder) => format!("{}/{cell}", folder.to_string_lossy()),
            None => cell,
        }
    }
}

/// The load of a run as text: the number of clients, or the rate of open arrivals and the seed. Repeats of a run have
/// the same text.
pub(crate) fn load(recording: &Recording) -> String {
    match recording.head.clients {
        Some(clients) => format!("closed {clients}"),
        None => {
            let last = recording.head.asked.last().map_or(0.0, |a| a.due.as_s());
            let rate = if last > 0.0 { recording.head.asked.len() as f64 / last } else { 0.0 };
            format!("open {rate:.2} req/s, seed {}", recording.head.seed)
        }
    }
}

/// Opens the observed runs at these paths: results folders of `observe`, or recordings.
pub fn open_all(paths: &[PathBuf]) -> Result<Vec<Source>> {
    let mut all: Vec<Source> = Vec::new();
    for path in paths {
        for recording in recordings(path)? {
            let source = Source::open(&recording)?;
            if let Some(same) = all.iter().find(|s| s.digest == source.digest) {
                let (a, b) = (same.path.display(), source.path.display());
                return Err(Problem::bad_input(format!("{a} and {b} are the same recording"))
                    .help("name each observed run once: a run that counts twice makes errors look small"));
            }
            all.push(source);
        }
    }
    Ok(all)
}

/// The paths of the recordings at `path`: `path` itself if it is a file, else the recordings in the results folder
/// `path`, sorted by name.
fn recordings(path: &Path) -> Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_path_buf()]);
    }
    let nothing = |what: &str| {
        Problem::bad_input(format!("{}: {what}", path.display()))
            .help("give folders that `foretoken observe` wrote, or their recordings")
    };
    if !path.is_dir() {
        return Err(nothing("no such file or folder"));
    }
    // A killed run leaves an incomplete manifest. So a recording is checked against the manifest only if the manifest
    // lists it.
    if let Ok(manifest) = Manifest::read(path) {
        manifest.check(path, manifest.files.keys().map(String::as_str).filter(|n| n.starts_with(RECORDINGS)))?;
    }
    let entries = std::fs::read_dir(path.join(RECORDINGS)).map_err(|_| nothing("it holds no recordings"))?;
    // Recordings of interrupted attempts (`.part`) lie in the same folder. They are read only if the user names them.
    let whole = |p: &PathBuf| {
        p.extension().is_some_and(|e| e == "obs")
            && !p.file_stem().is_some_and(|s| s.to_string_lossy().contains(".part"))
    };
    let mut all: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(whole).collect();
    all.sort();
    if all.is_empty() {
        return Err(nothing("it holds no recordings"));
    }
    Ok(all)
}

/// The experiment of the results folder that holds a recording; `None` if there is none.
fn stated(recording: &Path) -> Option<Experiment> {
    let folder = recording.parent()?.parent()?;
    let plan = Plan::of_results(folder).ok()?;
    let name = recording.file_stem()?.to_str()?;
    let variant = name.strip_prefix('v')?.split('-').next()?.parse::<usize>().ok()?;
    Some(plan.variants.get(variant)?.experiment.clone())
}

/// Converts the error about a file that could not be read to the program's error.
pub fn unread(e: Unread) -> Box<Problem> {
    let hint = e.hint.clone();
    Problem::bad_input(e.to_string()).help(hint)
}

/// The draft length of a run: the longest draft length, if at least 95 % of the run's rounds and at least 95 % of its
/// steps have this length; else `None`. Rounds that an answer's end may have shortened do not count. Steps count too,
/// because rounds alone do not show steps without draft tokens. 0 if the run has neither rounds nor steps.
fn draft_length(run: &ObservedRun) -> Option<u32> {
    let rounds: Vec<u32> = run.answers.iter().flat_map(Answer::usual_lengths).collect();
    let steps: Vec<u32> = step_lengths(run).into_iter().flatten().collect();
    match (rounds.is_empty(), steps.is_empty()) {
        (_, true) => one_length(&rounds),
        (true, false) => one_length(&steps),
        (false, false) => one_length(&rounds).filter(|&k| one_length(&steps) == Some(k)),
    }
}

/// The longest of the draft lengths `lengths` if at least 95 % of them equal it; else `None`. 0 without lengths. Up to
/// 5 % may be shorter, because an engine drafts less near the end of a context.
fn one_length(lengths: &[u32]) -> Option<u32> {
    let most = lengths.iter().max().copied().unwrap_or(0);
    let same = lengths.iter().filter(|&&k| k == most).count();
    (same * 100 >= lengths.len() * 95).then_some(most)
}
