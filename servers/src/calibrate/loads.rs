//! The loads under which a server was observed. Runs with equal arrivals and similar requests share one load.

use crate::calibrate::calibration::Calibration;
use crate::calibrate::foreign::Foreign;
use crate::calibrate::source::Source;
use foretoken_policies::{BatchRange, PolicySpec};
use foretoken_run::spec::experiment::Experiment;
use foretoken_sim::{Workload, arrival_rate};
use foretoken_traces::{ArrivalSpec, LengthSpec, TraceSpec, WorkloadSpec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A load under which a server was observed: its arrivals and requests, and the observed runs with these arrivals and
/// requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObservedLoad {
    /// The load's name for users, such as `closed loop of 4`, `Poisson 3/s`, or `log of k3, 2.9 requests/s` (the
    /// arrivals that were recorded in the run `k3`).
    pub name: String,
    /// The observed runs with this load. The first run has the most requests; `requests` and `workload` come from this
    /// run. Empty if the load comes from a vLLM or SGLang file.
    pub runs: Vec<SeenRun>,
    /// Number of requests of the first run in `runs`. If `runs` is empty, number of requests of the vLLM or SGLang file
    /// from which the load comes.
    pub requests: usize,
    /// The workload that simulates the load. Paths in it are relative to the calibration's folder.
    pub workload: WorkloadSpec,
}

/// The parts of an observed run that `recommend` needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeenRun {
    pub name: String,
    /// Path of the recording of the observed run. A recording has the sent requests and their answers, with times.
    pub recording: String,
    /// The draft length with which the server ran; `None` where the server drafted several lengths.
    pub k: Option<u32>,
    /// The table of draft lengths by batch size that the run's experiment states. `None` if the experiment states no
    /// such table, or if the server drafted one length throughout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<Vec<BatchRange>>,
    pub started_unix_us: u64,
    /// The mean end-to-end latency that was measured, seconds; `None` if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_e2e_s: Option<f64>,
}

impl ObservedLoad {
    /// True if requests of this load arrive at set times (open arrivals), false for a closed loop.
    pub fn is_open(&self) -> bool {
        !matches!(self.workload.arrivals, ArrivalSpec::ClosedLoop(_))
    }
}

pub const TRACES: &str = "traces";

/// Closed loops with equally many clients count as one load if their mean prompt and output lengths differ by at most
/// this share.
const NEAR: f64 = 0.05;

impl Calibration {
    /// The loads of observed runs, and of vLLM and SGLang files that have arrival times: closed loops sorted by number
    /// of clients, then open loads sorted by rate.
    pub fn loads(&self) -> Vec<ObservedLoad> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for at in 0..self.sources.len() {
            let shares_load = |group: &&mut Vec<usize>| same_load(&self.sources[group[0]], &self.sources[at]);
            match groups.iter_mut().find(shares_load) {
                Some(group) => group.push(at),
                None => groups.push(vec![at]),
            }
        }
        let mut loads: Vec<((bool, f64), ObservedLoad)> = groups.iter().map(|g| self.load(g)).collect();
        loads.extend(self.foreign_loads());
        loads.sort_by(|(a, _), (b, _)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut loads: Vec<ObservedLoad> = loads.into_iter().map(|(_, load)| load).collect();
        tell_apart(&mut loads);
        loads
    }

