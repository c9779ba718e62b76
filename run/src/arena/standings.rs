//! The standings, which are the arena's table over all scenarios: losses against each scenario's reference, scores, and
//! ranks with intervals.
//!
//! The loss of a policy in a scenario is ln(E2E / E2E of the reference with the same seed), mean over seeds. Of a
//! batch, whose requests are all there at the start, it is that of the times until the last request ends. The score is
//! the mean over scenarios of min(loss, [`CAP`]). Policies are ranked by the score, with one exception. If even the
//! reference is overloaded in a scenario, latencies there depend on the length of the run. For this scenario the ranks
//! use another loss: ln(the best reference's / the policy's output tokens per second), where only time inside the
//! engine's steps counts.
use super::rank::{CAP, Rank, ranks};
use super::scenario::{Numbers, Part, Ran, Scenario};
use crate::spec::arena::ArenaSet;
use foretoken_sim::metrics::Interval;
use serde::Serialize;
use std::collections::BTreeMap;

/// The arena's table: the ranks, scores and losses of all policies over all scenarios.
#[derive(Clone, Debug, Serialize)]
pub struct Standings {
    /// A sentence on what a quick (shortened) run of the arena left out; absent if all was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quick: Option<String>,
    /// The scenarios, in the order of their names.
    pub scenarios: Vec<Column>,
    /// Scenarios (experiments of the arena) that could not run on this machine, as (name, reason).
    pub skipped: Vec<(String, String)>,
    /// One row per policy. First the policies with a rank, by rank. Then, by score, the policies that did not run in
    /// all scenarios, and last the policies that know which draft tokens are right.
    pub rows: Vec<Standing>,
}

/// One scenario of the arena: its set (tuning, seen or held out), its number of requests, the oracles with which
/// policies are compared, and the best policies. It is a column of the arena's figure.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// The name of the experiment that is this scenario of the arena.
    pub name: String,
    /// The set to which the scenario belongs. Policies may be tuned on `tuning` scenarios only; `seen` scenarios were
    /// used to judge an earlier version of a policy; held-out scenarios are used to judge tuned policies.
    pub set: ArenaSet,
    /// A few words on how the scenario's experiment differs from the other scenarios'.
    pub about: String,
    /// Number of seeds with which each policy ran in the scenario.
    pub seeds: usize,
    /// Number of requests that arrived in a run: the smallest number over all runs.
    pub requests: u64,
    /// Label of the oracle to which the E2E of policies that draft chains is compared: the oracle of chains with the
    /// least mean E2E in the scenario.
    pub reference: String,
    /// The oracle to which the E2E of policies that draft trees is compared; absent if no oracle of trees ran in the
    /// scenario.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree_reference: Option<TreeReference>,
    /// Is the scenario's best oracle overloaded in most seeds (its queue grew as long as requests arrived)? If so,
    /// ranks use tokens per second in this scenario, not latencies.
    pub overload: bool,
    /// Label of the policy with the least mean E2E in the scenario among policies that a server can run, fixed draft
    /// lengths included.
    pub best: String,
    /// Label of the fixed draft length with the least mean E2E in the scenario; plain decoding counts as length 0.
    pub best_fixed: String,
}

/// The oracle of trees with the least mean E2E in a scenario.
#[derive(Clone, Debug, Serialize)]
pub struct TreeReference {
    /// The label of the oracle of trees, a policy that knows which draft tokens are right and drafts trees.
    pub policy: String,
    /// ln(E2E of the scenario's best oracle of trees / E2E of its best oracle of chains), paired by seed: mean over
    /// seeds and 95 % interval. It is usually below 0.
    pub to_chains: Interval,
}

