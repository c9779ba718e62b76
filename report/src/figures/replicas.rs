//! Draws the requests on each replica of a fleet over time: how many run, how many wait, how many the router sent, and
//! the share of their prompt tokens that was cached. Each of these numbers has a panel with a row for each replica.
//!
//! In a small fleet a row is an area whose height is the number. In a large fleet a row is a band whose colour is the
//! number. If there are more replicas than [`MOST_ROWS`], a row shows the mean of some neighbours. If a rule scales the
//! fleet, a row is a place for one replica at a time, and a new replica takes the first free place.

use super::axis::Axis;
use super::canvas::{Canvas, Point};
use super::page::{Page, Panel};
use super::shades::{self, AREA, BOOTING, SHADES};
use super::sheet::{Named, Sheet};
use super::style::{GRID, RULE};
use crate::fleet::{FleetCell, FleetEntry, hit_rate_of};
use crate::number::fixed;
use crate::{Cell, Dash};
use foretoken_sim::Time;
use foretoken_sim::metrics::{FLOW_BINS, Flow, FlowBin, ReplicaLife};
use std::iter::repeat_n;

/// The most replicas (rows) that are drawn as areas; in a larger fleet each row is a coloured band.
const MOST_AREAS: usize = 8;
/// The most rows of a figure of replicas. In a larger fleet a row stands for several replicas.
const MOST_ROWS: usize = 100;

/// The texts of a figure that cannot be made from the data of the run.
pub struct ReplicaWords<'a> {
    pub title: String,
    /// Where the numbers come from, and the seed.
    pub source: &'a str,
}

/// One replica, or the mean of some replicas, during its time in a row of the figure.
struct Stay {
    /// The times at which the replica starts to boot, starts to serve, and ends, seconds from the start of the run.
    times: [f64; 3],
    /// For each panel's quantity the amount in each bin of time; `None` without a value, such as a hit rate without
    /// prompts.
    amounts: Vec<Vec<Option<f64>>>,
}

/// A row of a panel: its label, and the replicas that it shows one after the other.
struct Row {
    label: String,
    stays: Vec<Stay>,
}

/// A number that a panel shows, such as the running requests.
struct Quantity {
    title: &'static str,
    unit: &'static str,
    /// The largest possible amount of the quantity; `None` if only the data give the largest amount.
    most: Option<f64>,
    /// Number of neighbouring bins of time that are averaged, because single bins are noise.
    together: usize,
    of: fn(&Flow, &FlowBin) -> Option<f64>,
}

const RUNNING: Quantity =
    Quantity { title: "running requests", unit: "", most: None, together: 1, of: |flow, bin| Some(flow.running(bin)) };
const WAITING: Quantity =
    Quantity { title: "waiting requests", unit: "", most: None, together: 1, of: |flow, bin| Some(flow.waiting(bin)) };
const SENT: Quantity = Quantity {
    title: "requests sent here",
    unit: "/s",
    most: None,
    together: 5,
    of: |flow, bin| Some(bin.sent as f64 / flow.width.as_s()),
};
const TOKENS: Quantity = Quantity {
    title: "prompt tokens sent here",
    unit: "/s",
    most: None,
    together: 5,
    of: |flow, bin| Some(bin.prompt_tokens as f64 / flow.width.as_s()),
};
const CACHED: Quantity = Quantity {
    title: "prompt cached",
    unit: "\u{a0}%",
    most: Some(100.0),
    together: 5,
    of: |_, bin| Some(100.0 * hit_rate_of(bin)?),
};

