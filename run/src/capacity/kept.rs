//! Writes the results of a capacity search into the results folder: as JSON, text, tables, figures and an HTML page.

use crate::capacity::answer::{Answer, Capacity, Limit, Verdict};
use crate::capacity::page::page;
use crate::capacity::words::{spread_of, values};
use crate::cells::{CAPACITY_JSON, Folder, write_problem};
use crate::plan::Plan;
use crate::spec::problem::{Problem, Result};
use foretoken_report::{
    CapacityRow, CapacityWords, Carried, Figure, Key, ProbeRow, Staged, TriedRate, capacity_figures, write_capacity,
    write_probes,
};

/// Name of the file with the results of a capacity search as text.
pub const CAPACITY_TEXT: &str = "capacity.txt";
/// Name of the HTML page with the results of a capacity search.
pub const PAGE: &str = "capacity.html";

/// Writes all files with the results of a capacity search into `folder`; the figures and the HTML page only if
/// `figures` is true.
///
/// # Errors
/// A file cannot be written.
pub fn write(answer: &Answer, plan: &Plan, folder: &Folder, figures: bool) -> Result<()> {
    let (capacities, probes) = rows(answer);
    write_capacity(&folder.path().join("capacity.parquet"), &capacities).map_err(write_problem)?;
    write_probes(&folder.path().join("probes.parquet"), &probes).map_err(write_problem)?;
    if figures {
        let drawn = draw(answer, plan);
        std::fs::create_dir_all(folder.figures())
            .map_err(|e| Problem::failed(format!("cannot make {}: {e}", folder.figures().display())))?;
        for figure in &drawn {
            Staged::write_all_to(&folder.figures().join(&figure.file), figure.svg.as_bytes()).map_err(write_problem)?;
        }
        folder.write(PAGE, page(answer, plan, folder, drawn)?.html().as_bytes())?;
    }
    folder.write(CAPACITY_TEXT, answer.in_words().as_bytes())?;
    folder.write(CAPACITY_JSON, answer.to_json().as_bytes())
}

impl Answer {
    /// The results of the capacity search as the text of a JSON file.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data always serialises") + "\n"
    }
}

fn rows(answer: &Answer) -> (Vec<CapacityRow>, Vec<ProbeRow>) {
    let (mut capacities, mut probes) = (Vec::new(), Vec::new());
    for c in &answer.capacities {
        for s in &c.seeds {
            let key = || Key { policy: c.policy.clone(), sweep: c.sweep.clone(), seed: s.seed };
            capacities.push(CapacityRow {
                key: key(),
                verdict: in_words(s.verdict).to_owned(),
                req_s: s.req_s,
                tried_up_to: s.tried_up_to,
                limit: s.limit.map(|limit| if limit == Limit::Queue { "queue" } else { "bounds" }.to_owned()),
                tok_s_gpu: s.tok_s_gpu,
                exceptions: s.exceptions.len() as u32,
                slo: [s.slo.ttft_s, s.slo.tpot_s, s.slo.e2e_s],
            });
            probes.extend(s.probes.iter().map(|p| ProbeRow {
                key: key(),
                rate: p.rate,
                carried: p.carried,
                counted: [p.counted, p.kept, p.missed],
                steady: p.steady,
            }));
        }
    }
    (capacities, probes)
}

fn in_words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Rate => "rate",
        Verdict::NoRate => "no rate",
        Verdict::EveryRateTried => "every rate tried",
    }
}

fn draw(answer: &Answer, plan: &Plan) -> Vec<Figure> {
    let look = |c: &Capacity| plan.policies.iter().find(|p| p.spec.label() == c.policy).map(|p| p.spec.look());
    let carried = |c: &Capacity| {
        let tried = c.seeds.first().map_or(&[][..], |s| &s.probes).iter();
        let tried = tried.filter_map(|p| {
            let steady = p.steady.unwrap_or(false);
            Some(TriedRate { rate: p.rate, share: p.attainment()?, steady })
        });
        Some(Carried {
            policy: c.policy.clone(),
            at: values(c),
            value: if let [one] = c.sweep.as_slice() { one.number } else { None },
            look: look(c)?,
            req_s: c.req_s,
            words: format!("{}{}", c.rate_in_words(), spread_of(c, " ± ").unwrap_or_default()),
            tried: tried.collect(),
        })
    };
    let lines: Vec<Carried> = answer.capacities.iter().filter_map(carried).collect();
    let seeds = match plan.seeds.as_slice() {
        [one] => format!("seed {one} alone"),
        many => format!("mean and 95 % interval over {} seeds", many.len()),
    };
    let first_seed = match plan.seeds.as_slice() {
        [one] => format!("seed {one}, whole runs"),
        many => format!("seed {} of {} seeds, whole runs", many[0], many.len()),
    };
    let swept = answer.capacities.first().and_then(|c| c.sweep.first());
    let swept = match swept.map(|s| s.path.as_str()) {
        Some("slo.adaspec-scale") => "TPOT bound over the P90 of plain decoding".to_owned(),
        _ => swept.map_or_else(String::new, |s| s.axis()),
    };
    let source = format!("{}; {}", answer.source, answer.question());
    capacity_figures(
        &lines,
        CapacityWords { share: answer.share, source: &source, seeds: &seeds, first_seed: &first_seed, swept: &swept },
    )
}
