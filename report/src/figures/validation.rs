//! Draws live runs together with their simulations: distributions of latencies, the latency of each request, batch size
//! and draft length over time, and the times of passes.

use super::axis::Axis;
use super::canvas::Canvas;
use super::page::{Page, Panel, columns};
use super::sheet::{Named, Sheet};
use super::style::{MARKER, RULE};
use super::{Figure, Kind};
use crate::{Cdf, Dash, Look, Marker};

/// The most points of a scatter plot in one panel. If there are more points, only every n-th is drawn.
const POINTS: usize = 150;

/// The kind of run that a line or a point comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunKind {
    Live,
    /// A second live run of the same policy at the same load. Its difference from the first run is the machine's noise.
    Again,
    /// Simulated; which draft tokens are accepted was recorded in the live run.
    Recorded,
    /// Simulated; a model of the acceptance decides which draft tokens are accepted.
    Modelled,
}

impl RunKind {
    /// All kinds of runs, in the order in which [`ValidatedRun`] lists them.
    pub const ALL: [RunKind; 4] = [RunKind::Live, RunKind::Again, RunKind::Recorded, RunKind::Modelled];

    fn name(self) -> &'static str {
        match self {
            RunKind::Live => "live",
            RunKind::Again => "live, again",
            RunKind::Recorded => "simulated, recorded",
            RunKind::Modelled => "simulated, modelled",
        }
    }

    fn look(self) -> Look {
        let (colour, dash, marker) = match self {
            RunKind::Live => ((0x00, 0x72, 0xb2), Dash::Solid, Marker::Circle),
            RunKind::Again => ((0x34, 0x96, 0xcd), Dash::Dashed, Marker::Ring),
            RunKind::Recorded => ((0xd5, 0x5e, 0x00), Dash::Solid, Marker::Square),
            RunKind::Modelled => ((0xc4, 0x71, 0x9f), Dash::Dotted, Marker::Diamond),
        };
        Look { colour, dash, marker }
    }
}

/// The data of one panel: the live runs of one policy at one load, and their simulations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValidatedRun {
    /// The panel's title: the policy and the load of its runs.
    pub title: String,
    /// Latencies of finished requests, seconds: for each kind of run in [`RunKind::ALL`] the lists of TTFT, TPOT and
    /// E2E. The lists of a kind without a run are empty.
    pub latencies: [[Vec<f64>; 3]; 4],
    /// End-to-end latency of each request, seconds, as (live, simulated with the recorded acceptance).
    pub requests: Vec<(f64, f64)>,
    /// Time of all passes of each step, seconds, as (measured live, predicted by the simulator).
    pub steps: Vec<(f64, f64)>,
    /// End of the time axis of `batch_size` and `draft_len`, seconds.
    pub end_s: f64,
    /// Decode batch size in equal bins of time, for each kind of run in [`RunKind::ALL`].
    pub batch_size: [Vec<f64>; 4],
    /// Mean number of drafted tokens of a request in a step, in equal bins of time, for each kind of run in
    /// [`RunKind::ALL`].
    pub draft_len: [Vec<f64>; 4],
}

/// The data of the figures that compare live runs with their simulations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Validated {
    /// Names of the experiment and its device.
    pub title: String,
    /// The live runs with their simulations, one panel each.
    pub runs: Vec<ValidatedRun>,
}

/// Draws the figures of live runs with their simulations. There are seven figures; a figure without data is not drawn.
pub fn validation_figures(of: &Validated) -> Vec<Figure> {
    let latency = |at: usize, name: &str, file: &str| Some(figure(file, distributions(of, at, name)?));
    let scatter = |name: &str, file: &str, points: fn(&ValidatedRun) -> &[(f64, f64)]| {
        Some(figure(file, scatter(of, name, points)?))
    };
    let course =
        |name: &str, file: &str, bins: fn(&ValidatedRun) -> &[Vec<f64>; 4]| Some(figure(file, course(of, name, bins)?));
    let all = [
        latency(2, "End-to-end latency", "e2e.svg"),
        latency(1, "Time per output token", "tpot.svg"),
        latency(0, "Time to first token", "ttft.svg"),
        scatter("End-to-end latency of each request", "requests.svg", |run| &run.requests),
        course("Decode batch size over time (requests)", "batch-size.svg", |run| &run.batch_size),
        course("Draft length over time (tokens a request-step)", "draft-length.svg", |run| &run.draft_len),
        scatter("Passes of each step", "steps.svg", |run| &run.steps),
    ];
    all.into_iter().flatten().collect()
}

