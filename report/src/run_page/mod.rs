//! The HTML page of a run: its settings, its results in sentences, figures and tables, and the warnings.

mod balance;
mod compared;
mod fleet;
mod headline;
mod matrix;
mod results;
mod say;
mod why;

pub use compared::{Compared, Pair};
pub use headline::{advised, headline};

use crate::figures::view::{Scale, View, count};
use crate::html::{Page, Part, Section};
use crate::number::fixed;
use crate::{Cell, Figure, Kind, Report, Source, Swept};

/// The link to the break-even explorer, an interactive HTML file in the page's folder that shows where speculation
/// stops paying.
#[derive(Clone, Debug, Default)]
pub struct Explorer {
    /// The file name of the break-even explorer, an interactive page.
    pub file: String,
    /// The state with which the explorer opens: the part of its address after `#`, such as `a=0.6&n=4`.
    pub state: String,
}

/// All data that the page shows in addition to the numbers of the runs.
#[derive(Clone, Debug, Default)]
pub struct RunFacts {
    /// Names and values of facts on the run: the version of Foretoken, a digest of the experiment, and digests of its
    /// input files.
    pub facts: Vec<(String, String)>,
    /// The page's title; empty for the experiment's name.
    pub title: String,
    /// For which models, hardware, load and bounds the results hold, in one line.
    pub scope: String,
    /// The experiment with every default, as TOML.
    pub config: String,
    pub warnings: Vec<String>,
    /// Why the results are incomplete; `None` if they are complete.
    pub partial: Option<String>,
    /// A headline before the one about policies, such as how many claims of a paper come out; `None` for none.
    pub first: Option<String>,
    /// A sentence that the page shows after the headline; `None` for no sentence.
    pub beside: Option<String>,
    /// The section with the claims of a paper that the experiment checks, and their results; `None` if it checks no
    /// claims.
    pub claims: Option<Section>,
    /// Other results, such as an earlier run's, with which the page compares this run; `None` for no comparison.
    pub compared: Option<Compared>,
    /// The break-even explorer in the page's folder; `None` if there is none.
    pub explorer: Option<Explorer>,
    pub version: String,
}

/// Name of the file in the page's folder that tells how long the run took. Two runs of one experiment give the same
/// page and different files of this name.
pub const TIMING: &str = "timing.js";

pub fn run_page(report: &Report, figures: &[Figure], run: &RunFacts) -> Page {
    let view = View::new(report);
    let mut lead = Vec::new();
    let pick = |kinds: &[Kind]| figures.iter().filter(|f| kinds.contains(&f.kind)).collect::<Vec<_>>();
    lead.extend(run.first.clone().map(Part::Headline));
    let mut said = headline::parts(report, &view).into_iter();
    lead.extend(said.next().map(|part| match part {
        Part::Headline(policies) if run.first.is_some() => Part::Text(policies),
        part => part,
    }));
    lead.extend(tiles(&view).map(Part::Tiles));
    lead.extend(run.partial.clone().map(Part::Warning));
    lead.extend(empty_policies(report).map(Part::Warning));
    // The picture comes before the notes. A sweep has its table of settings there.
    let alone = view.combinations.len() == 1;
    lead.extend(if alone { behind(&view, &pick) } else { vec![] });
    lead.extend(said);
    lead.extend(run.compared.as_ref().map(|c| Part::Text(c.sentence(report))));
    lead.extend(run.beside.clone().map(Part::Text));
    lead.extend(balance::overloads(report));
    lead.extend(warnings(run));
    let mut sections: Vec<Section> = Vec::new();
    sections.extend(run.claims.clone());
    sections.extend(run.compared.as_ref().map(|c| compared::section(report, c, &pick(&[Kind::Change]))));
    sections.extend(matrix::section(report, &view));
    sections.push(results::section(report, &view));
    sections.extend(why::section(report, &view));
    sections.extend(fleet::section(report, &view, figures));
    let (with_figures, absent) = shown(report.source, &view, pick, alone).into_iter().partition(has_figures);
    sections.extend::<Vec<Section>>(with_figures);
    sections.extend(not_shown(absent));
    sections.extend(explore(run.explorer.as_ref(), report.source));
    sections.push(asked(report, &view, run));
    sections.push(speed(report.source));
    Page {
        title: if run.title.is_empty() { report.name.clone() } else { run.title.clone() },
        scope: run.scope.clone(),
        kind: format!("Foretoken run · {} · {}", report.source, count(view.seeds.len(), "seed")),
        lead,
        sections,
        foot: format!("Made by Foretoken {} from the files of the results folder.", run.version),
        beside: vec![TIMING.to_owned()],
        ..Page::default()
    }
}