/// Draws the requests on the replicas of a run's fleet; `None` if the run has no requests over time.
pub fn replicas_figure(cell: &Cell, words: &ReplicaWords) -> Option<String> {
    let (entry, fleet) = (cell.entry.fleet.as_ref()?, cell.fleet.as_deref()?);
    let width = fleet.flows.iter().map(|flow| flow.width).max().filter(|width| width.0 > 0)?.as_s();
    let any_cached = fleet.flows.iter().flat_map(|flow| &flow.bins).any(|bin| bin.cached_tokens > 0);
    let shown = [RUNNING, WAITING, SENT, if any_cached { CACHED } else { TOKENS }];
    let rows = rows(entry, fleet, &shown);
    let end = width * FLOW_BINS as f64;
    let most: Vec<f64> = (0..shown.len()).map(|q| most(&rows, &shown, q)).collect();
    let areas = rows.len() <= MOST_AREAS;
    let per_hour = if end > 3.0 * 3600.0 { 3600.0 } else { 1.0 };
    let labels: Vec<&str> = rows.iter().map(|row| row.label.as_str()).collect();
    let height = panel_height(rows.len());
    let page = Page {
        title: words.title.clone(),
        source: format!(
            "{} · means over {} s, of what is sent and cached over {} s · {}",
            words.source,
            fixed(width, 2),
            fixed(5.0 * width, 2),
            how_to_read(areas, &rows, fleet)
        ),
        x_name: if per_hour > 1.0 { "time (h)" } else { "time (s)" }.to_owned(),
        y_name: String::new(),
        x: Axis::exact(0.0, end / per_hour, 5),
        y: Axis::rows(&labels).thinned(height / rows.len() as f64),
        legend: legend(areas, fleet),
        panels: (0..shown.len()).map(|q| (titled(&shown[q], most[q], areas), None)).collect(),
        own_x: Vec::new(),
        panel_height: height,
        right: 0.0,
        sheet: Sheet::Screen,
    };
    Some(page.svg(|c, panel, q| {
        let bins = Bins { panel, width: width / per_hour, most: most[q] };
        if areas {
            rows.iter()
                .enumerate()
                .for_each(|(i, row)| row.stays.iter().for_each(|stay| bins.area(c, i, &stay.amounts[q])));
        } else {
            bins.bands(c, &rows, q);
        }
        for (i, row) in rows.iter().enumerate() {
            row.stays.iter().for_each(|stay| bins.life(c, i, stay.times.map(|t| t / per_hour)));
        }
    }))
}

fn titled(quantity: &Quantity, most: f64, areas: bool) -> String {
    let Quantity { title, unit, .. } = quantity;
    let decimals = usize::from(most < 10.0);
    format!("{title} ({}: {}{unit})", if areas { "full height" } else { "most" }, fixed(most, decimals))
}

fn how_to_read(areas: bool, rows: &[Row], fleet: &FleetCell) -> String {
    let row = match (fleet.changes().is_some(), fleet.each.len() > rows.len()) {
        (true, _) => "a row is a place: a new replica takes the first free one",
        (false, true) => "a row is the mean of neighbours",
        (false, false) => "a row is a replica",
    };
    if areas { format!("{row}, and its height the amount") } else { format!("{row}, and its colour the amount") }
}

fn legend(areas: bool, fleet: &FleetCell) -> Vec<Named> {
    let mut legend = Vec::new();
    if !areas {
        let shares = ["up to 20\u{a0}%", "20–40\u{a0}%", "40–60\u{a0}%", "60–80\u{a0}%", "over 80\u{a0}%"];
        legend.extend(shares.iter().zip(SHADES).rev().map(|(share, shade)| Named::area(share, shade.0)));
        legend[0].label += " of the most";
    }
    let boots = |life: &ReplicaLife| life.ordered < life.ready;
    if fleet.scaled.as_ref().is_some_and(|scaled| scaled.lives.iter().any(boots)) {
        legend.push(Named::area("boots", BOOTING.0));
    }
    legend
}

/// Height of a panel with `rows` rows, px. A row shows one replica, or the mean of some in a large fleet.
fn panel_height(rows: usize) -> f64 {
    match rows {
        0..=4 => 46.0 * rows.max(2) as f64,
        5..=MOST_AREAS => 34.0 * rows as f64,
        _ => (18.0 * rows as f64).min(520.0),
    }
}

fn most(rows: &[Row], shown: &[Quantity], q: usize) -> f64 {
    let amounts = rows.iter().flat_map(|row| &row.stays).flat_map(|stay| stay.amounts[q].iter().flatten());
    shown[q].most.unwrap_or_else(|| amounts.copied().fold(0.0, f64::max))
}

fn rows(entry: &FleetEntry, fleet: &FleetCell, shown: &[Quantity]) -> Vec<Row> {
    if let Some(scaled) = fleet.changes() {
        return places(&scaled.lives, scaled.end, fleet, shown);
    }
    let together = fleet.flows.len().div_ceil(MOST_ROWS);
    let all = fleet.flows.chunks(together.max(1)).enumerate();
    let row = |(i, flows): (usize, &[Flow])| {
        let first = i * together.max(1);
        let label = match flows.len() {
            1 => entry.name(first),
            n => format!("{}–{}", entry.name(first), first + n - 1),
        };
        Row { label, stays: vec![Stay { times: [0.0, 0.0, f64::INFINITY], amounts: amounts(flows, shown) }] }
    };
    all.map(row).collect()
}

