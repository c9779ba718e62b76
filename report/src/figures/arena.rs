//! Draws the table of the arena (a set of experiments, called scenarios, in which all policies run) as a map of
//! colours: a colour shows a policy's loss in a scenario. On a screen the rows are policies, the best first; on a phone
//! the rows are scenarios, so that the map is narrow. A ring marks the best policy that a server can run in each
//! scenario.

use super::canvas::{Anchor, Canvas, svg};
use super::sheet::Sheet;
use super::style::{GREY, INK, LINE, MARGIN, PAPER, Point, RULE, Rgb, TEXT, TITLE, fit, text_width};
use super::{Figure, Kind};
use crate::{Dash, Look, Marker};

/// Classes of a policy's loss: (the loss in % at which the class ends, label, colour). The loss compares the policy's
/// mean end-to-end latency with that of the best oracle, a policy that no server can run. Colours are viridis; light is
/// a small loss.
const CLASSES: [(f64, &str, Rgb); 7] = [
    (1.0, "under 1", (0xfd, 0xe7, 0x25)),
    (3.0, "1–3", (0x90, 0xd7, 0x43)),
    (6.0, "3–6", (0x35, 0xb7, 0x79)),
    (10.0, "6–10", (0x21, 0x91, 0x8c)),
    (18.0, "10–18", (0x31, 0x68, 0x8e)),
    (30.0, "18–30", (0x44, 0x39, 0x83)),
    (f64::INFINITY, "30 and more", (0x44, 0x01, 0x54)),
];
/// Height of a row of the map of losses, px.
const ROW: f64 = 15.0;
/// Font size of the names of policies and of scenarios (experiments), px.
const SMALL: f64 = 10.0;
/// Colour and shape of the ring that marks the best policy that a server can run in a scenario (an experiment).
const BEST: Look = Look { colour: INK, dash: Dash::Solid, marker: Marker::Ring };

/// The loss of each policy in each scenario (experiment) of the arena, in which all policies are compared. A loss
/// compares the policy's mean end-to-end latency with the best oracle's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArenaMap {
    /// The policies, the best first. A server can run each of them.
    pub policies: Vec<String>,
    /// The scenarios (experiments) as (name, name of the group, such as tuning or held-out). Scenarios of one group
    /// follow each other.
    pub scenarios: Vec<(String, String)>,
    /// For each scenario (experiment) the number of the policy in `policies` that has the least mean end-to-end
    /// latency. It need not have the least loss, since policies that draft trees have an oracle of their own.
    pub best: Vec<Option<usize>>,
    /// The loss in % in mean end-to-end latency against the best oracle, by policy and scenario (experiment); `None` if
    /// the policy did not run.
    pub losses: Vec<Vec<Option<f64>>>,
}

/// Draws `arena.svg`, a map of the loss of each policy in each scenario (experiment) of the arena. A loss compares a
/// policy's mean end-to-end latency with the best oracle's. `None` without policies or scenarios.
pub fn arena_figure(map: &ArenaMap, source: &str) -> Option<Figure> {
    let empty = map.policies.is_empty() || map.scenarios.is_empty();
    Figure::on_both(Kind::Arena, "arena.svg", |sheet| (!empty).then(|| draw(map, source, sheet)))
}

fn widest(names: &[String]) -> f64 {
    names.iter().map(|name| text_width(name, SMALL)).fold(0.0, f64::max)
}

fn draw(map: &ArenaMap, source: &str, sheet: Sheet) -> String {
    let (screen, margin) = (sheet == Sheet::Screen, sheet.margin());
    let short = map.scenarios.iter().map(|s| s.0.clone()).collect();
    let long = map.scenarios.iter().map(|(name, set)| format!("{set} {name}")).collect();
    let (rows, columns) = if screen { (map.policies.clone(), short) } else { (long, map.policies.clone()) };
    let rows: &[String] = &rows;
    let columns: &[String] = &columns;
    let loss = |row: usize, column: usize| if screen { map.losses[row][column] } else { map.losses[column][row] };
    let left = margin + widest(rows) + 8.0;
    // Columns are at most 34 px wide. They are wider if the name of a group of scenarios (experiments) needs more
    // space.
    let groups = map.scenarios.chunk_by(|a, b| a.1 == b.1);
    let named = groups.map(|group| (text_width(&group[0].1, TEXT) + 6.0) / group.len() as f64).fold(34.0, f64::max);
    let wide = ((sheet.width() - margin - left) / columns.len() as f64).min(named);
    let first = margin + if screen { TITLE + LINE } else { LINE / 2.0 };
    let (places, key) = legend((margin, first), sheet.width() - margin);
    let above = if screen { LINE + 9.0 } else { 0.0 };
    let top = key + LINE + above + widest(columns) + 6.0;
    let height = top + ROW * rows.len() as f64 + if screen { LINE + MARGIN } else { margin };
    let title = "Loss in mean end-to-end latency against the best oracle (%)";
    svg((sheet.width(), height), title, source, |c| {
        if screen {
            c.bold(title, (MARGIN, MARGIN + TITLE / 2.0), Anchor::Start, TITLE, INK);
            sets(c, map, (left, key + LINE), wide);
            c.text(source, (MARGIN, height - MARGIN), Anchor::Start, SMALL, GREY);
        }
        for (place, label, colour) in places {
            match colour {
                Some(colour) => c.area((place.0, place.1 - 5.0), (place.0 + 14.0, place.1 + 5.0), colour),
                None => c.marker((place.0 + 7.0, place.1), BEST),
            }
            c.text(label, (place.0 + 19.0, place.1), Anchor::Start, TEXT, INK);
        }
        let at = |row: usize, column: usize| (left + wide * (column as f64 + 0.5), top + ROW * (row as f64 + 0.5));
        for (j, name) in columns.iter().enumerate() {
            // `upward` centres a name at its point. The point lies half a name's width above the map, so that every
            // name ends at the map.
            c.upward(name, (at(0, j).0, top - 6.0 - text_width(name, SMALL) / 2.0), SMALL, INK);
        }
        for (i, name) in rows.iter().enumerate() {
            c.text(name, (left - 6.0, at(i, 0).1), Anchor::End, SMALL, INK);
            for (j, loss) in (0..columns.len()).filter_map(|j| Some((j, loss(i, j)?))) {
                let (x, y) = at(i, j);
                c.area((x - wide / 2.0, y - ROW / 2.0), (x + wide / 2.0 - 1.0, y + ROW / 2.0 - 1.0), class(loss));
            }
        }
        for (scenario, policy) in map.best.iter().enumerate().filter_map(|(i, policy)| Some((i, (*policy)?))) {
            let (x, y) = if screen { at(policy, scenario) } else { at(scenario, policy) };
            c.marker((x - 0.5, y - 0.5), BEST);
        }
        c.line(&[(left, top - 2.0), (left + wide * columns.len() as f64, top - 2.0)], PAPER, 1.0, Dash::Solid);
    })
}

