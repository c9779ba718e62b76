//! Acceptance by the mean number of tokens that a round emits, given for each draft length K: `mean-length` and
//! `forced`. Published lengths come from one server a length, so each K is a run of its own, and no single curve of
//! survival holds them all. A run takes the number of its own K: the most tokens that its policy drafts in a round. A
//! policy that drafts less in some rounds takes a prefix of these drafts (docs/model.md 13).

use super::by_depth::ByDepth;
use super::confidence::{Confidence, ConfidenceModel, Misfit};
use super::fault::{BadAcceptance, bad};
use super::law::constant_rate;
use super::log_odds::logit;
use super::source::{Bits, Common};
use super::{AcceptanceSource, Law, RankLaw, TruthRow};
use crate::executor::RequestTruth;
use crate::luck::{Luck, Stream};
use serde::{Deserialize, Serialize};

/// Mean numbers of tokens that a round emits, by draft length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lengths {
    /// `[K, tokens]`: draft length K from 1, rising, and the mean number of tokens that a round with K draft tokens
    /// emits, the target's own token counted: from 1 to K + 1. A run whose K is between two given lengths takes the
    /// first drafts of the longer one. Drafts beyond the longest given length are never right.
    #[serde(default)]
    pub lengths: Vec<(u32, f64)>,
    /// Name of the published curve from which the lengths are taken, in place of `lengths`, as `foretoken acceptance
    /// list` prints it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub golden: Option<String>,
}

/// How the drafts that are right spread over rounds, given their mean number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Each draft is right by chance, less often the deeper it is, as in a real run.
    Drawn,
    /// vLLM's and SGLang's rule for benchmarks: of a mean of L tokens, the first ⌊L − 1⌋ drafts are always right, the
    /// next one with the remaining fraction, and no other.
    Forced,
}

impl Lengths {
    pub(super) fn check(&self, key: &str) -> Result<(), BadAcceptance> {
        if self.lengths.is_empty() {
            return match &self.golden {
                Some(name) => bad(&format!("{key}.golden"), format!("the lengths of {name} are not filled in")),
                None => bad(&format!("{key}.lengths"), "needs at least one [K, tokens], or `golden` and a name"),
            };
        }
        let key = format!("{key}.lengths");
        if let Some(w) = self.lengths.windows(2).find(|w| w[0].0 >= w[1].0) {
            return bad(&key, format!("K = {} comes behind K = {}: K must rise", w[1].0, w[0].0));
        }
        for &(k, tokens) in &self.lengths {
            if k == 0 {
                return bad(&key, "K = 0: a draft length is at least 1");
            }
            if !(1.0..=f64::from(k + 1)).contains(&tokens) {
                let range = format!("a round with {k} draft tokens emits from 1 to {} tokens", k + 1);
                return bad(&key, format!("{tokens} tokens at K = {k}: {range}, the target's own counted"));
            }
        }
        Ok(())
    }

    /// The longest draft length with a number.
    pub fn longest(&self) -> u32 {
        self.lengths.last().map_or(0, |&(k, _)| k)
    }

    /// The mean number of tokens that a round of a run with draft length `k` emits. `None` if no number says it: `k` is
    /// between two given lengths or below the first.
    pub fn at(&self, k: u32) -> Option<f64> {
        let k = k.min(self.longest());
        self.lengths.iter().find(|&&(given, _)| given == k).map(|&(_, tokens)| tokens)
    }

    /// For a run whose policy drafts at most `k` tokens: the probability that each draft of a round is right if all
    /// before it are. The last one, 0, holds for all deeper drafts.
    fn rates(&self, k: u32, rule: Rule) -> Vec<f64> {
        let given = self.lengths.iter().position(|&(given, _)| given >= k).unwrap_or(self.lengths.len() - 1);
        let (k, tokens) = self.lengths[given];
        let accepted = tokens - 1.0;
        let mut rates = match rule {
            Rule::Forced => (0..k).map(|depth| (accepted - f64::from(depth)).clamp(0.0, 1.0)).collect(),
            Rule::Drawn if given as u32 + 1 == k => conditional(&self.reached(given, accepted)),
            Rule::Drawn => vec![constant_rate(k, |depth| (accepted - f64::from(depth)).clamp(0.0, 1.0)); k as usize],
        };
        rates.push(0.0);
        rates
    }