/// The figures of the distance to the fastest policy; none if only one policy ran.
fn behind<'a>(view: &View, pick: &impl Fn(&[Kind]) -> Vec<&'a Figure>) -> Vec<Part> {
    let caption = "How much longer requests take on average than under the fastest policy that a server can run, paired by \
                   seed. The bound and the oracles may be faster. In colour: the fastest and those as good, plain decoding \
                   and the bound; a tap on any policy brings it forward.";
    if view.policies.len() > 1 { parts(&pick(&[Kind::Behind]), caption) } else { vec![] }
}

/// The numbers of a run of one policy in one setting, each in a tile: the first eight that it has. `None` for other
/// runs, whose numbers are compared in figures.
fn tiles(view: &View) -> Option<Vec<(String, String)>> {
    let ([(policy, _)], [combination]) = (view.policies.as_slice(), view.combinations.as_slice()) else { return None };
    let number = |of: fn(&Cell) -> Option<f64>, unit: f64, decimals: usize, sign: &str| {
        let mean = view.mean(policy, |swept| swept == *combination, of, Scale::Amount)?.mean;
        Some(format!("{}{sign}", fixed(unit * mean, decimals)))
    };
    let tiles = [
        ("tokens a second", number(|c| Some(c.summary.token_goodput_tok_s), 1.0, 0, "")),
        ("mean end-to-end latency", number(Cell::e2e_mean_s, 1.0, 2, "\u{a0}s")),
        ("mean time to first token", number(|c| Some(c.summary.ttft?.mean), 1e3, 1, "\u{a0}ms")),
        ("its 99th percentile", number(|c| Some(c.summary.ttft?.p99), 1e3, 1, "\u{a0}ms")),
        ("median time per token", number(|c| Some(c.summary.tpot?.p50), 1e3, 2, "\u{a0}ms")),
        ("its 99th percentile", number(|c| Some(c.summary.tpot?.p99), 1e3, 2, "\u{a0}ms")),
        ("drafts accepted", number(|c| c.summary.acceptance_rate, 1e2, 0, "\u{a0}%")),
        ("tokens a round", number(|c| c.summary.mean_acceptance_length, 1.0, 2, "")),
        ("99 % end within", number(|c| Some(c.summary.e2e?.p99), 1.0, 2, "\u{a0}s")),
        ("requests", Some(view.requests())),
    ];
    let known = tiles.into_iter().filter_map(|(name, shown)| Some((name.to_owned(), shown?)));
    Some(known.take(8).collect()).filter(|tiles: &Vec<_>| tiles.len() > 2)
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

fn has_figures(section: &Section) -> bool {
    section.parts.iter().any(|part| !matches!(part, Part::Missing(_)))
}

/// One folded section in place of the sections that have no figures. It says what is missing, and which setting gives
/// the missing figures. `None` if every section has figures.
fn not_shown(absent: Vec<Section>) -> Option<Section> {
    let sentence = |section: Section| {
        let missing = section.parts.into_iter().filter_map(|part| match part {
            Part::Missing(why) => Some(why),
            _ => None,
        });
        format!("{}: {}", section.title, missing.collect::<Vec<_>>().join(" "))
    };
    let sentences: Vec<String> = absent.into_iter().map(sentence).collect();
    let title = count(sentences.len(), "figure") + " that this run cannot fill";
    (!sentences.is_empty()).then(|| Section {
        parts: vec![Part::More { title, parts: vec![Part::List(sentences)] }],
        ..Section::new("absent", "Not shown")
    })
}

/// The page's sections with figures. A section explains its figures. A section without figures names the setting that
/// gives them. Sections that need a simulator are left out of an observed run.
fn shown<'a>(
    source: Source,
    view: &View,
    pick: impl Fn(&[Kind]) -> Vec<&'a Figure>,
    without_behind: bool,
) -> Vec<Section> {
    let several_seeds = view.seeds.len() > 1;
    let section = |id: &str, title: &str, kinds: &[Kind], caption: &str, missing: &str| {
        let mut section = Section::new(id, title);
        section.parts = parts(&pick(kinds), caption);
        if section.parts.is_empty() {
            section.parts.push(Part::Missing(missing.to_owned()));
        }
        section
    };
    let behind = if without_behind { vec![] } else { behind(view, &pick) };
    let tradeoff = parts(
        &pick(&[Kind::Tradeoff]),
        "Each path is a policy as the load grows. Up is more work from the same machines, left is faster answers; in the shaded \
         region the bound on the time per output token is kept.",
    );
    let speedup = section(
        "speedup",
        "Speedup",
        &[Kind::Speedup],
        "Mean end-to-end latency of autoregressive over the policy's, on the same draws.",
        "No speedup: the autoregressive run is missing or finished no request.",
    );
    let slo = section(
        "slo",
        "SLO attainment",
        &[Kind::Attainment],
        "Requests that met every bound, of those that finished or were rejected.",
        "No SLO was set: give [slo] adaspec-scale = 1.0, or ttft_s, tpot_s, e2e_s.",
    );
    let pooled = if several_seeds { "All seeds pooled." } else { "" };
    let mut latencies = section("latency", "Latencies", &[Kind::Latency], pooled, "No request finished.");
    if view.policies.len() == 1 && has_figures(&latencies) {
        // One line is not compared with another: tiles have its mean and its 99th percentile.
        let parts = std::mem::take(&mut latencies.parts);
        latencies.parts.push(Part::More { title: "Their distributions".into(), parts });
    }
    let mut first = Vec::new();
    if !tradeoff.is_empty() {
        first.push(Section { parts: tradeoff, ..Section::new("tradeoff", "Throughput and time per token") });
    }
    if !behind.is_empty() {
        first.push(Section { parts: behind, ..Section::new("behind", "Against the fastest") });
    }
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
        latencies,
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
    if !view.sweeps_a_number() {
        let mut against = Section::new("against", "Against a setting");
        against.parts.push(Part::Missing(
            "No setting is swept over numbers: give one several values, for example \
             --set 'workload.arrivals.poisson.rate={ sweep = [1.0, 2.0, 4.0] }' or --set 'slo.adaspec-scale={ sweep = \
             [0.8, 1.0, 1.5] }'."
                .into(),
        ));
        first.push(against);
    }
    // Sections of an observed run that have no figures are left out. No setting can give these figures: a server cannot
    // run an oracle, and an observed server keeps its own settings.
    let observed = source == Source::Observed;
    first.retain(|s| !observed || has_figures(s));
    if without_behind { folded_together(first) } else { first }
}

