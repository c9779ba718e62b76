//! The runs of a report in the form that figures need: by policy and by combination of swept values.

use super::canvas::Ink;
use super::sheet::{MOST_NAMES, Named, Sheet};
use super::style::QUIET;
use crate::number::fixed;
use crate::{Cell, Dash, Look, Marker, Report, Source, Swept};
use foretoken_sim::metrics::{Interval, Range, RatioInterval, Slo};

/// A mean over seeds, and the ends of its 95 % interval; the ends are `None` with one seed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    pub mean: f64,
    pub ends: Option<(f64, f64)>,
}

impl From<RatioInterval> for Mean {
    fn from(i: RatioInterval) -> Mean {
        Mean { mean: i.mean, ends: i.low.zip(i.high) }
    }
}

impl From<Interval> for Mean {
    fn from(i: Interval) -> Mean {
        Mean { mean: i.mean, ends: i.ends() }
    }
}

/// What kind of number figures compare. This decides how its interval over seeds is computed and where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// A plain amount, such as a latency: the interval over seeds is symmetric around the mean, as far as it is not
    /// below 0.
    Amount,
    /// A share in percent: the interval over seeds is symmetric around the mean, as far as it lies within 0 to 100.
    Percent,
    /// A difference, such as percentage points: the interval over seeds is symmetric around the mean.
    Difference,
    /// A ratio of two runs with the same seed: the interval is computed on the logarithms of the ratios.
    Ratio,
    /// A ratio of two runs with the same seed, minus 1, in percent. The interval is computed on the logarithms of the
    /// ratios.
    Change,
}

impl Scale {
    /// The mean of `values`, one per seed, with its interval; `None` without values.
    pub fn mean(self, values: &[f64]) -> Option<Mean> {
        match self {
            Scale::Amount => Interval::within(Range::FromZero, values).map(Mean::from),
            Scale::Percent => Interval::within(Range::Percent, values).map(Mean::from),
            Scale::Difference => Interval::of(values).map(Mean::from),
            Scale::Ratio => RatioInterval::of(values).map(Mean::from),
            Scale::Change => {
                let ratios: Vec<f64> = values.iter().map(|percent| 1.0 + percent / 100.0).collect();
                let i = Mean::from(RatioInterval::of(&ratios)?.excess());
                let percent = |x: f64| 100.0 * x;
                Some(Mean { mean: percent(i.mean), ends: i.ends.map(|(low, high)| (percent(low), percent(high))) })
            }
        }
    }
}

/// The runs to draw. Leaves out an autoregressive run that the program added as the baseline
/// ([`crate::Entry::implied`]).
pub struct View<'a> {
    pub name: &'a str,
    /// The policies in order of appearance: label, and colour, dash and marker.
    pub policies: Vec<(&'a str, Look)>,
    /// Combinations of swept values in order of appearance; one empty combination when nothing is swept.
    pub combinations: Vec<&'a [Swept]>,
    /// Seeds in order of appearance.
    pub seeds: Vec<u64>,
    /// The medium of the figures: a screen, or the column of a paper.
    pub sheet: Sheet,
    /// Labels of the policies that figures show in grey; empty if all are in colour.
    pub quiet: Vec<&'a str>,
    cells: Vec<&'a Cell>,
    source: Source,
}

impl<'a> View<'a> {
    /// Groups the runs of a report by policy, combination of swept values and seed.
    pub fn new(report: &'a Report) -> View<'a> {
        let cells: Vec<&Cell> = report.cells.iter().filter(|c| !c.entry.implied).collect();
        View {
            name: &report.name,
            policies: distinct_looks(distinct(
                cells.iter().map(|c| (c.key().policy.as_str(), c.entry.look)),
                |a, b| a.0 == b.0,
            )),
            combinations: distinct(cells.iter().map(|c| c.key().sweep.as_slice()), |a, b| a == b),
            seeds: distinct(cells.iter().map(|c| c.key().seed), |a, b| a == b),
            sheet: Sheet::Screen,
            quiet: Vec::new(),
            cells,
            source: report.source,
        }
    }

    /// The runs of a policy, limited to runs whose swept values `sweep` accepts. If `sweep` accepts one combination of
    /// swept values, there is one run for each seed.
    pub fn cells(&self, policy: &str, mut sweep: impl FnMut(&[Swept]) -> bool) -> Vec<&'a Cell> {
        self.cells.iter().copied().filter(|c| c.key().policy == policy && sweep(&c.key().sweep)).collect()
    }

