//! The page's section on a fleet: how the router spread the requests, the figures of the replicas, and the numbers of
//! each replica.

use super::results::{swept_headings, swept_value};
use crate::figures::view::{View, count};
use crate::figures::{chosen_fleets, run_but_replicas, run_in_words};
use crate::fleet::{FleetCell, FleetEntry, hit_rate};
use crate::html::{Part, Row, Section, Table, Value};
use crate::number::fixed;
use crate::{Cell, Figure, Kind, Report};
use foretoken_sim::Time;
use foretoken_sim::metrics::{FlowBin, ReplicaSummary, Scaled};

/// The table of the replicas of one run is folded away if it has more replicas than this.
const OPEN: usize = 8;
/// The most rows of the table of how requests were spread over replicas.
const MOST_ROWS: usize = 12;

/// The page's section on the fleet; `None` for a run without a fleet.
pub fn section(report: &Report, view: &View, figures: &[Figure]) -> Option<Section> {
    let shown = chosen_fleets(report, view);
    let first = shown.first()?;
    let mut section = Section::new("fleet", "The fleet");
    section.parts.push(match sentences(&shown).as_slice() {
        [one] => Part::Text(one.clone()),
        all => Part::List(all.to_vec()),
    });
    section.parts.extend(spread(view, &shown));
    let (most, changes) = (first.fleet.as_ref()?.most_at_a_time(), first.fleet.as_ref()?.changes().is_some());
    section.parts.extend(drawn(figures, changes, if most <= OPEN { 3 } else { 1 }));
    let others = |cell: &&Cell| (run_in_words(cell), replicas(cell));
    for (i, (title, table)) in shown.iter().map(others).enumerate() {
        let Some(table) = table else { continue };
        section.parts.push(match i == 0 && table.rows.len() <= OPEN {
            true => Part::Table(table),
            false => Part::More { title: format!("Each replica, {title}"), parts: vec![Part::Table(table)] },
        });
    }
    section.parts.push(Part::Text(
        "replicas.parquet has each replica of every run, replica_series.parquet its requests over time.".into(),
    ));
    Some(section)
}

/// What the runs in `shown` did with their fleets, a sentence each; at most one sentence for a combination of swept
/// values.
fn sentences(shown: &[&Cell]) -> Vec<String> {
    let first = |i: &usize| shown[..*i].iter().all(|cell| cell.key().sweep != shown[*i].key().sweep);
    (0..shown.len()).filter(first).filter_map(|i| sentence(shown[i])).collect()
}

/// The figures of a fleet: first the figures of the number of replicas, then the figures of the requests on each
/// replica. The first `open` figures of each of these two groups are shown, and the others are folded away.
fn drawn(figures: &[Figure], is_scaled: bool, open: usize) -> Vec<Part> {
    let of = |start: &str| figures.iter().filter(|f| f.kind == Kind::Replicas && f.file.starts_with(start)).collect();
    let counts: Vec<&Figure> = of("replica-counts");
    let requests: Vec<&Figure> = of("replicas");
    let place = if is_scaled { " A line ends a replica's time." } else { "" };
    let captions = [
        "How many replicas serve (line), boot and drain, the first seed of each policy.".to_owned(),
        format!(
            "Requests that run on each replica, that wait there for their first scheduling, and that the router sends there, \
             with their prompt tokens or, if any are, the share that was in the replica's prefix cache.{place}"
        ),
    ];
    let mut parts = Vec::new();
    for (figures, caption) in [counts, requests].into_iter().zip(captions) {
        let part = |f: &Figure, caption: &str| Part::Figure { svg: f.on_a_page(), caption: caption.to_owned() };
        let (shown, rest) = figures.split_at(open.min(figures.len()));
        parts.extend(shown.iter().enumerate().map(|(i, f)| part(f, if i == 0 { &caption } else { "" })));
        if !rest.is_empty() {
            let title = count(rest.len(), "other figure");
            parts.push(Part::More { title, parts: rest.iter().map(|f| part(f, "")).collect() });
        }
    }
    parts
}

/// The replicas of a run that have one role: they compute prompts, they decode, or they serve whole requests.
struct Pool<'a> {
    name: &'static str,
    each: Vec<(usize, &'a ReplicaSummary)>,
}

