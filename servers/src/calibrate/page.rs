//! The HTML page of a calibration: verdict, warnings, fitted costs and their errors, acceptance, and input files.

use crate::calibrate::acceptance::Position;
use crate::calibrate::calibration::Calibration;
use crate::calibrate::costs::{Part as StepPart, StepRow};
use crate::calibrate::held_out::Error;
use crate::calibrate::source::load;
use foretoken_report::html::{Page, Part, Row, Section, Table, Value};
use foretoken_report::{
    AtPosition, Profiled, ProfiledFit, ProfiledPass, cost_figure, percent, positions_figure, profile_figures,
    signed_percent,
};
use foretoken_traces::truth::TruthTable;

/// Makes the HTML page of a calibration: verdict, warnings, fitted costs, acceptance and inputs.
pub fn page(c: &Calibration) -> Page {
    let mut lead = vec![Part::Headline(headline(c))];
    // The headline has the errors of single steps. The verdict, whether the costs may be trusted, comes after it: the
    // verdict is about sums of steps, in which the errors of single steps cancel.
    lead.extend(
        c.verdict
            .as_ref()
            .map(|v| Part::Text(format!("The costs are {}. This is of sums of many steps.", v.in_words()))),
    );
    lead.extend(c.warnings.iter().cloned().map(Part::Warning));
    Page {
        title: "Calibration".into(),
        kind: "Foretoken calibration · observed".into(),
        scope: scope(c),
        lead,
        sections: vec![costs(c), acceptance(c), made_from(c), next(c)],
        foot: format!("Made by Foretoken {} from observed runs.", env!("CARGO_PKG_VERSION")),
        ..Page::default()
    }
}

