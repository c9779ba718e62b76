//! The report of a validation (live runs against simulations of them) as text.

use super::cell::CellReport;
use super::piece_report::words;
use super::repeats;
use super::simulated::LiveRow;
use super::validation::Validation;
use crate::compare::bounds::{Tally, Verdict};
use crate::compare::format::{or_dash, percent};
use crate::compare::numbers::Unit;
use crate::compare::pass_errors::PassErrors;
use foretoken_report::{plain_table, signed_percent};
use std::fmt::Write;

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
        "pace: a piece is predicted with passes as much longer or shorter as its probes were than is usual in the run, \
         or in the runs that a calibration was fitted to\n",
    );
    out.push_str(
        "kinds of pass: a profile charges a prompt with what the passes after it lose; live, those take longer \
         themselves\n",
    );
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
        words(&u.pieces).iter().for_each(|line| {
            let _ = writeln!(out, "  {line}");
        });
    }
    let _ = write!(out, "\n{}", verdict(v));
    out
}

/// Lines of a validation's report that come before all numbers, as (name, text). They state the rule by which pieces
/// are accepted for the comparison, the number of accepted pieces, and the number of cells whose live runs agree.
pub fn pieces(v: &Validation) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    lines.extend(v.rule.clone().map(|rule| ("rule, stated before the runs", rule)));
    if let Some(range) = v.drift {
        let (counted, of) = v.counted;
        lines.push(("pieces", format!("{counted} of {of} count; passes in each {range}")));
    }
    lines.extend(repeats::words(&v.repeats).map(|words| ("live against live", words)));
    lines
}

/// The errors of predicted pass times as text, one line for each kind of pass.
fn kinds(errors: &[PassErrors]) -> String {
    let line = |r: &PassErrors| {
        format!(
            "  {:<22} {:>6} passes, {:>6} of pass time: {:>9.1} us live, {:>9.1} us simulated, error {:>7} \
             (single passes {})\n",
            r.region.name(),
            r.passes,
            percent(r.share),
            r.live_s * 1e6,
            r.predicted_s * 1e6,
            signed_percent(r.error),
            percent(r.mean_absolute_error)
        )
    };
    errors.iter().map(line).collect()
}

fn rates(v: &Validation, out: &mut String) {
    for (title, all) in [("service rate, requests/s", &v.service), ("speedup at the common load", &v.speedups)] {
        if all.is_empty() {
            continue;
        }
        let table = plain_table(header(title), all.iter().map(|s| cells(&s.policy, &s.rate)), 1..);
        let _ = writeln!(out, "\n{table}");
    }
    for r in &v.rankings {
        let tau = |t: Option<f64>| or_dash(t, |t| format!("{t:.2}"));
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
    let _ = writeln!(out, "{}", plain_table(header(""), c.rows.iter().map(|row| cells(&row.quantity, row)), 1..));
    remarks(c).iter().for_each(|line| {
        let _ = writeln!(out, "  {line}");
    });
    out.push_str(&kinds(&c.regions));
    out
}

/// Remarks below the numbers of a cell, one line each: pieces, token flow, replay, missing acceptance data,
/// distributions, curves over time, sensitivity, host time.
pub fn remarks(c: &CellReport) -> Vec<String> {
    let f = &c.flow;
    let parted =
        f.parted.as_ref().map(|p| format!("; the first to differ is step {}, {:?}: {}", p.step, p.what, p.how));
    let agreement = or_dash(f.agreement(), percent);
    let mut lines: Vec<String> = words(&c.pieces).into_iter().collect();
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
    let three = |d: &[Option<f64>; 3]| d.map(|d| or_dash(d, |d| format!("{d:.2}"))).join(" / ");
    let live = or_dash(c.live_distances.as_ref(), three);
    lines.push(format!("largest distance of CDFs, TTFT / TPOT / E2E: {} (live {live})", three(&c.distances)));
    let two = |d: &[Option<f64>; 2]| d.map(|d| or_dash(d, percent)).join(" / ");
    let live = or_dash(c.live_curves.as_ref(), two);
    lines.push(format!("batch size / draft length over time off by: {} (live {live})", two(&c.curves)));
    if let Some(s) = c.e2e_sensitivity {
        lines.push(format!("passes 3 % longer: mean E2E {}", signed_percent(s)));
    }
    if let Some(host) = c.host.words() {
        lines.push(format!("{host}; simulated with {:.1} us", c.overhead_s * 1e6));
    }
    lines
}

fn verdict(v: &Validation) -> String {
    let limited = if v.caveats.is_empty() { "" } else { " (see the first line)" };
    let mut out = match v.decided() {
        true => format!("verdict{limited}: {}\n", counts(v)),
        false => format!("verdict{limited}: nothing is decided, since in no piece the machine was steady\n"),
    };
    for (word, verdict) in [("broken", Verdict::Broken), ("undecided", Verdict::Undecided)] {
        for c in v.checks.iter().filter(|c| c.verdict == verdict) {
            let number = |x: f64| if c.bound == 0.0 { x.to_string() } else { percent(x) };
            let note = if c.note.is_empty() { String::new() } else { format!(" ({})", c.note) };
            let _ = writeln!(out, "  {word}: {}: {}, bound {}{note}", c.what, number(c.value), number(c.bound));
        }
    }
    v.notes.iter().for_each(|note| {
        let _ = writeln!(out, "  note: {note}");
    });
    out
}

/// A text that says how many bounds on errors are kept, and how many are undecided (their numbers were observed once,
/// or the repeats do not agree).
pub fn counts(v: &Validation) -> String {
    let tally = Tally::of(&v.checks);
    let undecided = match tally.undecided {
        0 => String::new(),
        1 => "; 1 more is undecided, since its repeats differ or there are none".to_owned(),
        n => format!("; {n} more are undecided, since their repeats differ or there are none"),
    };
    format!("{} of {} bounds kept{undecided}", tally.kept, tally.decided())
}

/// The headings of the table of compared numbers (live and simulated), whose rows [`cells`] makes; `first` is the
/// heading of the first column.
fn header(first: &str) -> [&str; 8] {
    [first, "live", "recorded", "modelled", "error", "modelled", "other runs", "live"]
}

/// The texts of one row of the table of compared numbers: name, live value, value simulated with the live run's
/// acceptance, value simulated with the experiment's acceptance source, the errors of both simulated values, the error
/// with learned costs, and the distance between the live runs.
pub fn cells(name: &str, row: &LiveRow) -> Vec<String> {
    let value = |x: f64| match row.unit {
        Unit::Seconds => format!("{:.3} ms", x * 1e3),
        Unit::Plain => format!("{x:.3}"),
        Unit::Share => percent(x),
    };
    let simulated = &row.predicted;
    vec![
        name.to_owned(),
        value(row.reference()),
        or_dash(simulated.recorded, value),
        or_dash(simulated.modelled, value),
        or_dash(simulated.recorded_error, signed_percent),
        or_dash(simulated.modelled_error, signed_percent),
        or_dash(simulated.learned_error, signed_percent),
        or_dash(row.spread, percent),
    ]
}
