//! Random draws for one generated document, one after another.

use foretoken_sim::Luck;

/// A sequence of keyed random draws for one generated document, and the position of the last draw.
pub(super) struct Dice {
    luck: Luck,
    position: u64,
}

impl Dice {
    pub(super) fn new(luck: Luck) -> Dice {
        Dice { luck, position: 0 }
    }

    /// Draws a number below `n`; all are equally likely.
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.position += 1;
        (self.luck.unit(self.position - 1) * n as f64) as usize
    }

    /// Draws a number from `least` to `most`, both included; all are equally likely.
    pub(super) fn within(&mut self, least: usize, most: usize) -> usize {
        least + self.below(most - least + 1)
    }

    /// Draws true with a probability of `percent` %.
    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Draws one element of `all`; all are equally likely.
    pub(super) fn pick<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }

    /// Draws `n` different numbers below `all`, in random order.
    pub(super) fn distinct(&mut self, n: usize, all: usize) -> Vec<usize> {
        let mut chosen = Vec::with_capacity(n);
        while chosen.len() < n.min(all) {
            let one = self.below(all);
            if !chosen.contains(&one) {
                chosen.push(one);
            }
        }
        chosen
    }
}
