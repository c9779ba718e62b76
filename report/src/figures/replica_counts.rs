//! Draws the number of replicas over time in a fleet that an autoscaling rule grows and shrinks: one panel per policy.

use super::axis::Axis;
use super::page::{Page, columns};
use super::shades::{BOOTING, DRAINING, SHADES};
use super::sheet::{Named, Sheet};
use super::style::{INK, Rgb};
use crate::Dash;
use foretoken_sim::metrics::Scaled;

/// The phases of a replica, from the bottom of the figure to its top, as (index of the phase's count in
/// [`Scaled::over_time`], label, colour).
const PHASES: [(usize, &str, Rgb); 3] = [(1, "serve", SHADES[2].0), (0, "boot", BOOTING.0), (2, "drain", DRAINING.0)];

/// Draws the number of replicas over time, one panel for each run in `runs`; `None` if `runs` is empty. Each run is
/// given as (label of its policy, how its fleet grew and shrank).
pub fn replica_counts_figure(runs: &[(&str, &Scaled)], title: String, source: &str) -> Option<String> {
    let end = runs.iter().map(|(_, scaled)| scaled.end.as_s()).reduce(f64::max)?;
    let per = if end > 3.0 * 3600.0 { 3600.0 } else { 1.0 };
    let courses: Vec<Vec<(f64, [u32; 3])>> = runs
        .iter()
        .map(|(_, scaled)| scaled.over_time().into_iter().map(|(at, counts)| (at.as_s() / per, counts)).collect())
        .collect();
    let most = courses.iter().flatten().map(|(_, counts)| counts.iter().sum::<u32>()).max()?;
    let page = Page {
        title,
        source: source.to_owned(),
        x_name: if per > 1.0 { "time (h)" } else { "time (s)" }.to_owned(),
        y_name: "replicas".to_owned(),
        x: Axis::exact(0.0, end / per, 6),
        y: Axis::linear(0.0, f64::from(most), 4).whole_only(),
        legend: PHASES.iter().rev().map(|&(_, label, colour)| Named::area(label, colour)).collect(),
        panels: runs.iter().map(|(policy, _)| ((*policy).to_owned(), None)).collect(),
        own_x: Vec::new(),
        panel_height: [220.0, 170.0, 130.0][columns(runs.len()) - 1],
        right: 0.0,
        sheet: Sheet::Screen,
    };
    Some(page.svg(|c, panel, i| {
        let course = &courses[i];
        let until = |k: usize| course.get(k + 1).map_or(end / per, |next| next.0);
        let mut below = vec![0; course.len()];
        for (phase, _, colour) in PHASES {
            for (k, (at, counts)) in course.iter().enumerate().filter(|(_, (_, counts))| counts[phase] > 0) {
                let (low, high) = (f64::from(below[k]), f64::from(below[k] + counts[phase]));
                c.area(panel.at(*at, high), panel.at(until(k), low), colour);
            }
            course.iter().zip(&mut below).for_each(|((_, counts), below)| *below += counts[phase]);
        }
        let serve = |k: usize| f64::from(course[k].1[1]);
        let line = (0..course.len()).flat_map(|k| [panel.at(course[k].0, serve(k)), panel.at(until(k), serve(k))]);
        c.line(&line.collect::<Vec<_>>(), INK, 1.4, Dash::Solid);
    }))
}
