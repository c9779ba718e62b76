//! `counterfactual`: recordings that say, for each output position, how many draft tokens of a round that starts there
//! either of two drafters would have had accepted: a draft model, and a lookup of earlier text. A rule says which of
//! the two drafts a round.

use super::TruthRow;
use super::fault::{BadAcceptance, bad};
use super::source::Bits;
use crate::config::MAX_SPEC_LEN;
use crate::executor::RequestTruth;
use crate::luck::{Luck, Stream};
use crate::workload::{Recording, Workload};
use serde::{Deserialize, Serialize};

/// Two recorded drafters on the same text, and which of them drafts a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Counterfactual {
    /// Which of the two drafters drafts a round.
    pub drafter: Drafts,
    /// Probability, [0, 1], that the lookup finds a match where none of its tokens would be accepted. Recordings do not
    /// say this.
    #[serde(default)]
    pub false_match: f64,
    /// Most tokens that the model drafts in a round if the lookup may draft others, 1 to 32.
    #[serde(default = "most")]
    pub model_len: u32,
}

fn most() -> u32 {
    MAX_SPEC_LEN
}

/// Which of two recorded drafters drafts a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Drafts {
    /// The draft model drafts all rounds.
    Model,
    /// The lookup drafts where it finds a match; else nothing is drafted.
    Lookup,
    /// The lookup drafts where it finds a match, else the model.
    LookupBesideModel,
    /// The lookup drafts where it finds a match and what it proposed some tokens ago was right since then, else the
    /// model. A server knows this from the text.
    CopiedRun {
        /// Number of tokens, at least 1, for which the lookup's proposal was right.
        tokens: u32,
    },
    /// The drafter that would have more tokens accepted, the lookup if both have equally many. A bound: no server knows
    /// this.
    Longer,
}

impl Counterfactual {
    pub(super) fn check(&self) -> Result<(), BadAcceptance> {
        let key = "source.counterfactual";
        if !(0.0..=1.0).contains(&self.false_match) {
            return bad(&format!("{key}.false_match"), format!("{} is not a probability", self.false_match));
        }
        if self.drafter == (Drafts::CopiedRun { tokens: 0 }) {
            return bad(&format!("{key}.drafter.copied-run.tokens"), "must be at least 1");
        }
        match (1..=MAX_SPEC_LEN).contains(&self.model_len) {
            true => Ok(()),
            false => bad(&format!("{key}.model_len"), format!("{} is not from 1 to {MAX_SPEC_LEN}", self.model_len)),
        }
    }

    /// The source for a workload whose requests all have such recordings.
    ///
    /// # Errors
    /// A request has no recording of two drafters.
    pub(super) fn build(&self, seed: u64, workload: &Workload) -> Result<TwoDrafters, BadAcceptance> {
        let of = |i: usize| workload.recordings.get(*workload.recording.get(i)? as usize);
        if let Some(i) = (0..workload.len()).find(|&i| of(i).is_none_or(|r| r.reach[0].is_empty())) {
            let why = format!(
                "request {i} has no recording of two drafters: take the lengths from a file of SpecDecode-Bench (format \
                 specdecode-bench), or choose another source"
            );
            return bad("source.counterfactual", why);
        }
        let share = |r: &Recording| {
            let right = r.reach.iter().flatten().filter(|&&reach| reach > 0).count();
            (right as f64 + 1.0) / (r.reach.iter().map(Vec::len).sum::<usize>() as f64 + 2.0)
        };
        let rates = workload.recordings.iter().map(share).collect();
        Ok(TwoDrafters { spec: self.clone(), recordings: workload.recordings.clone(), rates, seed })
    }
}

pub(super) struct TwoDrafters {
    spec: Counterfactual,
    recordings: Vec<Recording>,
    /// For each recording, the share of rounds whose first draft token would be accepted. Confidences are drawn for it.
    rates: Vec<f64>,
    seed: u64,
}

impl TwoDrafters {
    fn recording_of(&self, request: RequestTruth) -> (usize, &Recording) {
        let at = request.recording.expect("building the source checked that every request has one") as usize;
        (at, &self.recordings[at])
    }
}