/// A policy's row in the arena's table: its rank, its score, and its losses in each scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Standing {
    /// The policy's label: its name, and the settings that differ from their defaults.
    pub policy: String,
    /// The policy's role in the arena's ranking: an oracle with which others are compared, another policy that knows
    /// which draft tokens are right, a fixed draft length, or a contender, which chooses draft lengths as a server
    /// could.
    pub part: Part,
    /// Does the policy draft trees? False for chains.
    pub trees: bool,
    /// The policy's rank among the policies that a server can run and that ran in all scenarios; absent for all other
    /// policies.
    pub rank: Option<Rank>,
    /// The score by which policies are ranked: the mean of min(loss, [`CAP`]) over the scenarios in which the policy
    /// ran. A loss is ln(E2E / E2E of the scenario's best oracle).
    pub score: f64,
    /// The policy's score (mean capped loss) over the scenarios of each set, by the set's name, such as `tuning`;
    /// absent for a set in which the policy did not run.
    pub score_by_set: BTreeMap<&'static str, f64>,
    /// Mean over the scenarios in which the policy ran of its loss ln(E2E / E2E of the scenario's best oracle), without
    /// the cap.
    pub mean: f64,
    /// The policy's greatest loss, ln(E2E / E2E of the scenario's best oracle), and the name of the scenario with this
    /// loss.
    pub worst: (f64, String),
    /// Names of the scenarios in which the policy is certainly slower than the best fixed length: the 95 % interval of
    /// ln(E2E / E2E of that length) lies above 0. With one seed: the value is above 0.01.
    pub behind_fixed: Vec<String>,
    /// The policy's greatest ln(E2E / E2E of the scenario's best fixed draft length), and the name of that scenario.
    pub worst_behind_fixed: (f64, String),
    /// Ratio of the policy's output tokens per second to the reference's, as the geometric mean over the scenarios in
    /// which the policy ran. Only time inside the engine's steps counts. The reference is the scenario's best oracle.
    pub busy_tok: f64,
    /// Ratio of the policy's mean TTFT to the TTFT of the reference, as the geometric mean over the scenarios in which
    /// the policy ran.
    pub ttft: f64,
    /// Ratio of the policy's p99 TPOT to the p99 TPOT of the reference, as the geometric mean over the scenarios in
    /// which the policy ran. Absent if no TPOT exists in one of these scenarios.
    pub tpot_p99: Option<f64>,
    /// Share of requests that met every bound of `[slo]`, mean over the scenarios in which the policy ran; absent if
    /// one of these scenarios has no bound.
    pub slo: Option<f64>,
    /// The policy's losses and its mean latencies and rates in each scenario, in the order of [`Standings::scenarios`];
    /// `None` for a scenario in which the policy did not run.
    pub fields: Vec<Option<Field>>,
}

/// A policy's losses (against the best oracle and the best fixed length) and mean latencies and rates in one scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Field {
    /// ln(E2E of the policy / E2E of the reference, the scenario's best oracle): mean over seeds and 95 % interval.
    pub loss: Interval,
    /// ln(E2E of the policy / E2E of the scenario's best fixed draft length): mean over seeds and 95 % interval.
    pub to_fixed: Interval,
    /// The loss by which policies are ranked, one number per seed: ln(E2E of the policy / E2E of the reference, the
    /// best oracle). In an overloaded scenario it is ln(rate of the oracle with the highest rate / rate of the policy),
    /// where a rate is output tokens per second, and only time inside the engine's steps counts.
    #[serde(skip)]
    pub(super) ranking: Vec<f64>,
    /// The policy's latencies and rates in the scenario, each as its mean over seeds.
    pub mean: Means,
}

/// A policy's latencies and rates in one scenario, each the mean over seeds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Means {
    /// Mean end-to-end latency of finished requests, seconds; mean over seeds.
    pub e2e_s: f64,
    /// Output tokens of finished requests / the summed time of the engine's steps in seconds, mean over seeds. Time
    /// between steps does not count.
    pub busy_tok_s: f64,
    /// Mean time to first token of requests, seconds; mean over seeds.
    pub ttft_s: f64,
    /// 99th percentile over requests of the time per output token, seconds, mean over seeds; absent if with some seed
    /// no output has two tokens or more.
    pub tpot_p99_s: Option<f64>,
    /// Share of requests (0 to 1) that met every latency bound of the experiment's `[slo]` table, mean over seeds;
    /// absent if there is no bound.
    pub slo: Option<f64>,
}

impl Means {
    fn of(runs: &[Numbers]) -> Means {
        let mean = |of: &dyn Fn(&Numbers) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
        let optional = |of: fn(&Numbers) -> Option<f64>| {
            let values: Option<Vec<f64>> = runs.iter().map(of).collect();
            values.map(|values| values.iter().sum::<f64>() / values.len() as f64)
        };
        Means {
            e2e_s: mean(&|n| n.e2e_s),
            busy_tok_s: mean(&|n| n.busy_tok_s),
            ttft_s: mean(&|n| n.ttft_s),
            tpot_p99_s: optional(|n| n.tpot_p99_s),
            slo: optional(|n| n.slo),
        }
    }
}

/// ln(x of `a` / x of `b`), where `of` reads the number x from a run. The runs are paired by seed; the result is the
/// mean over seeds and the 95 % interval.
fn log_ratio(a: &Ran, b: &Ran, of: fn(&Numbers) -> f64) -> Interval {
    Interval::of(&log_ratios(a, b, of)).expect("a scenario has a seed")
}

