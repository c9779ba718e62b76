//! `random`: a draft length drawn uniformly from 0 to the longest allowed length. Every useful policy should beat it
//! ("Random all" in the SmartSpec paper's Fig. 14; docs/model.md 7.12).

use crate::definition::{About, BadParameter, Definition, PolicyContext};
use crate::look::{Look, Marker};
use foretoken_sim::{BatchView, DraftLimits, DraftPlan, Luck, SpecPolicy, Speculation, Stream};
use serde::{Deserialize, Serialize};

/// Settings of the policy `random`, which draws the draft length uniformly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Random {
    /// True draws a draft length for each request, false one length for the whole batch.
    pub per_request: bool,
}

impl Definition for Random {
    fn about(&self) -> About {
        About {
            summary: "a length drawn uniformly from 0 to the longest draft, for the batch or for each request",
            source: "SmartSpec (arXiv 2406.14066) Fig. 14, \"Random all\"",
            sees: "nothing",
            differences: "the paper draws the predicted accepted length; here the draft length itself is drawn",
        }
    }

    fn look(&self, usual: Look) -> Look {
        if self.per_request { Look { marker: Marker::Cross, ..usual } } else { usual }
    }

    fn is_blind(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), BadParameter> {
        Ok(())
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(Running {
            per_request: self.per_request,
            longest: context.max_draft_len,
            luck: Luck::new(context.seed, Stream::Policy, 0),
        }))
    }
}

/// The policy `random` while the engine runs. A draw depends only on the seed, the step and (for `per_request`) the
/// request, so there is no state.
struct Running {
    per_request: bool,
    longest: u32,
    luck: Luck,
}

impl Running {
    fn draw(&self, luck: Luck, position: u64) -> u32 {
        (luck.unit(position) * f64::from(self.longest + 1)) as u32
    }
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.longest)
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        if !self.per_request {
            return plan.fill(self.draw(self.luck, batch.step));
        }
        let luck = self.luck.narrow(batch.step);
        for (len, &id) in plan.draft_len.iter_mut().zip(batch.ids) {
            *len = self.draw(luck, u64::from(id));
        }
    }

    fn ids_may_return(&self) -> bool {
        !self.per_request
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Batch, CONTEXT, Run};

    /// The chi-square statistic of the drawn draft lengths against a uniform distribution (8 degrees of freedom) stays
    /// below 26.1, its 99.9 % point.
    #[test]
    fn lengths_are_uniform_and_reproducible() {
        for per_request in [false, true] {
            let mut batch = Batch::new(&[10; 9], &[8; 9]);
            let mut draw = |seed| -> Vec<u32> {
                let mut run = Run::of(&Random { per_request }, &PolicyContext { seed, ..CONTEXT });
                let steps = (0..2000).flat_map(|step| {
                    batch.step = step;
                    run.step(&batch, |_, _| 0.5, &[8; 9]).draft_len
                });
                steps.collect()
            };
            let lens = draw(7);
            assert_eq!(lens, draw(7));
            assert_ne!(lens, draw(8));
            assert_eq!(lens.chunks(9).all(|s| s.iter().all(|&d| d == s[0])), !per_request);
            let sample: Vec<u32> = lens.into_iter().step_by(if per_request { 1 } else { 9 }).collect();
            let expected = sample.len() as f64 / 9.0;
            let chi2: f64 =
                (0..9).map(|k| (sample.iter().filter(|&&d| d == k).count() as f64 - expected).powi(2) / expected).sum();
            assert!(chi2 < 26.1, "{chi2}");
        }
    }
}
