//! Goodput (emitted tokens per second inside steps) by batch size and draft length, and the best length at each batch
//! size (SmartSpec, Fig. 5).
//!
//! The data are counts of simulated steps without prompts, not predictions of a cost model. They are pooled over seeds
//! and over the policies that choose lengths without looking at the requests. Other policies draft more where they
//! expect acceptance, so their long drafts look better than long drafts for all requests are. A colour shows the
//! goodput of a length as a share of the best length's goodput at the same batch size. One scale of absolute goodput
//! would not do, because goodput differs too much between batch sizes.

use super::axis::Axis;
use super::curves::FEWEST;
use super::page::{Page, columns};
use super::sheet::Named;
use super::style::{INK, MARKER, PAPER, Rgb};
use super::view::{View, count, words};
use crate::{Cell, Dash, Look, Marker, Swept};
use foretoken_sim::metrics::Interval;
use std::collections::{BTreeMap, BTreeSet};

/// Classes of goodput (emitted tokens per second inside steps): (least goodput in % of the best length's goodput,
/// label, colour). Colours are viridis; light is a high goodput.
const CLASSES: [(f64, &str, Rgb); 7] = [
    (99.0, "99–100 %", (0xfd, 0xe7, 0x25)),
    (95.0, "95–99 %", (0x90, 0xd7, 0x43)),
    (90.0, "90–95 %", (0x35, 0xb7, 0x79)),
    (80.0, "80–90 %", (0x21, 0x91, 0x8c)),
    (65.0, "65–80 %", (0x31, 0x68, 0x8e)),
    (50.0, "50–65 %", (0x44, 0x39, 0x83)),
    (0.0, "under 50 %", (0x44, 0x01, 0x54)),
];
/// Colour, dash and marker of the line through the best draft length at each batch size.
const BEST: Look = Look { colour: INK, dash: Dash::Solid, marker: Marker::Ring };

/// Sums over the steps of one field of the map of goodput (emitted tokens per second inside steps). A field counts the
/// steps with one draft length and with a batch size in one bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Field {
    /// Greatest batch size (decode requests) of the bucket of batch sizes whose steps this field of the map counts.
    to: u32,
    steps: u64,
    /// Time inside the steps that this field of the map (one draft length, one bucket of batch sizes) counts,
    /// picoseconds.
    busy: u64,
    emitted: u64,
}

/// The fields of the map of goodput at one combination of swept values, by (least batch size of the field's bucket,
/// draft length).
type Map = BTreeMap<(u32, u32), Field>;

/// Draws the map of goodput by batch size and draft length. Counts only policies that choose lengths without looking at
/// the requests. `None` if no batch size has two draft lengths with at least [`FEWEST`] steps each.
pub fn draw(view: &View) -> Option<String> {
    let maps: Vec<Map> = view.combinations.iter().map(|&c| map(view, |s| s == c, None)).collect();
    let of_seeds = |c: &&[Swept]| view.seeds.iter().map(|&seed| map(view, |s| s == *c, Some(seed))).collect();
    let seeds_of: Vec<Vec<Map>> = view.combinations.iter().map(of_seeds).collect();
    let all = || maps.iter().flatten();
    let (least, most) = (all().map(|f| f.0.0).min()?, all().map(|f| f.1.to).max()?);
    let longest = all().map(|f| f.0.1).max()?;
    let mut legend = vec![Named::plain("best, and as good", BEST)];
    legend.extend(CLASSES.iter().map(|&(_, label, colour)| Named::area(label, colour)));
    let seeds = count(view.seeds.len(), "seed") + if view.seeds.len() > 1 { " pooled" } else { "" };
    let steps: u64 = all().map(|f| f.1.steps).sum();
    let page = Page {
        title: view.title("Goodput by batch size and draft length"),
        source: view.source(&[
            &seeds,
            &format!("{steps} steps without prompts"),
            "% of the best at that batch size",
            "bar: lengths that the seeds do not tell from the best",
        ]),
        x_name: "decode batch size (requests)".to_owned(),
        y_name: "draft length (tokens a request-step)".to_owned(),
        x: Axis::batch_sizes(f64::from(least) - 0.5, f64::from(most) + 0.5),
        y: Axis::whole(longest),
        legend,
        panels: view.combinations.iter().map(|&c| (words(c), None)).collect(),
        own_x: Vec::new(),
        panel_height: [360.0, 260.0, 190.0][columns(view.combinations.len()) - 1],
        right: 0.0,
        sheet: view.sheet,
    };
    Some(page.svg(|c, panel, i| {
        let map = &maps[i];
        for (&(size, length), field) in map {
            let (from, y) = (f64::from(size) - 0.5, f64::from(length));
            let corners = [panel.at(from, y + 0.5), panel.at(f64::from(field.to) + 0.5, y - 0.5)];
            // Each field of the map (one batch size and draft length) is a quarter px larger, so that no background
            // shows between two fields.
            let to = (corners[1].0 + 0.25, corners[1].1 + 0.25);
            c.area(corners[0], to, class(goodput(field) / best(map, size).1 * 100.0));
        }
        let optima = optima(map, &seeds_of[i]);
        for (width, colour) in [(4.0, PAPER), (2.0, BEST.colour)] {
            for o in &optima {
                c.line(
                    &[o.shortest, o.longest].map(|length| panel.at(o.size, f64::from(length))),
                    colour,
                    width,
                    Dash::Solid,
                );
            }
        }
        let best: Vec<_> = optima.iter().map(|o| panel.at(o.size, f64::from(o.best))).collect();
        c.markers(&best, BEST, MARKER);
    }))
}

