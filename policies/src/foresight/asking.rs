//! When the policy `foresight` decides between draft passes and before verification. Each decision costs a round trip
//! between GPU and host. In return, drafting ends where confidence is low, and bad tokens are not verified. The policy
//! measures while serving what each way of deciding earns.

/// When a step decides. Each decision costs a round trip to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// After every draft pass whether to draft on, and then which tokens are verified.
    Always,
    /// After the draft pass that was planned as the last one and after every later pass, and then which tokens are
    /// verified.
    AtPlannedEnd,
    /// Which of the planned tokens are verified.
    Selects,
    /// Nothing: the planned tokens are drafted and verified.
    Never,
}

/// All ways, in the order of [`Asking`]'s numbers.
pub(crate) const WAYS: [Asks; 4] = [Asks::Always, Asks::AtPlannedEnd, Asks::Selects, Asks::Never];

/// A probe is a step that drafts as many tokens as possible, to compute on its confidences what each way would have
/// earned. The first probe is after `FIRST` steps with drafts; the distance doubles up to `INTERVAL`.
const FIRST: u32 = 2;
/// The largest number of steps with drafts between two probes.
pub(crate) const INTERVAL: u32 = 128;
/// Weight of the newest probe in the mean of what a way earns; 1/n for the n-th probe while that is more.
const WEIGHT: f64 = 0.1;

/// What each way of [`WAYS`] earns, from probes. All ways are measured on the same confidences, so that differences
/// between them have little noise.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    /// For each way: the mean over probes of what it earns more than the mean of all ways, in tokens a request.
    earns: [f64; WAYS.len()],
    probes: u32,
    /// Steps since the last probe.
    since: u32,
    distance: u32,
}

impl Asking {
    /// Whether this step, which drafts, is a probe.
    pub fn probes_now(&mut self) -> bool {
        self.since += 1;
        let due = self.since >= self.distance.max(FIRST);
        if due {
            (self.since, self.distance) = (0, (2 * self.distance.max(FIRST)).min(INTERVAL));
        }
        due
    }

    /// Learns from a probe of `n` requests what each way would have earned: tokens minus the price of their time.
    /// Ways that the policy cannot take are −∞.
    pub fn learn(&mut self, earned: [f64; WAYS.len()], n: usize) {
        let open = || earned.iter().filter(|e| e.is_finite());
        let mean = open().sum::<f64>() / open().count().max(1) as f64;
        self.probes = self.probes.saturating_add(1);
        let weight = WEIGHT.max(1.0 / f64::from(self.probes));
        for (known, now) in self.earns.iter_mut().zip(earned) {
            let now = if now.is_finite() { (now - mean) / n.max(1) as f64 } else { 0.0 };
            *known += weight * (now - *known);
        }
    }

    /// The way that earns most, of those in `open`; the first of them before the first probe.
    pub fn best(&self, open: [bool; WAYS.len()]) -> Asks {
        let better = |best: Option<usize>, way: usize| match best {
            _ if !open[way] => best,
            Some(other) if self.earns[other] >= self.earns[way] => best,
            _ => Some(way),
        };
        WAYS[(0..WAYS.len()).fold(None, better).unwrap_or(WAYS.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_that_earns_most_is_taken() {
        for best in 0..WAYS.len() {
            let mut asking = Asking::default();
            assert_eq!(asking.best([true; 4]), Asks::Always, "nothing is known");
            for probe in 0..20 {
                let mut earned = [f64::from(probe); 4];
                earned[best] += 0.1;
                asking.learn(earned, 4);
            }
            assert_eq!(asking.best([true; 4]), WAYS[best]);
        }
    }

    #[test]
    fn a_way_that_cannot_be_taken_is_not() {
        let mut asking = Asking::default();
        asking.learn([f64::NEG_INFINITY, f64::NEG_INFINITY, 1.0, 2.0], 1);
        assert_eq!(asking.best([false, false, true, true]), Asks::Never);
        assert_eq!(asking.best([false, false, true, false]), Asks::Selects);
    }

    #[test]
    fn probes_become_rare() {
        let mut asking = Asking::default();
        let probes = |asking: &mut Asking, steps: u32| (0..steps).filter(|_| asking.probes_now()).count();
        assert_eq!(probes(&mut asking, 64), 5, "after 2, 6, 14, 30 and 62 steps");
        probes(&mut asking, 1000);
        assert_eq!(probes(&mut asking, 10 * INTERVAL), 10);
    }
}
