//! Draws ladders. A ladder splits the loss of a policy into rungs (parts). The loss compares the policy's mean
//! end-to-end latency with that of the best oracle, which knows more than a server can. Each rung is a loss that comes
//! from one missing piece of knowledge, such as the true cost or the true acceptance rates. A policy is one bar of
//! stacked rungs, from the oracle (0) outwards; negative rungs are stacked to the left of 0, and a mark is at the sum.

use super::axis::Axis;
use super::canvas::{Anchor, Canvas, svg};
use super::sheet::Sheet;
use super::style::{GREY, GRID, INK, LINE, Point, RULE, Rgb, TEXT, TITLE, fit, text_width};
use super::{Figure, Kind};
use crate::Dash;

/// Colours of a ladder's rungs (the parts of a policy's loss against the best oracle). What a policy could know is in
/// Okabe and Ito's colours, what only a bound knows in greys.
const COLOURS: [Rgb; 7] = [
    (0x00, 0x72, 0xb2),
    (0xc4, 0x71, 0x9f),
    (0x00, 0x9e, 0x73),
    (0xd5, 0x5e, 0x00),
    (0x55, 0x55, 0x55),
    (0x88, 0x88, 0x88),
    (0xb8, 0xb8, 0xb8),
];
/// Height of a policy's bar, px.
const BAR: f64 = 13.0;
/// Largest width of the column of policies' names, px. On a phone the names stand above the bars.
const NAMES: f64 = 300.0;

/// One policy's loss in latency against the best oracle, split into parts by cause. The parts are called rungs.
#[derive(Clone, Debug, PartialEq)]
pub struct LadderBar {
    pub policy: String,
    /// The height of each rung (a part of the policy's loss): the loss in % that disappears with one more piece of
    /// knowledge. `None` if the rung does not apply to the policy.
    pub heights: Vec<Option<f64>>,
}

impl LadderBar {
    /// The rungs of one sign as (number of the rung, start, end) in %, stacked from 0 outwards. The last rung, which is
    /// next to the oracle, is the innermost.
    fn stacked(&self, sign: f64) -> Vec<(usize, f64, f64)> {
        let mut end = 0.0;
        let rungs = self.heights.iter().enumerate().rev();
        let of_sign = rungs.filter_map(|(i, height)| Some((i, (*height)?))).filter(|(_, height)| height * sign > 0.0);
        let place = |(i, height): (usize, f64)| {
            let start = end;
            end += height;
            (i, start, end)
        };
        of_sign.map(place).collect()
    }
}

/// Draws `ladder.svg`, which splits each policy's loss against the best oracle into rungs (parts by cause). `rungs` are
/// the names of the rungs, at most seven. `None` without bars.
pub fn ladder_figure(rungs: &[&str], bars: &[LadderBar], source: &str) -> Option<Figure> {
    Figure::on_both(Kind::Ladder, "ladder.svg", |sheet| draw(rungs, bars, source, sheet))
}

