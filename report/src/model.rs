//! The contents of a report as plain data: its cells and their numbers. A cell is one run of one policy.

use crate::Cdf;
use crate::fleet::{FleetCell, FleetEntry};
pub use foretoken_policies::{Dash, Look, Marker};
use foretoken_sim::Summary;
use foretoken_sim::metrics::{CalibrationBin, LengthRow, Pieces, Series};
use std::collections::{HashMap, HashSet};
use std::fmt;

/// Where the numbers of a report come from. Every figure shows this source as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Simulated, with modelled costs of passes and modelled acceptance.
    Simulated,
    /// Simulated, with measured costs of passes and modelled acceptance.
    Profiled,
    /// Measured on hardware while serving.
    Live,
    /// Measured by a client that sent requests to a server.
    Observed,
    /// Simulated, with modelled costs of passes and recorded acceptance: a recording says which draft tokens are right.
    Recorded,
    /// Simulated, with measured costs of passes and recorded acceptance.
    ProfiledRecorded,
}

impl Source {
    const ALL: [Source; 6] = [
        Source::Simulated,
        Source::Profiled,
        Source::Live,
        Source::Observed,
        Source::Recorded,
        Source::ProfiledRecorded,
    ];

    /// The source of a report's numbers with this name, such as `live`; `None` for an unknown name.
    pub fn named(name: &str) -> Option<Source> {
        Source::ALL.into_iter().find(|source| source.to_string() == name)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Simulated => "simulated",
            Source::Profiled => "simulated on profiled costs",
            Source::Live => "live",
            Source::Observed => "observed",
            Source::Recorded => "simulated on recorded acceptance",
            Source::ProfiledRecorded => "simulated on profiled costs and recorded acceptance",
        })
    }
}

/// One swept setting of a run. Two swept settings are equal if their paths, values and numbers are equal.
#[derive(Clone, Debug)]
pub struct Swept {
    /// The setting's path in the experiment, such as `workload.transform[0].rate-scale`.
    pub path: String,
    pub value: String,
    /// The swept value as a number; `None` if it is not a number or not finite.
    pub number: Option<f64>,
    /// The setting's name in words, such as `request rate`; if no words are known, the last key of the path.
    pub name: String,
    /// The unit of the values, such as `requests/s`; empty for none.
    pub unit: String,
}

impl Swept {
    /// A swept setting whose name is the last key of its path.
    pub fn new(path: &str, value: String, number: Option<f64>) -> Swept {
        let name = path.rsplit('.').next().unwrap_or_default().to_owned();
        Swept { path: path.to_owned(), value, number, name, unit: String::new() }
    }

    /// The title of an axis for this setting: the name, and the unit in brackets.
    pub fn axis(&self) -> String {
        match self.unit.is_empty() || self.is_its_unit() {
            true => self.name.clone(),
            false => format!("{} ({})", self.name, self.unit),
        }
    }

    /// The setting and its value as text, such as `request rate = 2 requests/s`.
    pub fn in_words(&self) -> String {
        let unit =
            if self.is_its_unit() || self.unit.is_empty() { String::new() } else { format!("\u{a0}{}", self.unit) };
        format!("{} = {}{unit}", self.name, self.shown())
    }

    /// True if the setting's name is the unit of its values, such as `replicas`. The unit is then not written again.
    pub fn is_its_unit(&self) -> bool {
        self.name == self.unit
    }

    /// The value as pages show it. A file's path is shortened to the file name without its ending.
    pub fn shown(&self) -> String {
        let stem = |path: &str| {
            let file = path.trim_end_matches('/').rsplit(['/', '\\']).next().unwrap_or_default();
            file.rsplit_once('.').map_or(file, |(stem, _)| stem).to_owned()
        };
        let is_path = |text: &str| text.contains('/') && (text.starts_with('/') || !text.contains(char::is_whitespace));
        if is_path(&self.value) && !self.value.contains('"') {
            return stem(&self.value);
        }
        // The value is TOML text. It is split at quotes, so every second part was between quotes.
        let parts = self.value.split('"').enumerate();
        parts
            .map(|(i, part)| if i % 2 == 1 && is_path(part) { stem(part) } else { part.to_owned() })
            .collect::<Vec<_>>()
            .join("\"")
    }
}

impl PartialEq for Swept {
    fn eq(&self, other: &Swept) -> bool {
        (&self.path, &self.value, self.number) == (&other.path, &other.value, other.number)
    }
}