/// The rows of the figure for a fleet that an autoscaling rule grows and shrinks. Each row is a place for one replica
/// at a time.
fn places(lives: &[ReplicaLife], end: Time, fleet: &FleetCell, shown: &[Quantity]) -> Vec<Row> {
    let mut rows: Vec<(f64, Row)> = Vec::new();
    for (life, flow) in lives.iter().zip(&fleet.flows) {
        let [ordered, ready, _, ended] = life.phases(end).map(Time::as_s);
        if ordered >= ended {
            continue;
        }
        let free = rows.iter().position(|(until, _)| *until <= ordered).unwrap_or(rows.len());
        if free == rows.len() {
            rows.push((0.0, Row { label: format!("place {free}"), stays: Vec::new() }));
        }
        let stay = Stay { times: [ordered, ready, ended], amounts: amounts(std::slice::from_ref(flow), shown) };
        rows[free].0 = ended;
        rows[free].1.stays.push(stay);
    }
    rows.into_iter().map(|(_, row)| row).collect()
}

/// The amounts of each quantity in each bin of time, as means over `flows`. A quantity may be averaged over
/// neighbouring bins; then these bins have the same amount.
fn amounts(flows: &[Flow], shown: &[Quantity]) -> Vec<Vec<Option<f64>>> {
    let of = |quantity: &Quantity| {
        let amount = |group: usize| {
            let bins = group * quantity.together..(group + 1) * quantity.together;
            let each =
                flows.iter().flat_map(|flow| bins.clone().filter_map(move |bin| Some((flow, flow.bins.get(bin)?))));
            let values: Vec<f64> = each.filter_map(|(flow, bin)| (quantity.of)(flow, bin)).collect();
            let n = match quantity.most {
                None => flows.len() * quantity.together,
                Some(_) => values.len(),
            };
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / n as f64)
        };
        (0..FLOW_BINS).map(|bin| amount(bin / quantity.together)).collect()
    };
    shown.iter().map(of).collect()
}

/// Draws a panel's amounts, such as running requests, by bin of time.
struct Bins<'p> {
    panel: &'p Panel<'p>,
    /// Width of a bin of time on the horizontal axis.
    width: f64,
    /// The amount of the panel's quantity, such as running requests, that fills a row.
    most: f64,
}