fn draw(rungs: &[&str], bars: &[LadderBar], source: &str, sheet: Sheet) -> Option<String> {
    let stacks: Vec<Vec<(usize, f64, f64)>> =
        bars.iter().map(|bar| [1.0, -1.0].map(|sign| bar.stacked(sign)).concat()).collect();
    let ends = || stacks.iter().flatten().map(|rung| rung.2);
    let most = ends().reduce(f64::max)?;
    let (screen, margin) = (sheet == Sheet::Screen, sheet.margin());
    let axis = Axis::linear(ends().fold(0.0, f64::min), most.max(1.0), if screen { 8 } else { 4 });
    let widest = bars.iter().map(|bar| text_width(&bar.policy, TEXT)).fold(0.0, f64::max).min(NAMES);
    let left = margin + if screen { widest + 10.0 } else { 8.0 };
    let right = sheet.width() - margin - 20.0;
    let x = |loss: f64| left + (right - left) * (loss - axis.start()) / (axis.end() - axis.start());
    let above = if screen { 4.0 } else { LINE };
    let row = above + BAR + 4.0;
    let (key, places) = legend(rungs, (margin, margin + if screen { TITLE + LINE } else { 8.0 }), right);
    let top = key + 0.75 * LINE;
    let bottom = top + row * bars.len() as f64;
    let height = bottom + 1.5 * LINE + if screen { 1.5 * LINE + margin } else { 12.0 };
    let title = "From each policy to the best oracle, rung by rung";
    Some(svg((sheet.width(), height), title, source, |c| {
        if screen {
            c.bold(title, (margin, margin + TITLE / 2.0), Anchor::Start, TITLE, INK);
            c.text(source, (margin, height - margin), Anchor::Start, TEXT - 1.0, GREY);
        }
        for ((name, colour), (at, y)) in rungs.iter().zip(COLOURS).zip(places) {
            c.area((at, y - 5.0), (at + 14.0, y + 5.0), colour);
            c.text(name, (at + 19.0, y), Anchor::Start, TEXT, INK);
        }
        for (value, label) in &axis.ticks {
            c.line(&[(x(*value), top), (x(*value), bottom)], GRID, 1.0, Dash::Solid);
            c.text(label, (x(*value), bottom + 10.0), Anchor::Middle, TEXT, GREY);
        }
        for (i, (bar, stack)) in bars.iter().zip(&stacks).enumerate() {
            let y = top + row * i as f64 + above;
            let (name, at, anchor) = match screen {
                true => (fit(&bar.policy, TEXT, NAMES), (left - 8.0, y + BAR / 2.0), Anchor::End),
                false => (fit(&bar.policy, TEXT, right - left), (left, y - LINE / 2.0), Anchor::Start),
            };
            c.text(&name, at, anchor, TEXT, INK);
            draw_bar(c, stack, (y, &x));
        }
        c.line(&[(x(0.0), top), (x(0.0), bottom)], RULE, 1.2, Dash::Solid);
        let middle = (left + right) / 2.0;
        c.text("loss in mean end-to-end latency (%)", (middle, bottom + 10.0 + LINE), Anchor::Middle, TEXT, INK);
    }))
}

/// Draws the stacked rungs of a policy, and a mark at their sum if some are negative.
fn draw_bar(c: &Canvas, stack: &[(usize, f64, f64)], (y, x): (f64, &dyn Fn(f64) -> f64)) {
    for (i, from, to) in stack.iter().filter(|rung| rung.0 < COLOURS.len()) {
        let (a, b) = (x(from.min(*to)), x(from.max(*to)));
        c.area((a, y), (b, y + BAR), COLOURS[*i]);
    }
    if stack.iter().any(|rung| rung.2 < 0.0) {
        let sum = x(stack.iter().map(|rung| rung.2 - rung.1).sum());
        c.line(&[(sum, y - 2.0), (sum, y + BAR + 2.0)], INK, 2.0, Dash::Solid);
    }
}

/// The height of the legend's last line, and the place of each entry in lines from `start` on that end before `end`.
fn legend(rungs: &[&str], start: Point, end: f64) -> (f64, Vec<Point>) {
    let (mut x, mut y) = start;
    let place = |name: &&str| {
        let width = 19.0 + text_width(name, TEXT);
        if x + width > end {
            (x, y) = (start.0, y + LINE);
        }
        let at = (x, y);
        x += width + 16.0;
        at
    };
    let places: Vec<Point> = rungs.iter().map(place).collect();
    (places.last().map_or(start.1, |at| at.1), places)
}

#[cfg(test)]
mod tests {
    use super::super::tests::texts;
    use super::*;

    #[test]
    fn both_forms_name_policies_rungs_and_the_unit() {
        let bar = LadderBar { policy: "adaspec".into(), heights: vec![Some(3.0), None, Some(-1.0)] };
        let figure = ladder_figure(&["cost", "rates", "rule"], &[bar], "simulated; 3 seeds").unwrap();
        let narrow = figure.narrow.unwrap();
        for text in ["adaspec", "cost", "rates", "rule", "latency (%)"] {
            assert!(figure.svg.contains(text) && narrow.contains(text), "{text}");
        }
        assert!(figure.svg.contains("simulated; 3 seeds"));
        assert!(texts(&narrow).iter().all(|text| text.to.0 <= Sheet::Phone.width()));
        assert_eq!(ladder_figure(&["cost"], &[], ""), None);
    }

    #[test]
    fn rungs_are_stacked_from_the_oracle_outwards() {
        let bar = LadderBar { policy: "p".into(), heights: vec![Some(3.0), None, Some(-1.0), Some(2.0)] };
        assert_eq!(bar.stacked(1.0), [(3, 0.0, 2.0), (0, 2.0, 5.0)]);
        assert_eq!(bar.stacked(-1.0), [(2, 0.0, -1.0)]);
    }
}
