//! The standings over all scenarios: losses against each scenario's reference, scores, ranks and their intervals.
//!
//! The loss of a policy in a scenario is the mean over seeds of ln(E2E / E2E of the reference), paired. The score is
//! the mean over scenarios of the loss, which counts as at most [`CAP`] in each. Ranks go by the score, but where
//! even the reference falls behind its arrivals, latency measures how long the run was, and tokens a busy second rank
//! instead.
use super::rank::{CAP, Rank, ranks};
use super::scenario::{Numbers, Part, Ran, Scenario};
use foretoken_sim::metrics::Interval;
use foretoken_spec::arena::ArenaSet;
use serde::Serialize;
use std::collections::BTreeMap;

/// The table over all scenarios.
#[derive(Clone, Debug, Serialize)]
pub struct Standings {
    /// What a quick run leaves out; absent for a whole one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quick: Option<String>,
    /// The scenarios, in the order of their names.
    pub scenarios: Vec<Column>,
    /// Scenarios that could not run here, each with the reason.
    pub skipped: Vec<(String, String)>,
    /// The policies by rank; then those that ran in some scenarios only, and bounds, by score.
    pub rows: Vec<Standing>,
}

/// A scenario of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// The name of the scenario.
    pub name: String,
    /// May policies be tuned on it?
    pub set: ArenaSet,
    /// What sets it apart.
    pub about: String,
    /// Number of seeds.
    pub seeds: usize,
    /// Requests of the smallest seed.
    pub requests: u64,
    /// The oracle of the reference.
    pub reference: String,
    /// Does even the reference fall behind its arrivals, in most seeds? Then tokens a busy second rank.
    pub overload: bool,
    /// The policy with the least loss that a server can run, fixed lengths among them.
    pub best: String,
    /// The fixed length with the least loss, plain decoding among them.
    pub best_fixed: String,
}

/// A policy of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Standing {
    /// The policy's label.
    pub policy: String,
    /// Its part in the comparison.
    pub part: Part,
    /// Does it draft trees? The reference drafts chains.
    pub trees: bool,
    /// Its rank among the policies that ran in all scenarios; absent for others and for bounds.
    pub rank: Option<Rank>,
    /// Mean over its scenarios of min(loss, [`CAP`]).
    pub score: f64,
    /// The score over the scenarios of each set.
    pub score_by_set: BTreeMap<&'static str, f64>,
    /// Mean loss over its scenarios, without a cap.
    pub mean: f64,
    /// Its greatest loss, and the scenario.
    pub worst: (f64, String),
    /// Scenarios in which it loses to the best fixed length for certain: the interval of ln(E2E / E2E of that length)
    /// lies above 0, or with one seed the value is above 1 %.
    pub behind_fixed: Vec<String>,
    /// Its greatest loss against the best fixed length, and the scenario.
    pub worst_behind_fixed: (f64, String),
    /// Tokens a busy second over the reference's: geometric mean.
    pub busy_tok: f64,
    /// Mean time to first token over the reference's: geometric mean.
    pub ttft: f64,
    /// p99 TPOT over the reference's: geometric mean.
    pub tpot_p99: Option<f64>,
    /// Share of requests that met every bound: mean.
    pub slo: Option<f64>,
    /// Its numbers in each scenario, in the order of the table; `None` where it did not run.
    pub fields: Vec<Option<Field>>,
}

/// A policy's numbers in a scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Field {
    /// ln(E2E / E2E of the reference), mean over seeds with its interval.
    pub loss: Interval,
    /// ln(E2E / E2E of the best fixed length).
    pub to_fixed: Interval,
    /// What ranks: the loss, or in overload ln(tokens a busy second of the best reference / the policy's), for each
    /// seed.
    #[serde(skip)]
    pub(super) ranking: Vec<f64>,
    /// Means over seeds.
    pub mean: Means,
}

/// A policy's numbers in a scenario, means over seeds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Means {
    /// Mean end-to-end latency, seconds.
    pub e2e_s: f64,
    /// Output tokens of finished requests per second inside steps.
    pub busy_tok_s: f64,
    /// Mean time to first token, seconds.
    pub ttft_s: f64,
    /// p99 of the time per output token, seconds.
    pub tpot_p99_s: Option<f64>,
    /// Share of requests that met every bound.
    pub slo: Option<f64>,
}

