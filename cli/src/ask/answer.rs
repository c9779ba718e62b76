//! The answer of `ask` as data. `words.rs` prints it.

use foretoken_policies::{BatchRange, PolicySpec};
use foretoken_report::{Choice, which};
use foretoken_run::fleet::million_tokens;
use foretoken_run::vllm_table::{Loop, Row};
use foretoken_servers::calibrate::recommend::{Candidate, Compared, Gain, Question, Verdict, WithHost, gain_over};
use foretoken_sim::Summary;
use serde::Serialize;
use std::path::PathBuf;

/// What the answer needs beside the comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Made {
    #[serde(skip)]
    pub gpus: u32,
    pub price: Option<f64>,
    pub subject: String,
    pub used: Vec<String>,
    pub no_matter: Vec<String>,
    pub unknown: Vec<String>,
    pub assumed: Vec<String>,
    pub bands: Vec<Band>,
    pub experiment: Option<PathBuf>,
    #[serde(skip)]
    pub multiple_lines: bool,
    /// The line as which a running server was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<String>,
}

/// An assumption, and what other values in its place would give: their names, the best candidate, and the gain of the
/// advised candidate over what runs now.
#[derive(Clone, Debug, Serialize)]
pub struct Band {
    pub says: String,
    pub others: Vec<(String, Option<String>, Option<Gain>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Advice {
    Change,
    Stay,
    DoNotSpeculate,
    /// A measured server's host time turns the answer.
    DependsOnHost,
}

/// A candidate at the asked load; means over seeds.
#[derive(Clone, Debug, Serialize)]
pub struct AtLoad {
    pub policy: String,
    pub name: String,
    pub now: bool,
    pub advised: bool,
    pub e2e_mean_s: Option<f64>,
    /// Output tokens a second of one replica, and of one request behind its first token.
    pub tokens_s: f64,
    pub tokens_s_user: Option<f64>,
    pub ttft_mean_s: Option<f64>,
    pub ttft_p99_s: Option<f64>,
    pub tpot_mean_s: Option<f64>,
    pub tpot_p99_s: Option<f64>,
    pub kv_peak: f64,
    /// Tokens a round.
    pub accept_length: Option<f64>,
    pub price_million_tokens: Option<f64>,
    pub over_now: Option<Gain>,
}

/// A row of the table by load: a closed loop of clients.
#[derive(Clone, Debug, Serialize)]
pub struct ByClients {
    pub clients: u32,
    /// The draft length to take there; 0 without a drafter.
    pub k: u32,
    pub tokens_s: f64,
    pub over_plain: Option<Gain>,
    pub over_now: Option<Gain>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    pub advice: Advice,
    #[serde(flatten)]
    pub made: Made,
    pub load: String,
    pub requests: usize,
    pub seeds: usize,
    pub now: String,
    pub advised: Option<String>,
    /// Gain of the advised candidate over what runs now.
    pub gain: Option<Gain>,
    /// The same with the host time of a measured server, and the candidate that is best with it.
    pub gain_with_host: Option<Gain>,
    pub best_with_host: Option<String>,
    pub host: Option<&'static str>,
    /// Said if the server falls behind the arrivals.
    pub overloaded: Option<String>,
    pub at_load: Vec<AtLoad>,
    pub by_clients: Vec<ByClients>,
    /// Numbers of clients that the engine cannot hold, with the reason.
    pub not_reached: Vec<(u32, String)>,
    /// The fewest clients from which on plain decoding is as good; `None` if speculation pays at all loads tried.
    pub stop_from_clients: Option<u32>,
    pub table: Vec<BatchRange>,
    pub paste: Option<String>,
}

impl Answer {
    /// The answer that follows from a comparison. `paste` writes the line with a policy.
    pub fn of(ask: &Question, compared: Compared, made: Made, paste: &dyn Fn(&PolicySpec) -> Option<String>) -> Answer {
        let Compared { at_loads, found, with_host, table, specs, plans, .. } = compared;
        let at = &at_loads[0];
        let now = specs.iter().position(|spec| *spec == ask.now.spec).expect("what runs now is a candidate");
        // Every candidate has a cost, as no limit is asked for.
        let best = found.best.unwrap_or(now);
        let advised = if found.verdict == Verdict::Stay { now } else { best };
        let gain = gain_over(at, now, best).filter(|_| best != now);
        let advice = match (&found.verdict, &with_host) {
            (_, Some(host)) if host.flips => Advice::DependsOnHost,
            (Verdict::Change, _) => Advice::Change,
            (Verdict::DoNotSpeculate, _) => Advice::DoNotSpeculate,
            (Verdict::Stay | Verdict::Unknown(_), _) => Advice::Stay,
        };
        let with = |host: &WithHost| gain_over(&host.at_loads[0], now, best).filter(|_| best != now);
        let by_clients = by_clients(&table.rows, ask.now.k());
        let pasted = (advised != now).then(|| paste(&specs[advised])).flatten();
        let at_load = at.candidates.iter().enumerate().map(|(i, c)| at_load(c, i == now, i == advised, &made));
        Answer {
            advice,
            load: at.load.clone(),
            requests: at.requests,
            seeds: plans[0].seeds.len(),
            now: ask.now.name.clone(),
            advised: Some(at.candidates[best].name.clone()),
            gain,
            gain_with_host: with_host.as_ref().and_then(with),
            best_with_host: with_host.as_ref().and_then(|host| host.best.clone()),
            host: with_host.as_ref().map(|host| host.source),
            overloaded: at.overloaded(),
            at_load: at_load.collect(),
            stop_from_clients: stop_from(&by_clients),
            by_clients,
            not_reached: table.rows.iter().filter_map(|r| Some((r.clients, r.not_reached.clone()?))).collect(),
            table: table.ranges,
            paste: pasted,
            made,
        }
    }
}

fn at_load(c: &Candidate, now: bool, advised: bool, made: &Made) -> AtLoad {
    let n = c.summaries.len().max(1) as f64;
    let mean = |of: &dyn Fn(&Summary) -> Option<f64>| {
        let all: Option<Vec<f64>> = c.summaries.iter().map(of).collect();
        all.map(|all| all.iter().sum::<f64>() / n)
    };
    let tokens_s = mean(&|s| Some(s.token_goodput_tok_s)).unwrap_or(0.0);
    let tpot_mean_s = mean(&|s| s.tpot.map(|q| q.mean));
    AtLoad {
        policy: c.policy.clone(),
        name: c.name.clone(),
        now,
        advised,
        e2e_mean_s: mean(&|s| s.e2e.map(|q| q.mean)),
        tokens_s,
        tokens_s_user: tpot_mean_s.filter(|s| *s > 0.0).map(|s| 1.0 / s),
        ttft_mean_s: mean(&|s| s.ttft.map(|q| q.mean)),
        ttft_p99_s: mean(&|s| s.ttft.map(|q| q.p99)),
        tpot_mean_s,
        tpot_p99_s: mean(&|s| s.tpot.map(|q| q.p99)),
        kv_peak: mean(&|s| Some(s.kv_use_peak)).unwrap_or(0.0),
        accept_length: mean(&|s| s.mean_acceptance_length),
        price_million_tokens: made.price.map(|hour| million_tokens(hour * f64::from(made.gpus), tokens_s)),
        over_now: c.gain.filter(|_| !now),
    }
}

/// The rows of the table: at each number of clients the length that the one rule takes, plain decoding without a
/// drafter among them.
fn by_clients(rows: &[Row], now: Option<u32>) -> Vec<ByClients> {
    rows.iter().filter_map(|row| Some(by_one(row.clients, row.measured.as_ref()?, now))).collect()
}

fn by_one(clients: u32, measured: &Loop, now: Option<u32>) -> ByClients {
    let drafting = measured.alone.iter().filter(|(k, _)| *k > 0).map(|(k, m)| (*k, m.tok_s.as_slice()));
    let all: Vec<(u32, &[f64])> = [(0, measured.plain.tok_s.as_slice())].into_iter().chain(drafting).collect();
    let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
    let most = all.iter().map(|(_, rates)| mean(rates)).fold(0.0, f64::max);
    let choice = |(k, rates): &(u32, &[f64])| Choice::new(Some(most / mean(rates) - 1.0), Some(*k));
    let best = which(&all.iter().map(choice).collect::<Vec<_>>()).unwrap_or(0);
    // The cost of a token is the time that it takes.
    let costs = |rates: &[f64]| rates.iter().map(|rate| Some(1.0 / rate)).collect::<Vec<_>>();
    let over = |other: &[f64]| Gain::of(&costs(other), &costs(all[best].1));
    let of_now = now.and_then(|now| all.iter().find(|(k, _)| *k == now));
    ByClients {
        clients,
        k: all[best].0,
        tokens_s: mean(all[best].1),
        over_plain: over(all[0].1).filter(|_| best != 0),
        over_now: of_now.and_then(|(_, rates)| over(rates)).filter(|_| now != Some(all[best].0)),
    }
}

/// The fewest clients from which on no row drafts.
fn stop_from(rows: &[ByClients]) -> Option<u32> {
    let drafts = rows.iter().rposition(|row| row.k > 0);
    rows.get(drafts.map_or(0, |at| at + 1)).map(|row| row.clients)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speculation_ends_where_no_larger_load_drafts() {
        let rows = |ks: &[u32]| -> Vec<ByClients> {
            let row = |(i, &k): (usize, &u32)| ByClients {
                clients: 1 << i,
                k,
                tokens_s: 1.0,
                over_plain: None,
                over_now: None,
            };
            ks.iter().enumerate().map(row).collect()
        };
        assert_eq!(stop_from(&rows(&[3, 2, 0, 0])), Some(4));
        assert_eq!(stop_from(&rows(&[3, 0, 1])), None);
        assert_eq!(stop_from(&rows(&[0, 0])), Some(1));
    }
}