    /// The mean over seeds of a policy's number, which `of` reads from a run. Uses the runs for whose swept values
    /// `sweep` returns true. Leaves out seeds in which the number is missing or not finite; `None` if no seed remains.
    pub fn mean(
        &self,
        policy: &str,
        sweep: impl FnMut(&[Swept]) -> bool,
        of: impl Fn(&Cell) -> Option<f64>,
        scale: Scale,
    ) -> Option<Mean> {
        let each: Vec<f64> = self.cells(policy, sweep).into_iter().filter_map(of).filter(|x| x.is_finite()).collect();
        scale.mean(&each)
    }

    /// Did any policy run at this combination of swept values with this seed?
    pub fn has_seed(&self, combination: &[Swept], seed: u64) -> bool {
        self.cells.iter().any(|c| c.key().seed == seed && c.key().sweep == combination)
    }

    /// The runs of all policies, limited to runs whose swept values `sweep` accepts.
    pub fn all(&self, mut sweep: impl FnMut(&[Swept]) -> bool) -> Vec<&'a Cell> {
        self.cells.iter().copied().filter(|c| sweep(&c.key().sweep)).collect()
    }

    /// A policy as figures show it: in its own colour, or in grey if figures do not emphasize it.
    pub fn ink<'p>(&self, label: &'p str, look: Look) -> Ink<'p> {
        let own = look.colour;
        let colour = if self.quiet.contains(&label) { QUIET } else { own };
        Ink { label, look: Look { colour, ..look }, own }
    }

    /// The policies in drawing order. Grey policies come first, so that their lines lie behind the others.
    pub fn inks(&self) -> Vec<Ink<'a>> {
        let mut all: Vec<Ink> = self.policies.iter().map(|&(label, look)| self.ink(label, look)).collect();
        all.sort_by_key(|ink| !self.quiet.contains(&ink.label));
        all
    }

    /// A legend of the policies for which `shown` is true. A legend of more than [`MOST_NAMES`] policies has only the
    /// policies in colour, and the number of the others.
    pub fn legend(&self, shown: impl Fn(&str) -> bool) -> Vec<Named> {
        let mut inks: Vec<Ink> = self.inks().into_iter().filter(|ink| shown(ink.label)).collect();
        inks.reverse();
        let all = inks.len();
        if all > MOST_NAMES {
            inks.retain(|ink| !self.quiet.contains(&ink.label));
        }
        let others = all - inks.len();
        let named = |ink: Ink| Named { own: Some(ink.own), ..Named::plain(ink.label, ink.look) };
        let mut legend: Vec<Named> = inks.into_iter().map(named).collect();
        if others > 0 {
            let look = Look { colour: QUIET, dash: Dash::Solid, marker: Marker::Circle };
            legend.push(Named::plain(&count(others, "other"), look));
        }
        legend
    }

    /// The title of a figure about `what`, such as the speedup.
    pub fn title(&self, what: &str) -> String {
        format!("{what} · {}", self.name)
    }

    /// The source line (which says where the numbers come from) of a figure that shows means over seeds.
    pub fn source_of_means(&self) -> String {
        let interval = if self.seeds.len() > 1 { "mean with 95 % interval over seeds" } else { "no interval" };
        self.source(&[&count(self.seeds.len(), "seed"), interval])
    }

    /// The source line: where the numbers come from, the number of requests of a run, then the texts `rest`.
    pub fn source(&self, rest: &[&str]) -> String {
        format!("{} · {} a run · {}", self.source, self.requests(), rest.join(" · "))
    }

    /// The number of requests of a run as text; a range if it differs between runs.
    pub fn requests(&self) -> String {
        let requests = || self.cells.iter().map(|c| c.summary.requests);
        let (least, most) = (requests().min().unwrap_or(0), requests().max().unwrap_or(0));
        if least == most { count(most, "request") } else { format!("{least}–{most} requests") }
    }

    /// Is some setting swept over at least two numbers?
    pub fn sweeps_a_number(&self) -> bool {
        let paths = self.combinations.first().map_or(0, |c| c.len());
        (0..paths).any(|at| {
            let numbers: Option<Vec<f64>> = self.combinations.iter().map(|c| c[at].number).collect();
            numbers.is_some_and(|n| n.iter().any(|x| *x != n[0]))
        })
    }
}

const DASHES: [Dash; 4] = [Dash::Solid, Dash::Dashed, Dash::Dotted, Dash::LongDash];
const MARKERS: [Marker; 8] = [
    Marker::Circle,
    Marker::Square,
    Marker::Triangle,
    Marker::TriangleDown,
    Marker::Diamond,
    Marker::Cross,
    Marker::Plus,
    Marker::Ring,
];

