//! The HTML page of a validation: the verdict, the numbers, and figures with live and simulated curves.

use super::cell::CellReport;
use super::piece_report::{Undecided, words};
use super::simulated::{LiveRow, PolicyValue};
use super::text::{cells, counts, pieces, remarks};
use super::validation::Validation;
use crate::compare::bounds::{Check, Verdict};
use crate::compare::format::percent;
use crate::compare::pass_errors::PassErrors;
use crate::compare::rankings::Ranked;
use foretoken_report::html::{Page, Part, Row, Section, Table, Value};
use foretoken_report::{Figure, Validated, ValidatedRun, signed_percent, validation_figures};

/// Makes the HTML page of a validation. `runs` has the data for the figures, one entry per cell.
pub fn page(v: &Validation, runs: Vec<ValidatedRun>) -> Page {
    let title = format!("{} on {}", v.name, v.device);
    let figures = validation_figures(&Validated { title, runs });
    let mut lead = vec![Part::Headline(match v.decided() {
        false => "Nothing is decided: in no piece the machine was steady.".into(),
        true => format!("The simulator: {}.", counts(v)),
    })];
    lead.extend(v.caveats.iter().cloned().map(Part::Warning));
    let mut facts: Vec<_> = pieces(v).into_iter().map(|(name, line)| (name.to_owned(), line)).collect();
    facts.extend([
        ("an error is".into(), "simulated over the mean of the live runs, minus 1; of shares the difference".into()),
        (
            "at which pace".into(),
            "a piece is predicted with passes as much longer or shorter as its probes were than is usual in the run, \
             or in the runs that a calibration was fitted to"
                .into(),
        ),
        ("live / live".into(), "one live run against the other: no prediction can be expected to do better".into()),
    ]);
    lead.push(Part::Facts(facts));
    Page {
        title: v.name.clone(),
        kind: format!("{}Foretoken validation · live against simulated", limited(v)),
        scope: format!("{} · {}", v.device, v.costs),
        lead,
        sections: vec![
            verdict(v),
            policies(v),
            latencies(&figures),
            over_time(&figures),
            passes(v, &figures),
            runs_of(v),
        ],
        foot: format!("Made by Foretoken {} from the recordings of live runs.", v.version),
        ..Page::default()
    }
}

/// The text before "Foretoken validation" in the first line of a validation's page: for each caveat, the words before
/// the caveat's first colon. Empty without caveats.
fn limited(v: &Validation) -> String {
    let word = |caveat: &String| caveat.split(':').next().map(str::to_owned);
    let mut words: Vec<String> = v.caveats.iter().filter_map(word).collect();
    words.dedup();
    words.into_iter().map(|word| word + " · ").collect()
}

fn verdict(v: &Validation) -> Section {
    let mut section = Section::new("verdict", "Verdict");
    let columns = [("bound on", ""), ("error", ""), ("bound", ""), ("note", "")];
    let table = |title: &str, verdict: Verdict| {
        let mut table = Table::new(title, &columns);
        table.rows = v.checks.iter().filter(|c| c.verdict == verdict).map(check_row).collect();
        table
    };
    let broken = table("Bounds that are broken", Verdict::Broken);
    if !broken.rows.is_empty() {
        section.parts.push(Part::Table(broken));
    }
    let folded = [
        ("bounds that are undecided: their repeats differ, or there are none", Verdict::Undecided),
        ("bounds that are kept", Verdict::Kept),
    ];
    for (title, verdict) in folded {
        let table = table("", verdict);
        if !table.rows.is_empty() {
            let title = format!("{} {title}", table.rows.len());
            section.parts.push(Part::More { title, parts: vec![Part::Table(table)] });
        }
    }
    if !v.undecided.is_empty() {
        let why = |u: &Undecided| {
            let pieces = words(&u.pieces).map_or(String::new(), |words| format!(": {words}"));
            format!("{}, {}: {}{pieces}", u.policy, u.load, u.why())
        };
        section.parts.push(Part::List(v.undecided.iter().map(why).collect()));
    }
    if !v.notes.is_empty() {
        section.parts.push(Part::List(v.notes.clone()));
    }
    section
}

fn check_row(c: &Check) -> Row {
    let number = |x: f64| match c.bound {
        0.0 => Value::number(x, x.to_string()),
        _ => Value::number(x, percent(x)),
    };
    Row::of([Value::text(&c.what), number(c.value), number(c.bound), Value::text(&c.note)])
}

fn policies(v: &Validation) -> Section {
    let mut section = Section::new("policies", "Policies against each other");
    for (caption, all) in [
        ("Service rate: requests a second in a closed loop", &v.service),
        ("Speedup: mean end-to-end latency of the baseline over the policy's", &v.speedups),
    ] {
        if !all.is_empty() {
            section.parts.push(Part::Table(services(caption, all)));
        }
    }
    section.parts.extend(v.rankings.iter().map(|r| Part::Text(ranking(r))));
    if section.parts.is_empty() {
        section.parts.push(Part::Missing("One policy alone: there is nothing to rank.".into()));
    }
    section
}

fn services(caption: &str, all: &[PolicyValue]) -> Table {
    let mut table = Table::new(caption, &heads("policy"));
    table.rows = all.iter().map(|s| numbers(&s.policy, &s.rate)).collect();
    table
}

fn ranking(r: &Ranked) -> String {
    let tau = |t: Option<f64>| t.map_or("none".to_owned(), |t| format!("{t:.2}"));
    format!(
        "Ranking by {}: Kendall τ {} with the recorded acceptance, {} with the modelled one; {} pairs in the opposite \
         order. Differences up to {} are ties.",
        r.by,
        tau(r.tau),
        tau(r.tau_modelled),
        r.pairs.disagree,
        percent(r.noise)
    )
}