    /// The shares of rounds in which the first, second, … draft is right, in a run with the draft length of entry
    /// number `given`, if all shorter lengths are given. Their sum is `accepted`.
    ///
    /// From one length to the next, the mean grows by the share of rounds that accept the added draft. Measured lengths
    /// are not that smooth. A share that is larger than the one before is averaged with it, which keeps the sum. Where
    /// the lengths fall, the longer run drafts worse at every depth: shares below 0 become 0, and all are scaled to the
    /// sum.
    fn reached(&self, given: usize, accepted: f64) -> Vec<f64> {
        let before = std::iter::once(1.0).chain(self.lengths.iter().map(|&(_, tokens)| tokens));
        let grows = self.lengths[..=given].iter().zip(before).map(|(&(_, tokens), before)| tokens - before);
        let mut blocks: Vec<(f64, usize)> = Vec::new();
        for grown in grows {
            blocks.push((grown, 1));
            while let [.., (a, n), (b, m)] = blocks[..]
                && b * n as f64 > a * m as f64
            {
                blocks.truncate(blocks.len() - 2);
                blocks.push((a + b, n + m));
            }
        }
        let mut shares: Vec<f64> =
            blocks.iter().flat_map(|&(sum, n)| std::iter::repeat_n((sum / n as f64).max(0.0), n)).collect();
        let sum: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share *= if sum > 0.0 { accepted / sum } else { 0.0 });
        shares
    }

    /// Builds a source for each draft length. `common` gives what all sources share, with confidences by the settings
    /// that it gets.
    pub(super) fn build(
        &self,
        rule: Rule,
        confidence: &Confidence,
        seed: u64,
        common: impl Fn(&Confidence) -> Common,
    ) -> ByRun {
        let of = |k| -> Box<dyn AcceptanceSource> {
            let by_depth = ByDepth { rates: self.rates(k, rule), seed };
            if rule == Rule::Drawn {
                return common(confidence).with(by_depth);
            }
            let rate = constant_rate(k, |depth| by_depth.rates[(depth as usize).min(k as usize)]);
            // The law of forced acceptance takes no evidence from confidences.
            let blind = Confidence { misfit: Misfit { scale: 0.0, shift: 0.0 }, ..confidence.clone() };
            common(&blind).with(Forced { by_depth, shown: ConfidenceModel::new(confidence, seed), rate })
        };
        ByRun((1..=self.longest()).map(of).collect())
    }
}

/// Forced acceptance. A server that forces it drafts with its real drafter, whose confidences say nothing of what will
/// be accepted. They are drawn as in a run with one rate of the same mean, for drafts that are right or wrong by a
/// chance of their own.
struct Forced {
    by_depth: ByDepth,
    shown: ConfidenceModel,
    rate: f64,
}

impl Bits for Forced {
    fn fill(&self, request: RequestTruth, positions: usize, out: &mut TruthRow) {
        self.by_depth.fill(request, positions, out);
    }

    fn rate(&self, request: RequestTruth, position: u32, depth: u32) -> f64 {
        self.by_depth.rate(request, position, depth)
    }

    fn recorded_confidence(&self, request: RequestTruth, position: u32) -> Option<f32> {
        let luck = Luck::new(self.by_depth.seed, Stream::OffPath, request.id.into());
        let right = luck.unit(position.into()) < self.rate;
        Some(self.shown.draw(request.id, position, 0, Some(right), 0, logit(self.rate)))
    }

    fn confidences_are_blind(&self) -> bool {
        true
    }
}

/// Each draft's share among the rounds that reach it.
pub(super) fn conditional(reached: &[f64]) -> Vec<f64> {
    let before = std::iter::once(1.0).chain(reached.iter().copied());
    reached.iter().zip(before).map(|(r, b)| if b > 0.0 { (r / b).min(1.0) } else { 0.0 }).collect()
}

/// A source for each draft length of a run, from 1. Where no run asks for its own, the last one answers.
pub(super) struct ByRun(Vec<Box<dyn AcceptanceSource>>);

impl ByRun {
    fn last(&self) -> &dyn AcceptanceSource {
        &**self.0.last().expect("the lengths were checked")
    }
}

impl AcceptanceSource for ByRun {
    fn of_run(&self, longest: u32) -> Option<&dyn AcceptanceSource> {
        let i = (longest.max(1) as usize).min(self.0.len()) - 1;
        Some(&*self.0[i])
    }

    fn start(&self, request: RequestTruth, max_draft_len: u32, out: &mut TruthRow) {
        self.last().start(request, max_draft_len, out);
    }

    fn confidence(&self, request: RequestTruth, round_start: u32, depth: u32, right: Option<bool>, path: u64) -> f32 {
        self.last().confidence(request, round_start, depth, right, path)
    }