fn log_ratios(a: &Ran, b: &Ran, of: fn(&Numbers) -> f64) -> Vec<f64> {
    a.runs.iter().zip(&b.runs).map(|(a, b)| (of(a) / of(b)).ln()).collect()
}

impl Ran {
    fn mean(&self, of: fn(&Numbers) -> f64) -> f64 {
        self.runs.iter().map(of).sum::<f64>() / self.runs.len() as f64
    }
}

impl Scenario {
    /// The time by which policies are judged: the mean E2E, or of a batch the time until its last request ends.
    fn time(&self) -> fn(&Numbers) -> f64 {
        if self.batch { |n| n.duration_s } else { |n| n.e2e_s }
    }

    /// The policy with the least mean [`time`](Scenario::time) in the scenario among the policies for which `counts` is
    /// true. Of several policies with equal E2E, the first one of the list.
    fn least(&self, counts: impl Fn(&Ran) -> bool) -> Option<&Ran> {
        self.entrants.iter().filter(|r| counts(r)).min_by(|a, b| a.mean(self.time()).total_cmp(&b.mean(self.time())))
    }

    /// The oracle to which policies that draft trees (`trees` is true) or chains are compared: the oracle of this kind
    /// with the least mean E2E in the scenario. If there is no oracle of this kind, the best oracle of the other kind.
    fn reference(&self, trees: bool) -> &Ran {
        let best = |trees: bool| self.least(|r| r.part == Part::Reference && r.trees == trees);
        let of_trees = if trees { best(true) } else { None };
        of_trees.or_else(|| best(false)).or_else(|| best(true)).expect("a scenario has a reference")
    }

    fn best_fixed(&self) -> &Ran {
        self.least(|r| r.part == Part::Fixed).expect("a comparison has the plain engine")
    }

    /// Is the best oracle of chains overloaded in more than half of the seeds, that is, did its queue grow as long as
    /// requests arrived?
    fn overloaded(&self) -> bool {
        let runs = &self.reference(false).runs;
        2 * runs.iter().filter(|n| n.behind).count() > runs.len()
    }

    /// The oracle of trees (a policy that knows which draft tokens are right) with the least mean E2E in the scenario;
    /// `None` if no oracle of trees ran.
    fn tree_reference(&self) -> Option<TreeReference> {
        let best = Some(self.reference(true)).filter(|r| r.trees)?;
        let to_chains = log_ratio(best, self.reference(false), self.time());
        Some(TreeReference { policy: best.policy.clone(), to_chains })
    }

    fn column(&self, name: &str) -> Column {
        let free = |r: &Ran| matches!(r.part, Part::Fixed | Part::Contender);
        Column {
            name: name.to_owned(),
            set: self.set,
            about: self.about.clone(),
            seeds: self.seeds.len(),
            requests: self.requests,
            reference: self.reference(false).policy.clone(),
            tree_reference: self.tree_reference(),
            overload: self.overloaded(),
            best: self.least(free).expect("a comparison has the plain engine").policy.clone(),
            best_fixed: self.best_fixed().policy.clone(),
        }
    }

    fn field(&self, policy: &str) -> Option<Field> {
        let ran = self.entrants.iter().find(|r| r.policy == policy)?;
        let reference = self.reference(ran.trees);
        let ranking = if self.overloaded() {
            let fastest = self.entrants.iter().filter(|r| r.part == Part::Reference && (ran.trees || !r.trees));
            let fastest = fastest.max_by(|a, b| a.mean(|n| n.busy_tok_s).total_cmp(&b.mean(|n| n.busy_tok_s)));
            log_ratios(fastest.unwrap_or(reference), ran, |n| n.busy_tok_s)
        } else {
            log_ratios(ran, reference, self.time())
        };
        Some(Field {
            loss: log_ratio(ran, reference, self.time()),
            to_fixed: log_ratio(ran, self.best_fixed(), self.time()),
            ranking,
            mean: Means::of(&ran.runs),
        })
    }
}