/// Identifies a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// The policy's label in tables and figures, unique in a report.
    pub policy: String,
    /// The swept settings of the run. All runs of a report have the same paths in the same order.
    pub sweep: Vec<Swept>,
    /// The seed of the run's random draws.
    pub seed: u64,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.policy)?;
        self.sweep.iter().try_for_each(|s| write!(f, ", {} = {}", s.path, s.value))?;
        write!(f, ", seed {}", self.seed)
    }
}

/// The role of a policy in a comparison, such as baseline or oracle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// A policy of the comparison that a server can run, except the baseline.
    #[default]
    Contender,
    /// Autoregressive decoding: speedups are ratios to its latency.
    Baseline,
    /// The oracle against which regret is measured (by how much a policy's mean latency exceeds the oracle's). It sees
    /// which draft tokens will be accepted.
    Bound,
    /// An oracle that is not the bound: another policy that sees which draft tokens will be accepted.
    Oracle,
}

impl Role {
    /// Does the policy see which draft tokens will be accepted? No server can run such a policy.
    pub fn sees_hidden_truth(self) -> bool {
        matches!(self, Role::Bound | Role::Oracle)
    }
}

/// A cell without its results: its key, and facts on its policy, its hardware and its TPOT bound.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The policy, swept values and seed, which identify the run among all others.
    pub key: Key,
    /// Colour, dash and marker of the run's policy in figures.
    pub look: Look,
    /// The role of the run's policy in the comparison, such as baseline or oracle.
    pub role: Role,
    /// The draft length of a policy that always drafts the same number of tokens; 0 for plain decoding. `None` for
    /// other policies.
    pub fixed: Option<u32>,
    /// Does the policy choose draft lengths without looking at the requests? Then the goodput measured at a draft
    /// length holds for all requests, and not only for requests for which the policy chose this length.
    pub blind: bool,
    /// Does the run's policy draft trees? The oracle `oracle-goodput` drafts chains only, so it is no bound for trees.
    pub trees: bool,
    /// Does the run's policy stop drafting in steps that it expects to miss the TPOT bound?
    pub stops_for_slo: bool,
    /// Are all requests there at the start? Then the run is judged by the time until its last request ends, and not by
    /// its mean E2E.
    pub batch: bool,
    /// Number of GPUs on which the target runs, over all replicas; `None` if the hardware does not state GPUs.
    pub gpus: Option<u32>,
    /// Was the autoregressive run added by the program, because the experiment does not list it? Then figures leave
    /// this run out.
    pub implied: bool,
    /// How the run's TPOT bound is computed from the P90 TPOT of an autoregressive run; `None` if it is not computed
    /// so.
    pub bound: Option<ScaledBound>,
    /// The run's fleet of replicas; `None` for a single engine.
    pub fleet: Option<FleetEntry>,
}

/// A TPOT bound that is a multiple of the P90 TPOT of an autoregressive run. This run has the same seed, and the swept
/// values `from`.
#[derive(Clone, Debug, PartialEq)]
pub struct ScaledBound {
    /// The swept values of the autoregressive run from whose P90 TPOT the bound is computed.
    pub from: Vec<Swept>,
    /// The TPOT bound divided by the P90 TPOT of the autoregressive run from which the bound is computed.
    pub scale: f64,
    /// Is this TPOT bound the only SLO bound of the run?
    pub alone: bool,
}