    /// Makes the load of a group of runs that share it. Returns (sort key, load). The sort key is (whether arrivals
    /// are open, number of clients or requests per second).
    fn load(&self, group: &[usize]) -> ((bool, f64), ObservedLoad) {
        let requests = |at: usize| self.sources[at].run.workload.len();
        // The run with the most requests represents the group. If several runs have equally many requests, takes the
        // first of these runs.
        let most = group.iter().copied().rev().max_by_key(|&at| requests(at)).expect("a group has a run");
        let source = &self.sources[most];
        let rest = group.iter().copied().filter(|&at| at != most);
        let runs = [most].into_iter().chain(rest).map(|at| SeenRun::of(&self.sources[at])).collect();
        let rate = mean_rate(&source.run.workload);
        let place = match source.recording.head.clients {
            Some(clients) => (false, f64::from(clients)),
            None => (true, rate),
        };
        let workload = self.workload_of(most);
        let stated = source.stated.as_ref();
        let arrivals = match (source.recording.head.clients, stated) {
            (Some(clients), _) => &ArrivalSpec::ClosedLoop(clients),
            (None, Some(stated)) => &stated.workload.arrivals,
            (None, None) => &workload.arrivals,
        };
        let name = name_of(arrivals, stated.and_then(stated_rate).unwrap_or(rate), &source.name());
        (place, ObservedLoad { name, runs, requests: requests(most), workload })
    }

    /// Makes one load for each vLLM or SGLang file that has at least two requests, all with arrival times. Returns
    /// (sort key, load). The sort key is (true for open arrivals, requests per second).
    fn foreign_loads(&self) -> impl Iterator<Item = ((bool, f64), ObservedLoad)> {
        let timed = |file: &&Foreign| file.requests.len() > 1 && is_timed(file);
        (self.sources.len()..).zip(&self.foreign).filter(move |(_, file)| timed(file)).map(|(at, file)| {
            let times: Vec<f64> = file.requests.iter().filter_map(|r| r.0).collect();
            let ends = times.iter().fold((f64::INFINITY, 0.0f64), |(a, b), &t| (a.min(t), b.max(t)));
            let span = ends.1 - ends.0;
            let rate = arrival_rate(times.len(), span).unwrap_or_default();
            let workload = self.workload_of(at);
            let name = name_of(&workload.arrivals, rate, &self.name_of(at));
            ((true, rate), ObservedLoad { name, runs: vec![], requests: file.requests.len(), workload })
        })
    }

    /// The workload that repeats the requests of the run or file with index `at`. The indices count the observed runs
    /// first, then the files of vLLM and SGLang. For a file without arrival times, the workload is a closed loop of one
    /// client.
    pub fn workload_of(&self, at: usize) -> WorkloadSpec {
        let path = self.trace_path(at);
        let Some(seen) = self.sources.get(at) else {
            return if is_timed(&self.foreign[at - self.sources.len()]) { open(path) } else { closed(1, path) };
        };
        let workload = match seen.recording.head.clients {
            Some(clients) => WorkloadSpec { requests: Some(seen.run.workload.len() as u32), ..closed(clients, path) },
            None => open(path),
        };
        WorkloadSpec { priorities: self.priorities(seen), ..workload }
    }

    /// The priorities that the run's experiment states, for the categories that the run's requests have. If the engine
    /// schedules by priority and none of these categories has a stated priority, the first category gets priority 0,
    /// because such an engine needs a priority.
    fn priorities(&self, source: &Source) -> BTreeMap<String, i32> {
        let asked = categories(&source.run.workload);
        let stated = source.stated.as_ref().map(|e| e.workload.priorities.clone()).unwrap_or_default();
        let mut priorities: BTreeMap<String, i32> = stated.into_iter().filter(|(c, _)| asked.contains(c)).collect();
        if self.by_priority() && priorities.is_empty() {
            priorities.extend(asked.first().map(|category| (category.clone(), 0)));
        }
        priorities
    }

    /// True if a run's experiment states priorities, and no request of the run has one of the stated categories.
    pub fn loses_priorities(&self) -> bool {
        let lost = |source: &Source| {
            let asked = categories(&source.run.workload);
            let stated = source.stated.as_ref().map(|e| &e.workload.priorities);
            stated.is_some_and(|stated| !stated.is_empty() && !stated.keys().any(|name| asked.contains(name)))
        };
        self.sources.iter().any(lost)
    }

    fn by_priority(&self) -> bool {
        self.engine.scheduling_policy == foretoken_sim::SchedulingPolicy::Priority
    }