impl Pool<'_> {
    fn requests(&self) -> u64 {
        self.each.iter().map(|(_, did)| did.requests).sum()
    }

    /// The least and the largest share of the pool's requests that a replica got, with the replica's index.
    fn extremes(&self) -> Option<[(usize, f64); 2]> {
        let all = self.requests();
        let share = |&(r, did): &(usize, &ReplicaSummary)| (r, did.requests as f64 / all as f64);
        let least = self.each.iter().map(share).min_by(|a, b| a.1.total_cmp(&b.1))?;
        let most = self.each.iter().map(share).max_by(|a, b| a.1.total_cmp(&b.1))?;
        (all > 0).then_some([least, most])
    }
}

fn pools<'a>(entry: &FleetEntry, fleet: &'a FleetCell) -> Vec<Pool<'a>> {
    let of = |name| {
        let each = fleet.each.iter().enumerate().filter(|(r, _)| entry.pool(*r) == name).collect();
        Pool { name, each }
    };
    entry.each_pool().into_iter().map(of).collect()
}

/// The load of the replicas of one pool: the mean numbers of running and of waiting requests of a replica, and the
/// longest queue. The longest queue is the largest mean of a bin of time, as (waiting requests, index of the replica,
/// width of the bin in seconds).
struct Load {
    running: f64,
    waiting: f64,
    longest: (f64, usize, f64),
}

fn load(fleet: &FleetCell, pool: &Pool) -> Option<Load> {
    let flows = || pool.each.iter().filter_map(|&(r, _)| Some((r, fleet.flows.get(r)?)));
    let (_, first) = flows().next()?;
    let width = first.width.0 as f64;
    let bins = flows().map(|(_, flow)| flow.bins.len()).max().filter(|bins| *bins > 0)?;
    // In a fleet that grows and shrinks, the means count a replica only while it serves or drains.
    let all = match fleet.changes().map(Scaled::hours) {
        Some(hours) => (hours.serving + hours.draining) * 3600.0 * Time::from_s(1.0).0 as f64,
        None => (bins * pool.each.len()) as f64 * width,
    };
    let sum = |of: fn(&FlowBin) -> u128| flows().flat_map(|(_, flow)| &flow.bins).map(of).sum::<u128>() as f64 / all;
    let queues = flows().flat_map(|(r, flow)| flow.bins.iter().map(move |bin| (flow.waiting(bin), r)));
    let longest = queues.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(Load {
        running: sum(|bin| bin.running),
        waiting: sum(|bin| bin.waiting),
        longest: (longest.0, longest.1, first.width.as_s()),
    })
}

/// A sentence on what one run did with its fleet; `None` for a run without a fleet.
fn sentence(cell: &Cell) -> Option<String> {
    let (entry, fleet) = (cell.entry.fleet.as_ref()?, cell.fleet.as_deref()?);
    let percent = |share: f64| format!("{}\u{a0}%", fixed(100.0 * share, 1));
    let mut said = Vec::new();
    for pool in pools(entry, fleet) {
        let n = pool.each.len();
        let whose = match pool.name {
            "replica" => count(n, "replica"),
            name => format!("{n} {name} replica{}", if n == 1 { "" } else { "s" }),
        };
        let mut text = whose;
        if let (true, Some([(_, least), (busiest, most)])) = (n > 1, pool.extremes()) {
            text += &match fleet.changes() {
                Some(_) => " in all".to_owned(),
                None if most - least < 0.001 => format!(", each with {} of the requests", percent(most)),
                None => format!(
                    ", each with {} to {} of the requests (most on {})",
                    percent(least),
                    percent(most),
                    entry.name(busiest)
                ),
            };
        }
        if let Some(Load { running, waiting, longest: (longest, at, width) }) = load(fleet, &pool) {
            text += &format!("; on a replica {} run and {} wait on average", fixed(running, 1), fixed(waiting, 1));
            if longest >= 1.0 {
                text += &format!(", at most {} over {} s (on {})", fixed(longest, 0), fixed(width, 1), entry.name(at));
            }
        }
        said.push(text);
    }
    if let Some(scaled) = fleet.changes() {
        let counts = scaled.over_time();
        let most = counts.iter().map(|(_, counts)| counts[1]).max().unwrap_or(0);
        let least = counts[..counts.len().saturating_sub(1)].iter().map(|(_, counts)| counts[1]).min().unwrap_or(0);
        said.push(format!("{least} to {most} serve at a time, by {}", count(scaled.decisions.len(), "decision")));
    }
    Some(format!("Behind {}, {}: {}.", entry.router, run_but_replicas(cell), said.join("; ")))
}