impl Standings {
    /// Ranks the policies over the arena's `scenarios` (experiments in which all policies ran), given as (name,
    /// scenario). Stores in the result the scenarios that could not run (`skipped`) and what a shortened run left out
    /// (`quick`).
    pub fn of(scenarios: &[(String, Scenario)], skipped: Vec<(String, String)>, quick: Option<String>) -> Standings {
        let columns: Vec<Column> = scenarios.iter().map(|(name, s)| s.column(name)).collect();
        let mut rows: Vec<Standing> = Vec::new();
        for ran in scenarios.iter().flat_map(|(_, s)| &s.entrants) {
            if rows.iter().all(|row| row.policy != ran.policy) {
                rows.push(standing(ran, scenarios, &columns));
            }
        }
        let ranked = |row: &Standing| {
            matches!(row.part, Part::Fixed | Part::Contender) && row.fields.iter().all(Option::is_some)
        };
        let places: Vec<usize> = (0..rows.len()).filter(|&i| ranked(&rows[i])).collect();
        let losses: Vec<Vec<&[f64]>> =
            places.iter().map(|&i| rows[i].fields.iter().flatten().map(|f| f.ranking.as_slice()).collect()).collect();
        let found = ranks(&losses);
        for (&i, rank) in places.iter().zip(found) {
            rows[i].rank = Some(rank);
        }
        rows.sort_by(|a, b| {
            let place = |row: &Standing| row.rank.map_or(usize::MAX, |r| r.rank);
            let bound = |row: &Standing| matches!(row.part, Part::Reference | Part::Bound);
            place(a).cmp(&place(b)).then(bound(a).cmp(&bound(b))).then(a.score.total_cmp(&b.score))
        });
        Standings { quick, scenarios: columns, skipped, rows }
    }
}

fn standing(ran: &Ran, scenarios: &[(String, Scenario)], columns: &[Column]) -> Standing {
    let fields: Vec<Option<Field>> = scenarios.iter().map(|(_, s)| s.field(&ran.policy)).collect();
    let present = || columns.iter().zip(&fields).filter_map(|(c, f)| f.as_ref().map(|f| (c, f)));
    let mean = |of: &dyn Fn(&Column, &Field) -> f64| {
        let (sum, n) = present().fold((0.0, 0.0), |(sum, n), (c, f)| (sum + of(c, f), n + 1.0));
        sum / n
    };
    let worst = |of: fn(&Field) -> f64| {
        let greatest = present().map(|(c, f)| (of(f), c)).max_by(|a, b| a.0.total_cmp(&b.0));
        greatest.map(|(x, c)| (x, c.name.clone())).expect("a policy ran somewhere")
    };
    let capped = |f: &Field| f.loss.mean.min(CAP);
    let mut score_by_set = BTreeMap::new();
    for set in ArenaSet::ALL {
        let losses: Vec<f64> = present().filter(|(c, _)| c.set == set).map(|(_, f)| capped(f)).collect();
        if !losses.is_empty() {
            score_by_set.insert(set.name(), losses.iter().sum::<f64>() / losses.len() as f64);
        }
    }
    // For a number such as the mean TTFT: the policy's value / the value of the reference, as the geometric mean over
    // the scenarios in which the policy ran. `None` if the number is missing in one of these scenarios.
    let against_reference = |of: fn(&Means) -> Option<f64>| {
        let logs: Option<Vec<f64>> = scenarios
            .iter()
            .zip(&fields)
            .filter_map(|((_, s), f)| f.as_ref().map(|f| (s, f)))
            .map(|(s, f)| Some((of(&f.mean)? / of(&Means::of(&s.reference(ran.trees).runs))?).ln()))
            .collect();
        logs.map(|logs| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
    };
    let slo: Option<Vec<f64>> = present().map(|(_, f)| f.mean.slo).collect();
    Standing {
        policy: ran.policy.clone(),
        part: ran.part,
        trees: ran.trees,
        rank: None,
        score: mean(&|_, f| capped(f)),
        score_by_set,
        mean: mean(&|_, f| f.loss.mean),
        worst: worst(|f| f.loss.mean),
        behind_fixed: present().filter(|(_, f)| certainly_behind(f.to_fixed)).map(|(c, _)| c.name.clone()).collect(),
        worst_behind_fixed: worst(|f| f.to_fixed.mean),
        busy_tok: against_reference(|m| Some(m.busy_tok_s)).expect("every run has it"),
        ttft: against_reference(|m| Some(m.ttft_s)).expect("every run has it"),
        tpot_p99: against_reference(|m| m.tpot_p99_s),
        slo: slo.map(|shares| shares.iter().sum::<f64>() / shares.len() as f64),
        fields,
    }
}

/// Is the loss ln(E2E / E2E of the best fixed length) certainly above 0? With several seeds: the whole 95 % interval is
/// above 0. With one seed, which gives no interval: the loss is above 0.01.
fn certainly_behind(loss: Interval) -> bool {
    loss.half_width.map_or(loss.mean > 0.01, |half| loss.mean - half > 0.0)
}

#[cfg(test)]
#[path = "standings_tests.rs"]
mod tests;
