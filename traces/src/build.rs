//! Builds a workload from a description and a seed: first the arrivals, then the transformations in their order, then
//! the lengths.

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
use foretoken_sim::{Arrivals, Luck, Request, Stream, Time, Workload};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Length, in seconds, of AdaSpec's load shapes T1, T2 and T3 if neither `duration_s` nor `requests` is set. AdaSpec's
/// own traces last 600 s.
const SHAPE_S: f64 = 600.0;

/// A workload that is ready to run.
#[derive(Clone, Debug)]
pub struct Built {
    /// The requests, with arrival times and lengths.
    pub workload: Workload,
    /// How requests arrive: at their own times, from the clients of a closed loop, or as turns of sessions.
    pub arrivals: Arrivals,
    /// Paths of all files that were read, so that callers can compute digests.
    pub files: Vec<PathBuf>,
    /// Messages about rows and requests of these files that were left out or changed.
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
                let at = at.map_err(|Stalled| stalled(built.workload.len()))?;
                fits(built.workload.len() as u64 + 1)?;
                built.workload.push(Request::new(at, 1, 1));
            }
            if let (Some(asked), None) = (spec.requests, spec.duration_s)
                && built.workload.len() < asked as usize
            {
                let what = format!("{} of {asked} requests arrive in the clock's 213 days", built.workload.len());
                return Err(TraceError::spec("arrivals", what, "raise the rate, or ask for fewer requests"));
            }
            false
        }
    };
    for (index, transform) in spec.transform.iter().enumerate() {
        built.workload = transform.apply(built.workload, seed, index)?;
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
    if built.workload.is_empty() {
        let hint = "check duration_s and the rate, and what the transforms leave out";
        return Err(TraceError::spec("arrivals", "not one request is left", hint));
    }
    Ok(built)
}

