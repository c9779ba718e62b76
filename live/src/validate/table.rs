//! A validation as text, for people.

use super::compare::{CellReport, Row};
use super::drift::Drift;
use super::numbers::Unit;
use super::regions::RegionError;
use super::repeats;
use super::report::Validation;
use super::standing;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use std::fmt::Write;

/// Renders the whole validation as text.
pub fn render(v: &Validation) -> String {
    let mut out = v.caveats.iter().map(|caveat| format!("{caveat}\n")).collect::<String>();
    let _ = writeln!(out, "{}: live on {} against the simulator, Foretoken {}", v.name, v.device, v.version);
    let _ = writeln!(out, "costs: {}", v.costs);
    pieces(v).into_iter().for_each(|(name, line)| {
        let _ = writeln!(out, "{name}: {line}");
    });
    out.push_str("errors: simulated over the mean of the live runs - 1; live: one live run against the other\n");
    out.push_str(
        "other runs: with the recorded acceptance, on costs fitted to the passes of the other cells' live runs alone\n",
    );
    out.push_str(
        "pace: a piece is predicted with passes as much longer or shorter as its probes were than is usual in the run, or in the runs that a \
         calibration was fitted to\n",
    );
    out.push_str("kinds of pass: a profile charges a prompt with what the passes after it lose; live, those take longer themselves\n");
    rates(v, &mut out);
    if !v.regions.is_empty() {
        let _ = write!(out, "\nkinds of pass, all cells together\n{}", kinds(&v.regions));
    }
    if !v.learned_regions.is_empty() {
        let _ = write!(
            out,
            "\nthe same, each cell predicted by the live runs of the other cells\n{}",
            kinds(&v.learned_regions)
        );
    }
    for cell in &v.cells {
        let _ = write!(out, "\n{}", cell_text(cell));
    }
    for u in &v.undecided {
        let _ = writeln!(out, "\n{}, {}: {}", u.policy, u.load, u.why());
        standing::words(&u.pieces).iter().for_each(|line| {
            let _ = writeln!(out, "  {line}");
        });
    }
    let _ = write!(out, "\n{}", verdict(v));
    out
}

/// The lines that come before any number: the rule, how many pieces count, and whether live runs repeat.
pub fn pieces(v: &Validation) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    all.extend(v.rule.clone().map(|rule| ("rule, stated before the runs", rule)));
    if let Some(Drift { smallest, largest }) = v.drift {
        let (counted, of) = v.counted;
        let drift = format!("{} to {}", signed(smallest), signed(largest));
        all.push(("pieces", format!("{counted} of {of} count; passes in each from {drift} of the typical probe")));
    }
    all.extend(repeats::words(&v.repeats).map(|words| ("live against live", words)));
    all
}

/// Errors of passes by kind, one line each.
fn kinds(regions: &[RegionError]) -> String {
    let line = |r: &RegionError| {
        format!(
            "  {:<22} {:>6} passes, {:>6} of pass time: {:>9.1} us live, {:>9.1} us simulated, error {:>7} (single passes {})\n",
            r.region.name(),
            r.passes,
            percent(r.share),
            r.live_s * 1e6,
            r.predicted_s * 1e6,
            signed(r.error),
            percent(r.mean_absolute_error)
        )
    };
    regions.iter().map(line).collect()
}

fn rates(v: &Validation, out: &mut String) {
    for (title, all) in [("service rate, requests/s", &v.service), ("speedup at the common load", &v.speedups)] {
        if all.is_empty() {
            continue;
        }
        let mut t = table(&[title, "live", "recorded", "modelled", "error", "modelled", "other runs", "live"]);
        for s in all {
            t.add_row(cells(&s.policy, &s.rate));
        }
        align(&mut t);
        let _ = writeln!(out, "\n{t}");
    }
    for r in &v.rankings {
        let tau = |t: Option<f64>| t.map_or("-".to_owned(), |t| format!("{t:.2}"));
        let _ = writeln!(
            out,
            "ranking by {}: Kendall tau {} (modelled {}), {} pairs the other way; differences up to {} are ties",
            r.by,
            tau(r.tau),
            tau(r.tau_modelled),
            r.pairs.disagree,
            percent(r.noise)
        );
    }
}

fn cell_text(c: &CellReport) -> String {
    let mut out = format!("{}, {}: {} requests\n", c.policy, c.load, c.requests);
    if let Some(o) = &c.overload {
        let _ = writeln!(out, "  {o}");
    }
    let mut t = table(&["", "live", "recorded", "modelled", "error", "modelled", "other runs", "live"]);
    for row in &c.rows {
        t.add_row(cells(&row.quantity, row));
    }
    align(&mut t);
    let _ = writeln!(out, "{t}");
    remarks(c).iter().for_each(|line| {
        let _ = writeln!(out, "  {line}");
    });
    out.push_str(&kinds(&c.regions));
    out
}