/// Puts the figures of the speedup and of the regret into one section, folded: above it, the figure of the distance to
/// the fastest policy shows the same latencies.
fn folded_together(sections: Vec<Section>) -> Vec<Section> {
    let same = |section: &Section| ["speedup", "regret"].contains(&section.id.as_str()) && has_figures(section);
    let (same, mut others): (Vec<Section>, Vec<Section>) = sections.into_iter().partition(same);
    let folded = same.into_iter().map(|section| Part::More { title: section.title, parts: section.parts });
    let parts: Vec<Part> = folded.collect();
    if !parts.is_empty() {
        others.insert(0, Section { parts, ..Section::new("same", "The same against other policies") });
    }
    others
}

/// The texts and drawings of a section that shows `figures`. Of the figures of batch size over time, and of the figures
/// of draft length over time, only the first is shown; the others are folded away.
fn parts(figures: &[&Figure], caption: &str) -> Vec<Part> {
    let part = |f: &Figure, caption: &str| Part::Figure { svg: f.on_a_page(), caption: caption.to_owned() };
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

/// The section with the link to the break-even explorer. Without an explorer, the page of an observed server gets a
/// text on how to make one, and other pages get `None`.
fn explore(explorer: Option<&Explorer>, source: Source) -> Option<Section> {
    let mut section = Section::new("explore", "Break-even explorer");
    let Some(explorer) = explorer else {
        section.parts.push(Part::Missing(
            "The cost of a pass on this server is not known, so there is no explorer. `foretoken observe` with `--step-log` records \
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
    let text = "How long it took is in manifest.json under <code>timing</code>, and here when timing.js lies beside this page.";
    section.parts.push(Part::Html(format!("<p id=\"timing\">{text}</p>")));
    section
}

#[cfg(test)]
mod tests;