    /// The traces of the requests of all observed runs, and of all vLLM and SGLang files that have requests, as (file
    /// name, CSV text).
    pub fn traces(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for (at, source) in self.sources.iter().enumerate() {
            let w = &source.run.workload;
            let with_categories = categories(w).len() > 1 || !self.priorities(source).is_empty();
            let category = |i: usize| with_categories.then(|| category(w, i));
            let rows = (0..w.len()).map(|i| (w.arrival[i].as_s(), w.prompt_len[i], w.output_len[i], category(i)));
            all.push((self.trace_name(at), trace(with_categories, rows)));
        }
        for (at, f) in self.foreign.iter().enumerate().filter(|(_, f)| !f.requests.is_empty()) {
            // Without arrival times, only the order of requests is known. The trace then has one request per second.
            let timed = is_timed(f);
            let mut requests = f.requests.clone();
            requests.sort_by(|a, b| a.0.unwrap_or(0.0).total_cmp(&b.0.unwrap_or(0.0)));
            let at_s = |n: usize, r: &(Option<f64>, u32, u32)| if timed { r.0.unwrap_or(0.0) } else { n as f64 };
            let rows = requests.iter().enumerate().map(|(n, r)| (at_s(n, r), r.1, r.2, None));
            all.push((self.trace_name(self.sources.len() + at), trace(false, rows)));
        }
        all
    }

    /// The path of the trace with the requests of the run or file with index `at`, relative to the calibration's
    /// folder. The indices count the observed runs first, then the files of vLLM and SGLang.
    pub fn trace_path(&self, at: usize) -> String {
        format!("{TRACES}/{}", self.trace_name(at))
    }

    fn trace_name(&self, at: usize) -> String {
        let name = match at.checked_sub(self.sources.len()).and_then(|at| self.foreign.get(at)) {
            Some(foreign) => foreign.path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default(),
            None => self.name_of(at),
        };
        let fine = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
        format!("{at:02}-{}.csv", name.chars().map(fine).collect::<String>())
    }
}

impl SeenRun {
    fn of(source: &Source) -> SeenRun {
        let policies = source.stated.iter().flat_map(|experiment| &experiment.policies);
        let mut tables = policies.filter_map(|policy| match policy {
            PolicySpec::VllmDynamic(p) => Some(p.num_speculative_tokens_per_batch_size.clone()),
            _ => None,
        });
        SeenRun {
            table: tables.next().filter(|_| source.k.is_none()),
            name: source.name(),
            recording: source.path.display().to_string(),
            k: source.k,
            started_unix_us: source.recording.head.started_unix_us,
            mean_e2e_s: mean_e2e_s(source),
        }
    }
}

