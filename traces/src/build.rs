//! Builds a workload from a description and a seed: first the arrivals, then the transformations of the arrivals in the
//! order of the description, then the lengths.

use crate::error::TraceError;
use crate::generate::{
    AdaSpecBinArrivals, BurstGptGaps, Effort, GammaGaps, LogOuArrivals, OnOffArrivals, PoissonGaps,
    SPEC_BENCH_CATEGORIES, Sessions, Stalled, TickArrivals, Turn, categories,
};
use crate::limits;
use crate::readers::{Trace, read};
use crate::spec::{ArrivalSpec, LengthSpec, WorkloadSpec};
use crate::trace_spec::{Sample, TraceSpec};
use crate::transform::pick;
use foretoken_sim::Draws;
use foretoken_sim::{Arrivals, Luck, Request, RequestId, Stream, Time, Workload};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Length, in seconds, of AdaSpec's load shapes T1, T2 and T3 if neither `duration_s` nor `requests` is set. AdaSpec's
/// own traces last 600 s.
const SHAPE_S: f64 = 600.0;

/// A workload that is ready to run: its requests, and how they arrive.
#[derive(Clone, Debug)]
pub struct Built {
    /// The requests of the workload, with arrival times and lengths.
    pub workload: Workload,
    /// How requests arrive: at their own times, from the clients of a closed loop, or as turns of sessions.
    pub arrivals: Arrivals,
    /// Paths of all trace files that were read, so that callers can compute their digests.
    pub files: Vec<PathBuf>,
    /// Messages about rows and requests of the trace files that were left out or changed.
    pub notes: Vec<String>,
}

/// Builds a workload. The same description, files and seed give the same workload on every machine of one architecture.
/// `spec.seed` takes precedence over `seed`. `baseline_tpot_s` is the time per output token of an unloaded server,
/// seconds; see [`read`].
///
/// # Errors
/// A setting is out of range, a file cannot be used, or no request is left.
pub fn build(spec: &WorkloadSpec, seed: u64, baseline_tpot_s: Option<f64>) -> Result<Built, TraceError> {
    spec.check()?;
    if let Some(asked) = spec.requests {
        fits(asked.into())?;
    }
    let seed = spec.seed.unwrap_or(seed);
    let mut built = Built { workload: Workload::default(), arrivals: Arrivals::Open, files: vec![], notes: vec![] };
    let source = match &spec.lengths {
        Some(LengthSpec::Trace(t)) => Some(built.take_lengths(t, baseline_tpot_s)?),
        _ => None,
    };
    let has_lengths = match &spec.arrivals {
        ArrivalSpec::Trace(t) => built.take_arrivals(t, baseline_tpot_s)?,
        ArrivalSpec::ClosedLoop(_) | ArrivalSpec::Batch(_) => {
            if let ArrivalSpec::ClosedLoop(clients) = spec.arrivals {
                built.arrivals = Arrivals::Closed { clients };
            }
            let rows = source.as_ref().map_or(0, Workload::len);
            let requests = spec.requests.map_or(rows, |n| n as usize);
            built.workload = (0..requests).map(|_| Request::new(Time::ZERO, 1, 1)).collect();
            false
        }
        generated => {
            for at in arrivals(generated, spec, seed) {
                let at = at.map_err(|stalled| stalled.after(built.workload.len()))?;
                fits(built.workload.len() as u64 + 1)?;
                built.workload.push(Request::new(at, 1, 1));
            }
            all_arrive(spec, built.workload.len())?;
            false
        }
    };
    for (index, transform) in spec.transform.iter().enumerate() {
        built.workload = transform.apply(built.workload, seed, index)?;
    }
    if built.workload.next_turn.iter().any(|&next| next != RequestId::MAX) {
        built.arrivals = Arrivals::Sessions;
    }
    match &spec.lengths {
        Some(lengths) => built.take_turns(spec.sessions.as_ref(), lengths, source.as_ref(), seed)?,
        None if has_lengths => {}
        None => {
            let hint = "add lengths = { spec-bench = {} } or { trace = { path = \"...\" } }";
            return Err(TraceError::spec("lengths", "the arrival trace has no lengths of its own", hint));
        }
    }
    set_priorities(&mut built.workload, &spec.priorities)?;
    not_empty(built.workload.len())?;
    Ok(built)
}

