//! Draws ladders. A ladder splits the loss of a policy into rungs (parts). The loss compares the policy's mean
//! end-to-end latency with that of the best oracle, which knows more than a server can. Each rung is a loss that comes
//! from one missing piece of knowledge, such as the true cost or the true acceptance rates. A rung is drawn as a bar
//! from the loss without this knowledge to the loss with it. The first bar starts at the policy's loss (right), the
//! last bar ends at 0, the best oracle's loss (left). A negative rung leads back to the right.

use super::axis::Axis;
use super::canvas::{Anchor, svg};
use super::style::{GREY, GRID, INK, LINE, MARGIN, RULE, Rgb, TEXT, TITLE, WIDTH, fit, text_width};
use super::{Figure, Kind};
use crate::Dash;

/// Colours of a ladder's rungs (the parts of a policy's loss against the best oracle): Okabe and Ito's.
const COLOURS: [Rgb; 7] = [
    (0x00, 0x72, 0xb2),
    (0x34, 0x96, 0xcd),
    (0x00, 0x9e, 0x73),
    (0xc4, 0x85, 0x00),
    (0xd5, 0x5e, 0x00),
    (0xc4, 0x71, 0x9f),
    (0x66, 0x66, 0x66),
];
/// Height of the bar of a rung (a part of a policy's loss against the best oracle), px.
const BAR: f64 = 5.0;
/// Width of the column of policies' names, px.
const NAMES: f64 = 200.0;

/// One policy's loss in latency against the best oracle, split into parts by cause. The parts are called rungs.
#[derive(Clone, Debug, PartialEq)]
pub struct LadderBar {
    /// The policy's label.
    pub policy: String,
    /// The height of each rung (a part of the policy's loss): the loss in % that disappears with one more piece of
    /// knowledge. `None` if the rung does not apply to the policy.
    pub heights: Vec<Option<f64>>,
}

/// Draws `ladder.svg`, which splits each policy's loss against the best oracle into rungs (parts by cause). `rungs` are
/// the names of the rungs, at most seven. `None` without bars.
pub fn ladder_figure(rungs: &[&str], bars: &[LadderBar], source: &str) -> Option<Figure> {
    let starts = |bar: &LadderBar| -> Vec<f64> {
        // The loss that is left before each rung (part of the policy's loss), in %. The last entry is the loss after
        // the last rung, 0.
        let mut left: f64 = bar.heights.iter().flatten().sum();
        let mut all = vec![left];
        for height in &bar.heights {
            left -= height.unwrap_or(0.0);
            all.push(left);
        }
        all
    };
    let all = || bars.iter().flat_map(starts);
    let (low, high) = (all().reduce(f64::min)?, all().reduce(f64::max)?);
    let axis = Axis::linear(low.min(0.0), high.max(1.0), 8);
    let (left, right) = (MARGIN + NAMES, WIDTH - MARGIN - 20.0);
    let x = |loss: f64| left + (right - left) * (loss - axis.start()) / (axis.end() - axis.start());
    let row = BAR * rungs.len() as f64 + 9.0;
    let top = MARGIN + TITLE + 2.5 * LINE;
    let bottom = top + row * bars.len() as f64;
    let height = bottom + 3.0 * LINE + MARGIN;
    let title = "From each policy to the best oracle, rung by rung";
    let figure = svg((WIDTH, height), title, source, |c| {
        c.bold(title, (MARGIN, MARGIN + TITLE / 2.0), Anchor::Start, TITLE, INK);
        let (mut at, key) = (MARGIN, MARGIN + TITLE + LINE);
        for (name, colour) in rungs.iter().zip(COLOURS) {
            c.area((at, key - 5.0), (at + 14.0, key + 5.0), colour);
            c.text(name, (at + 19.0, key), Anchor::Start, TEXT, INK);
            at += 19.0 + text_width(name, TEXT) + 16.0;
        }
        for (value, label) in &axis.ticks {
            c.line(&[(x(*value), top), (x(*value), bottom)], GRID, 1.0, Dash::Solid);
            c.text(label, (x(*value), bottom + 10.0), Anchor::Middle, TEXT, GREY);
        }
        c.line(&[(x(0.0), top), (x(0.0), bottom)], RULE, 1.2, Dash::Solid);
        for (i, bar) in bars.iter().enumerate() {
            let from = top + row * i as f64;
            let name = fit(&bar.policy, TEXT, NAMES - 10.0);
            c.text(&name, (left - 8.0, from + row / 2.0), Anchor::End, TEXT, INK);
            let losses = starts(bar);
            for (j, height) in bar.heights.iter().enumerate().take(COLOURS.len()) {
                let y = from + 4.0 + BAR * j as f64;
                if height.is_some() {
                    let (a, b) = (x(losses[j]), x(losses[j + 1]));
                    c.area((a.min(b), y), (a.max(b).max(a.min(b) + 1.0), y + BAR - 1.0), COLOURS[j]);
                }
            }
        }
        let middle = (left + right) / 2.0;
        c.text("loss in mean end-to-end latency (%)", (middle, bottom + 10.0 + LINE), Anchor::Middle, TEXT, INK);
        c.text(source, (MARGIN, height - MARGIN), Anchor::Start, TEXT - 1.0, GREY);
    });
    Some(Figure::new(Kind::Ladder, "ladder.svg", figure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figure_names_policies_rungs_the_unit_and_the_source() {
        let bar = LadderBar { policy: "adaspec".into(), heights: vec![Some(3.0), None, Some(-1.0)] };
        let figure = ladder_figure(&["cost", "rates", "rule"], &[bar], "simulated; 3 seeds").unwrap();
        for text in ["adaspec", "cost", "rates", "rule", "latency (%)", "simulated; 3 seeds"] {
            assert!(figure.svg.contains(text), "{text}");
        }
        assert_eq!(ladder_figure(&["cost"], &[], ""), None);
    }
}
