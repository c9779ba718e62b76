//! Writes the results of the search for the smallest fleet into the results folder: as JSON, as text, as a table of all
//! tried numbers of replicas, as a figure and as an HTML page.

use super::answer::{FleetAnswer, PolicyFleet};
use super::page::page;
use super::plan::Question;
use super::probe::Probe;
use crate::capacity::words::swept_in_words;
use crate::cells::{FLEET_JSON, Folder, write_problem};
use crate::spec::problem::{Problem, Result};
use foretoken_report::{
    FleetProbeRow, FrontierLine, FrontierPoint, FrontierWords, Key, Staged, frontier_figure, write_fleet_probes,
};
use foretoken_sim::metrics::Slo;

/// Name of the file with the results of the search for the smallest fleet as text.
pub const FLEET_TEXT: &str = "fleet.txt";

/// Name of the HTML page with the results of the search for the smallest fleet.
pub const PAGE: &str = "fleet.html";

/// Writes all files with the results of the search for the smallest fleet into `folder`. Writes the figure (latency
/// against price) and the HTML page only if `figures` is true.
///
/// # Errors
/// A file cannot be written, or the experiment cannot be written as TOML.
pub fn write(answer: &FleetAnswer, question: &Question, folder: &Folder, figures: bool) -> Result<()> {
    write_fleet_probes(&folder.path().join("fleet.parquet"), &rows(answer)).map_err(write_problem)?;
    if figures {
        let figure = draw(answer, question);
        if let Some(figure) = &figure {
            std::fs::create_dir_all(folder.figures())
                .map_err(|e| Problem::failed(format!("cannot make {}: {e}", folder.figures().display())))?;
            Staged::write_all_to(&folder.figures().join(&figure.file), figure.svg.as_bytes()).map_err(write_problem)?;
        }
        folder.write(PAGE, page(answer, &question.plan, folder, figure)?.html().as_bytes())?;
    }
    folder.write(FLEET_TEXT, answer.in_words().as_bytes())?;
    let json = serde_json::to_string_pretty(answer).expect("plain data always serialises") + "\n";
    folder.write(FLEET_JSON, json.as_bytes())
}

fn rows(answer: &FleetAnswer) -> Vec<FleetProbeRow> {
    let searches = answer.fleets.iter().flat_map(|f| f.seeds.iter().map(move |s| (f, s)));
    let rows = searches.flat_map(|(f, s)| {
        s.probes.iter().map(move |p| FleetProbeRow {
            key: Key { policy: f.policy.clone(), sweep: f.sweep.clone(), seed: s.seed },
            router: f.router.clone(),
            replicas: p.replicas,
            gpus: p.replicas * f.gpus_of_one,
            cost_hour: f64::from(p.replicas * f.gpus_of_one) * f.price_gpu_hour,
            carried: p.carried,
            counted: [p.counted, p.kept, p.missed],
            steady: p.steady,
            p99_s: [
                p.latencies.map(|l| l.ttft.p99),
                p.latencies.and_then(|l| l.tpot).map(|q| q.p99),
                p.latencies.map(|l| l.e2e.p99),
            ],
        })
    });
    rows.collect()
}

/// A function that reads a latency, in seconds, from a probe (a simulated run with one number of replicas).
type Read = fn(&Probe) -> Option<f64>;

/// Chooses the latency (TTFT, TPOT or E2E) whose P99 over requests the figure shows. Only latencies with an SLO bound
/// are considered. In the runs of fleets that do not carry the load (serve it within the SLO), the P99 of the chosen
/// latency exceeds its bound by the largest factor. Without any bound, E2E is chosen. Returns (its name, how to read it
/// from a probe, its bound in seconds).
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
        let points = f.seeds.first()?.probes.iter().filter_map(|p| {
            let cost_hour = f64::from(p.replicas * f.gpus_of_one) * f.price_gpu_hour;
            Some(FrontierPoint { cost_hour, p99_s: read(p)?, carried: p.carried })
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
