//! Estimated and actual accepted tokens of a fixed draft length, request by request without an engine: how good a
//! confidence-based estimate is has nothing to do with time (AdaSpec, section 4.2 and Fig. 8).

use super::measure::{At, Keep, Measured, variants};
use crate::plan::Plan;
use crate::problem::Result;
use crate::setting::Setting;
use foretoken_sim::{RequestTruth, TruthRow};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Rounds of `length` drafts over every output: the sum of cumulative confidences over the drafts accepted, less 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Estimate {
    /// Draft tokens a round.
    pub length: u32,
    /// Which variants.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: At,
}

impl Estimate {
    /// Measures it on the first seed.
    ///
    /// # Errors
    /// When the workload cannot be built again.
    pub fn of(&self, plan: &Plan) -> Result<Measured> {
        let each = variants(plan, &self.at).map(|v| {
            let setting = Setting::new(&plan.variants[v], plan.seeds[0])?;
            Ok(self.ratio(&setting) - 1.0)
        });
        Ok(Measured::of(each.collect::<Result<_>>()?, Keep::Range))
    }

    fn ratio(&self, setting: &Setting) -> f64 {
        let (mut estimated, mut actual) = (0.0, 0.0);
        let mut row = TruthRow::default();
        for id in 0..setting.workload.len() as u32 {
            let request = setting.workload.get(id);
            let (output_len, category) = (request.output_len, request.category);
            let truth = RequestTruth { id, output_len, category, recording: request.recording };
            setting.acceptance().start(truth, self.length, &mut row);
            // The prefill emits the first token, so drafting starts at position 1.
            let mut at = 1;
            while at < output_len {
                let run = row.run(at, self.length);
                let mut cumulative = 1.0;
                for depth in 0..self.length {
                    let right = (depth <= run).then_some(depth < run);
                    cumulative *= f64::from(setting.acceptance().confidence(truth, at, depth, right, 0));
                    estimated += cumulative;
                }
                actual += f64::from(run);
                at += run + 1;
            }
        }
        estimated / actual
    }
}
