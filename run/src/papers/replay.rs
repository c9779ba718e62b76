//! Compares the number of accepted draft tokens that the draft model's confidences predict with the actual number, for
//! a fixed draft length, summed over all requests. No engine runs, because the prediction does not depend on time
//! (AdaSpec, section 4.2 and Fig. 8).

use super::results::Measured;
use crate::plan::{Plan, variants};
use crate::setting::Setting;
use crate::spec::paper::{Estimate, Keep};
use crate::spec::problem::Result;
use foretoken_sim::{RequestTruth, TruthRow};

/// Number of accepted draft tokens that the draft model's confidences predict / actual number − 1, over all requests,
/// with the first seed. Returns the range of this number over the variants that have the swept values in `what.at`.
pub fn estimate(what: &Estimate, plan: &Plan) -> Result<Measured> {
    let each = variants(plan, &what.at).map(|v| {
        let setting = Setting::new(&plan.variants[v], plan.seeds[0])?;
        Ok(ratio(&setting, what.length) - 1.0)
    });
    Ok(Measured::of(each.collect::<Result<_>>()?, Keep::Range))
}

fn ratio(setting: &Setting, length: u32) -> f64 {
    let (mut estimated, mut actual) = (0.0, 0.0);
    let mut row = TruthRow::default();
    for id in 0..setting.workload.len() as u32 {
        let request = setting.workload.get(id);
        let (output_len, category) = (request.output_len, request.category);
        let truth =
            RequestTruth { id, prompt_len: request.prompt_len, output_len, category, recording: request.recording };
        setting.acceptance().start(truth, length, &mut row);
        // The prefill gives output token 0, so the first draft token is for output position 1.
        let mut at = 1;
        while at < output_len {
            let run = row.run(at, length);
            let mut cumulative = 1.0;
            for depth in 0..length {
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