/// One finished cell: a policy at one combination of swept values with one seed.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The run's key (policy, swept values, seed), and facts on its policy, its hardware and its TPOT bound.
    pub entry: Entry,
    /// The numbers of the run over all its requests and steps, such as mean latencies and acceptance.
    pub summary: Summary,
    /// [Time](Cell::judged_s) of autoregressive decoding / time of this policy, with equal swept values and seed.
    /// `None` if one of the two runs is missing or finished no request.
    pub speedup: Option<f64>,
    /// Time of this policy / time of the bound (an oracle), minus 1, with equal swept values and seed. `None` if one of
    /// the two runs is missing or finished no request.
    pub regret: Option<f64>,
    /// Time of this policy / time of the fastest policy that a server can run (plain decoding included), minus 1, with
    /// equal swept values and seed. The fastest policy is chosen once for all seeds. `None` if no policy could be
    /// chosen, or if one of the two runs finished no request.
    pub behind: Option<f64>,
    /// Mean E2E of this policy / mean E2E of the same policy in the other results that the report is compared with,
    /// minus 1; `None` without other results.
    pub change: Option<f64>,
    /// Was the autoregressive run of the speedup overloaded? The mean latency of this run is the numerator of the
    /// speedup.
    pub over_overload: bool,
    /// Is this run's TPOT bound a multiple of the P90 TPOT of an overloaded autoregressive run?
    pub bound_of_overload: bool,
    /// Decode batch size and numbers of tokens of the run in bins of time.
    pub series: Series,
    /// Times to first token of the run's finished requests.
    pub ttft: Cdf,
    /// Times per output token of the run's finished requests, one value per request.
    pub tpot: Cdf,
    /// End-to-end latencies of the run's finished requests.
    pub e2e: Cdf,
    /// Sums over the run's steps, one row per draft length and bucket of batch sizes. Steps with prompts and steps
    /// without prompts have separate rows.
    pub lengths: Vec<LengthRow>,
    /// Numbers of draft tokens and of right draft tokens, by the draft model's confidence. Empty if the policy does not
    /// look at confidences.
    pub calibration: Vec<CalibrationBin>,
    /// What each replica of the fleet did; `None` for a single engine.
    pub fleet: Option<Box<FleetCell>>,
}

impl Cell {
    /// Drops the cell's distributions of latencies, its series over time, its sums by draft length, its calibration of
    /// confidences and its replicas, to save memory. The comparison of policies does not need them. Figures need them,
    /// and so do experiments that check a paper's claims or answer a user's question.
    pub fn forget_curves(&mut self) {
        self.series = Series::default();
        (self.ttft, self.tpot, self.e2e) = Default::default();
        (self.lengths, self.calibration) = Default::default();
        self.fleet = None;
    }

    /// A cell with its entry and summary; everything else is empty, false or `None`.
    pub fn new(entry: Entry, summary: Summary) -> Cell {
        Cell {
            entry,
            summary,
            speedup: None,
            regret: None,
            behind: None,
            change: None,
            over_overload: false,
            bound_of_overload: false,
            series: Series::default(),
            ttft: Cdf::default(),
            tpot: Cdf::default(),
            e2e: Cdf::default(),
            lengths: Vec::new(),
            calibration: Vec::new(),
            fleet: None,
        }
    }

    /// Adds to the cell the distributions of TTFT, TPOT and E2E of the run's requests.
    pub fn with_latencies(mut self, records: &dyn Pieces) -> Cell {
        (self.ttft, self.tpot, self.e2e) = (Cdf::ttft(records), Cdf::tpot(records), Cdf::e2e(records));
        self
    }

    /// Identifies the run: policy, swept values and seed.
    pub fn key(&self) -> &Key {
        &self.entry.key
    }

    /// Is the SLO attainment 90 % by definition? This is so for an autoregressive run whose only bound is the run's own
    /// P90 TPOT. If the attainment differs from 90 % by a percentage point or more, the answer is false, because some
    /// requests then have bounds of their own.
    pub fn attains_by_definition(&self) -> bool {
        let own = |b: &ScaledBound| b.alone && b.scale == 1.0 && b.from == self.key().sweep;
        let attains = self.summary.slo_attainment.is_some_and(|share| (share - 0.9).abs() < 0.01);
        self.entry.role == Role::Baseline && attains && self.entry.bound.as_ref().is_some_and(own)
    }

    /// Does the policy stop drafting for a TPOT bound that is a multiple of the P90 TPOT of a run at other swept
    /// values? Then the bound of the other load changes how the policy drafts, and so the cell's numbers.
    pub fn stops_for_a_bound_of_another_load(&self) -> bool {
        self.entry.stops_for_slo && self.entry.bound.as_ref().is_some_and(|b| b.from != self.key().sweep)
    }

    /// Mean end-to-end latency of finished requests, seconds; `None` if none finished.
    pub fn e2e_mean_s(&self) -> Option<f64> {
        self.summary.e2e.map(|q| q.mean)
    }

    /// The time by which the run is compared with others, seconds: the mean E2E, or of a batch the time until its last
    /// request ends. `None` if no request finished.
    pub fn judged_s(&self) -> Option<f64> {
        self.e2e_mean_s().map(|mean_s| if self.entry.batch { self.summary.duration_s } else { mean_s })
    }
}