/// The fields of the map of goodput, each for one draft length and one bucket of batch sizes. Counts the runs for whose
/// swept values `sweep` returns true and whose policy chooses lengths without looking at the requests. Uses one seed,
/// or pools all seeds if `seed` is `None`.
fn map(view: &View, sweep: impl Fn(&[Swept]) -> bool, seed: Option<u64>) -> Map {
    let mut map = Map::new();
    let asked = |c: &&Cell| c.entry.blind && seed.is_none_or(|seed| c.key().seed == seed);
    for (policy, _) in &view.policies {
        for cell in view.cells(policy, &sweep).into_iter().filter(asked) {
            for row in cell.lengths.iter().filter(|r| !r.prefilling) {
                let field = map.entry((row.batch_size, row.draft_len)).or_default();
                field.to = row.batch_size_to;
                field.steps += row.sums.steps;
                field.busy += row.sums.busy;
                field.emitted += row.sums.emitted;
            }
        }
    }
    let fewest = if seed.is_some() { 1 } else { FEWEST as u64 };
    map.retain(|_, field| field.steps >= fewest && field.busy > 0);
    // A batch size with only one draft length is left out of the map, because there is no other length to compare it
    // with.
    let sizes: Vec<u32> = map.keys().map(|k| k.0).collect();
    map.retain(|k, _| sizes.iter().filter(|&&size| size == k.0).count() > 1);
    map
}

/// Goodput of the steps in one field of the map (one draft length and a bucket of batch sizes): emitted tokens per
/// second of time inside steps.
fn goodput(field: &Field) -> f64 {
    field.emitted as f64 / (field.busy as f64 / 1e12)
}

/// The draft length with the highest goodput at a batch size, and this goodput in tokens per second.
fn best(map: &Map, size: u32) -> (u32, f64) {
    let here = map.range((size, 0)..=(size, u32::MAX)).map(|(k, f)| (k.1, goodput(f)));
    here.fold((0, 0.0), |best, one| if one.1 > best.1 { one } else { best })
}

/// The best draft length at a batch size, and the neighbouring lengths whose difference in goodput (tokens per second)
/// from the best is within the noise of the seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Optimum {
    size: f64,
    best: u32,
    shortest: u32,
    longest: u32,
}