/// For which server, draft lengths and loads the calibration was made, in one line.
fn scope(c: &Calibration) -> String {
    let server = c.profile().map(|profile| profile.server);
    let lengths: Vec<String> = c.lengths().iter().map(u32::to_string).collect();
    let mut loads: Vec<String> = Vec::new();
    for source in &c.sources {
        let load = load(&source.recording);
        if !loads.contains(&load) {
            loads.push(load);
        }
    }
    let k = (!lengths.is_empty()).then(|| format!("K = {}", lengths.join(", ")));
    let loads = (!loads.is_empty()).then(|| loads.join(", "));
    let steps = format!("{} steps", c.rows.len());
    [server, k, loads, Some(steps)].into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

/// A sentence on the errors of predicted step times on runs that were left out of the fit. It names the runs with the
/// largest and the smallest error. If no run could be left out, it gives the error on the second halves of runs;
/// without costs, it says that the costs are not known.
fn headline(c: &Calibration) -> String {
    if c.cost.is_none() {
        return "What steps cost is not known.".to_owned();
    }
    let by_size = |a: &&(usize, Error), b: &&(usize, Error)| a.1.mean_absolute.total_cmp(&b.1.mean_absolute);
    let runs = &c.held_out.by_run;
    let (Some(best), Some(worst)) = (runs.iter().min_by(by_size), runs.iter().max_by(by_size)) else {
        return format!(
            "No run could be left out and predicted by the others. Second halves of the same runs are predicted by the first \
             halves: their steps are off by {} on average.",
            percent(c.held_out.by_time.mean_absolute)
        );
    };
    let name = |run: &(usize, Error)| run_name(c, run.0);
    match runs.len() {
        1 => format!(
            "Steps of a run that it has not seen, {}, are off by {} on average.",
            name(worst),
            percent(worst.1.mean_absolute)
        ),
        n => format!(
            "Steps of runs that it has not seen are off by {} to {} on average: {n} runs, each predicted by the others, worst {}, best {}.",
            percent(best.1.mean_absolute).trim_end_matches(" %"),
            percent(worst.1.mean_absolute),
            name(worst),
            name(best)
        ),
    }
}

/// A run's name with its draft length and its load, because several runs may have the same name.
fn run_name(c: &Calibration, run: usize) -> String {
    let name = c.name_of(run);
    let Some(source) = c.sources.get(run) else { return name };
    let k = source.k.map_or_else(|| "several K".to_owned(), |k| format!("K = {k}"));
    format!("{name} ({k}, {})", load(&source.recording))
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
    let alone = c.rows.iter().filter(|r| r.k == 0 && r.part == StepPart::Step || r.part == StepPart::Target);
    let seen: Vec<(u64, f64)> =
        alone.map(|r| (r.verified + r.prompt_tokens, r.elapsed_s - fit.alpha_s * r.context as f64)).collect();
    if let Some(figure) = cost_figure(&fit.curve(), &seen, &format!("observed, {} steps without drafts", seen.len())) {
        let caption = "The fitted time of a pass by its tokens, without the part for its context, and the observed steps less \
                       the same part.";
        section.parts.push(Part::Figure { svg: figure.on_a_page(), caption: caption.into() });
    }
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
        (
            "the host between steps".into(),
            match fit.host_request_s {
                0.0 => ms(fit.host_s),
                s => format!("{} + {:.1} us a request", ms(fit.host_s), 1e6 * s),
            },
        ),
        (
            "and by its requests, or by tiles".into(),
            match fit.terms.as_slice() {
                [] => "–".to_owned(),
                terms => terms.iter().map(|(term, s)| term.in_words(*s)).collect::<Vec<_>>().join(", "),
            },
        ),
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
    let mut push = |name: String, e: &Error| {
        table.rows.push(Row::of([
            Value::text(name),
            Value::number(e.steps as f64, e.steps.to_string()),
            Value::number(e.mean_absolute, percent(e.mean_absolute)),
            Value::number(e.bias, signed_percent(e.bias)),
        ]));
    };
    for (run, e) in &c.held_out.by_run {
        push(format!("{}, by the others", run_name(c, *run)), e);
    }
    push("second halves of all runs, by the first halves".into(), &c.held_out.by_time);
    push("fitted to".into(), &c.held_out.fitted);
    for (k, e) in &c.held_out.by_length {
        push(format!("fitted to, K = {k}"), e);
    }
    section.parts.push(Part::Table(table));
    let left_in: Vec<String> = (0..c.sources.len())
        .filter(|run| c.rows.iter().any(|r| r.source == *run) && c.held_out.by_run.iter().all(|(held, _)| held != run))
        .map(|run| run_name(c, run))
        .collect();
    if !left_in.is_empty() {
        section.parts.push(Part::Text(format!(
            "Not left out, since no other run has their draft length with batches as small and as large: {}.",
            left_in.join("; ")
        )));
    }
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
        section.parts.push(Part::Figure { svg: figure.on_a_page(), caption: caption.into() });
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
            ("from", "observed, or extrapolated beyond the longest draft"),
        ],
    );
    let deepest = a.positions.iter().filter(|p| !p.extrapolated).count() + 3;
    let drawn: Vec<AtPosition> = a.positions.iter().take(deepest).map(at_position).collect();
    section.parts.extend(positions_figure(&drawn, "observed, all draft lengths").map(|figure| Part::Figure {
        svg: figure.svg,
        caption: "Of the rounds that reached a position, the share that accepted it. Dashed: positions that no round reached."
            .into(),
    }));
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
    section.parts.extend(a.table.as_ref().map(|table| Part::Table(by_context(table))));
    let missing = match a.broken {
        0 => String::new(),
        n => format!("; of {n} others some rounds are missing"),
    };
    section.parts.push(Part::Text(format!(
        "{} answers are known round by round{missing}. A round that accepted everything is censored: what would have followed is not \
         known.",
        a.whole
    )));
    if a.positions.iter().take(deepest).any(|p| p.extrapolated) {
        let seen = a.positions.iter().filter(|p| !p.extrapolated).count();
        section.parts.push(Part::Text(format!(
            "Beyond position {seen} nothing was observed: what is predicted of longer drafts rests on a guess."
        )));
    }
    section
}