/// How requests were spread: a table with a row for each combination of swept values, policy and pool. If the table has
/// more than [`MOST_ROWS`] rows, only the rows of the runs in `shown` are shown, and the whole table is folded away.
fn spread(view: &View, shown: &[&Cell]) -> Vec<Part> {
    let Some((table, keep)) = spread_table(view, shown) else { return Vec::new() };
    if table.rows.len() <= MOST_ROWS {
        return vec![Part::Table(table)];
    }
    let rows = table.rows.iter().zip(&keep).filter(|(_, keep)| **keep).map(|(row, _)| row.clone()).collect();
    let title = format!("All {} rows", table.rows.len());
    vec![Part::Table(Table { rows, ..table.clone() }), Part::More { title, parts: vec![Part::Table(table)] }]
}

/// The table of how requests were spread over replicas, and for each of its rows whether it is of a run in `shown`.
fn spread_table(view: &View, shown: &[&Cell]) -> Option<(Table, Vec<bool>)> {
    let headings = [
        ("router", "which router chose the replicas"),
        ("policy", ""),
        ("pool", "replicas with one role"),
        ("replicas", "that served; mean over seeds"),
        ("least\n%", "the smallest share of the pool's requests on a replica; mean over seeds"),
        ("most\n%", "the largest share of the pool's requests on a replica; mean over seeds"),
        ("running", "mean number of running requests on a replica"),
        ("waiting", "mean number of requests that wait on a replica"),
        ("longest\nqueue", "the largest mean number of waiting requests on a replica in 1/120 of the run"),
        ("cached\n%", "prompt tokens found in prefix caches"),
        ("KV peak\n%", "the most KV blocks in use on a replica, of those usable"),
    ];
    let mut columns = swept_headings(view);
    columns.extend(headings.map(|(name, what)| (name.to_owned(), what.to_owned())));
    let mut table = Table { caption: "How the requests were spread".to_owned(), columns, ..Table::default() };
    let (mut roles, mut keep) = (false, Vec::new());
    for &at in &view.combinations {
        for &(policy, look) in &view.policies {
            let cells = view.cells(policy, |s| s == at);
            let fleets: Vec<(&FleetEntry, &FleetCell)> =
                cells.iter().filter_map(|c| Some((c.entry.fleet.as_ref()?, c.fleet.as_deref()?))).collect();
            let Some((entry, _)) = fleets.first() else { continue };
            roles |= entry.each_pool().len() > 1;
            for (i, name) in entry.each_pool().into_iter().enumerate() {
                let mean = |of: &dyn Fn(&Pool, &FleetCell) -> Option<f64>| {
                    let each = fleets.iter().map(|(entry, fleet)| of(pools(entry, fleet).get(i)?, fleet));
                    let each: Option<Vec<f64>> = each.collect();
                    each.map(|each| each.iter().sum::<f64>() / each.len() as f64)
                };
                let number = |of: &dyn Fn(&Pool, &FleetCell) -> Option<f64>, factor: f64, decimals| {
                    mean(of).map_or_else(Value::none, |x| Value::number(x, fixed(factor * x, decimals)))
                };
                let served = |pool: &Pool, _: &FleetCell| {
                    Some(pool.each.iter().filter(|(_, did)| did.requests > 0 || did.steps > 0).count() as f64)
                };
                let cached = |pool: &Pool, _: &FleetCell| {
                    let sum = |of: fn(&ReplicaSummary) -> u64| pool.each.iter().map(|(_, did)| of(did)).sum::<u64>();
                    let all = sum(|did| did.prompt_tokens);
                    (all > 0).then(|| sum(|did| did.cached_tokens) as f64 / all as f64)
                };
                let fixed_size = |share: usize| {
                    move |pool: &Pool, fleet: &FleetCell| {
                        pool.extremes().filter(|_| fleet.changes().is_none()).map(|ends| ends[share].1)
                    }
                };
                let peak =
                    |pool: &Pool, _: &FleetCell| pool.each.iter().map(|(_, did)| did.kv_use_peak).reduce(f64::max);
                let mut values: Vec<Value> = at.iter().map(swept_value).collect();
                values.extend([
                    Value::text(entry.router.clone()),
                    Value::policy(policy, look),
                    Value::text(name),
                    number(&served, 1.0, 0),
                    number(&fixed_size(0), 100.0, 1),
                    number(&fixed_size(1), 100.0, 1),
                    number(&|pool, fleet| Some(load(fleet, pool)?.running), 1.0, 1),
                    number(&|pool, fleet| Some(load(fleet, pool)?.waiting), 1.0, 1),
                    number(&|pool, fleet| Some(load(fleet, pool)?.longest.0), 1.0, 1),
                    number(&cached, 100.0, 1),
                    number(&peak, 100.0, 1),
                ]);
                let apart = cells.iter().any(|c| c.entry.role != crate::Role::Contender);
                table.rows.push(Row { values, apart });
                let is_row = |cell: &&Cell| cell.key().policy == policy && cell.key().sweep == at;
                keep.push(shown.iter().any(is_row));
            }
        }
    }
    let swept = view.combinations.first().map_or(0, |c| c.len());
    let without = |table: &mut Table, at: usize| {
        table.columns.remove(at);
        table.rows.iter_mut().for_each(|row| drop(row.values.remove(at)));
    };
    if !roles {
        without(&mut table, swept + 2);
    }
    let routers = |row: &Row| row.values[swept].text.clone();
    if table.rows.windows(2).all(|pair| routers(&pair[0]) == routers(&pair[1])) {
        without(&mut table, swept);
    }
    (!table.rows.is_empty()).then_some((table, keep))
}