/// Remarks about a cell beside its numbers: token flow, distributions, sensitivity, host time.
pub fn remarks(c: &CellReport) -> Vec<String> {
    let f = &c.flow;
    let parted =
        f.parted.as_ref().map(|p| format!("; the first to differ is step {}, {:?}: {}", p.step, p.what, p.how));
    let agreement = f.agreement().map_or("-".to_owned(), percent);
    let mut lines: Vec<String> = standing::words(&c.pieces).into_iter().collect();
    lines.extend([
        format!("flow: {} of {} steps the same{}", f.same_steps, f.steps, parted.unwrap_or_default()),
        format!(
            "{} of {} requests the same round by round; decisions alike in {agreement} of {} shared rounds of {}; \
             other tokens accepted: {}",
            f.same_requests, f.requests, f.shared_rounds, f.rounds, f.other_acceptance
        ),
        format!(
            "replay on the recorded times: {}",
            c.replay_parted.as_deref().unwrap_or("every schedule, decision and token the same")
        ),
    ]);
    let m = c.missed;
    if (m.other_round, m.invented, m.looks) != (0, 0, 0) {
        lines.push(format!(
            "beyond the recording: {} bits by another round, {} bits and {} confidences by the model",
            m.other_round, m.invented, m.looks
        ));
    }
    let three = |d: &[Option<f64>; 3]| d.map(|d| d.map_or("-".to_owned(), |d| format!("{d:.2}"))).join(" / ");
    let live = c.live_distances.as_ref().map_or("-".to_owned(), three);
    lines.push(format!("largest distance of CDFs, TTFT / TPOT / E2E: {} (live {live})", three(&c.distances)));
    let two = |d: &[Option<f64>; 2]| d.map(|d| d.map_or("-".to_owned(), percent)).join(" / ");
    let live = c.live_curves.as_ref().map_or("-".to_owned(), two);
    lines.push(format!("batch size / draft length over time off by: {} (live {live})", two(&c.curves)));
    if let Some(s) = c.e2e_sensitivity {
        lines.push(format!("passes 3 % longer: mean E2E {}", signed(s)));
    }
    if let Some(host) = c.host.words() {
        lines.push(format!("{host}; simulated with {:.1} us", c.overhead_s * 1e6));
    }
    lines
}

fn verdict(v: &Validation) -> String {
    let broken: Vec<_> = v.checks.iter().filter(|c| !c.kept).collect();
    let limited = if v.caveats.is_empty() { "" } else { " (see the first line)" };
    let mut out = match v.decided() {
        true => format!("verdict{limited}: {} of {} bounds kept\n", v.checks.len() - broken.len(), v.checks.len()),
        false => format!("verdict{limited}: nothing is decided, since in no piece the machine was steady\n"),
    };
    for c in broken {
        let (value, bound) =
            if c.bound == 0.0 { (c.value.to_string(), "0".into()) } else { (percent(c.value), percent(c.bound)) };
        let note = if c.note.is_empty() { String::new() } else { format!(" ({})", c.note) };
        let _ = writeln!(out, "  broken: {}: {value}, bound {bound}{note}", c.what);
    }
    v.notes.iter().for_each(|note| {
        let _ = writeln!(out, "  note: {note}");
    });
    out
}

/// A row as text: name, live, recorded, modelled, errors of both, error with learned costs, live against live.
pub fn cells(name: &str, row: &Row) -> Vec<String> {
    let value = |x: f64| match row.unit {
        Unit::Seconds => format!("{:.3} ms", x * 1e3),
        Unit::Plain => format!("{x:.3}"),
        Unit::Share => percent(x),
    };
    let some = |x: Option<f64>| x.map_or("-".to_owned(), value);
    let mean = row.live.iter().sum::<f64>() / row.live.len() as f64;
    let error = |x: Option<f64>| x.map_or("-".to_owned(), signed);
    vec![
        name.to_owned(),
        value(mean),
        some(row.recorded),
        some(row.modelled),
        error(row.recorded_error),
        error(row.modelled_error),
        error(row.learned_error),
        row.live_against_live.map_or("-".to_owned(), percent),
    ]
}

fn table(head: &[&str]) -> Table {
    let mut t = Table::new();
    t.load_style(NOTHING).set_header(head);
    t
}

fn align(t: &mut Table) {
    t.column_iter_mut().skip(1).for_each(|c| c.set_cell_alignment(CellAlignment::Right));
}

/// Formats a share as a percentage.
pub fn percent(x: f64) -> String {
    format!("{:.1} %", x * 100.0)
}

/// Formats a signed share as a percentage.
pub fn signed(x: f64) -> String {
    format!("{:+.1} %", x * 100.0)
}
