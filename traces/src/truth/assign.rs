//! Assigns the recordings of a truth table (which draft tokens were right on a target model's outputs) to the requests
//! of a workload that has its own lengths and categories.

use super::TruthTable;
use crate::error::TraceError;
use foretoken_sim::acceptance::Beyond;
use foretoken_sim::{Luck, Stream, Workload};
use std::path::Path;

impl TruthTable {
    /// Gives every request of `workload` a recording (which draft tokens were right on one recorded output), drawn at
    /// random from `seed`. The recording is drawn from the family whose name is the request's category, or from all
    /// families if no family has this name. `beyond` says what happens if a request is longer than its recording: an
    /// error, or the recording begins again. A note then gives the number of longer requests. `path` is the table's
    /// path, for messages.
    ///
    /// # Errors
    /// A request already replays a recording. A request is longer than its recording, and `beyond` is `Refuse` or the
    /// recording has only one token.
    pub fn assign(
        &self,
        path: &Path,
        workload: &mut Workload,
        beyond: Beyond,
        seed: u64,
    ) -> Result<Vec<String>, TraceError> {
        if !workload.recording.is_empty() {
            let what = "would replace the recordings that the requests of this workload bring";
            return Err(TraceError::file(path, what, "write source = { recorded = {} } to replay those"));
        }
        let every_output: Vec<u32> = (0..self.outputs.len() as u32).collect();
        let of_family = |name: &String| {
            let family = self.header.families.iter().position(|f| f == name);
            let is_of_family = |&i: &u32| Some(usize::from(self.outputs[i as usize].family)) == family;
            every_output.iter().copied().filter(is_of_family).collect::<Vec<u32>>()
        };
        let by_category: Vec<Vec<u32>> = workload.categories.iter().map(of_family).collect();
        let draw = |id: usize| {
            let own = by_category.get(usize::from(workload.category[id])).filter(|own| !own.is_empty());
            let from = own.unwrap_or(&every_output);
            let u = Luck::new(seed, Stream::Request, id as u64).unit(0);
            from[(u * from.len() as f64) as usize]
        };
        let recordings: Vec<u32> = (0..workload.len()).map(draw).collect();
        let reach = |id: usize| self.outputs[recordings[id] as usize].ranks.len() as u32;
        let longer: Vec<usize> = (0..workload.len()).filter(|&id| workload.output_len[id] > reach(id)).collect();
        // A recording of one output token has no position at which a token was drafted, so it cannot be repeated for a
        // longer request.
        let stuck = longer.iter().copied().find(|&id| beyond == Beyond::Refuse || reach(id) < 2);
        if let Some(id) = stuck {
            let (output, has) = (workload.output_len[id], reach(id));
            let what = format!("request {id} emits {output} tokens, its recording has {has}");
            let hint = match beyond {
                Beyond::Refuse => {
                    "record with a longer --output-len, or write beyond = \"wrap\" to begin again at its end"
                }
                Beyond::Wrap => "record with an --output-len of at least 2",
            };
            return Err(TraceError::file(path, what, hint));
        }
        let mut notes = Vec::new();
        if !longer.is_empty() {
            let (n, of) = (longer.len(), workload.len());
            let name = path.display();
            notes.push(format!("{name}: {n} of {of} requests are longer than their recording, which begins again"));
        }
        workload.recordings = self.recordings();
        workload.hazards = self.hazards();
        workload.recording = recordings;
        Ok(notes)
    }
}
