//! The HTML page of a run: its settings, its results in sentences, figures and tables, and the warnings.

mod balance;
mod compared;
mod headline;
mod matrix;
mod results;
mod say;
mod why;

pub use compared::{Compared, Pair};
pub use headline::headline;

use crate::figures::view::{View, count};
use crate::html::{Page, Part, Section};
use crate::{Figure, Kind, Report, Source, Swept, figures};

/// The link to the break-even explorer, an HTML file in the page's folder.
#[derive(Clone, Debug, Default)]
pub struct Explorer {
    /// The explorer's file name.
    pub file: String,
    /// The state with which the explorer opens: the part of its address after `#`, such as `a=0.6&n=4`.
    pub state: String,
}

/// All data that the page shows in addition to the cells.
#[derive(Clone, Debug, Default)]
pub struct RunFacts {
    /// Names and values of facts on the run: version, digest, inputs.
    pub facts: Vec<(String, String)>,
    /// For which models, hardware, load and bounds the results hold, in one line.
    pub scope: String,
    /// The experiment with every default, as TOML.
    pub config: String,
    /// Warnings of the policies and of the engine.
    pub warnings: Vec<String>,
    /// Why the results are incomplete; `None` if they are complete.
    pub partial: Option<String>,
    /// A sentence that follows the headline; `None` for none.
    pub beside: Option<String>,
    /// The section with the experiment's claims and their results; `None` if the experiment checks no claims.
    pub claims: Option<Section>,
    /// Other results to compare with; `None` for no comparison.
    pub compared: Option<Compared>,
    /// The explorer in the page's folder; `None` if there is none.
    pub explorer: Option<Explorer>,
    /// The version of Foretoken that makes the page.
    pub version: String,
}

/// Name of the file in the page's folder that tells how long the run took. Two runs of one experiment give the same
/// page and different files of this name.
pub const TIMING: &str = "timing.js";

/// Makes the page of a run.
pub fn run_page(report: &Report, run: &RunFacts) -> Page {
    let view = View::new(report);
    let figures = figures(report);
    let mut lead = Vec::new();
    lead.extend(run.partial.clone().map(Part::Warning));
    lead.extend(empty_policies(report).map(Part::Warning));
    lead.extend(headline::parts(report, &view));
    lead.extend(run.compared.as_ref().map(|c| Part::Text(c.sentence(report))));
    lead.extend(run.beside.clone().map(Part::Text));
    lead.extend(balance::overloads(report));
    let pick = |kinds: &[Kind]| figures.iter().filter(|f| kinds.contains(&f.kind)).collect::<Vec<_>>();
    lead.extend(warnings(run));
    let mut sections: Vec<Section> = Vec::new();
    sections.extend(run.claims.clone());
    sections.extend(run.compared.as_ref().map(|c| compared::section(report, c, &pick(&[Kind::Change]))));
    sections.extend(matrix::section(report, &view));
    sections.push(results::section(report, &view));
    sections.extend(why::section(report, &view));
    sections.extend(shown(&view, pick));
    sections.extend(explore(run.explorer.as_ref(), report.source));
    sections.push(asked(report, &view, run));
    sections.push(speed(report.source));
    Page {
        title: report.name.clone(),
        scope: run.scope.clone(),
        kind: format!("Foretoken run · {} · {}", report.source, count(view.seeds.len(), "seed")),
        lead,
        sections,
        foot: format!("Made by Foretoken {} from the files of the results folder.", run.version),
        beside: vec![TIMING.to_owned()],
        ..Page::default()
    }
}

fn empty_policies(report: &Report) -> Option<String> {
    let empty = report.cells.iter().filter(|c| c.summary.finished == 0);
    let mut names: Vec<&str> = empty.map(|c| c.key().policy.as_str()).collect();
    names.dedup();
    let names = crate::figures::view::distinct(names, |a, b| a == b);
    (!names.is_empty()).then(|| {
        let what = "finished no request in some run: it has no latency and no speedup there";
        format!("{} {what}, and is missing in the figures of them.", names.join(", "))
    })
}