fn replicas(cell: &Cell) -> Option<Table> {
    let (entry, fleet) = (cell.entry.fleet.as_ref()?, cell.fleet.as_deref()?);
    let headings = [
        ("replica", ""),
        ("requests\n%", "share of the pool's requests"),
        ("prompt tokens\n%", "share of the pool's prompt tokens"),
        ("output tokens\n%", "share of the pool's output tokens"),
        ("cached\n%", "prompt tokens found in the prefix cache"),
        ("busy\n%", "time inside steps, of the whole run"),
        ("batch", "mean decode batch size, weighted by step time"),
        ("accepted\n%", "of the verified drafts"),
        ("KV peak\n%", "the most KV blocks in use, of those usable"),
        ("preempted", "number of preemptions"),
    ];
    let seed = cell.key().seed;
    let mut table = Table::new(&format!("Each replica, {}, seed {seed}", run_in_words(cell)), &headings);
    for pool in pools(entry, fleet) {
        let sum = |of: fn(&ReplicaSummary) -> u64| pool.each.iter().map(|(_, did)| of(did)).sum::<u64>();
        let share = |of: fn(&ReplicaSummary) -> u64, did: &ReplicaSummary| {
            let all = sum(of);
            (all > 0).then(|| of(did) as f64 / all as f64)
        };
        for &(r, did) in &pool.each {
            let percent = |x: Option<f64>| x.map_or_else(Value::none, |x| Value::number(x, fixed(100.0 * x, 1)));
            let accepted = (did.verified > 0).then(|| did.accepted as f64 / did.verified as f64);
            let busy = (cell.summary.duration_s > 0.0).then(|| did.busy_s / cell.summary.duration_s);
            table.rows.push(Row::of([
                Value { by: None, ..Value::text(entry.name(r)) },
                percent(share(|did| did.requests, did)),
                percent(share(|did| did.prompt_tokens, did)),
                percent(share(|did| did.emitted, did)),
                percent(hit_rate(did)),
                percent(busy),
                Value::number(did.mean_batch_size, fixed(did.mean_batch_size, 1)),
                percent(accepted),
                percent(Some(did.kv_use_peak)),
                Value::number(did.preemptions as f64, did.preemptions.to_string()),
            ]));
        }
    }
    Some(table)
}