fn figure(file: &str, svg: String) -> Figure {
    Figure::new(Kind::Validation, file, svg)
}

fn page(of: &Validated, name: &str, source: &str, x: (Axis, String), y: (Axis, String), legend: &[RunKind]) -> Page {
    let panels: Vec<_> = of.runs.iter().map(|run| (run.title.clone(), None)).collect();
    Page {
        title: format!("{name}: {}", of.title),
        source: source.to_owned(),
        x_name: x.1,
        y_name: y.1,
        x: x.0,
        y: y.0,
        legend: legend.iter().map(|kind| Named::plain(kind.name(), kind.look())).collect(),
        panel_height: [380.0, 260.0, 170.0][columns(panels.len()) - 1],
        panels,
        own_x: Vec::new(),
        right: 0.0,
        sheet: Sheet::Screen,
    }
}

/// The kinds of runs for which `has` is true in at least one panel. The arguments of `has` are the panel's data and the
/// index of the kind in [`RunKind::ALL`].
fn present(of: &Validated, has: impl Fn(&ValidatedRun, usize) -> bool) -> Vec<RunKind> {
    RunKind::ALL.into_iter().filter(|&kind| of.runs.iter().any(|run| has(run, kind as usize))).collect()
}

fn distributions(of: &Validated, latency: usize, name: &str) -> Option<String> {
    let values =
        || of.runs.iter().flat_map(|r| r.latencies.iter().flat_map(|l| &l[latency])).copied().filter(|&v| v > 0.0);
    let (low, high) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
    let legend = present(of, |run, kind| !run.latencies[kind][latency].is_empty());
    let x = (Axis::log(low, high), format!("{} (s, logarithmic)", name.to_lowercase()));
    let y = (Axis::linear(0.0, 100.0, 5), "requests at or below (%)".to_owned());
    let page = page(of, name, "finished requests of each run", x, y, &legend);
    Some(page.svg(|c, panel, i| {
        for &kind in &legend {
            let cdf = Cdf::of(of.runs[i].latencies[kind as usize][latency].clone());
            let steps = Cdf::mixture(&[&cdf]);
            let path: Vec<_> = steps.iter().map(|&(v, share)| panel.at(page.x.clamp(v), share * 100.0)).collect();
            let look = kind.look();
            c.line(&path, look.colour, 1.6, look.dash);
        }
    }))
}

fn scatter(of: &Validated, name: &str, points: fn(&ValidatedRun) -> &[(f64, f64)]) -> Option<String> {
    let shown = |run: &ValidatedRun| -> Vec<(f64, f64)> {
        let all = points(run);
        let every = all.len().div_ceil(POINTS).max(1);
        all.iter().step_by(every).map(|p| (p.0 * 1e3, p.1 * 1e3)).filter(|p| p.0 > 0.0 && p.1 > 0.0).collect()
    };
    let panels: Vec<Vec<(f64, f64)>> = of.runs.iter().map(shown).collect();
    let values = || panels.iter().flatten().flat_map(|p| [p.0, p.1]);
    let (low, high) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
    let axis = Axis::log(low / 1.1, high * 1.1);
    let source = format!("up to {POINTS} a panel; on the dashed line the simulation is right");
    let (x, y) = ((axis.clone(), "live (ms)".to_owned()), (axis, "simulated, recorded acceptance (ms)".to_owned()));
    let page = page(of, name, &source, x, y, &[]);
    let ends = [low, high];
    Some(page.svg(|c, panel, i| {
        c.line(&ends.map(|t| panel.at(t, t)), RULE, 1.2, Dash::Dashed);
        let points: Vec<_> = panels[i].iter().map(|p| panel.at(p.0, p.1)).collect();
        c.markers(&points, RunKind::Recorded.look(), MARKER);
    }))
}