impl Means {
    fn of(runs: &[Numbers]) -> Means {
        let mean = |of: &dyn Fn(&Numbers) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
        let optional = |of: fn(&Numbers) -> Option<f64>| {
            let all: Option<Vec<f64>> = runs.iter().map(of).collect();
            all.map(|all| all.iter().sum::<f64>() / all.len() as f64)
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

/// The mean over seeds of ln(a / b), paired, with its interval.
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
    /// The entrant with the least mean E2E of those that `of` takes; the first of equals.
    fn least(&self, of: impl Fn(&Ran) -> bool) -> Option<&Ran> {
        self.entrants.iter().filter(|r| of(r)).min_by(|a, b| a.mean(|n| n.e2e_s).total_cmp(&b.mean(|n| n.e2e_s)))
    }

    /// The reference of policies that draft trees (`trees`) or chains. Without an oracle of trees that of chains serves
    /// both.
    fn reference(&self, trees: bool) -> &Ran {
        let of = |trees: bool| self.least(|r| r.part == Part::Reference && r.trees == trees);
        let own = if trees { of(true) } else { None };
        own.or_else(|| of(false)).or_else(|| of(true)).expect("a scenario has a reference")
    }

    fn best_fixed(&self) -> &Ran {
        self.least(|r| r.part == Part::Fixed).expect("a comparison has the plain engine")
    }

    /// Does even the reference fall behind, in most seeds?
    fn overloaded(&self) -> bool {
        let runs = &self.reference(false).runs;
        2 * runs.iter().filter(|n| n.behind).count() > runs.len()
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
            log_ratios(ran, reference, |n| n.e2e_s)
        };
        Some(Field {
            loss: log_ratio(ran, reference, |n| n.e2e_s),
            to_fixed: log_ratio(ran, self.best_fixed(), |n| n.e2e_s),
            ranking,
            mean: Means::of(&ran.runs),
        })
    }
}

impl Standings {
    /// The standings over these scenarios, by name.
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
            place(a).cmp(&place(b)).then(a.score.total_cmp(&b.score))
        });
        Standings { quick, scenarios: columns, skipped, rows }
    }
}

fn standing(ran: &Ran, scenarios: &[(String, Scenario)], columns: &[Column]) -> Standing {
    let fields: Vec<Option<Field>> = scenarios.iter().map(|(_, s)| s.field(&ran.policy)).collect();
    let all = || columns.iter().zip(&fields).filter_map(|(c, f)| f.as_ref().map(|f| (c, f)));
    let mean = |of: &dyn Fn(&Column, &Field) -> f64| {
        let (sum, n) = all().fold((0.0, 0.0), |(sum, n), (c, f)| (sum + of(c, f), n + 1.0));
        sum / n
    };
    let worst = |of: fn(&Field) -> f64| {
        let greatest = all().map(|(c, f)| (of(f), c)).max_by(|a, b| a.0.total_cmp(&b.0));
        greatest.map(|(x, c)| (x, c.name.clone())).expect("a policy ran somewhere")
    };
    let capped = |f: &Field| f.loss.mean.min(CAP);
    let mut score_by_set = BTreeMap::new();
    for set in ArenaSet::ALL {
        let own: Vec<f64> = all().filter(|(c, _)| c.set == set).map(|(_, f)| capped(f)).collect();
        if !own.is_empty() {
            score_by_set.insert(set.name(), own.iter().sum::<f64>() / own.len() as f64);
        }
    }
    // Geometric means of ratios to the reference; `None` where a scenario lacks the number.
    let against = |of: fn(&Means) -> Option<f64>| {
        let logs: Option<Vec<f64>> = scenarios
            .iter()
            .zip(&fields)
            .filter_map(|((_, s), f)| f.as_ref().map(|f| (s, f)))
            .map(|(s, f)| Some((of(&f.mean)? / of(&Means::of(&s.reference(ran.trees).runs))?).ln()))
            .collect();
        logs.map(|logs| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
    };
    let slo: Option<Vec<f64>> = all().map(|(_, f)| f.mean.slo).collect();
    Standing {
        policy: ran.policy.clone(),
        part: ran.part,
        trees: ran.trees,
        rank: None,
        score: mean(&|_, f| capped(f)),
        score_by_set,
        mean: mean(&|_, f| f.loss.mean),
        worst: worst(|f| f.loss.mean),
        behind_fixed: all().filter(|(_, f)| certainly_behind(f.to_fixed)).map(|(c, _)| c.name.clone()).collect(),
        worst_behind_fixed: worst(|f| f.to_fixed.mean),
        busy_tok: against(|m| Some(m.busy_tok_s)).expect("every run has it"),
        ttft: against(|m| Some(m.ttft_s)).expect("every run has it"),
        tpot_p99: against(|m| m.tpot_p99_s),
        slo: slo.map(|all| all.iter().sum::<f64>() / all.len() as f64),
        fields,
    }
}

/// Is the loss above 0 for certain, or above 1 % where one seed gives no interval?
fn certainly_behind(loss: Interval) -> bool {
    loss.half_width.map_or(loss.mean > 0.01, |half| loss.mean - half > 0.0)
}

#[cfg(test)]
#[path = "standings_tests.rs"]
mod tests;
