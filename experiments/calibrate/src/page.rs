//! A calibration as a page: what it is made from, what it cannot tell, the fit and what is left over.

use crate::calibration::Calibration;
use crate::costs::StepRow;
use foretoken_report::html::{Page, Part, Row, Section, Table, Value};
use foretoken_report::{Profiled, ProfiledFit, ProfiledPass, profile_figures};

/// The page.
pub fn page(c: &Calibration) -> Page {
    let verdict = c.verdict.as_ref();
    let mut lead = vec![Part::Headline(match verdict {
        Some(verdict) => format!("The costs are {}.", verdict.in_words()),
        None => "What steps cost is not known.".to_owned(),
    })];
    lead.extend(c.warnings.iter().cloned().map(Part::Warning));
    Page {
        title: "Calibration".into(),
        kind: "Foretoken calibration · observed".into(),
        lead,
        sections: vec![costs(c), acceptance(c), made_from(c)],
        foot: format!("Made by Foretoken {} from observed runs.", env!("CARGO_PKG_VERSION")),
        ..Page::default()
    }
}

const REGIONS: [&str; 4] = ["decode", "with drafts", "with prompts", "prompts alone"];

fn region(r: &StepRow) -> usize {
    match (r.prompts, r.decodes, r.verified > u64::from(r.decodes)) {
        (0, _, false) => 0,
        (0, _, true) => 1,
        (_, 0, _) => 3,
        _ => 2,
    }
}

fn costs(c: &Calibration) -> Section {
    let mut section = Section::new("costs", "What steps cost");
    let Some(fit) = &c.cost else { return section };
    let ms = |s: f64| format!("{:.3} ms", 1e3 * s);
    let points: Vec<String> = fit.batched.iter().map(|(b, s)| format!("{b}: {}", ms(*s))).collect();
    section.parts.push(Part::Facts(vec![
        ("a target pass by its tokens".into(), points.join(", ")),
        ("and a token of context".into(), format!("{:.4} µs", 1e6 * fit.alpha_s)),
        (
            "a draft pass".into(),
            match c.separated {
                true => format!("{} and {:.2} µs a token", ms(fit.draft.delta_s), 1e6 * fit.draft.gamma_s),
                false => "not told apart: the target pass has the time of the whole step".into(),
            },
        ),
        ("the host between steps".into(), ms(fit.host_s)),
        ("between client and scheduler, there and back".into(), ms(c.engine.frontend_s)),
        ("steps around the fit".into(), format!("{:.1} %", 100.0 * fit.noise)),
    ]));
    let mut table = Table::new(
        "Errors of step times",
        &[
            ("steps", ""),
            ("number", ""),
            ("error", "mean of |predicted / observed − 1|"),
            ("bias", "sum of predicted over sum of observed, less 1"),
        ],
    );
    let mut push = |name: String, e: &crate::held_out::Error| {
        let share = |x: f64| Value::number(x, format!("{:+.1} %", 100.0 * x));
        table.rows.push(Row::of([
            Value::text(name),
            Value::number(e.steps as f64, e.steps.to_string()),
            share(e.mean_absolute),
            share(e.bias),
        ]));
    };
    push("fitted to".into(), &c.held_out.fitted);
    push("second halves, by the first halves".into(), &c.held_out.by_time);
    for (run, e) in &c.held_out.by_run {
        push(format!("{}, by the others", c.name_of(*run)), e);
    }
    for (k, e) in &c.held_out.by_length {
        push(format!("fitted to, K = {k}"), e);
    }
    section.parts.push(Part::Table(table));
    let passes = c.rows.iter().map(|r| ProfiledPass {
        region: region(r),
        batched: r.verified + r.prompt_tokens,
        measured_s: r.elapsed_s,
        predicted_s: fit.step_s(r),
    });
    let profiled = Profiled {
        title: "Steps of the server".into(),
        source: format!("observed, {} steps", c.rows.len()),
        regions: REGIONS.to_vec(),
        fits: vec![ProfiledFit { title: "steps".into(), passes: passes.collect() }],
    };
    for (figure, caption) in profile_figures(&profiled).into_iter().zip([
        "What the fit says of each step against what it took: observed.",
        "What is left over, by tokens: a slope or a bend is something that the fit does not know.",
    ]) {
        section.parts.push(Part::Figure { svg: figure.svg, caption: caption.into() });
    }
    section
}

fn acceptance(c: &Calibration) -> Section {
    let mut section = Section::new("acceptance", "What drafts get right");
    let Some(a) = &c.acceptance else {
        section.parts.push(Part::Text("Nothing was drafted.".into()));
        return section;
    };
    let mut table = Table::new(
        "By position in a round",
        &[
            ("position", ""),
            ("reached", "rounds that drafted it and accepted all before it"),
            ("accepted", ""),
            ("rate", "P(accepted | reached)"),
            ("", ""),
        ],
    );
    let deepest = a.positions.iter().filter(|p| !p.extrapolated).count() + 3;
    for p in a.positions.iter().take(deepest) {
        let number = |n: u64| Value::number(n as f64, n.to_string());
        let from = if p.extrapolated { "extrapolated" } else { "observed" };
        table.rows.push(Row::of([
            number(p.position as u64),
            number(p.reached),
            number(p.accepted),
            Value::number(p.rate, format!("{:.3}", p.rate)),
            Value::text(from),
        ]));
    }
    section.parts.push(Part::Table(table));
    section.parts.push(Part::Text(format!("{} answers are known round by round, of {} some rounds are missing. A round that accepted everything is censored: what would have followed is not known.", a.whole, a.broken)));
    section
}

fn made_from(c: &Calibration) -> Section {
    let mut section = Section::new("inputs", "Made from");
    let mut table = Table::new("Inputs", &[("file", ""), ("what", ""), ("BLAKE3", "")]);
    for input in c.inputs() {
        table.rows.push(Row::of([Value::text(input.path), Value::text(input.what), Value::text(&input.blake3[..16])]));
    }
    section.parts.push(Part::Table(table));
    section
}
