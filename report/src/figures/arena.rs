//! Draws the table of the arena (a set of experiments, called scenarios, in which all policies run) as a map of
//! colours. Rows are policies, the best first; columns are scenarios; a colour shows a policy's loss in a scenario. A
//! ring marks the best policy that a server can run in each scenario.

use super::canvas::{Anchor, svg};
use super::style::{GREY, INK, LINE, MARGIN, PAPER, RULE, Rgb, TEXT, TITLE, WIDTH, fit, text_width};
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
/// Height of a policy's row in the map of losses, px.
const ROW: f64 = 13.0;
/// Font size of the names of policies and of scenarios (experiments), px.
const SMALL: f64 = 10.0;
/// Width of the column of policies' names, px.
const NAMES: f64 = 176.0;
/// Colour and shape of the ring that marks the best policy that a server can run in a scenario (an experiment).
const BEST: Look = Look { colour: INK, dash: Dash::Solid, marker: Marker::Ring };

/// The loss of each policy in each scenario (experiment) of the arena, in which all policies are compared. A loss
/// compares the policy's mean end-to-end latency with the best oracle's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArenaMap {
    /// The policies, the best first, as (name, is the policy a bound?). A bound is an oracle that no server can run.
    pub policies: Vec<(String, bool)>,
    /// The scenarios (experiments) as (name, name of the group, such as tuning or held-out). Scenarios of one group
    /// follow each other.
    pub scenarios: Vec<(String, String)>,
    /// The loss in % in mean end-to-end latency against the best oracle, by policy and scenario (experiment); `None` if
    /// the policy did not run.
    pub losses: Vec<Vec<Option<f64>>>,
}

/// Draws `arena.svg`, a map of the loss of each policy in each scenario (experiment) of the arena. A loss compares a
/// policy's mean end-to-end latency with the best oracle's. `None` without policies or scenarios.
pub fn arena_figure(map: &ArenaMap, source: &str) -> Option<Figure> {
    if map.policies.is_empty() || map.scenarios.is_empty() {
        return None;
    }
    let widest = map.scenarios.iter().map(|(name, _)| text_width(name, SMALL)).fold(0.0, f64::max);
    let left = MARGIN + NAMES;
    let top = MARGIN + TITLE + 3.0 * LINE + widest + 12.0;
    // Columns are at most 34 px wide. They are wider if the name of a group of scenarios (experiments) needs more
    // space.
    let groups = map.scenarios.chunk_by(|a, b| a.1 == b.1);
    let named = groups.map(|group| (text_width(&group[0].1, TEXT) + 6.0) / group.len() as f64).fold(34.0, f64::max);
    let wide = ((WIDTH - MARGIN - left) / map.scenarios.len() as f64).min(named);
    let height = top + ROW * map.policies.len() as f64 + LINE + MARGIN;
    let title = "Loss in mean end-to-end latency against the best oracle (%)";
    let figure = svg((WIDTH, height), title, source, |c| {
        c.bold(title, (MARGIN, MARGIN + TITLE / 2.0), Anchor::Start, TITLE, INK);
        let mut x = MARGIN;
        let key = MARGIN + TITLE + LINE;
        for (_, label, colour) in CLASSES {
            c.area((x, key - 5.0), (x + 14.0, key + 5.0), colour);
            c.text(label, (x + 19.0, key), Anchor::Start, TEXT, INK);
            x += 19.0 + text_width(label, TEXT) + 16.0;
        }
        c.marker((x + 5.0, key), BEST);
        c.text("best that a server can run", (x + 16.0, key), Anchor::Start, TEXT, INK);
        // Above each group of scenarios (experiments) stands the group's name with a line under it.
        let mut from = 0;
        for group in map.scenarios.chunk_by(|a, b| a.1 == b.1) {
            let to = from + group.len();
            let (start, end) = (left + wide * from as f64, left + wide * to as f64);
            let name = fit(&group[0].1, TEXT, end - start);
            c.text(&name, ((start + end) / 2.0, key + LINE), Anchor::Middle, TEXT, INK);
            c.line(&[(start + 2.0, key + LINE + 9.0), (end - 2.0, key + LINE + 9.0)], RULE, 1.0, Dash::Solid);
            from = to;
        }
        for (j, (name, _)) in map.scenarios.iter().enumerate() {
            let x = left + wide * (j as f64 + 0.5);
            // `upward` centres a name at its point. The point lies half a name's width above the map, so that every
            // name ends at the map.
            c.upward(name, (x, top - 6.0 - text_width(name, SMALL) / 2.0), SMALL, INK);
        }
        for (i, (name, bound)) in map.policies.iter().enumerate() {
            let y = top + ROW * (i as f64 + 0.5);
            let colour = if *bound { GREY } else { INK };
            c.text(&fit(name, SMALL, NAMES - 8.0), (left - 6.0, y), Anchor::End, SMALL, colour);
            for (j, loss) in map.losses[i].iter().enumerate() {
                let Some(loss) = loss else { continue };
                let x = left + wide * j as f64;
                c.area((x, y - ROW / 2.0), (x + wide - 1.0, y + ROW / 2.0 - 1.0), class(*loss));
            }
        }
        for j in 0..map.scenarios.len() {
            let free = map.policies.iter().enumerate().filter(|(_, policy)| !policy.1);
            let best = free.filter_map(|(i, _)| Some((i, map.losses[i][j]?))).min_by(|a, b| a.1.total_cmp(&b.1));
            if let Some((i, _)) = best {
                let at = (left + wide * (j as f64 + 0.5) - 0.5, top + ROW * (i as f64 + 0.5) - 0.5);
                c.marker(at, BEST);
            }
        }
        c.line(&[(left, top - 2.0), (left + wide * map.scenarios.len() as f64, top - 2.0)], PAPER, 1.0, Dash::Solid);
        c.text(source, (MARGIN, height - MARGIN), Anchor::Start, SMALL, GREY);
    });
    Some(Figure::new(Kind::Arena, "arena.svg", figure))
}

fn class(loss: f64) -> Rgb {
    CLASSES.iter().find(|c| loss < c.0).map_or(CLASSES[CLASSES.len() - 1].2, |c| c.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> ArenaMap {
        ArenaMap {
            policies: vec![("a".into(), false), ("oracle".into(), true), ("b".into(), false)],
            scenarios: [("light", "tuning"), ("busy", "tuning"), ("full", "held-out"), ("over", "held-out")]
                .map(|(name, set)| (name.into(), set.into()))
                .to_vec(),
            losses: vec![
                vec![Some(2.0), Some(3.0), Some(40.0), Some(9.0)],
                vec![Some(0.0); 4],
                vec![Some(4.0), Some(7.0), None, Some(20.0)],
            ],
        }
    }

    #[test]
    fn the_figure_names_policies_scenarios_groups_and_the_source() {
        let svg = arena_figure(&map(), "simulated; 5 seeds").unwrap().svg;
        for text in ["a", "b", "oracle", "light", "full", "tuning", "held-out", "simulated; 5 seeds", "30 and more"] {
            assert!(svg.contains(&format!(">{text}<")), "{text}\n{svg}");
        }
        assert_eq!(arena_figure(&ArenaMap::default(), ""), None);
    }

    #[test]
    fn a_loss_has_the_colour_of_its_class() {
        assert_eq!((class(-5.0), class(0.99), class(1.0)), (CLASSES[0].2, CLASSES[0].2, CLASSES[1].2));
        assert_eq!((class(29.9), class(30.0), class(f64::NAN)), (CLASSES[5].2, CLASSES[6].2, CLASSES[6].2));
    }
}