fn heads(first: &str) -> [(&str, &str); 8] {
    [
        (first, ""),
        ("live", "mean of the live runs"),
        ("recorded", "simulated with the acceptance that the live run revealed"),
        ("modelled", "simulated with the experiment's acceptance"),
        ("error, recorded", ""),
        ("error, modelled", ""),
        (
            "error, other runs",
            "with the recorded acceptance, on costs fitted to the passes of the other cells' live runs alone",
        ),
        ("live / live", "one live run against the other"),
    ]
}

fn numbers(name: &str, row: &LiveRow) -> Row {
    let simulated = &row.predicted;
    let errors = [simulated.recorded_error, simulated.modelled_error, simulated.learned_error, row.spread];
    let sort_keys = [Some(row.reference()), simulated.recorded, simulated.modelled].into_iter().chain(errors);
    let texts = cells(name, row).into_iter().skip(1);
    let value = |(text, key): (String, Option<f64>)| key.map_or_else(Value::none, |key| Value::number(key, text));
    Row::of(std::iter::once(Value::text(name)).chain(texts.zip(sort_keys).map(value)))
}

/// Adds to a section of the page the figures that `captions` names, as (file name of the figure, caption). If the
/// section has no figure afterwards, adds a note that no request finished.
fn shown(section: &mut Section, figures: &[Figure], captions: &[(&str, &str)]) {
    for (file, caption) in captions {
        for figure in figures.iter().filter(|f| f.file == *file) {
            section.parts.push(Part::Figure { svg: figure.svg.clone(), caption: (*caption).to_owned() });
        }
    }
    if section.parts.is_empty() {
        section.parts.push(Part::Missing("No request finished.".into()));
    }
}

fn latencies(figures: &[Figure]) -> Section {
    let mut section = Section::new("latencies", "Latencies, laid over each other");
    let captions = [
        (
            "e2e.svg",
            "Two live runs and two simulations of the same arrivals. Live and live again show what chance does.",
        ),
        ("requests.svg", "Each request of the first live run and of its simulation."),
        ("tpot.svg", ""),
    ];
    shown(&mut section, figures, &captions);
    let mut more = Section::default();
    shown(&mut more, figures, &[("ttft.svg", "")]);
    section.parts.push(Part::More { title: "Time to first token".into(), parts: more.parts });
    section
}

fn over_time(figures: &[Figure]) -> Section {
    let mut section = Section::new("time", "Over time");
    let captions = [("batch-size.svg", "Idle time counts as 0."), ("draft-length.svg", "")];
    shown(&mut section, figures, &captions);
    section
}

fn passes(v: &Validation, figures: &[Figure]) -> Section {
    let mut section = Section::new("passes", "Passes");
    let columns = [
        ("run", ""),
        ("passes", "of what kind"),
        ("how many", ""),
        ("share of time", "of all time in passes"),
        ("live (µs)", ""),
        ("predicted (µs)", ""),
        ("error", "of their sum"),
        ("single passes", "mean error without sign"),
    ];
    let kinds = |caption: &str, all: &[(String, &[PassErrors])]| {
        let mut table = Table::new(caption, &columns);
        for (name, r) in all.iter().flat_map(|(name, regions)| regions.iter().map(move |r| (name, r))) {
            let us = |s: f64| Value::number(s, format!("{:.1}", s * 1e6));
            table.rows.push(Row::of([
                Value::text(name),
                Value::text(r.region.name()),
                Value::number(r.passes as f64, r.passes.to_string()),
                Value::number(r.share, percent(r.share)),
                us(r.live_s),
                us(r.predicted_s),
                Value::number(r.error, signed_percent(r.error)),
                Value::number(r.mean_absolute_error, percent(r.mean_absolute_error)),
            ]));
        }
        Part::Table(table)
    };
    let caption = "Each live pass predicted with its own shape: no schedule and no acceptance in it";
    let together = kinds(caption, &[("all".to_owned(), &v.regions)]);
    let named = |cell: &CellReport| (format!("{}, {}", cell.policy, cell.load), cell.regions.clone());
    let by_cell: Vec<(String, Vec<PassErrors>)> = v.cells.iter().map(named).collect();
    let by_cell: Vec<_> = by_cell.iter().map(|(name, regions)| (name.clone(), regions.as_slice())).collect();
    shown(&mut section, figures, &[("steps.svg", "Draft and target passes of a step together.")]);
    section.parts.push(together);
    if !v.learned_regions.is_empty() {
        let caption = "The same, each run predicted by the live runs of the other cells: these know what no profile of \
                       single passes can know";
        section.parts.push(kinds(caption, &[("all".to_owned(), &v.learned_regions)]));
    }
    section
        .parts
        .push(Part::More { title: "Errors by kind of pass, run by run".into(), parts: vec![kinds("", &by_cell)] });
    section
}

fn runs_of(v: &Validation) -> Section {
    let mut section = Section::new("runs", "Every number of every run");
    section.parts = v.cells.iter().map(run).collect();
    section
}

fn run(c: &CellReport) -> Part {
    let mut table = Table::new("", &heads("number"));
    table.rows = c.rows.iter().map(|row| numbers(&row.quantity, row)).collect();
    let mut parts = vec![Part::List(remarks(c)), Part::Table(table)];
    if let Some(overload) = &c.overload {
        parts.insert(0, Part::Warning(overload.to_string()));
    }
    Part::More { title: format!("{}, {}: {} requests", c.policy, c.load, c.requests), parts }
}