impl Bins<'_> {
    fn at(&self, bin: usize, y: f64) -> Point {
        self.panel.at((bin as f64 * self.width).min(self.panel.x.end()), y)
    }

    /// Draws the amounts of row `i` (one place for a replica) over time as an area.
    fn area(&self, c: &Canvas, i: usize, amounts: &[Option<f64>]) {
        let base = i as f64 + 0.46;
        let top = |amount: f64| base - 0.88 * (amount / self.most).clamp(0.0, 1.0);
        let mut bin = 0;
        while bin < amounts.len() {
            let n = amounts[bin..].iter().take_while(|amount| amount.is_some_and(|a| a > 0.0)).count();
            if n > 0 {
                let tops = (bin..bin + n).flat_map(|b| {
                    let y = top(amounts[b].unwrap_or_default());
                    [self.at(b, y), self.at(b + 1, y)]
                });
                let ends = [self.at(bin + n, base), self.at(bin, base)];
                c.shape(&tops.chain(ends).collect::<Vec<_>>(), AREA);
            }
            bin += n + 1;
        }
        c.line(&[self.at(0, base), self.at(FLOW_BINS, base)], GRID, 1.0, Dash::Solid);
    }

    /// Draws all rows of the panel of quantity `q`, such as running requests, as bands. Neighbouring bins of one shade
    /// become one rectangle. All rectangles of one shade are drawn together.
    fn bands(&self, c: &Canvas, rows: &[Row], q: usize) {
        for (shade, _) in SHADES {
            for (i, stay) in rows.iter().enumerate().flat_map(|(i, row)| repeat_n(i, row.stays.len()).zip(&row.stays)) {
                let is = |amount: &Option<f64>| shades::of(amount.unwrap_or_default() / self.most) == Some(shade);
                let amounts = &stay.amounts[q];
                let mut bin = 0;
                while bin < amounts.len() {
                    let n = amounts[bin..].iter().take_while(|amount| is(amount)).count();
                    if n > 0 {
                        let (y, half) = (i as f64, 0.42);
                        c.area(self.at(bin, y - half), self.at(bin + n, y + half), shade);
                    }
                    bin += n.max(1);
                }
            }
        }
    }

    /// Draws when the replica in row `i` boots, and marks its end if the replica ends before the run does.
    fn life(&self, c: &Canvas, i: usize, [ordered, ready, ended]: [f64; 3]) {
        let (y, x) = (i as f64, self.panel.x);
        if ordered < ready {
            c.area(self.panel.at(x.clamp(ordered), y - 0.1), self.panel.at(x.clamp(ready), y + 0.1), BOOTING.0);
        }
        if ended < x.end() {
            c.line(&[self.panel.at(ended, y - 0.46), self.panel.at(ended, y + 0.46)], RULE, 1.0, Dash::Solid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::report;
    use foretoken_sim::metrics::{ReplicaSummary, Scaled, ScalingDecision};

    /// A run of 120 s on `n` replicas. Replica r runs r requests at a time from 0 s to 60 s, and no request waits.
    fn cell(n: usize) -> Cell {
        let second = Time::from_s(1.0);
        let bin =
            |running: u64| FlowBin { running: u128::from(running * second.0), sent: running, ..FlowBin::default() };
        let flow = |r: usize| Flow { width: second, bins: vec![bin(r as u64); 60] };
        let mut cell = report(1, &[], &[], 1, 5).cells.remove(0);
        cell.entry.fleet = Some(FleetEntry { router: "random".into(), pools: vec!["replica"; n] });
        let flows = (0..n).map(flow).collect();
        cell.fleet = Some(Box::new(FleetCell { each: vec![ReplicaSummary::default(); n], flows, scaled: None }));
        cell
    }

    fn drawn(cell: &Cell) -> String {
        replicas_figure(cell, &ReplicaWords { title: "t".into(), source: "simulated" }).unwrap()
    }

    #[test]
    fn a_small_fleet_has_areas_and_a_large_one_bands() {
        let (small, large, huge) = (drawn(&cell(4)), drawn(&cell(64)), drawn(&cell(250)));
        assert!(small.contains("running requests (full height: 3.0)") && small.contains(">replica 3<"));
        assert!(large.contains("running requests (most: 63)") && large.contains("of the most"));
        assert!(huge.contains(">replica 0–2<") && huge.contains("the mean of neighbours"));
        // The number of labels is small enough that labels of a large fleet do not touch each other.
        assert!(large.matches(">replica ").count() <= 2 * 40, "{}", large.matches(">replica ").count());
        assert!([small.len(), large.len(), huge.len()].iter().all(|bytes| *bytes < 150_000));
    }

    /// The second replica boots from 10 s to 20 s and ends at 40 s. The third replica takes the place of the second at
    /// 50 s.
    #[test]
    fn a_new_replica_takes_the_first_free_place() {
        let (s, never) = (Time::from_s, Time::MAX);
        let life = |ordered, ready, ended| ReplicaLife { ordered, ready, drained: ended, ended };
        let lives = vec![life(s(0.0), s(0.0), never), life(s(10.0), s(20.0), s(40.0)), life(s(50.0), s(60.0), never)];
        let decision = ScalingDecision { at: s(10.0), serving: 1, booting: 0, wished: 2, reason: "load".into() };
        let mut cell = cell(3);
        let scaled = Scaled { lives, decisions: vec![decision], end: s(120.0) };
        cell.fleet.as_mut().unwrap().scaled = Some(scaled);
        let svg = drawn(&cell);
        assert!(svg.contains(">place 1<") && !svg.contains(">place 2<") && svg.contains(">boots<"), "{svg}");
    }

    #[test]
    fn a_run_without_requests_over_time_has_no_figure() {
        let mut cell = cell(2);
        cell.fleet.as_mut().unwrap().flows.clear();
        assert!(replicas_figure(&cell, &ReplicaWords { title: String::new(), source: "" }).is_none());
    }
}
