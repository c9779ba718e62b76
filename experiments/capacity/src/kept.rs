//! What a search leaves in its folder: the answer as data, as text, as tables, as figures and as a page.

use crate::answer::{Answer, Capacity};
use crate::words::name;
use foretoken_report::html::{Page, Part, Row, Section, Table, Value};
use foretoken_report::{
    CapacityRow, Carried, Figure, Key, ProbeRow, Staged, capacity_figures, write_capacity, write_probes,
};
use foretoken_run::cells::{CAPACITY_JSON, Folder, write_problem};
use foretoken_run::plan::Plan;
use foretoken_spec::problem::{Problem, Result};

/// The answer in words.
pub const CAPACITY_TEXT: &str = "capacity.txt";
/// The page.
pub const PAGE: &str = "capacity.html";

/// Writes all of it; figures and the page where they are wanted.
///
/// # Errors
/// Something cannot be written.
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
        folder.write(PAGE, page(answer, drawn).html().as_bytes())?;
    }
    folder.write(CAPACITY_TEXT, answer.in_words().as_bytes())?;
    folder.write(CAPACITY_JSON, answer.to_json().as_bytes())
}

impl Answer {
    /// All of it.
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
                req_s: s.req_s,
                tok_s_gpu: s.tok_s_gpu,
                steady: s.steady,
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

fn draw(answer: &Answer, plan: &Plan) -> Vec<Figure> {
    let look = |c: &Capacity| plan.policies.iter().find(|p| p.spec.label() == c.policy).map(|p| p.spec.look());
    let carried = |c: &Capacity| {
        let at: Vec<String> = c.sweep.iter().map(|s| format!("{} = {}", s.path, s.value)).collect();
        let tried = c.seeds.first().map_or(&[][..], |s| &s.probes).iter();
        Some(Carried {
            policy: c.policy.clone(),
            at: at.join(", "),
            look: look(c)?,
            req_s: c.req_s,
            tried: tried.map(|p| (p.rate, p.attainment(), p.kept + p.missed < p.counted)).collect(),
        })
    };
    let all: Vec<Carried> = answer.capacities.iter().filter_map(carried).collect();
    let seeds = plan.seeds.len();
    let source = format!("{}; {}; mean and 95 % interval over {seeds} seeds", answer.source, answer.question());
    capacity_figures(&all, answer.share, &source)
}

fn page(answer: &Answer, figures: Vec<Figure>) -> Page {
    let mut section = Section::new("capacity", "Capacity");
    for (figure, caption) in figures.into_iter().zip([
        "The highest rate at which enough requests keep their bounds.",
        "How many keep them at each rate that was tried: the dashed line is what is asked for.",
    ]) {
        section.parts.push(Part::Figure { svg: figure.svg, caption: caption.into() });
    }
    section.parts.push(Part::Table(table(answer)));
    let notes: Vec<String> = answer
        .capacities
        .iter()
        .flat_map(|c| c.notes().into_iter().map(move |n| format!("{}: {n}", name(c))))
        .collect();
    Page {
        title: format!("Capacity: {}", answer.name),
        kind: format!("Foretoken capacity · {}", answer.source),
        lead: [Part::Headline(format!("{}.", answer.question()))]
            .into_iter()
            .chain(answer.warnings.iter().cloned().chain(notes).map(Part::Warning))
            .collect(),
        sections: vec![section],
        foot: format!("Made by Foretoken {}.", env!("CARGO_PKG_VERSION")),
        ..Page::default()
    }
}

fn table(answer: &Answer) -> Table {
    let columns = [
        ("policy", ""),
        ("requests/s", "mean over seeds"),
        ("±", "95 % interval over seeds"),
        ("tokens/s a GPU", "output tokens of requests that come"),
        ("rates tried", ""),
    ];
    let mut table = Table::new("Capacity", &columns);
    for c in &answer.capacities {
        let number = |x: Option<f64>, decimals: usize| {
            x.map_or_else(|| Value::text("none"), |x| Value::number(x, format!("{x:.decimals$}")))
        };
        let tried: usize = c.seeds.iter().map(|s| s.probes.len()).sum();
        table.rows.push(Row::of([
            Value::text(name(c)),
            number(c.req_s.map(|i| i.mean), 3),
            number(c.req_s.and_then(|i| i.half_width), 3),
            number(c.tok_s_gpu.map(|i| i.mean), 0),
            Value::number(tried as f64, tried.to_string()),
        ]));
    }
    table
}