/// The best draft length for each batch size of a map of goodput (emitted tokens per second). Leaves out a batch size
/// if the next shorter or the next longer length of the map has no steps at this size, because the missing length may
/// be better.
fn optima(map: &Map, of_seeds: &[Map]) -> Vec<Optimum> {
    let lengths: BTreeSet<u32> = map.keys().map(|k| k.1).collect();
    let sizes: BTreeSet<u32> = map.keys().map(|k| k.0).collect();
    let of_size = |size: u32| {
        let best = best(map, size).0;
        let neighbours = [lengths.range(..best).next_back(), lengths.range(best + 1..).next()];
        if !neighbours.into_iter().flatten().all(|&next| map.contains_key(&(size, next))) {
            return None;
        }
        let alike = |length: &&u32| map.contains_key(&(size, **length)) && alike(of_seeds, size, **length, best);
        let shortest = lengths.range(..best).rev().take_while(alike).last().copied().unwrap_or(best);
        let longest = lengths.range(best + 1..).take_while(alike).last().copied().unwrap_or(best);
        Some(Optimum { size: middle(map, size), best, shortest, longest })
    };
    sizes.into_iter().filter_map(of_size).collect()
}

/// Is the difference in goodput (tokens per second) between the draft lengths `length` and `best` at batch size `size`
/// within the noise of the seeds? Compares logarithms of goodput, paired by seed. False with a single seed.
fn alike(of_seeds: &[Map], size: u32, length: u32, best: u32) -> bool {
    let logs = of_seeds.iter().filter_map(|map| {
        let [own, best] = [length, best].map(|length| map.get(&(size, length)).map(goodput));
        Some((best? / own?).ln()).filter(|log| log.is_finite())
    });
    let interval = Interval::of(&logs.collect::<Vec<f64>>());
    interval.is_some_and(|i| i.half_width.is_some_and(|half| i.mean <= half))
}

fn middle(map: &Map, size: u32) -> f64 {
    let to = map.range((size, 0)..=(size, u32::MAX)).next().map_or(size, |f| f.1.to);
    (f64::from(size) * f64::from(to)).sqrt()
}

fn class(share: f64) -> Rgb {
    CLASSES.iter().find(|c| share >= c.0).map_or(CLASSES[CLASSES.len() - 1].2, |c| c.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_optimum_where_a_neighbour_was_not_seen() {
        let field = |emitted| Field { to: 1, steps: 40, busy: 10, emitted };
        let columns = [(1, [1, 2, 1]), (2, [3, 2, 1]), (3, [1, 2, 0]), (4, [1, 3, 2])];
        let all = columns.iter().flat_map(|&(size, of)| (0..).zip(of).map(move |(k, e)| ((size, k), field(e))));
        let map: Map = all.filter(|(_, f)| f.emitted > 0).map(|(k, f)| (k, Field { to: k.0, ..f })).collect();
        let alone = |size, best| Optimum { size, best, shortest: best, longest: best };
        assert_eq!(optima(&map, &[]), [alone(1.0, 1), alone(2.0, 0), alone(4.0, 1)]);
    }

    #[test]
    fn lengths_that_seeds_do_not_tell_apart_are_a_range() {
        let field = |emitted| Field { to: 4, steps: 40, busy: 10, emitted };
        let seed = |of: [u64; 4]| -> Map { (0..).zip(of).map(|(k, e)| ((4, k), field(e))).collect() };
        let seeds = [seed([50, 100, 101, 60]), seed([50, 103, 102, 61]), seed([51, 101, 103, 60])];
        let pooled = seed([151, 304, 306, 181]);
        assert_eq!(optima(&pooled, &seeds), [Optimum { size: 4.0, best: 2, shortest: 1, longest: 2 }]);
    }

    #[test]
    fn the_best_length_is_the_one_with_most_tokens_a_second() {
        let field = |emitted, busy| Field { to: 4, steps: 20, busy, emitted };
        let map = Map::from([
            ((4, 0), field(80, 10)),
            ((4, 2), field(150, 15)),
            ((4, 5), field(180, 25)),
            ((8, 1), field(1, 1)),
        ]);
        assert_eq!(best(&map, 4).0, 2);
        assert_eq!(class(goodput(&map[&(4, 0)]) / best(&map, 4).1 * 100.0), CLASSES[3].2);
        assert_eq!(class(100.0), CLASSES[0].2);
        assert_eq!(class(f64::NAN), CLASSES[6].2);
    }
}