/// Sets the speedup over the autoregressive run and the regret against the oracle for every cell. The speedup and the
/// regret compare runs with equal swept values and seed. Also marks cells whose autoregressive run was overloaded, and
/// cells whose TPOT bound is a multiple of the P90 TPOT of an overloaded run.
pub fn relate(cells: &mut [Cell]) {
    // All runs sweep the same settings, so the values alone identify a combination of swept values.
    let place = |sweep: &[Swept], seed| (sweep.iter().map(|s| s.value.clone()).collect::<Vec<_>>(), seed);
    let place_of = |c: &Cell| place(&c.key().sweep, c.key().seed);
    let with = |role| {
        let mut all = HashMap::new();
        let these = cells.iter().filter(|c| c.entry.role == role);
        for (at, time_s) in these.filter_map(|c| Some((place_of(c), c.judged_s()?))) {
            all.entry(at).or_insert(time_s);
        }
        all
    };
    let (baselines, bounds) = (with(Role::Baseline), with(Role::Bound));
    let behind = cells.iter().filter(|c| c.entry.role == Role::Baseline && c.summary.overload.is_some());
    let behind: HashSet<(Vec<String>, u64)> = behind.map(place_of).collect();
    for cell in cells.iter_mut() {
        let at = place_of(cell);
        let (own, baseline, bound) = (cell.judged_s(), baselines.get(&at), bounds.get(&at));
        cell.speedup = baseline.zip(own).map(|(ar, own)| ar / own);
        cell.regret = bound.zip(own).map(|(bound, own)| own / bound - 1.0);
        let fell_behind = |sweep: &[Swept]| behind.contains(&place(sweep, at.1));
        let over = behind.contains(&at);
        let bound = cell.entry.bound.as_ref().is_some_and(|b| fell_behind(&b.from));
        (cell.over_overload, cell.bound_of_overload) = (over, bound);
    }
    set_behind(cells);
}

/// The times of one policy, as (seed, seconds); `None` if no request finished with the seed.
type Latencies = Vec<(u64, Option<f64>)>;

/// Sets `behind` of every cell: how much slower the policy is than the fastest policy that a server can run (plain
/// decoding included) at the same swept values. The fastest policy has the least mean over seeds of the logarithm of
/// its mean latency. Only policies that finished requests with every seed can be the fastest.
fn set_behind(cells: &mut [Cell]) {
    let mut settings: Vec<Vec<Swept>> = Vec::new();
    for cell in cells.iter() {
        if !settings.contains(&cell.key().sweep) {
            settings.push(cell.key().sweep.clone());
        }
    }
    for setting in settings {
        let here: Vec<usize> = (0..cells.len()).filter(|&i| cells[i].key().sweep == setting).collect();
        let contenders = here.iter().filter(|&&i| !cells[i].entry.role.sees_hidden_truth());
        let mut latencies: Vec<(String, Latencies)> = Vec::new();
        for cell in contenders.map(|&i| &cells[i]) {
            let one = (cell.key().seed, cell.judged_s());
            match latencies.iter_mut().find(|l| l.0 == cell.key().policy) {
                Some((_, by_seed)) => by_seed.push(one),
                None => latencies.push((cell.key().policy.clone(), vec![one])),
            }
        }
        let seeds = latencies.iter().map(|l| l.1.len()).max().unwrap_or(0);
        let mean = |by_seed: &Latencies| {
            let sum: Option<f64> = by_seed.iter().map(|(_, s)| s.map(f64::ln)).sum();
            sum.filter(|_| by_seed.len() == seeds).map_or(f64::INFINITY, |sum| sum / seeds as f64)
        };
        let fastest =
            latencies.iter().filter(|l| mean(&l.1).is_finite()).min_by(|a, b| mean(&a.1).total_cmp(&mean(&b.1)));
        let Some((_, fastest)) = fastest else { continue };
        for i in here {
            let best = fastest.iter().find(|(seed, _)| *seed == cells[i].key().seed).and_then(|(_, s)| *s);
            cells[i].behind = cells[i].judged_s().zip(best).map(|(own, best)| own / best - 1.0);
        }
    }
}

/// The cells of one results folder, with the name and the source that tables and figures show.
#[derive(Clone, Debug)]
pub struct Report {
    pub name: String,
    pub source: Source,
    /// The cells, in the order in which tables list them.
    pub cells: Vec<Cell>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_source_is_read_back() {
        for source in Source::ALL {
            assert_eq!(Source::named(&source.to_string()), Some(source));
        }
        assert_eq!(Source::named("guessed"), None);
    }
}