/// Refuses a workload whose arrival process reaches the end of the clock (213 days) before all requests that the
/// setting `requests` asks for have arrived.
fn all_arrive(spec: &WorkloadSpec, requests: usize) -> Result<(), TraceError> {
    match (spec.requests, spec.duration_s) {
        (Some(asked), None) if requests < asked as usize => {
            let what = format!("{requests} of {asked} requests arrive in the clock's 213 days");
            Err(TraceError::spec("arrivals", what, "raise the rate, or ask for fewer requests"))
        }
        _ => Ok(()),
    }
}

fn not_empty(requests: usize) -> Result<(), TraceError> {
    if requests > 0 {
        return Ok(());
    }
    let hint = "check duration_s and the rate, and what the transforms leave out";
    Err(TraceError::spec("arrivals", "not one request is left", hint))
}

/// Refuses a workload for which no request was drawn, or fewer requests than the setting `requests` asks for.
pub(crate) fn too_few(spec: &WorkloadSpec, requests: usize) -> Result<(), TraceError> {
    all_arrive(spec, requests)?;
    not_empty(requests)
}

/// Gives each request the priority of its category; 0 if `priorities` does not name the category. Fails if `priorities`
/// names an unknown category, or if the requests already have priorities from a column of the trace.
pub(crate) fn set_priorities(workload: &mut Workload, priorities: &BTreeMap<String, i32>) -> Result<(), TraceError> {
    if let Some(unknown) = priorities.keys().find(|name| !workload.categories.contains(name)) {
        let what = format!("no request is of the category {unknown}");
        let hint = match workload.categories.as_slice() {
            [] => "requests have categories where they are drawn like Spec-Bench's or read from a file that names them"
                .into(),
            all => format!("there are: {}", all.join(", ")),
        };
        return Err(TraceError::spec("priorities", what, hint));
    }
    if !priorities.is_empty() {
        if !workload.priority.is_empty() {
            let what = "the requests have priorities of their own, from a column of the trace";
            let hint = "keep either priorities or the column's name in columns";
            return Err(TraceError::spec("priorities", what, hint));
        }
        let priority_of = |name: &String| priorities.get(name).copied().unwrap_or(0);
        let by_category: Vec<i32> = workload.categories.iter().map(priority_of).collect();
        workload.priority = workload.category.iter().map(|&c| by_category[usize::from(c)]).collect();
    }
    Ok(())
}

/// Refuses a workload of `requests` requests if they do not fit into the memory that this program may use.
pub(crate) fn fits(requests: u64) -> Result<(), TraceError> {
    if requests <= limits::requests() {
        return Ok(());
    }
    let what = format!(
        "a run of {requests} requests takes {}, some {} bytes each",
        limits::bytes(requests.saturating_mul(limits::REQUEST)),
        limits::REQUEST
    );
    Err(TraceError::spec("requests", what, format!("ask for fewer, or for less time; {}", limits::raise())))
}

impl Stalled {
    /// The error of an arrival process that made `found` requests and then found no further request within the number
    /// of steps that its search may take.
    pub(crate) fn after(self, found: usize) -> TraceError {
        let million = Effort::FIRST / 1_000_000;
        let what =
            format!("the arrival process made no request in {million} million steps after its first {found} requests");
        let hint = "raise its rate, or the time in which it changes (tau_s, fine_tau_s, flicker_tau_s, tick_s, bin_s)";
        TraceError::spec("arrivals", what, hint)
    }
}

impl Built {
    /// Gives each arrival its prompt length and output length. With the setting `sessions`, each arrival is first
    /// replaced by the turns of a session (a conversation of several requests).
    fn take_turns(
        &mut self,
        sessions: Option<&Sessions>,
        lengths: &LengthSpec,
        source: Option<&Workload>,
        seed: u64,
    ) -> Result<(), TraceError> {
        let Some(sessions) = sessions else {
            let old = std::mem::take(&mut self.workload);
            self.workload = replace_lengths(&old.arrival, lengths, source, seed);
            (self.workload.next_turn, self.workload.gap) = (old.next_turn, old.gap);
            return Ok(());
        };
        let turns = sessions.turns(&self.workload.arrival, seed)?;
        let times: Vec<Time> = turns.iter().map(|turn: &Turn| turn.at).collect();
        let workload = replace_lengths(&times, lengths, source, seed);
        self.workload = sessions.link(workload, &turns)?;
        self.arrivals = Arrivals::Sessions;
        Ok(())
    }