/// An entry of the legend: its place, its text, and the colour of its class; `None` for the ring.
type Entry = (Point, &'static str, Option<Rgb>);

/// The entries of the legend in lines from `start` on, none of which ends beyond `end`, and the height of the last
/// line.
fn legend(start: Point, end: f64) -> (Vec<Entry>, f64) {
    let classes = CLASSES.iter().map(|(_, label, colour)| (*label, Some(*colour)));
    let (mut x, mut y) = start;
    let place = |(label, colour): (&'static str, Option<Rgb>)| {
        let width = 19.0 + text_width(label, TEXT) + 16.0;
        if x + width - 16.0 > end {
            (x, y) = (start.0, y + LINE);
        }
        let place = (x, y);
        x += width;
        (place, label, colour)
    };
    let entries: Vec<Entry> = classes.chain([("best that a server can run", None)]).map(place).collect();
    let last = entries[entries.len() - 1].0.1;
    (entries, last)
}

/// Above each group of scenarios (experiments) writes the group's name with a line under it.
fn sets(c: &Canvas, map: &ArenaMap, (left, y): Point, wide: f64) {
    let mut from = 0;
    for group in map.scenarios.chunk_by(|a, b| a.1 == b.1) {
        let to = from + group.len();
        let (start, end) = (left + wide * from as f64, left + wide * to as f64);
        let name = fit(&group[0].1, TEXT, end - start);
        c.text(&name, ((start + end) / 2.0, y), Anchor::Middle, TEXT, INK);
        c.line(&[(start + 2.0, y + 9.0), (end - 2.0, y + 9.0)], RULE, 1.0, Dash::Solid);
        from = to;
    }
}

fn class(loss: f64) -> Rgb {
    CLASSES.iter().find(|c| loss < c.0).map_or(CLASSES[CLASSES.len() - 1].2, |c| c.2)
}

#[cfg(test)]
mod tests {
    use super::super::tests::texts;
    use super::*;

    fn map() -> ArenaMap {
        let long = "oracle-goodput[price={\"decode\":1.0}]";
        ArenaMap {
            policies: vec!["a".into(), long.into(), "b".into()],
            scenarios: [("light", "tuning"), ("busy", "tuning"), ("full", "held-out"), ("over", "held-out")]
                .map(|(name, set)| (name.into(), set.into()))
                .to_vec(),
            best: vec![Some(0), Some(0), Some(2), None],
            losses: vec![
                vec![Some(2.0), Some(3.0), Some(40.0), Some(9.0)],
                vec![Some(0.0); 4],
                vec![Some(4.0), Some(7.0), None, Some(20.0)],
            ],
        }
    }

    #[test]
    fn both_forms_name_policies_and_scenarios_whole() {
        let figure = arena_figure(&map(), "simulated; 5 seeds").unwrap();
        let long = "oracle-goodput[price={&quot;decode&quot;:1.0}]";
        for text in ["a", "b", long, "light", "full", "tuning", "held-out", "simulated; 5 seeds", "30 and more"] {
            assert!(figure.svg.contains(&format!(">{text}<")), "{text}\n{}", figure.svg);
        }
        let narrow = figure.narrow.unwrap();
        for text in ["a", "b", long, "tuning light", "held-out full", "best that a server can run"] {
            assert!(narrow.contains(&format!(">{text}<")), "{text}\n{narrow}");
        }
        let widest = texts(&narrow).into_iter().map(|text| text.to.0).fold(0.0, f64::max);
        assert!(widest <= Sheet::Phone.width(), "{widest}");
        assert_eq!(arena_figure(&ArenaMap::default(), ""), None);
    }

    #[test]
    fn a_loss_has_the_colour_of_its_class() {
        assert_eq!((class(-5.0), class(0.99), class(1.0)), (CLASSES[0].2, CLASSES[0].2, CLASSES[1].2));
        assert_eq!((class(29.9), class(30.0), class(f64::NAN)), (CLASSES[5].2, CLASSES[6].2, CLASSES[6].2));
    }
}