/// The mean end-to-end latency of the finished requests of an observed run, seconds; `None` if no request finished.
fn mean_e2e_s(source: &Source) -> Option<f64> {
    let records = &source.run.run.records;
    let all: Vec<f64> = (0..records.len()).filter(|&i| records.finished(i)).map(|i| records.e2e_s(i)).collect();
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

/// A workload with the arrival times and lengths of the requests in the trace at `path`.
fn open(path: String) -> WorkloadSpec {
    WorkloadSpec {
        arrivals: ArrivalSpec::Trace(Box::new(TraceSpec::new(path))),
        lengths: None,
        transform: vec![],
        duration_s: None,
        requests: None,
        seed: None,
        priorities: BTreeMap::new(),
        sessions: None,
    }
}

/// A closed loop of `clients` clients with the lengths of the requests in the trace at `path`.
fn closed(clients: u32, path: String) -> WorkloadSpec {
    WorkloadSpec {
        arrivals: ArrivalSpec::ClosedLoop(clients),
        lengths: Some(LengthSpec::Trace(Box::new(TraceSpec::new(&path)))),
        ..open(path)
    }
}

/// True if a vLLM or SGLang file has the arrival time of each of its requests.
fn is_timed(file: &Foreign) -> bool {
    file.requests.iter().all(|r| r.0.is_some())
}

/// True if two runs share a load. The runs must have equal numbers of clients, or both open arrivals. In addition, one
/// of three conditions must hold: their planned requests are equal; their `[workload]` tables and time scales (factors
/// on the speed of arrivals) are equal; or they are closed loops whose mean planned lengths differ by at most [`NEAR`].
fn same_load(a: &Source, b: &Source) -> bool {
    let heads = [a, b].map(|s| &s.recording.head);
    if heads[0].clients != heads[1].clients {
        return false;
    }
    let stated = |s: &Source| s.stated.as_ref().map(|e| (e.workload.clone(), time_scale(e)));
    let planned = heads[0].asked == heads[1].asked || stated(a).is_some_and(|of| Some(of) == stated(b));
    let means = |s: &Source| {
        let asked = &s.recording.head.asked;
        let mean = |of: fn(&crate::recordings::recording::Asked) -> u32| {
            asked.iter().map(|r| f64::from(of(r))).sum::<f64>() / asked.len().max(1) as f64
        };
        [mean(|r| r.prompt_len), mean(|r| r.output_len)]
    };
    let near = || means(a).iter().zip(means(b)).all(|(a, b)| (a - b).abs() <= NEAR * a.max(b));
    planned || (heads[0].clients.is_some() && near())
}

fn time_scale(experiment: &Experiment) -> f64 {
    experiment.observe.as_ref().map_or(1.0, |observe| observe.time_scale)
}

/// The arrival rate of an experiment with Poisson arrivals, in requests per second: the rate that the experiment
/// states, times its time scale (the factor on the speed of arrivals). `None` if arrivals are not Poisson, or if the
/// experiment transforms them.
fn stated_rate(experiment: &Experiment) -> Option<f64> {
    match &experiment.workload.arrivals {
        ArrivalSpec::Poisson(p) if experiment.workload.transform.is_empty() => Some(p.rate * time_scale(experiment)),
        _ => None,
    }
}

/// Mean number of requests per second between the first and the last arrival of a workload; 0 if all come at once.
pub fn mean_rate(w: &Workload) -> f64 {
    let span = match (w.arrival.first(), w.arrival.last()) {
        (Some(first), Some(last)) => last.saturating_sub(*first).as_s(),
        _ => 0.0,
    };
    arrival_rate(w.len(), span).unwrap_or_default()
}

/// The name of a load: the kind of arrivals, and their rate or the number of clients. `log` is the name of the trace
/// from which arrivals are taken.
pub fn name_of(arrivals: &ArrivalSpec, rate: f64, log: &str) -> String {
    let rate = short(rate);
    match arrivals {
        ArrivalSpec::ClosedLoop(clients) => format!("closed loop of {clients}"),
        ArrivalSpec::Batch(_) => "batch".to_owned(),
        ArrivalSpec::Poisson(_) => format!("Poisson {rate}/s"),
        ArrivalSpec::Trace(_) => format!("log of {log}, {rate} requests/s"),
        other => {
            let value = serde_json::to_value(other).expect("plain data always serialises");
            let kind = value.as_object().and_then(|map| map.keys().next().cloned()).unwrap_or_default();
            format!("{kind}, {rate} requests/s")
        }
    }
}

/// A number as text with about three digits: three decimals below 1, two from 1 on, one from 10 on, and no decimals
/// from 100 on. Zeros at the end of the decimals are left out.
pub fn short(x: f64) -> String {
    let digits = match x.abs() {
        x if x >= 100.0 => 0,
        x if x >= 10.0 => 1,
        x if x >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{x:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// If several loads have the same name, adds to each of these names the name of the load's first run.
fn tell_apart(loads: &mut [ObservedLoad]) {
    let names: Vec<String> = loads.iter().map(|load| load.name.clone()).collect();
    for load in loads.iter_mut() {
        let same = names.iter().filter(|name| **name == load.name).count() > 1;
        if let (true, Some(run)) = (same, load.runs.first()) {
            load.name = format!("{} ({})", load.name, run.name);
        }
    }
}

/// The categories of the requests of the workload `w`, in the order in which they first occur. A request without
/// category counts as category `all`.
fn categories(w: &Workload) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for i in 0..w.len() {
        let name = category(w, i);
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

fn category(w: &Workload, request: usize) -> String {
    w.categories.get(usize::from(w.category[request])).cloned().unwrap_or_else(|| "all".to_owned())
}

/// Requests as the CSV text of a trace. A row has arrival time in seconds, prompt tokens, output tokens and, if
/// `with_categories` is true, the category.
fn trace(with_categories: bool, rows: impl Iterator<Item = (f64, u32, u32, Option<String>)>) -> String {
    let mut text = "t_s,input_tokens,output_tokens".to_owned();
    text.push_str(if with_categories { ",category\n" } else { "\n" });
    for (t, prompt, output, category) in rows {
        write!(text, "{t:.6},{prompt},{output}").expect("a string grows");
        if let Some(category) = category {
            write!(text, ",\"{}\"", category.replace('"', "\"\"")).expect("a string grows");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_run::plan::Plan;
    use foretoken_sim::{Request, Time};
    use std::path::Path;

    #[test]
    fn rates_have_three_digits() {
        let short = [3.0, 2.94, 0.125, 1000.4, 42.06].map(short);
        assert_eq!(short, ["3", "2.94", "0.125", "1000", "42.1"]);
    }

    #[test]
    fn a_rate_counts_gaps() {
        let at = |seconds: &[f64]| {
            let requests = seconds.iter().map(|&s| Request::new(Time::from_s(s), 10, 10));
            mean_rate(&requests.collect())
        };
        assert_eq!([at(&[1.0, 2.0, 5.0]), at(&[1.0, 1.0]), at(&[3.0]), at(&[])], [0.5, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn only_poisson_arrivals_without_transformations_state_a_rate() {
        let stated = |sets: &[&str]| {
            let sets: Vec<String> = ["observe.time_scale=2.0"].iter().chain(sets).map(|&set| set.to_owned()).collect();
            let plan = Plan::of_text("x.toml", include_str!("stated.toml"), &sets, Path::new("")).unwrap();
            stated_rate(&plan.variants[0].experiment)
        };
        assert_eq!(stated(&["workload.arrivals={ poisson = { rate = 3.0 } }"]), Some(6.0));
        assert_eq!(stated(&["workload.transform=[{ rate-scale = 2.0 }]"]), None);
        assert_eq!(stated(&["workload.arrivals={ gamma = { rate = 3.0, cv = 2.0 } }"]), None);
    }

    #[test]
    fn a_load_is_named_by_how_requests_come() {
        let name = |toml: &str, rate: f64| {
            let arrivals: ArrivalSpec = toml::from_str::<BTreeMap<String, ArrivalSpec>>(toml).unwrap()["a"].clone();
            name_of(&arrivals, rate, "k3")
        };
        assert_eq!(name("a = { closed-loop = 4 }", 9.0), "closed loop of 4");
        assert_eq!(name("a = { poisson = { rate = 3.0 } }", 3.0), "Poisson 3/s");
        assert_eq!(name("a = { trace = { path = \"x.csv\" } }", 2.94), "log of k3, 2.94 requests/s");
        assert_eq!(name("a = { azure-code = {} }", 2.94), "azure-code, 2.94 requests/s");
    }

    #[test]
    fn a_trace_quotes_its_categories() {
        let rows = [(0.5, 3, 4, Some("a \"b\", c".to_owned()))];
        assert_eq!(
            trace(true, rows.into_iter()),
            "t_s,input_tokens,output_tokens,category\n0.500000,3,4,\"a \"\"b\"\", c\"\n"
        );
        assert_eq!(trace(false, [(1.0, 2, 3, None)].into_iter()).lines().last(), Some("1.000000,2,3"));
    }
}