    fn rank_if_wrong(&self, request: RequestTruth, position: u32) -> u32 {
        self.last().rank_if_wrong(request, position)
    }

    fn ranks(&self) -> &RankLaw {
        self.last().ranks()
    }

    fn law(&self) -> Option<&dyn Law> {
        self.last().law()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acceptance::{AcceptanceSpec, Rates};
    use crate::workload::Workload;

    fn of(tokens: &[f64]) -> Lengths {
        Lengths { lengths: (1..).zip(tokens.iter().copied()).collect(), golden: None }
    }

    fn mean(rates: &[f64]) -> f64 {
        1.0 + rates
            .iter()
            .scan(1.0, |reached, r| {
                Some({
                    *reached *= r;
                    *reached
                })
            })
            .sum::<f64>()
    }

    /// Lengths that grow by less and less are one curve of survival: every run has its first drafts.
    #[test]
    fn smooth_lengths_are_shares_of_rounds() {
        let lengths = of(&[1.8, 2.4, 2.7]);
        let rates = lengths.rates(3, Rule::Drawn);
        for (rate, expected) in rates.iter().zip([0.8, 0.75, 0.5, 0.0]) {
            assert!((rate - expected).abs() < 1e-12, "{rates:?}");
        }
        assert!((lengths.rates(2, Rule::Drawn)[1] - 0.75).abs() < 1e-12);
    }

    /// Lengths that fall, or grow by more than before, as published ones do: the mean of each run is its own number.
    #[test]
    fn each_run_has_the_mean_of_its_own_length() {
        let bumpy = of(&[1.84, 2.52, 2.93, 3.41, 3.59, 3.57, 3.85, 4.06]);
        let falling = of(&[1.84, 2.51, 3.01, 3.36, 3.61, 3.77, 3.73, 3.47]);
        let gaps = Lengths { lengths: vec![(3, 2.5), (7, 3.67)], golden: None };
        for lengths in [&bumpy, &falling, &gaps] {
            for &(k, tokens) in &lengths.lengths {
                for rule in [Rule::Drawn, Rule::Forced] {
                    let rates = lengths.rates(k, rule);
                    assert!((mean(&rates) - tokens).abs() < 1e-9, "{k} {rule:?}: {} {rates:?}", mean(&rates));
                    assert!(rates.iter().all(|r| (0.0..=1.0).contains(r)), "{rates:?}");
                }
            }
        }
        // Between two given lengths the run is a prefix of the longer one, and beyond the last one nothing is gained.
        assert_eq!(gaps.rates(5, Rule::Drawn), gaps.rates(7, Rule::Drawn));
        assert_eq!(bumpy.rates(12, Rule::Drawn), bumpy.rates(8, Rule::Drawn));
        assert_eq!((gaps.at(5), gaps.at(7), gaps.at(12)), (None, Some(3.67), Some(3.67)));
    }

    /// 3.24 tokens at K = 4, the example of InferenceX's README: two drafts always, a third one in 24 % of rounds.
    #[test]
    fn forced_drafts_have_the_smallest_variance() {
        let rates = Lengths { lengths: vec![(4, 3.24)], golden: None }.rates(4, Rule::Forced);
        assert_eq!(rates.len(), 5);
        assert!(rates.iter().zip([1.0, 1.0, 0.24, 0.0, 0.0]).all(|(a, b)| (a - b).abs() < 1e-12), "{rates:?}");
    }

    /// Counted in drawn truth: a run's mean is its length, whatever the other lengths are.
    #[test]
    fn drawn_rounds_have_the_mean() {
        let lengths = of(&[1.79, 2.27, 2.49, 2.54, 2.55, 2.55, 2.54, 2.58]);
        for source in [Rates::MeanLength(lengths.clone()), Rates::Forced(lengths)] {
            let built = AcceptanceSpec { source, ..AcceptanceSpec::default() }.build(5, &Workload::default()).unwrap();
            for (k, tokens) in [(1, 1.79), (3, 2.49), (7, 2.54), (20, 2.58)] {
                let run = built.of_run(k).unwrap();
                let (mut row, mut rounds, mut emitted) = (TruthRow::default(), 0u32, 0u32);
                for id in 0..200 {
                    let request = RequestTruth { id, prompt_len: 9, output_len: 600, category: 0, recording: None };
                    run.start(request, k, &mut row);
                    let mut at = 1;
                    while at < 600 {
                        let round = 1 + row.run(at, k);
                        (rounds, emitted, at) = (rounds + 1, emitted + round, at + round);
                    }
                }
                let counted = f64::from(emitted) / f64::from(rounds);
                assert!((counted / tokens - 1.0).abs() < 0.01, "K = {k}: {counted} for {tokens}");
            }
        }
    }

    /// vLLM's counters by position are shares of all rounds. Read as rates among the rounds that reach a position, the
    /// same numbers give 1.89 tokens a round where 2.20 were measured.
    #[test]
    fn each_kind_of_number_has_its_own_name() {
        let mean_of = |source: Rates| {
            let built = AcceptanceSpec { source, ..AcceptanceSpec::default() }.build(5, &Workload::default()).unwrap();
            let run = built.of_run(3).unwrap_or(&*built);
            let law = run.law().unwrap();
            let request = RequestTruth { id: 0, prompt_len: 9, output_len: 600, category: 0, recording: None };
            mean(&(0..3).map(|depth| law.own_rate(request, 1 + depth, depth)).collect::<Vec<_>>())
        };
        let shares = vec![0.62, 0.36, 0.22];
        assert!((mean_of(Rates::Marginal { shares: shares.clone() }) - 2.20).abs() < 1e-9);
        assert!((mean_of(Rates::ByDepth { rates: shares }) - 1.892).abs() < 1e-3);
        assert!((mean_of(Rates::DraftedShare { share: 0.4, k: 3 }) - 2.20).abs() < 1e-9);
        assert!((mean_of(Rates::MeanLength(of(&[1.6, 2.0, 2.20]))) - 2.20).abs() < 1e-9);
        let refused = |source: Rates| AcceptanceSpec { source, ..AcceptanceSpec::default() }.check().unwrap_err();
        let rising = refused(Rates::Marginal { shares: vec![0.5, 0.6] });
        assert!(rising.why.contains("place 2") && rising.why.ends_with("for by-depth.rates"), "{rising}");
        assert_eq!(refused(Rates::DraftedShare { share: 1.4, k: 3 }).key, "source.drafted-share.share");
        assert_eq!(refused(Rates::DraftedShare { share: 0.4, k: 0 }).key, "source.drafted-share.k");
    }

    /// Confidences of right and of wrong drafts have the same law where acceptance is forced, not where it is drawn.
    #[test]
    fn confidences_say_nothing_of_forced_drafts() {
        let lengths = Lengths { lengths: vec![(1, 1.5)], golden: None };
        let gap = |source: Rates| {
            let built = AcceptanceSpec { source, ..AcceptanceSpec::default() }.build(5, &Workload::default()).unwrap();
            let run = built.of_run(1).unwrap();
            let (mut row, mut sums) = (TruthRow::default(), [(0.0, 0u32); 2]);
            for id in 0..20 {
                let request = RequestTruth { id, prompt_len: 9, output_len: 600, category: 0, recording: None };
                run.start(request, 1, &mut row);
                for at in 1..600 {
                    let right = row.right(at, 0);
                    let of = &mut sums[usize::from(right)];
                    *of = (of.0 + f64::from(run.confidence_with(request, &row, at, 0, Some(right), 0)), of.1 + 1);
                }
            }
            let mean = |(sum, n): (f64, u32)| sum / f64::from(n);
            (mean(sums[1]) - mean(sums[0]), run.law().unwrap().evidence(0.9, 0).is_some())
        };
        let (forced, has_evidence) = gap(Rates::Forced(lengths.clone()));
        assert!(forced.abs() < 0.02 && !has_evidence, "{forced}");
        let (drawn, has_evidence) = gap(Rates::MeanLength(lengths));
        assert!(drawn > 0.15 && has_evidence, "{drawn}");
    }

    #[test]
    fn impossible_lengths_are_refused() {
        let faults = [
            (vec![], "needs at least one [K, tokens]"),
            (vec![(0, 1.0)], "a draft length is at least 1"),
            (vec![(2, 2.0), (2, 2.1)], "K must rise"),
            (vec![(3, 0.9)], "0.9 tokens at K = 3: a round with 3 draft tokens emits from 1 to 4"),
            (vec![(3, 4.1)], "4.1 tokens at K = 3"),
            (vec![(3, f64::NAN)], "NaN tokens at K = 3"),
        ];
        for (lengths, says) in faults {
            let spec = AcceptanceSpec {
                source: Rates::MeanLength(Lengths { lengths, golden: None }),
                ..AcceptanceSpec::default()
            };
            let wrong = spec.check().unwrap_err();
            assert!(wrong.why.contains(says) && wrong.key == "source.mean-length.lengths", "{wrong}");
        }
    }
}
