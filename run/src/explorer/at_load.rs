//! Opens the explorer's page at an experiment's own load: with the acceptance of its recorded requests, their context,
//! and the batch size that plain decoding has under it.

use super::acceptance::LONGEST;
use super::{Machine, by_depth};
use crate::cells::play;
use crate::plan::Plan;
use crate::setting::Setting;
use crate::spec::problem::Result;
use foretoken_sim::acceptance::Rates;
use foretoken_sim::{RequestTruth, TruthRow, Workload};
use std::sync::atomic::AtomicBool;

impl Machine {
    /// The machine, with a page that opens at the load of the first combination of swept values and the first seed of
    /// `plan`. Recorded acceptance becomes rates by draft position, which are settings of the page.
    pub fn at_load_of(mut self, plan: &Plan, interrupt: &AtomicBool) -> Result<Machine> {
        let variant = &plan.variants[0];
        let setting = Setting::new(variant, plan.seeds[0])?;
        let source = &variant.experiment.acceptance.source;
        let mut opens = vec![std::mem::take(&mut self.opens)];
        if source.is_recorded() {
            // The table of an observed server has rates for draft tokens that the server did not make, too.
            let hazards = &setting.workload.hazards;
            opens = vec![by_depth(&if hazards.is_empty() { rates(&setting) } else { hazards.clone() })];
            let what = match source {
                Rates::Table(table) => table.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                _ => "the requests' recordings".to_owned(),
            };
            self.note += &format!(" Acceptance by place in the round: as {what} has it.");
        }
        opens.extend(context(&setting.workload).map(|tokens| format!("c={tokens:.0}")));
        // Batches of a fleet depend on its router, so the page opens with its usual batch size.
        if variant.experiment.fleet.is_none() {
            let plain = &plan.policies[plan.baseline].spec;
            let size = play(&setting, plain, Some(setting.slo(None)), interrupt)?.stored.summary.mean_batch_size;
            opens.push(format!("n={:.0}", size.max(1.0)));
            self.note += " Batch size and context are plain decoding's under the experiment's load.";
        }
        self.opens = opens.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("&");
        Ok(self)
    }
}

/// A rate needs at least this number of rounds that reached its draft token: the rate of fewer is noise. Deeper places
/// have the last rate.
const FEWEST: u64 = 100;

/// The probability that the i-th draft token of a round is right if all before it are, counted in rounds of the longest
/// draft over all requests.
fn rates(setting: &Setting) -> Vec<f64> {
    let mut counts = [(0u64, 0u64); LONGEST];
    let mut row = TruthRow::default();
    for id in 0..setting.workload.len() as u32 {
        let request = RequestTruth::of(&setting.workload, id);
        setting.acceptance().start(request, LONGEST as u32, &mut row);
        // The step that ends the prompt emits output token 0.
        let mut position = 1;
        while position < request.output_len {
            let right = row.run(position, LONGEST as u32);
            for (depth, (reached, accepted)) in counts.iter_mut().enumerate().take(right as usize + 1) {
                *reached += 1;
                *accepted += u64::from((depth as u32) < right);
            }
            position += right + 1;
        }
    }
    let enough = counts.iter().take_while(|(reached, _)| *reached >= FEWEST);
    enough.map(|(reached, accepted)| *accepted as f64 / *reached as f64).collect()
}

/// The mean number of tokens in KV of a decoding request, each request weighted by its output; `None` without requests.
fn context(workload: &Workload) -> Option<f64> {
    let outputs: f64 = workload.output_len.iter().map(|&out| f64::from(out)).sum();
    let lengths = workload.prompt_len.iter().zip(&workload.output_len);
    let sum: f64 = lengths.map(|(&prompt, &out)| f64::from(out) * (f64::from(prompt) + 0.5 * f64::from(out))).sum();
    (outputs > 0.0).then_some(sum / outputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_is_that_of_an_average_token() {
        let mut workload = Workload::default();
        assert_eq!(context(&workload), None);
        for (prompt, output) in [(100, 50), (1000, 150)] {
            workload.push(foretoken_sim::Request::new(foretoken_sim::Time::ZERO, prompt, output));
        }
        assert_eq!(context(&workload), Some((50.0 * 125.0 + 150.0 * 1075.0) / 200.0));
    }
}