    /// Reads the trace file that gives the arrivals, and takes its requests as the workload. Returns whether the file
    /// also has lengths. Fails if it has no arrival times.
    fn take_arrivals(&mut self, spec: &TraceSpec, baseline_tpot_s: Option<f64>) -> Result<bool, TraceError> {
        let trace = self.note(spec, read(spec, baseline_tpot_s)?);
        self.workload = trace.workload;
        if trace.gives.arrivals {
            return Ok(trace.gives.lengths);
        }
        let hint = "use it as lengths = { trace = ... } with other arrivals, for example { poisson = { rate = 4.0 } }";
        Err(TraceError::file(&spec.path, "has no arrival times", hint))
    }

    fn take_lengths(&mut self, spec: &TraceSpec, baseline_tpot_s: Option<f64>) -> Result<Workload, TraceError> {
        let mut trace = self.note(spec, read(spec, baseline_tpot_s)?);
        if trace.gives.lengths {
            // Lengths alone are taken, whichever requests they belonged to.
            (trace.workload.next_turn, trace.workload.gap) = Default::default();
            return Ok(trace.workload);
        }
        Err(TraceError::file(&spec.path, "has no lengths", "use it as arrivals = { trace = ... }"))
    }

    fn note(&mut self, spec: &TraceSpec, mut trace: Trace) -> Trace {
        let name = spec.path.display();
        self.notes.extend(trace.notes.drain(..).map(|n| format!("{name}: {n}")));
        trace.files.retain(|file| !self.files.contains(file));
        self.files.append(&mut trace.files);
        trace
    }
}

/// Arrival times in ascending order. The error [`Stalled`] means that the arrival process found no further request
/// within the number of steps that its search may take ([`Effort`]).
pub(crate) type DrawnTimes = Box<dyn Iterator<Item = Result<Time, Stalled>>>;

/// The arrival times that the workload description `spec` draws with `seed`. All times are 0 for a closed loop and for
/// a batch.
pub(crate) fn drawn_times(spec: &WorkloadSpec, seed: u64) -> DrawnTimes {
    match &spec.arrivals {
        ArrivalSpec::ClosedLoop(_) | ArrivalSpec::Batch(_) => {
            Box::new((0..spec.requests.unwrap_or(0)).map(|_| Ok(Time::ZERO)))
        }
        generator => arrivals(generator, spec, seed),
    }
}

/// The arrival times that `generator` draws. They end at `duration_s`, after `requests` arrivals, or at the end of the
/// clock, whichever comes first. AdaSpec's load shapes T1, T2 and T3 end at [`SHAPE_S`] if neither setting is given.
fn arrivals(generator: &ArrivalSpec, spec: &WorkloadSpec, seed: u64) -> DrawnTimes {
    let draws = Draws::new(seed, Stream::Arrivals, 0);
    let is_shape = matches!(generator, ArrivalSpec::T1(_) | ArrivalSpec::T2(_) | ArrivalSpec::T3(_));
    let default_s = if is_shape && spec.requests.is_none() { SHAPE_S } else { f64::INFINITY };
    let end_s = spec.duration_s.unwrap_or(default_s);
    // Generators with long gaps search for further arrivals only up to `end_s`, or up to the end of the clock (213
    // days) if there is no `end_s`.
    let search_s = end_s.min(Time::MAX.as_s());
    let process: DrawnTimes = match generator {
        ArrivalSpec::Poisson(p) => Box::new(PoissonGaps::new(p.rate, draws).map(Ok)),
        ArrivalSpec::MooncakePoisson(p) => Box::new(PoissonGaps::new(p.rate, draws).map(Ok)),
        ArrivalSpec::T3(p) => Box::new(PoissonGaps::new(p.rate, draws).map(Ok)),
        ArrivalSpec::Gamma(p) => Box::new(GammaGaps::new(p, draws).map(Ok)),
        ArrivalSpec::Burstgpt(p) => Box::new(BurstGptGaps::new(p, draws).map(Ok)),
        ArrivalSpec::AzureConv(p) => Box::new(LogOuArrivals::new(p, draws, search_s)),
        ArrivalSpec::ServegenDay(p) => Box::new(LogOuArrivals::of_a_day(p, draws, search_s)),
        ArrivalSpec::T1(p) => Box::new(LogOuArrivals::two_rate(p, draws, search_s)),
        ArrivalSpec::AzureCode(p) => Box::new(OnOffArrivals::new(p, draws, search_s)),
        ArrivalSpec::MooncakeTicks(p) | ArrivalSpec::T2(p) => Box::new(TickArrivals::new(p, draws, search_s)),
        ArrivalSpec::AdaspecMooncake(p) => Box::new(AdaSpecBinArrivals::new(p, draws, search_s)),
        ArrivalSpec::Trace(_) | ArrivalSpec::ClosedLoop(_) | ArrivalSpec::Batch(_) => Box::new(std::iter::empty()),
    };
    // The simulated clock saturates at `Time::MAX`, so an arrival at that time lies beyond the clock.
    let end = if end_s.is_finite() { Time::from_s(end_s) } else { Time::MAX };
    Box::new(
        process
            .take_while(move |at| at.is_err() || at.is_ok_and(|at| at < end))
            .take(spec.requests.map_or(usize::MAX, |n| n as usize)),
    )
}

