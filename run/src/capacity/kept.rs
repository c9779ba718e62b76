//! Writes the results of a capacity search into the results folder: as JSON, text, tables, figures and an HTML page.

use crate::capacity::answer::{Answer, Capacity, Limit, SeedResult, Verdict};
use crate::capacity::page::page;
use crate::capacity::probe::Probe;
use crate::capacity::words::{values, with_spread};
use crate::cells::{CAPACITY_JSON, Folder, keep_figures, write_problem};
use crate::plan::Plan;
use crate::spec::problem::Result;
use foretoken_report::{
    CapacityWords, Carried, Column, Figure, Key, ReportError, TriedRate, capacity_figures, column, write_rows,
};

pub const CAPACITY_TEXT: &str = "capacity.txt";
pub const PAGE: &str = "capacity.html";

/// Writes all files with the results of a capacity search into `folder`; the figures and the HTML page only if
/// `figures` is true.
pub fn write(answer: &Answer, plan: &Plan, folder: &Folder, figures: bool) -> Result<()> {
    tables(answer, folder).map_err(write_problem)?;
    if figures {
        let drawn = draw(answer, plan);
        keep_figures(folder, &drawn)?;
        folder.write(PAGE, page(answer, plan, folder, drawn)?.html().as_bytes())?;
    }
    folder.write(CAPACITY_TEXT, answer.in_words().as_bytes())?;
    folder.write(CAPACITY_JSON, answer.to_json().as_bytes())
}

impl Answer {
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data always serialises") + "\n"
    }
}

/// Writes `capacity.parquet`, with a row per policy and seed, and `probes.parquet`, with a row per tried rate.
fn tables(answer: &Answer, folder: &Folder) -> std::result::Result<(), ReportError> {
    let searches = || answer.capacities.iter().flat_map(|c| c.seeds.iter().map(move |s| (c, s)));
    let key = |c: &Capacity, s: &SeedResult| Key { policy: c.policy.clone(), sweep: c.sweep.clone(), seed: s.seed };
    let write = |name: &str, keys: Vec<Key>, columns: Vec<Column>| {
        write_rows(&folder.path().join(name), &keys, &keys.iter().collect::<Vec<_>>(), columns)
    };
    let rows: Vec<&SeedResult> = searches().map(|(_, s)| s).collect();
    let limit = |limit: Limit| if limit == Limit::Queue { "queue" } else { "bounds" };
    let columns = vec![
        column("verdict", rows.iter().map(|s| in_words(s.verdict))),
        column("req_s", rows.iter().map(|s| s.req_s)),
        column("tried_up_to", rows.iter().map(|s| s.tried_up_to)),
        column("limit", rows.iter().map(|s| s.limit.map(limit))),
        column("tok_s_gpu", rows.iter().map(|s| s.tok_s_gpu)),
        column("exceptions", rows.iter().map(|s| s.exceptions.len() as u32)),
        column("slo_ttft_s", rows.iter().map(|s| s.slo.ttft_s)),
        column("slo_tpot_s", rows.iter().map(|s| s.slo.tpot_s)),
        column("slo_e2e_s", rows.iter().map(|s| s.slo.e2e_s)),
    ];
    write("capacity.parquet", searches().map(|(c, s)| key(c, s)).collect(), columns)?;
    let probes: Vec<&Probe> = rows.iter().flat_map(|s| &s.probes).collect();
    let columns = vec![
        column("rate", probes.iter().map(|p| p.rate)),
        column("carried", probes.iter().map(|p| p.carried)),
        column("counted", probes.iter().map(|p| p.counted)),
        column("kept", probes.iter().map(|p| p.kept)),
        column("missed", probes.iter().map(|p| p.missed)),
        column("steady", probes.iter().map(|p| p.steady)),
    ];
    write("probes.parquet", searches().flat_map(|(c, s)| s.probes.iter().map(move |_| key(c, s))).collect(), columns)
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
            words: with_spread(c),
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