fn asked(report: &Report, view: &View, run: &RunFacts) -> Section {
    let mut section = Section::new("asked", "What was asked");
    let in_words =
        |s: &Swept| if s.path.ends_with(&s.name) { s.path.clone() } else { format!("{} ({})", s.name, s.path) };
    let swept: Vec<String> = view.combinations.first().map_or(Vec::new(), |c| c.iter().map(in_words).collect());
    let mut facts = vec![
        ("policies".to_owned(), view.policies.iter().map(|p| p.0).collect::<Vec<_>>().join(", ")),
        ("seeds".to_owned(), view.seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
        ("requests a run".to_owned(), view.requests()),
        ("numbers are".to_owned(), say::source(report.source).to_owned()),
        ("intervals".to_owned(), say::interval(view.seeds.len())),
    ];
    if !swept.is_empty() {
        let said = format!("{}: {}", swept.join(", "), count(view.combinations.len(), "combination"));
        facts.insert(1, ("swept".to_owned(), said));
    }
    facts.extend(balance::asked(view).map(|said| ("SLO".to_owned(), said)));
    facts.extend(run.facts.iter().cloned());
    section.parts.push(Part::Facts(facts));
    if !run.config.is_empty() {
        section
            .parts
            .push(Part::Folded { title: "The experiment, with every default".into(), text: run.config.clone() });
    }
    section
}

/// The page's sections with figures. A section explains its figures. If it has none, it names the setting that gives
/// them.
fn shown<'a>(view: &View, pick: impl Fn(&[Kind]) -> Vec<&'a Figure>) -> Vec<Section> {
    let several_seeds = view.seeds.len() > 1;
    let section = |id: &str, title: &str, kinds: &[Kind], caption: &str, missing: &str| {
        let mut section = Section::new(id, title);
        section.parts = parts(&pick(kinds), caption);
        if section.parts.is_empty() {
            section.parts.push(Part::Missing(missing.to_owned()));
        }
        section
    };
    let mut behind = section(
        "behind",
        "Against the fastest",
        &[Kind::Behind],
        "How much longer requests take on average than under the fastest policy that a server can run, paired by seed. The \
         bound and the oracles may be faster. In colour: the fastest and those as good, plain decoding and the bound; a tap \
         on any policy brings it forward.",
        "",
    );
    behind.parts.retain(|part| !matches!(part, Part::Missing(_)));
    let tradeoff = parts(
        &pick(&[Kind::Tradeoff]),
        "Each path is a policy as the load grows. Up is more work from the same machines, left is faster answers; in the shaded \
         region the bound on the time per output token is kept.",
    );
    let mut speedup = section(
        "speedup",
        "Speedup",
        &[Kind::Speedup],
        "Mean end-to-end latency of autoregressive over the policy's, on the same draws.",
        "No speedup: the autoregressive run is missing or finished no request.",
    );
    let mut slo = section(
        "slo",
        "SLO attainment",
        &[Kind::Attainment],
        "Requests that met every bound, of those that finished or were rejected.",
        "No SLO was set: give [slo] adaspec-scale = 1.0, or ttft_s, tpot_s, e2e_s.",
    );
    if !view.sweeps_a_number() {
        let example = "for example --set 'slo.adaspec-scale={ sweep = [0.8, 1.0, 1.5] }'";
        speedup.parts.push(Part::Missing(
            "No setting is swept over numbers, so no figure is drawn against a setting: give one several values, for example \
             --set 'workload.arrivals.poisson.rate={ sweep = [1.0, 2.0, 4.0] }'."
                .into(),
        ));
        slo.parts.push(Part::Missing(format!(
            "The attainment is drawn against scale and rate if you sweep them, {example}."
        )));
    }
    let pooled = if several_seeds { "All seeds pooled." } else { "" };
    let mut first = Vec::new();
    if !tradeoff.is_empty() {
        first.push(Section { parts: tradeoff, ..Section::new("tradeoff", "Throughput and time per token") });
    }
    first.extend((!behind.parts.is_empty()).then_some(behind));
    first.extend([
        speedup,
        slo,
        section(
            "regret",
            "Regret to the oracle",
            &[Kind::Regret],
            "How much longer requests take on average than under oracle-goodput, which sees what will be accepted.",
            "No oracle was run: add oracle-goodput with --regret.",
        ),
        section("latency", "Latencies", &[Kind::Latency], pooled, "No request finished."),
        section(
            "time",
            "Over time",
            &[Kind::BatchSize, Kind::DraftLength],
            "How the batch size and the draft tokens a request-step change over time.",
            "The results hold no series over time: run again with this version.",
        ),
        section(
            "chosen",
            "Chosen length against batch size",
            &[Kind::Chosen],
            "Batch sizes with fewer than 30 steps in a seed are left out.",
            "Nothing was drafted, or the results hold no lengths.parquet: run again with this version.",
        ),
        section(
            "depth",
            "Acceptance by depth",
            &[Kind::Depth],
            "Of the drafts at a position that verification reached, the share it accepted. Policies that cut drafts choose what is \
             reached, so their lines differ though the draft is the same.",
            "Nothing was verified.",
        ),
        section(
            "calibration",
            "Confidence calibration",
            &[Kind::Calibration],
            "On the grey line the draft is right as often as its confidence says. Only policies that look at confidences are shown.",
            "No policy here looks at the draft's confidences: add one that does, such as adaspec or threshold-hf.",
        ),
        section(
            "goodput",
            "Goodput by batch size and length",
            &[Kind::Heat],
            "Counted, not modelled: steps without prompts, at least 30 per field, of the policies that choose lengths without \
            looking at the requests (autoregressive, fixed, random). Other policies draft more where they expect acceptance, which \
            would make long drafts look better than they are. A ring is the best length, a bar the lengths around it that \
            the seeds do not tell from it. There is none where the length next to the best one was not run.",
            "No batch size has two lengths that were chosen without looking at the requests: compare several, for example \
             { fixed = { k = { sweep = [1, 3, 5] } } } and { random = {} }.",
        ),
        section("memory", "KV use and preemptions", &[Kind::Memory], "", "The results hold no KV use."),
    ]);
    first
}