/// Gives each request the priority of its category; 0 if `priorities` does not name the category. Fails if `priorities`
/// names an unknown category, or if the requests already have priorities from a column of the trace.
fn set_priorities(workload: &mut Workload, priorities: &BTreeMap<String, i32>) -> Result<(), TraceError> {
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

/// Refuses more requests than fit into memory.
fn fits(requests: u64) -> Result<(), TraceError> {
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

/// The error of an arrival process that made `found` requests and then found no further arrival within its limit of
/// steps.
fn stalled(found: usize) -> TraceError {
    let million = Effort::FIRST / 1_000_000;
    let what =
        format!("the arrival process made no request in {million} million steps after its first {found} requests");
    let hint = "raise its rate, or the time in which it changes (tau_s, fine_tau_s, flicker_tau_s, tick_s, bin_s)";
    TraceError::spec("arrivals", what, hint)
}

impl Built {
    /// Gives each arrival its lengths. With `sessions`, first replaces each arrival by the turns of a session.
    fn take_turns(
        &mut self,
        sessions: Option<&Sessions>,
        lengths: &LengthSpec,
        source: Option<&Workload>,
        seed: u64,
    ) -> Result<(), TraceError> {
        let Some(sessions) = sessions else {
            self.workload = replace_lengths(&self.workload.arrival, lengths, source, seed);
            return Ok(());
        };
        let turns = sessions.turns(&self.workload.arrival, seed)?;
        let times: Vec<Time> = turns.iter().map(|turn: &Turn| turn.at).collect();
        let workload = replace_lengths(&times, lengths, source, seed);
        self.workload = sessions.link(workload, &turns)?;
        self.arrivals = Arrivals::Sessions;
        Ok(())
    }

    /// Reads the arrival trace as the workload. Returns whether the trace also has lengths. Fails if it has no arrival
    /// times.
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
        let trace = self.note(spec, read(spec, baseline_tpot_s)?);
        if trace.gives.lengths {
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

/// Arrival times in ascending order. The error [`Stalled`] means that the process found no further arrival within its
/// limit of steps ([`Effort`]).
type Process = Box<dyn Iterator<Item = Result<Time, Stalled>>>;

/// The arrival times of a generator. They end at `duration_s`, after `requests` arrivals, or at the end of the clock.
/// T1, T2 and T3 end at [`SHAPE_S`] if neither setting is given.
fn arrivals(generator: &ArrivalSpec, spec: &WorkloadSpec, seed: u64) -> Process {
    let draws = Draws::new(seed, Stream::Arrivals, 0);
    let is_shape = matches!(generator, ArrivalSpec::T1(_) | ArrivalSpec::T2(_) | ArrivalSpec::T3(_));
    let default_s = if is_shape && spec.requests.is_none() { SHAPE_S } else { f64::INFINITY };
    let end_s = spec.duration_s.unwrap_or(default_s);
    // Generators with long gaps search for arrivals only up to `end_s`, or up to the end of the clock if there is no
    // `end_s`.
    let search_s = end_s.min(Time::MAX.as_s());
    let process: Process = match generator {
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
    // The clock saturates at `Time::MAX`, so an arrival at that time lies beyond the clock.
    let end = if end_s.is_finite() { Time::from_s(end_s) } else { Time::MAX };
    Box::new(
        process
            .take_while(move |at| at.is_err() || at.is_ok_and(|at| at < end))
            .take(spec.requests.map_or(usize::MAX, |n| n as usize)),
    )
}

/// Makes requests with the given arrival times. Their lengths come from the length source. If the source has
/// categories, recordings, prefixes or SLOs, these are taken too.
fn replace_lengths(arrivals: &[Time], lengths: &LengthSpec, source: Option<&Workload>, seed: u64) -> Workload {
    let each = |request: u64| Draws::new(seed, Stream::Lengths, request);
    let numbered = arrivals.iter().zip(0u64..);
    match lengths {
        LengthSpec::Fixed(f) => arrivals.iter().map(|&at| Request::new(at, f.prompt, f.output)).collect(),
        LengthSpec::LogNormal(law) => {
            let request = |(&at, i)| {
                let (prompt, output) = law.draw(&mut each(i));
                Request::new(at, prompt, output)
            };
            numbered.map(request).collect()
        }
        LengthSpec::Table(name) => {
            let table = name.table();
            let request = |(&at, i)| {
                let (prompt, output) = table.draw(&mut each(i));
                Request::new(at, prompt, output)
            };
            numbered.map(request).collect()
        }
        LengthSpec::Categories(of) => {
            let request = |(&at, i)| {
                let (category, prompt, output) = categories::draw(of, &mut each(i));
                Request { category, ..Request::new(at, prompt, output) }
            };
            let mut workload: Workload = numbered.map(request).collect();
            workload.categories = of.keys().cloned().collect();
            workload
        }
        LengthSpec::SpecBench(caps) => {
            let request = |(&at, i)| {
                let (category, prompt, output) = caps.draw(&mut each(i));
                Request { category, ..Request::new(at, prompt, output) }
            };
            let mut workload: Workload = numbered.map(request).collect();
            workload.categories = SPEC_BENCH_CATEGORIES.map(str::to_owned).to_vec();
            workload
        }
        LengthSpec::Trace(t) => {
            let source = source.expect("a length trace is read before its lengths are used");
            let order = sample_order(source.len(), arrivals.len(), t.sample.unwrap_or_default(), seed);
            pick(source, arrivals.iter().copied().zip(order))
        }
    }
}

/// For each of `requests` requests: the row (0 to `rows` − 1) of the length source from which the request takes its
/// lengths.
fn sample_order(rows: usize, requests: usize, sample: Sample, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..requests).map(|i| i % rows).collect();
    if sample == Sample::Shuffle {
        let rounds = requests.div_ceil(rows);
        order = (0..rounds as u64).flat_map(|round| shuffled(rows, Luck::new(seed, Stream::Lengths, round))).collect();
        order.truncate(requests);
    }
    order
}

/// A random permutation of 0 to `n` − 1: Fisher–Yates with keyed draws (a 64-bit remainder is biased by below 2^-40).
fn shuffled(n: usize, luck: Luck) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        order.swap(i, (luck.bits(i as u64) % (i as u64 + 1)) as usize);
    }
    order
}