/// Gives each policy a look (colour, dash and marker) that no other policy has. A policy that looks like an earlier one
/// keeps its colour. It gets a dash and a marker that no other policy of this colour has, or else a new combination of
/// dash and marker for this colour.
fn distinct_looks(mut policies: Vec<(&str, Look)>) -> Vec<(&str, Look)> {
    for i in 1..policies.len() {
        let own = policies[i].1;
        if policies[..i].iter().all(|p| p.1 != own) {
            continue;
        }
        let taken = |look: Look| policies.iter().any(|p| p.1 == look);
        let of_colour = || policies.iter().filter(|p| p.1.colour == own.colour);
        let dashes = DASHES.into_iter().filter(|&d| of_colour().all(|p| p.1.dash != d)).chain(DASHES);
        let markers = MARKERS.into_iter().filter(|&m| of_colour().all(|p| p.1.marker != m)).chain(MARKERS);
        let mut looks = dashes.flat_map(|dash| markers.clone().map(move |marker| Look { dash, marker, ..own }));
        if let Some(look) = looks.find(|&look| !taken(look)) {
            policies[i].1 = look;
        }
    }
    policies
}

/// Joins the parts of a title with a comma; leaves out empty parts.
pub fn joined(parts: [String; 2]) -> String {
    parts.into_iter().filter(|p| !p.is_empty()).collect::<Vec<_>>().join(", ")
}

/// The SLO bounds of some runs as text, such as `TPOT ≤ 12.92 ms`; empty without bounds. Each bound is averaged over
/// seeds. If a bound differs between combinations of swept values, the text gives its least and its greatest value.
pub fn bounds(cells: &[&Cell]) -> String {
    let one = |name: &str, of: fn(&Slo) -> Option<f64>| {
        let settings = distinct(cells.iter().map(|c| c.key().sweep.as_slice()), |a, b| a == b);
        let mean = |sweep: &&[Swept]| {
            let here = cells.iter().filter(|c| c.key().sweep == *sweep);
            let values: Vec<f64> = here.filter_map(|c| of(&c.summary.slo)).collect();
            Interval::of(&values).map(|i| i.mean * 1e3)
        };
        let means: Vec<f64> = settings.iter().filter_map(mean).collect();
        let (least, most) = (means.iter().copied().reduce(f64::min)?, means.iter().copied().reduce(f64::max)?);
        let (least, most) = (fixed(least, 2), fixed(most, 2));
        Some(if least == most { format!("{name} ≤ {least} ms") } else { format!("{name} ≤ {least} to {most} ms") })
    };
    let all = [one("TTFT", |s| s.ttft_s), one("TPOT", |s| s.tpot_s), one("E2E", |s| s.e2e_s)];
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// A number of things as text, such as "1 seed" or "3 seeds".
pub fn count<N: TryInto<u64>>(n: N, what: &str) -> String {
    let n = n.try_into().unwrap_or(u64::MAX);
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Swept values as text, such as `request rate = 2 requests/s, block_size = 16`; empty if nothing is swept.
pub fn words<'a>(sweep: impl IntoIterator<Item = &'a Swept>) -> String {
    sweep.into_iter().map(Swept::in_words).collect::<Vec<_>>().join(", ")
}

/// The distinct items, in order of appearance. Two items are the same if `same` says so.
pub fn distinct<T>(items: impl IntoIterator<Item = T>, same: impl Fn(&T, &T) -> bool) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for item in items {
        if !kept.iter().any(|k| same(k, &item)) {
            kept.push(item);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twelve variants of one policy with equal looks, and a policy of the same colour. All looks must become
    /// different, and the first two must not change.
    #[test]
    fn no_two_policies_look_alike() {
        let own = Look { colour: (1, 2, 3), dash: Dash::Dashed, marker: Marker::Square };
        let kin = Look { dash: Dash::Solid, ..own };
        let mut given = vec![("kin", kin)];
        given.extend([("own", own); 12]);
        let shown = distinct_looks(given.clone());
        assert_eq!(shown[..2], given[..2]);
        assert!([own.dash, kin.dash].iter().all(|&d| shown[2].1.dash != d), "lines without markers differ too");
        assert_ne!(shown[2].1.marker, own.marker);
        assert_eq!(distinct(shown.iter().map(|p| p.1), |a, b| a == b).len(), shown.len());
        assert!(shown.iter().all(|p| p.1.colour == own.colour));
    }
}
