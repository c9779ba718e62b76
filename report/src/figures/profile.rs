//! Draws how well a profile's fits match the measured times of passes: predicted against measured times, and relative
//! errors.

use super::axis::Axis;
use super::canvas::{Canvas, Point};
use super::page::{Page, Panel};
use super::sheet::{Named, Sheet};
use super::style::{MARKER, RULE};
use super::thin::apart;
use super::{Figure, Kind};
use crate::{Dash, Look, Marker};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProfiledPass {
    /// Index in [`Profiled::regions`] of the pass's region (a class of pass sizes, such as decode or verify).
    pub region: usize,
    /// Number of new tokens of the pass.
    pub batched: u64,
    /// Median of the pass's measured times, seconds, above 0.
    pub measured_s: f64,
    /// Time of the pass that the fit predicts, seconds.
    pub predicted_s: f64,
}

/// A fit to the measured pass times of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfiledFit {
    /// The panel's title, such as `target, linear fit`.
    pub title: String,
    /// The measured passes with the times that the fit predicts for them.
    pub passes: Vec<ProfiledPass>,
}

/// The data of the figures of a profile (the measured pass times of two models).
#[derive(Clone, Debug, PartialEq)]
pub struct Profiled {
    /// Names of the pair of models and of their device.
    pub title: String,
    /// The source line: where the numbers come from, and the number of passes.
    pub source: String,
    /// Names of the regions (classes of pass sizes), at most four.
    pub regions: Vec<&'static str>,
    /// The fits to measured pass times, one panel each.
    pub fits: Vec<ProfiledFit>,
}

/// Colours of the regions (classes of pass sizes): Okabe and Ito's (2008, "Color universal design").
const COLOURS: [(u8, u8, u8); 4] = [(0x00, 0x72, 0xb2), (0xd5, 0x5e, 0x00), (0x00, 0x9e, 0x73), (0xc4, 0x71, 0x9f)];
const MARKERS: [Marker; 4] = [Marker::Circle, Marker::Square, Marker::Triangle, Marker::Diamond];
/// Relative errors of predicted pass times larger than this, in %, are drawn at the panel's edge.
const EDGE: f64 = 50.0;

/// Draws `predicted.svg` (predicted against measured pass times) and `residuals.svg` (relative errors of the predicted
/// times). Draws nothing if no pass has both a measured and a predicted time above 0.
pub fn profile_figures(profile: &Profiled) -> Vec<Figure> {
    let passes = || profile.fits.iter().flat_map(|fit| &fit.passes);
    let shown = |p: &&ProfiledPass| p.measured_s > 0.0 && p.predicted_s > 0.0;
    let times = || passes().filter(shown).flat_map(|p| [p.measured_s * 1e3, p.predicted_s * 1e3]);
    let (low, high) = (times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max));
    if low > high {
        return Vec::new();
    }
    let time = Axis::log(low / 1.2, high * 1.2);
    let predicted = Page {
        title: format!("Predicted against measured: {}", profile.title),
        source: profile.source.clone(),
        x_name: "measured (ms)".to_owned(),
        y_name: "predicted (ms)".to_owned(),
        x: time.clone(),
        y: time,
        legend: legend(profile),
        panels: profile.fits.iter().map(|fit| (fit.title.clone(), None)).collect(),
        own_x: Vec::new(),
        panel_height: 300.0,
        right: 0.0,
        sheet: Sheet::Screen,
    };
    let residuals = Page {
        title: format!("Residuals: {}", profile.title),
        x_name: "batched tokens".to_owned(),
        y_name: "predicted / measured − 1 (%)".to_owned(),
        x: Axis::log(0.9, 1.1 * passes().map(|p| p.batched).max().unwrap_or(1) as f64),
        y: Axis::linear(-residual_edge(profile), residual_edge(profile), 8),
        source: predicted.source.clone(),
        legend: predicted.legend.clone(),
        panels: predicted.panels.clone(),
        own_x: Vec::new(),
        panel_height: 240.0,
        right: 0.0,
        sheet: Sheet::Screen,
    };
    let fits = &profile.fits;
    let first = predicted.svg(|c, panel, i| {
        let ends = [low / 1.1, high * 1.1].map(|t| panel.at(t, t));
        c.line(&ends, RULE, 1.2, Dash::Dashed);
        let passes = fits[i].passes.iter().filter(shown);
        draw(c, passes.map(|p| (p.region, panel.at(p.measured_s * 1e3, p.predicted_s * 1e3))).collect());
    });
    let second = residuals.svg(|c, panel, i| residual_panel(c, panel, &residuals, &fits[i]));
    vec![Figure::new(Kind::Fit, "predicted.svg", first), Figure::new(Kind::Fit, "residuals.svg", second)]
}

