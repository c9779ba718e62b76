//! Draws batch size or draft length over time: one figure per combination of swept values, one panel per policy, all
//! panels on the same axes.
//!
//! Only the first seed is drawn. Arrivals differ between seeds, so a mean over seeds would show a load that no run had.
//! Lines are solid, because a noisy dashed line cannot be read. The panel's title shows the policy's dash and marker.

use super::axis::Axis;
use super::canvas::Ink;
use super::page::{Page, columns};
use super::sheet::MOST_NAMES;
use super::style::BEHIND;
use super::view::{View, words};
use crate::{Dash, Look, Swept};
use foretoken_sim::metrics::{Bin, Series};

/// The most points of a policy's line over time.
const POINTS: usize = 160;

/// A number of a run, such as the batch size, that is drawn over time.
pub struct Course {
    /// The name, in a figure's title, of the number that is drawn over time.
    pub title: &'static str,
    /// The name and unit, on an axis, of the number that is drawn over time.
    pub axis: &'static str,
    /// Computes the drawn number, such as the batch size, from neighbouring bins of time. `None` leaves a gap in the
    /// line.
    pub of: fn(&[Bin]) -> Option<f64>,
    /// Is the first policy's line repeated in grey behind the lines of the other policies?
    pub backdrop: bool,
}

/// Mean decode batch size, weighted by time inside steps; 0 if no step ran.
pub fn batch_size(bins: &[Bin]) -> Option<f64> {
    let busy: u64 = bins.iter().map(|b| b.busy).sum();
    let weighted: u128 = bins.iter().map(|b| b.batch_time).sum();
    Some(if busy == 0 { 0.0 } else { weighted as f64 / busy as f64 })
}

/// Mean number of drafted tokens of a request in a step. `None`, a gap, if no request decoded.
pub fn draft_len(bins: &[Bin]) -> Option<f64> {
    let steps: u64 = bins.iter().map(|b| b.request_steps).sum();
    let drafted: u64 = bins.iter().map(|b| b.drafted).sum();
    (steps > 0).then(|| drafted as f64 / steps as f64)
}

/// A policy's line over time, broken where the number is missing: each unbroken part is a list of (time in seconds,
/// value).
type Stretches = Vec<Vec<(f64, f64)>>;

/// Draws one figure per combination of swept values, and returns each with its combination. Leaves out policies whose
/// value is always 0, and combinations in which all policies are left out.
pub fn draw<'a>(view: &View<'a>, course: &Course) -> Vec<(&'a [Swept], String)> {
    view.combinations.iter().filter_map(|&c| Some((c, draw_one(view, course, c)?))).collect()
}

fn draw_one(view: &View, course: &Course, combination: &[Swept]) -> Option<String> {
    let lines: Vec<(&str, Look, Stretches)> = view
        .policies
        .iter()
        .filter(|(label, _)| view.policies.len() <= MOST_NAMES || !view.quiet.contains(label))
        .filter_map(|&(label, look)| {
            let cell = *view.cells(label, |s| s == combination).first()?;
            let line = stretches(&cell.series, course.of);
            line.iter().flatten().any(|p| p.1 > 0.0).then_some((label, look, line))
        })
        .collect();
    let all = || lines.iter().flat_map(|l| l.2.iter().flatten());
    let (end, top) = (all().map(|p| p.0).fold(0.0, f64::max), all().map(|p| p.1).fold(0.0, f64::max));
    let behind = lines.first().filter(|_| course.backdrop && lines.len() > 1);
    let seed = match view.seeds.as_slice() {
        [only] => format!("seed {only}"),
        seeds => format!("seed {} (first of {})", seeds[0], seeds.len()),
    };
    let grey = behind.map(|l| format!("grey: {}", l.0));
    let notes = [Some(seed.as_str()), grey.as_deref()];
    let settings = words(combination);
    let what = if settings.is_empty() { course.title.to_owned() } else { format!("{}, {settings}", course.title) };
    let columns = columns(lines.len());
    let page = Page {
        title: view.title(&what),
        source: view.source(&notes.into_iter().flatten().collect::<Vec<_>>()),
        x_name: "time (s)".to_owned(),
        y_name: course.axis.to_owned(),
        x: Axis::exact(0.0, end, [8, 6, 4][columns - 1]),
        y: Axis::linear(0.0, top * 1.02, 4),
        legend: Vec::new(),
        panels: lines.iter().map(|l| (l.0.to_owned(), Some(l.1))).collect(),
        own_x: Vec::new(),
        panel_height: [260.0, 180.0, 120.0][columns - 1],
        right: 0.0,
        sheet: view.sheet,
    };
    (!lines.is_empty()).then(|| {
        page.svg(|c, panel, i| {
            let path = |stretch: &Vec<(f64, f64)>| stretch.iter().map(|p| panel.at(p.0, p.1)).collect::<Vec<_>>();
            if let Some(first) = behind.filter(|_| i > 0) {
                first.2.iter().for_each(|s| c.line(&path(s), BEHIND, 1.2, Dash::Solid));
            }
            let (label, look, stretches) = &lines[i];
            let ink = Ink { label, look: *look, own: look.colour };
            c.policy(&ink, || stretches.iter().for_each(|s| c.line(&path(s), look.colour, 1.6, Dash::Solid)));
        })
    })
}

/// Makes a policy's line from a series of bins, with at most [`POINTS`] points. Each point is computed from some
/// neighbouring bins and lies at the middle of them. Bins without a value break the line.
fn stretches(series: &Series, of: fn(&[Bin]) -> Option<f64>) -> Stretches {
    let together = series.bins.len().div_ceil(POINTS).max(1);
    let width = series.width.as_s();
    let mut stretches = vec![Vec::new()];
    for (i, bins) in series.bins.chunks(together).enumerate() {
        match of(bins) {
            Some(value) => {
                let middle = (i * together) as f64 + bins.len() as f64 / 2.0;
                stretches.last_mut().expect("never empty").push((middle * width, value));
            }
            None => stretches.push(Vec::new()),
        }
    }
    stretches.retain(|s| !s.is_empty());
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_weighs_and_idle_time_breaks_the_line() {
        let bin = |request_steps, drafted| Bin { request_steps, drafted, busy: 10, batch_time: 20, ..Bin::default() };
        let bins = [bin(1, 4), bin(3, 0)];
        assert_eq!((draft_len(&bins), batch_size(&bins)), (Some(1.0), Some(2.0)));
        assert_eq!((draft_len(&[Bin::default()]), batch_size(&[Bin::default()])), (None, Some(0.0)));
        let mut series = Series::default();
        series.bins = vec![bin(1, 1), Bin::default(), bin(1, 3)];
        assert_eq!(stretches(&series, draft_len), [[(0.25, 1.0)], [(1.25, 3.0)]]);
        series.bins = vec![bin(1, 2); 1000];
        assert_eq!(stretches(&series, draft_len)[0].len(), 143);
    }
}