/// The parts that show some figures. Of the figures of batch size over time, and of the figures of draft length
/// over time, only the first is shown; the others are folded away.
fn parts(figures: &[&Figure], caption: &str) -> Vec<Part> {
    let part = |f: &Figure, caption: &str| Part::Figure { svg: f.svg.clone(), caption: caption.to_owned() };
    let repeats = |kind: Kind| matches!(kind, Kind::BatchSize | Kind::DraftLength);
    let mut parts: Vec<Part> = Vec::new();
    let mut folded = Vec::new();
    let mut seen: Vec<Kind> = Vec::new();
    for f in figures {
        if repeats(f.kind) && seen.contains(&f.kind) {
            folded.push(part(f, ""));
        } else {
            parts.push(part(f, if seen.is_empty() { caption } else { "" }));
            seen.push(f.kind);
        }
    }
    if !folded.is_empty() {
        parts.push(Part::More { title: format!("The other {}", count(folded.len(), "figure")), parts: folded });
    }
    parts
}

/// The section with the link to the explorer. Without an explorer, a results folder of an observed server gets a text
/// on how to make one; others get `None`.
fn explore(explorer: Option<&Explorer>, source: Source) -> Option<Section> {
    let mut section = Section::new("explore", "Break-even explorer");
    let Some(explorer) = explorer else {
        section.parts.push(Part::Missing(
            "The cost of a pass on this server is not known, so there is no explorer. `foretoken observe` with --step-log records \
             the times of steps, `foretoken calibrate` fits the costs to them, and `foretoken explore --profile \
             calibrated/profile.toml` makes the explorer."
                .into(),
        ));
        return (source == Source::Observed).then_some(section);
    };
    let link = format!("{}#{}", explorer.file, explorer.state).replace('&', "&amp;").replace('"', "&quot;");
    section.parts.push(Part::Html(format!(
        "<p><a href=\"{link}\">Where does speculation stop paying?</a> The explorer lies beside this page and opens at this run's \
         hardware, its acceptance and its mean batch size; sliders change them. Its numbers are predicted by the simulator's \
         formulas for one decode step of equal requests, without prompts and queues.</p>"
    )));
    Some(section)
}

/// The warnings of policies and engine, folded away under a title with their number; `None` if there are no warnings.
fn warnings(run: &RunFacts) -> Option<Part> {
    let all = Part::List(run.warnings.clone());
    (!run.warnings.is_empty()).then(|| Part::More { title: count(run.warnings.len(), "warning"), parts: vec![all] })
}

fn speed(source: Source) -> Section {
    let title = if matches!(source, Source::Live | Source::Observed) { "Time it took" } else { "Simulator speed" };
    let mut section = Section::new("speed", title);
    let text = "How long it took is in manifest.json under `timing`, and here when timing.js lies beside this page.";
    section.parts.push(Part::Html(format!("<p id=\"timing\">{text}</p>")));
    section
}

#[cfg(test)]
mod tests;
