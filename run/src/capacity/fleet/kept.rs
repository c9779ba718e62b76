//! Writes the results of the search for the smallest fleet into the results folder: as JSON, as text, as a table of all
//! tried numbers of replicas, as a figure and as an HTML page.

use super::answer::{FleetAnswer, PolicyFleet, SeedResult};
use super::page::page;
use super::plan::Question;
use super::probe::Probe;
use crate::capacity::words::swept_in_words;
use crate::cells::{FLEET_JSON, Folder, keep_figures, write_problem};
use crate::spec::problem::Result;
use foretoken_report::{
    FrontierLine, FrontierPoint, FrontierWords, Key, ReportError, column, frontier_figure, write_rows,
};
use foretoken_sim::metrics::Slo;

/// Name of the file with the results of the search for the smallest fleet as text.
pub const FLEET_TEXT: &str = "fleet.txt";

pub const PAGE: &str = "fleet.html";

/// Writes all files with the results of the search for the smallest fleet into `folder`. Writes the figure (latency
/// against price) and the HTML page only if `figures` is true.
pub fn write(answer: &FleetAnswer, question: &Question, folder: &Folder, figures: bool) -> Result<()> {
    table(answer, folder).map_err(write_problem)?;
    if figures {
        let figure = draw(answer, question);
        if let Some(figure) = &figure {
            keep_figures(folder, std::slice::from_ref(figure))?;
        }
        folder.write(PAGE, page(answer, &question.plan, folder, figure)?.html().as_bytes())?;
    }
    folder.write(FLEET_TEXT, answer.in_words().as_bytes())?;
    let json = serde_json::to_string_pretty(answer).expect("plain data always serialises") + "\n";
    folder.write(FLEET_JSON, json.as_bytes())
}

/// Writes `fleet.parquet`, with a row per tried number of replicas.
fn table(answer: &FleetAnswer, folder: &Folder) -> std::result::Result<(), ReportError> {
    let searches = answer.fleets.iter().flat_map(|f| f.seeds.iter().map(move |s| (f, s)));
    let rows: Vec<(&PolicyFleet, &SeedResult, &Probe)> =
        searches.flat_map(|(f, s)| s.probes.iter().map(move |p| (f, s, p))).collect();
    let key = |(f, s, _): &(&PolicyFleet, &SeedResult, &Probe)| Key {
        policy: f.policy.clone(),
        sweep: f.sweep.clone(),
        seed: s.seed,
    };
    let keys: Vec<Key> = rows.iter().map(key).collect();
    let columns = vec![
        column("router", rows.iter().map(|(f, ..)| f.router.as_str())),
        column("replicas", rows.iter().map(|(_, _, p)| p.replicas)),
        column("gpus", rows.iter().map(|(f, _, p)| p.replicas * f.gpus_of_one)),
        column("cost_hour", rows.iter().map(|(f, _, p)| cost_hour(f, p))),
        column("carried", rows.iter().map(|(_, _, p)| p.carried)),
        column("counted", rows.iter().map(|(_, _, p)| p.counted)),
        column("kept", rows.iter().map(|(_, _, p)| p.kept)),
        column("missed", rows.iter().map(|(_, _, p)| p.missed)),
        column("steady", rows.iter().map(|(_, _, p)| p.steady)),
        column("ttft_p99_s", rows.iter().map(|(_, _, p)| p.latencies.map(|l| l.ttft.p99))),
        column("tpot_p99_s", rows.iter().map(|(_, _, p)| p.latencies.and_then(|l| l.tpot).map(|q| q.p99))),
        column("e2e_p99_s", rows.iter().map(|(_, _, p)| p.latencies.map(|l| l.e2e.p99))),
    ];
    write_rows(&folder.path().join("fleet.parquet"), &keys, &keys.iter().collect::<Vec<_>>(), columns)
}

fn cost_hour(f: &PolicyFleet, probe: &Probe) -> f64 {
    f64::from(probe.replicas * f.gpus_of_one) * f.price_gpu_hour
}

/// A function that reads a latency, in seconds, from a probe.
type Read = fn(&Probe) -> Option<f64>;

/// Chooses the latency (TTFT, TPOT or E2E) whose P99 over requests the figure shows. Only latencies with an SLO bound
/// are considered. In the runs of fleets that do not carry the load, the P99 of the chosen latency exceeds its bound by
/// the largest factor. Without any bound, E2E is chosen. Returns (its name, how to read it from a probe, its bound in
/// seconds).
fn shown(answer: &FleetAnswer) -> Option<(&'static str, Read, Option<f64>)> {
    let slo: Slo = answer.fleets.first()?.seeds.first()?.slo;
    let all: [(&'static str, Read, Option<f64>); 3] = [
        ("TTFT", |p| Some(p.latencies?.ttft.p99), slo.ttft_s),
        ("TPOT", |p| Some(p.latencies?.tpot?.p99), slo.tpot_s),
        ("E2E", |p| Some(p.latencies?.e2e.p99), slo.e2e_s),
    ];
    let failed = || answer.fleets.iter().flat_map(|f| &f.seeds).flat_map(|s| &s.probes).filter(|p| !p.carried);
    let excess = |read: Read, bound: f64| failed().filter_map(read).fold(0.0, f64::max) / bound;
    let bounded = all.iter().filter_map(|&(name, read, bound)| Some((excess(read, bound?), (name, read, bound))));
    // If the P99 of two latencies exceeds their bounds by the same factor, the latency that comes first in `all` is
    // taken.
    let most = bounded.reduce(|a, b| if b.0 > a.0 { b } else { a });
    Some(most.map_or(all[2], |most| most.1))
}

fn draw(answer: &FleetAnswer, question: &Question) -> Option<foretoken_report::Figure> {
    let (name, read, bound) = shown(answer)?;
    let look =
        |f: &PolicyFleet| question.plan.policies.iter().find(|p| p.spec.label() == f.policy).map(|p| p.spec.look());
    let line = |f: &PolicyFleet| {
        let points =
            f.seeds.first()?.probes.iter().filter_map(|p| {
                Some(FrontierPoint { cost_hour: cost_hour(f, p), p99_s: read(p)?, carried: p.carried })
            });
        Some(FrontierLine {
            policy: f.policy.clone(),
            at: swept_in_words(&f.sweep),
            look: look(f)?,
            points: points.collect(),
        })
    };
    let lines: Vec<FrontierLine> = answer.fleets.iter().filter_map(line).collect();
    let seed = question.plan.seeds[0];
    let source = format!("{}; {}; seed {seed}, whole runs", answer.source, answer.question());
    frontier_figure(&lines, &FrontierWords { latency: name, bound_s: bound, source: &source })
}