fn course(of: &Validated, name: &str, bins: fn(&ValidatedRun) -> &[Vec<f64>; 4]) -> Option<String> {
    let most = of.runs.iter().flat_map(|run| bins(run).iter().flatten()).copied().fold(0.0, f64::max);
    let end = of.runs.iter().map(|run| run.end_s).fold(0.0, f64::max);
    if most <= 0.0 || end <= 0.0 {
        return None;
    }
    let legend = present(of, |run, kind| !bins(run)[kind].is_empty());
    let x = (Axis::exact(0.0, end, 5), "time (s)".to_owned());
    let y = (Axis::linear(0.0, most, 4), String::new());
    let page = page(of, name, "means of equal stretches of time", x, y, &legend);
    Some(page.svg(|c, panel, i| {
        let run = &of.runs[i];
        legend.iter().for_each(|&kind| draw_course(c, panel, &bins(run)[kind as usize], run.end_s, kind.look()));
    }))
}

fn draw_course(c: &Canvas, panel: &Panel, bins: &[f64], end_s: f64, look: Look) {
    let width = end_s / bins.len().max(1) as f64;
    let path: Vec<_> = (0u32..).zip(bins).map(|(i, &v)| panel.at((f64::from(i) + 0.5) * width, v)).collect();
    c.line(&path, look.colour, 1.6, look.dash);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validated() -> Validated {
        let latencies = |scale: f64| [0.01, 0.002, 0.1].map(|s| (1..9).map(|i| s * scale * f64::from(i)).collect());
        let run = ValidatedRun {
            title: "fixed-3, 0.8 of its service rate".into(),
            latencies: [latencies(1.0), latencies(1.1), latencies(0.9), [vec![], vec![], vec![]]],
            requests: (1..1000).map(|i| (f64::from(i), f64::from(i) * 1.1)).collect(),
            steps: vec![(0.001, 0.0011)],
            end_s: 4.0,
            batch_size: [vec![1.0, 2.0], vec![], vec![1.5, 2.0], vec![]],
            draft_len: [vec![0.0, 0.0], vec![], vec![0.0, 0.0], vec![]],
        };
        Validated { title: "x on cpu".into(), runs: vec![run.clone(), ValidatedRun { title: "b".into(), ..run }] }
    }

    #[test]
    fn every_figure_says_what_it_shows_and_runs_that_do_not_exist_are_not_in_it() {
        let figures = validation_figures(&validated());
        let files: Vec<&str> = figures.iter().map(|f| f.file.as_str()).collect();
        // The policy does not draft, so there is no draft length to draw.
        assert_eq!(files, ["e2e.svg", "tpot.svg", "ttft.svg", "requests.svg", "batch-size.svg", "steps.svg"]);
        for f in &figures {
            assert!(f.svg.contains("x on cpu") && f.svg.contains("service rate"), "{}", f.file);
            assert!(!f.svg.contains("simulated, modelled"), "{}", f.file);
        }
        assert!(figures[0].svg.contains("live, again") && figures[0].svg.contains("simulated, recorded"));
        assert!(figures[3].svg.matches('z').count() <= 2 * POINTS, "points are thinned");
        assert_eq!(figures, validation_figures(&validated()), "the same bytes");
    }

    #[test]
    fn nothing_gives_no_figure() {
        assert!(validation_figures(&Validated::default()).is_empty());
        let empty = Validated { runs: vec![ValidatedRun::default()], ..Validated::default() };
        assert!(validation_figures(&empty).is_empty());
    }
}