/// Makes requests with the given arrival times. Their lengths come from the setting `lengths`: drawn, or from the rows
/// of the trace `source`. If this trace has categories, recordings (which draft tokens were right), prefixes or SLOs,
/// these are taken too.
fn replace_lengths(arrivals: &[Time], lengths: &LengthSpec, source: Option<&Workload>, seed: u64) -> Workload {
    if let LengthSpec::Trace(t) = lengths {
        let source = source.expect("a length trace is read before its lengths are used");
        let order = sample_order(source.len(), arrivals.len(), t.sample.unwrap_or_default(), seed);
        return pick(source, arrivals.iter().copied().zip(order));
    }
    let mut workload: Workload = arrivals.iter().zip(0..).map(|(&at, i)| draw_request(lengths, seed, i, at)).collect();
    workload.categories = named_categories(lengths);
    workload
}

/// The names of the categories that drawn requests can have; empty if the lengths have no categories.
pub(crate) fn named_categories(lengths: &LengthSpec) -> Vec<String> {
    match lengths {
        LengthSpec::Categories(of) => of.keys().cloned().collect(),
        LengthSpec::SpecBench(_) => SPEC_BENCH_CATEGORIES.map(str::to_owned).to_vec(),
        LengthSpec::Fixed(_) | LengthSpec::LogNormal(_) | LengthSpec::Table(_) | LengthSpec::Trace(_) => Vec::new(),
    }
}

/// Request number `i`, which arrives at `at`, with drawn lengths. Panics if the lengths come from a trace.
pub(crate) fn draw_request(lengths: &LengthSpec, seed: u64, i: u64, at: Time) -> Request {
    let draws = &mut Draws::new(seed, Stream::Lengths, i);
    let (category, prompt, output) = match lengths {
        LengthSpec::Fixed(f) => (0, f.prompt, f.output),
        LengthSpec::LogNormal(law) => {
            let (prompt, output) = law.draw(draws);
            (0, prompt, output)
        }
        LengthSpec::Table(name) => {
            let (prompt, output) = name.table().draw(draws);
            (0, prompt, output)
        }
        LengthSpec::Categories(of) => categories::draw(of, draws),
        LengthSpec::SpecBench(caps) => caps.draw(draws),
        LengthSpec::Trace(_) => unreachable!("lengths of a trace are not drawn"),
    };
    Request { category, ..Request::new(at, prompt, output) }
}

/// For each of `requests` requests: the row (0 to `rows` − 1) of the trace from which the request takes its lengths.
fn sample_order(rows: usize, requests: usize, sample: Sample, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..requests).map(|i| i % rows).collect();
    if sample == Sample::Shuffle {
        let rounds = requests.div_ceil(rows);
        order = (0..rounds as u64).flat_map(|round| shuffled(rows, Luck::new(seed, Stream::Lengths, round))).collect();
        order.truncate(requests);
    }
    order
}

/// A random permutation of 0 to `n` − 1 (Fisher–Yates). Each index is the remainder of a 64-bit draw of `luck`; the
/// bias of the remainder is below 2^-40.
fn shuffled(n: usize, luck: Luck) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        order.swap(i, (luck.bits(i as u64) % (i as u64 + 1)) as usize);
    }
    order
}