fn residual_panel(c: &Canvas, panel: &Panel, page: &Page, fit: &ProfiledFit) {
    for (y, dash) in [(0.0, Dash::Solid), (10.0, Dash::Dashed), (-10.0, Dash::Dashed)] {
        c.line(&[panel.at(page.x.start(), y), panel.at(page.x.end(), y)], RULE, 1.2, dash);
    }
    let passes = fit.passes.iter();
    draw(c, passes.map(|p| (p.region, panel.at(p.batched as f64, page.y.clamp(residual(p))))).collect());
}

fn residual(p: &ProfiledPass) -> f64 {
    (p.predicted_s / p.measured_s - 1.0) * 100.0
}

fn residual_edge(profile: &Profiled) -> f64 {
    let all = profile.fits.iter().flat_map(|fit| &fit.passes);
    all.map(|p| residual(p).abs()).fold(12.0, f64::max).min(EDGE)
}

/// Draws `passes`, given as (index of the region, point), one region after the other.
fn draw(c: &Canvas, passes: Vec<(usize, Point)>) {
    let regions = passes.iter().map(|p| p.0 + 1).max().unwrap_or(0);
    for region in 0..regions {
        let here = passes.iter().filter(|p| p.0 == region).map(|p| p.1);
        c.markers(&apart(here), look(region), MARKER);
    }
}

fn look(region: usize) -> Look {
    let at = region % COLOURS.len();
    Look { colour: COLOURS[at], dash: Dash::Solid, marker: MARKERS[at] }
}

fn legend(profile: &Profiled) -> Vec<Named> {
    profile.regions.iter().enumerate().map(|(i, name)| Named::plain(name, look(i))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profiled() -> Profiled {
        let pass = |i: usize| ProfiledPass {
            region: i % 4,
            batched: 1 << i,
            measured_s: 1e-3 * (1 << i) as f64,
            predicted_s: 1e-3 * (1 << i) as f64 * (1.0 + 0.2 * i as f64),
        };
        let fit = |title: &str| ProfiledFit { title: title.into(), passes: (0..8).map(pass).collect() };
        Profiled {
            title: "a with b".into(),
            source: "profiled".into(),
            regions: vec!["decode", "verify", "wide", "prefill"],
            fits: vec![fit("target, linear fit"), fit("target, table")],
        }
    }

    #[test]
    fn both_figures_say_what_they_show_and_where_it_is_from() {
        let figures = profile_figures(&profiled());
        assert_eq!(figures.iter().map(|f| f.file.as_str()).collect::<Vec<_>>(), ["predicted.svg", "residuals.svg"]);
        for figure in &figures {
            for text in ["target, linear fit", "target, table", "profiled", "prefill", "a with b"] {
                assert!(figure.svg.contains(text), "{text}");
            }
        }
        assert_eq!(figures, profile_figures(&profiled()), "the same bytes");
    }

    #[test]
    fn a_residual_too_large_is_drawn_at_the_edge() {
        assert_eq!(residual_edge(&profiled()), 50.0);
        let mut far = profiled();
        far.fits[0].passes[0].predicted_s = 1.0;
        assert_eq!(profile_figures(&far).len(), 2);
        let none = Profiled { fits: vec![], ..profiled() };
        assert!(profile_figures(&none).is_empty());
    }
}