fn at_position(p: &Position) -> AtPosition {
    AtPosition {
        position: p.position,
        rate: p.rate,
        interval: (!p.extrapolated).then(|| wilson(p.accepted, p.reached)),
    }
}

/// Wilson's 95 % interval (1927) of an acceptance rate: `hits` accepted of `tries` draft tokens. Steps count as
/// independent.
fn wilson(hits: u64, tries: u64) -> (f64, f64) {
    const Z: f64 = 1.959_964;
    let (n, p) = (tries as f64, hits as f64 / tries as f64);
    let middle = (p + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
    let half = Z / (1.0 + Z * Z / n) * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    (middle - half, middle + half)
}

/// A table of acceptance by category of requests and by number of tokens in the context.
fn by_context(truth: &TruthTable) -> Table {
    let mut table = Table::new(
        "By category and context",
        &[
            ("category", ""),
            ("context", "tokens of prompt and output in front of the draft"),
            ("drafts", "positions at which a draft was made and judged"),
            ("right", "share of them; behind a round that was accepted as a whole nothing was drafted"),
            ("±", "standard error over answers"),
        ],
    );
    for category in truth.by_category() {
        for band in category.contexts {
            table.rows.push(Row::of([
                Value::text(category.category.as_str()),
                Value::number(band.from as f64, format!("{} to {}", band.from, band.to - 1)),
                Value::number(band.drafted as f64, band.drafted.to_string()),
                Value::number(band.rate, format!("{:.3}", band.rate)),
                band.error.map_or_else(|| Value::text("-"), |e| Value::number(e, format!("{e:.3}"))),
            ]));
        }
    }
    table
}

fn made_from(c: &Calibration) -> Section {
    let mut section = Section::new("inputs", "Made from");
    if let Some(profile) = c.profile() {
        section.parts.push(Part::Facts(vec![("server".into(), profile.server)]));
    }
    let mut table = Table::new("Inputs", &[("file", ""), ("what", ""), ("BLAKE3", "")]);
    for input in c.inputs() {
        table.rows.push(Row::of([Value::text(input.path), Value::text(input.what), Value::text(&input.blake3[..16])]));
    }
    section.parts.push(Part::Table(table));
    section
}

/// The page's section with the commands that use the calibration.
fn next(c: &Calibration) -> Section {
    let mut section = Section::new("next", "What to do with it");
    if c.cost.is_none() {
        let text = "Nothing is simulated without costs: observe with --step-log, and calibrate again.";
        section.parts.push(Part::Text(text.into()));
        return section;
    }
    section.parts.push(Part::Text("DIR is the folder of this page.".into()));
    let all = [
        "foretoken validate --calibrated DIR --observed OTHER: how well other runs of the server are predicted",
        "foretoken recommend DIR: what to draft",
        "foretoken explore --profile DIR/profile.toml: from which batch size drafting does not pay",
        "foretoken run DIR/experiment.toml: what was observed, simulated",
    ];
    section.parts.push(Part::List(all.map(str::to_owned).to_vec()));
    section
}

#[cfg(test)]
mod tests {
    use super::wilson;

    /// Checks the 95 % interval of a share against Wilson (1927), with the example of 4 of 10 in Brown, Cai and
    /// DasGupta (2001): 0.168 to 0.687.
    #[test]
    fn the_interval_of_a_share_is_wilsons() {
        let (low, high) = wilson(4, 10);
        assert!((low - 0.168_2).abs() < 1e-3 && (high - 0.687_3).abs() < 1e-3, "{low} {high}");
        let (low, high) = wilson(0, 10);
        assert!(low.abs() < 1e-12 && (high - 0.277_5).abs() < 1e-3, "{low} {high}");
    }
}