impl Bits for TwoDrafters {
    fn fill(&self, request: RequestTruth, positions: usize, out: &mut TruthRow) {
        let [model, lookup] = &self.recording_of(request).1.reach;
        let at = |reach: &[u8], n: usize| u32::from(reach.get(n).copied().unwrap_or(0));
        let strays = Luck::new(self.seed, Stream::Lookup, request.id.into());
        let matched = |n: usize| at(lookup, n) > 0 || strays.unit(n as u64) < self.spec.false_match;
        let by_lookup = |n: usize| match self.spec.drafter {
            Drafts::Model => false,
            Drafts::Lookup | Drafts::LookupBesideModel => matched(n),
            Drafts::CopiedRun { tokens } => {
                matched(n) && n.checked_sub(tokens as usize).is_some_and(|before| at(lookup, before) >= tokens)
            }
            Drafts::Longer => at(lookup, n) >= at(model, n),
        };
        let depths = positions.saturating_sub(request.output_len as usize).max(1);
        let mut matches = vec![0u64; positions / 64 + 1];
        out.reset(positions, depths);
        for n in 1..positions {
            let reach = match (by_lookup(n), self.spec.drafter) {
                (true, _) => {
                    matches[n / 64] |= 1 << (n % 64);
                    at(lookup, n)
                }
                (false, Drafts::Lookup) => 0,
                (false, Drafts::Model) => at(model, n),
                (false, _) => at(model, n).min(self.spec.model_len),
            };
            for depth in 0..(reach as usize).min(depths).min(positions - n) {
                out.set(depth, n + depth);
            }
        }
        if self.spec.drafter != Drafts::Model {
            out.match_where(|w, _| matches.get(w).copied().unwrap_or(0));
        }
    }

    fn rate(&self, request: RequestTruth, _: u32, _: u32) -> f64 {
        self.rates[self.recording_of(request).0]
    }

    fn has_law(&self) -> bool {
        false
    }

    fn may_lack_proposals(&self) -> bool {
        self.spec.drafter != Drafts::Model
    }

    fn drafts_without_match(&self) -> u32 {
        match self.spec.drafter {
            Drafts::Model | Drafts::Lookup => 0,
            _ => self.spec.model_len,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acceptance::{AcceptanceSpec, Rates};
    use crate::time::Time;
    use crate::workload::Request;

    /// One request of 12 tokens. From output position n on, the model would have 2 tokens accepted at even n and none
    /// at odd n; the lookup copies positions 4 to 9.
    fn workload() -> Workload {
        let model = (0..12).map(|n| if n % 2 == 0 { 2 } else { 0 }).collect();
        let lookup = vec![0, 0, 0, 0, 6, 5, 4, 3, 2, 1, 0, 0];
        let recording = Recording { bits: vec![None; 12], reach: [model, lookup], ..Recording::default() };
        let request = Request { recording: Some(0), ..Request::new(Time::ZERO, 5, 12) };
        let mut workload: Workload = [request].into_iter().collect();
        workload.recordings.push(recording);
        workload
    }

    fn runs(drafter: Drafts, model_len: u32) -> Vec<(bool, u32)> {
        let spec = Counterfactual { drafter, false_match: 0.0, model_len };
        let source = AcceptanceSpec { source: Rates::Counterfactual(spec), ..AcceptanceSpec::default() };
        let workload = workload();
        let built = source.build(3, &workload).unwrap();
        let mut row = TruthRow::default();
        built.start(RequestTruth::of(&workload, 0), 8, &mut row);
        (1..12).map(|n| (row.matched(n), row.run(n, 8))).collect()
    }

    #[test]
    fn each_rule_takes_the_drafter_that_it_names() {
        let lengths = |drafter| runs(drafter, 32).into_iter().map(|(_, run)| run).collect::<Vec<_>>();
        assert_eq!(lengths(Drafts::Model), [0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0]);
        assert_eq!(lengths(Drafts::Lookup), [0, 0, 0, 6, 5, 4, 3, 2, 1, 0, 0]);
        assert_eq!(lengths(Drafts::LookupBesideModel), [0, 2, 0, 6, 5, 4, 3, 2, 1, 2, 0]);
        // The proposal of two tokens ago was right twice only from position 6 on.
        assert_eq!(lengths(Drafts::CopiedRun { tokens: 2 }), [0, 2, 0, 2, 0, 4, 3, 2, 1, 2, 0]);
        assert_eq!(lengths(Drafts::Longer), [0, 2, 0, 6, 5, 4, 3, 2, 1, 2, 0]);
        let short = runs(Drafts::LookupBesideModel, 1);
        assert_eq!((short[1], short[3]), ((false, 1), (true, 6)));
        assert!(runs(Drafts::Model, 1).iter().all(|&(matched, _)| matched));
    }

    #[test]
    fn bad_settings_and_recordings_are_named() {
        let good = Counterfactual { drafter: Drafts::Longer, false_match: 0.0, model_len: 8 };
        assert_eq!(good.check(), Ok(()));
        for (bad, key) in [
            (Counterfactual { false_match: 1.5, ..good.clone() }, "false_match"),
            (Counterfactual { model_len: 0, ..good.clone() }, "model_len"),
            (Counterfactual { drafter: Drafts::CopiedRun { tokens: 0 }, ..good.clone() }, "drafter.copied-run.tokens"),
        ] {
            assert_eq!(bad.check().map_err(|e| e.key), Err(format!("source.counterfactual.{key}")));
        }
        let plain: Workload = [Request::new(Time::ZERO, 5, 12)].into_iter().collect();
        let why = good.build(3, &plain).err().unwrap().why;
        assert!(why.starts_with("request 0 has no recording of two drafters"), "{why}");
    }
}
