//! How often draft tokens are right, by category of requests and by context length, estimated from a truth table (which
//! draft tokens were right on recorded outputs). From these estimates come the acceptance rates with which an
//! experiment can simulate acceptance.

use super::{NOT_DRAFTED, RecordedOutput, TruthTable};
use foretoken_sim::acceptance::{ByCategory, CategoryRates};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The longest draft length in the summaries of truth tables (which draft tokens were right on recorded outputs). A
/// table of `foretoken profile-acceptance` has, at every output position, the rank of the right token among the draft
/// model's guesses. So it shows what any draft length up to this one would have accepted.
pub const DEPTHS: usize = 8;
/// Upper end of the first band of context lengths, tokens. Each further band ends at twice the end of the band before.
const FIRST_BAND: u64 = 512;
/// A band of context lengths needs at least this number of output positions with a draft token for an acceptance rate
/// of its own. A band with fewer is joined with the next band.
const LEAST_POSITIONS: u64 = 200;
/// The acceptance rate at a depth (a draft token's place among its request's draft tokens of a step) is used only if
/// the tokens before it were accepted at least this number of times. The rate of the first depth is always used.
const LEAST_ROUNDS: u64 = 30;
/// The simulated acceptance depends on the context length if the rates of two bands of context lengths differ by more
/// than this number of standard errors of the difference.
const DIFFERENT: f64 = 3.0;

/// How often the draft tokens in one category's recorded outputs are right, by depth and by context length.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CategoryAcceptance {
    /// Name of the category of requests: a family (kind of task) of the recorded prompts.
    pub category: String,
    /// Number of recorded outputs of the category.
    pub outputs: u64,
    /// Acceptance by depth, a draft token's place in its round (a request's draft tokens of one step). In a table of
    /// `foretoken profile-acceptance` a round has [`DEPTHS`] draft tokens. In the table of an observed server a round
    /// has the draft tokens that the server made.
    pub depths: Vec<Depth>,
    /// Acceptance by context length. Bands of context lengths without draft tokens are left out.
    pub contexts: Vec<ContextBand>,
}

/// How often draft tokens at one depth are accepted. The depth is a token's place among its request's draft tokens of a
/// step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Depth {
    /// The draft token's place in its round (the draft tokens of a request that are verified together), from 1.
    pub depth: u32,
    /// Number of rounds (a request's draft tokens of one step) in which all draft tokens before this depth were
    /// accepted, so that the token at this depth was judged.
    pub reached: u64,
    /// Number of the `reached` rounds (a request's draft tokens of one step) in which the draft token at this depth was
    /// accepted too.
    pub accepted: u64,
    /// Acceptance rate of draft tokens at this depth: accepted / reached. `None` if the depth was never reached.
    pub rate: Option<f64>,
}

/// How often draft tokens are right at contexts of similar length (a band of context lengths).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ContextBand {
    /// Lower end of the band of context lengths: tokens of prompt and output before the draft token, inclusive.
    pub from: u64,
    /// Upper end of the band of context lengths, tokens, exclusive.
    pub to: u64,
    /// Mean context length, tokens, of the band's output positions with a draft token.
    pub mean_context: f64,
    /// Number of output positions in the band at which a draft token was found right or wrong.
    pub drafted: u64,
    /// Number of output positions in the band at which the draft token was right.
    pub right: u64,
    /// Acceptance rate of the band of context lengths: right / drafted.
    pub rate: f64,
    /// Standard error of the band's acceptance rate, if outputs are the independent samples; `None` with fewer than two
    /// outputs.
    pub error: Option<f64>,
}

/// Counts of one band of context lengths. For each output: (number of its positions with a draft token in the band,
/// number of these at which it was right). Also the sum of the context lengths at all these positions.
#[derive(Default)]
struct Counts {
    outputs: Vec<(u64, u64)>,
    context: u64,
}

impl TruthTable {
    /// The acceptance of each category that has outputs, in the order of the table's families.
    ///
    /// An output position counts if its draft token was found right or wrong. A server drafts nothing for the position
    /// right after a round (a request's draft tokens of one step) whose tokens were all accepted, so this position does
    /// not count. Right / drafted is then the maximum-likelihood estimate of the probability that a draft token is
    /// right, given that the draft tokens before it in the round were right.
    pub fn by_category(&self) -> Vec<CategoryAcceptance> {
        let observed = self.header.observed.is_some();
        let one = |(family, name): (usize, &String)| {
            let own: Vec<_> = self.outputs.iter().filter(|o| usize::from(o.family) == family).collect();
            (!own.is_empty()).then(|| category(name, &own, observed))
        };
        self.header.families.iter().enumerate().filter_map(one).collect()
    }
}

fn category(name: &str, outputs: &[&RecordedOutput], observed: bool) -> CategoryAcceptance {
    let mut depths: Vec<(u64, u64)> = Vec::new();
    let mut bands: BTreeMap<u64, Counts> = BTreeMap::new();
    for output in outputs {
        let mut depth = 0;
        let mut own: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        // Output position 0 is skipped, because the prefill gives the first token without a draft token.
        for (n, &rank) in output.ranks.iter().enumerate().skip(1) {
            let known = !observed || rank != NOT_DRAFTED;
            if known {
                let context = u64::from(output.prompt_len) + n as u64;
                let band = band_of(context);
                let count = own.entry(band).or_default();
                *count = (count.0 + 1, count.1 + u64::from(rank == 1));
                bands.entry(band).or_default().context += context;
            }
            // No draft token of a step is at this position. In the table of an observed server, nothing was drafted
            // here. In other tables, all `DEPTHS` draft tokens before it were right, so the token is the target's own
            // (the bonus token).
            if !known || !observed && depth == DEPTHS {
                depth = 0;
                continue;
            }
            if depths.len() <= depth {
                depths.push((0, 0));
            }
            depths[depth].0 += 1;
            depths[depth].1 += u64::from(rank == 1);
            depth = if rank == 1 { depth + 1 } else { 0 };
        }
        own.into_iter().for_each(|(band, count)| bands.entry(band).or_default().outputs.push(count));
    }
    let depth = |(at, &(reached, accepted)): (usize, &(u64, u64))| Depth {
        depth: at as u32 + 1,
        reached,
        accepted,
        rate: (reached > 0).then(|| accepted as f64 / reached as f64),
    };
    CategoryAcceptance {
        category: name.to_owned(),
        outputs: outputs.len() as u64,
        depths: depths.iter().enumerate().map(depth).collect(),
        contexts: bands.iter().map(|(&from, counts)| counts.band(from, end_of(from))).collect(),
    }
}

/// The lower end, in tokens, of the band of context lengths that contains `context`.
fn band_of(context: u64) -> u64 {
    if context < FIRST_BAND { 0 } else { FIRST_BAND << (context / FIRST_BAND).ilog2() }
}

fn end_of(from: u64) -> u64 {
    if from == 0 { FIRST_BAND } else { from * 2 }
}

impl Counts {
    fn band(&self, from: u64, to: u64) -> ContextBand {
        let sum = |of: fn(&(u64, u64)) -> u64| self.outputs.iter().map(of).sum::<u64>();
        let (drafted, right) = (sum(|o| o.0), sum(|o| o.1));
        let (n, rate) = (self.outputs.len() as f64, right as f64 / drafted as f64);
        // The acceptance rate differs between outputs. So outputs, not positions, are the independent samples (standard
        // error of a ratio estimator).
        let squares: f64 = self.outputs.iter().map(|&(d, r)| (r as f64 - rate * d as f64).powi(2)).sum();
        let error = (n > 1.0).then(|| (squares * n / (n - 1.0)).sqrt() / drafted as f64);
        ContextBand { from, to, mean_context: self.context as f64 / drafted as f64, drafted, right, rate, error }
    }
}

impl CategoryAcceptance {
    /// The acceptance rates of the category for a simulation; `None` if nothing was drafted. If the rates of two bands
    /// of context lengths differ by more than chance, the result has a rate for each band. Otherwise it has a rate for
    /// each depth (a draft token's place in its step), up to the last depth that was reached often enough.
    pub fn law(&self) -> Option<CategoryRates> {
        let bands = joined(&self.contexts);
        let differ = |a: &ContextBand, b: &ContextBand| {
            let error = a.error.zip(b.error).map(|(a, b)| a.hypot(b));
            error.is_some_and(|error| (a.rate - b.rate).abs() > DIFFERENT * error)
        };
        if bands.iter().enumerate().any(|(i, a)| bands[i + 1..].iter().any(|b| differ(a, b))) {
            let point = |band: &ContextBand| (band.mean_context as u32, smoothed(band.right, band.drafted));
            return Some(CategoryRates::ByContext { points: bands.iter().map(point).collect() });
        }
        let enough = |(i, depth): &(usize, &Depth)| *i == 0 || depth.reached >= LEAST_ROUNDS;
        let depths = self.depths.iter().enumerate().take_while(enough);
        let rates: Vec<f64> = depths.map(|(_, depth)| smoothed(depth.accepted, depth.reached)).collect();
        (!rates.is_empty()).then_some(CategoryRates::ByDepth { rates })
    }
}

/// The acceptance rate right / of, smoothed by Laplace's rule to (right + 1) / (of + 2) and rounded to four digits. So
/// a rate from few draft tokens is neither 0 nor 1.
fn smoothed(right: u64, of: u64) -> f64 {
    ((right as f64 + 1.0) / (of as f64 + 2.0) * 1e4).round() / 1e4
}

/// Joins neighbouring bands of context lengths until each has at least [`LEAST_POSITIONS`] positions with a draft
/// token. A band with fewer is joined with the next band. The last band is joined with the band before it.
fn joined(bands: &[ContextBand]) -> Vec<ContextBand> {
    let mut wide: Vec<ContextBand> = Vec::new();
    for &band in bands {
        match wide.last_mut() {
            Some(last) if last.drafted < LEAST_POSITIONS => *last = join(*last, band),
            _ => wide.push(band),
        }
    }
    if wide.len() > 1 && wide[wide.len() - 1].drafted < LEAST_POSITIONS {
        let last = wide.pop().expect("there are two");
        let before = wide.pop().expect("there are two");
        wide.push(join(before, last));
    }
    wide
}

fn join(a: ContextBand, b: ContextBand) -> ContextBand {
    let (drafted, right) = (a.drafted + b.drafted, a.right + b.right);
    let (of_a, of_b) = (a.drafted as f64 / drafted as f64, b.drafted as f64 / drafted as f64);
    // An output may have positions in both bands of context lengths, so the two standard errors are added as if they
    // were fully correlated.
    let error = a.error.zip(b.error).map(|(x, y)| x * of_a + y * of_b);
    ContextBand {
        from: a.from,
        to: b.to,
        mean_context: a.mean_context * of_a + b.mean_context * of_b,
        drafted,
        right,
        rate: right as f64 / drafted as f64,
        error,
    }
}

/// The acceptance rates of all categories that have draft tokens, as settings of a simulation. `None` if nothing was
/// drafted.
pub fn law(categories: &[CategoryAcceptance]) -> Option<ByCategory> {
    let laws: BTreeMap<String, CategoryRates> =
        categories.iter().filter_map(|c| Some((c.category.clone(), c.law()?))).collect();
    (!laws.is_empty()).then_some(ByCategory { categories: laws, otherwise: None })
}

/// The acceptance rates as TOML tables for an experiment, with the counts of draft tokens as comments. `source` is the
/// text that says where the counts come from. Empty if nothing was drafted.
pub fn toml(categories: &[CategoryAcceptance], source: &str) -> String {
    let mut text = String::new();
    for c in categories {
        let Some(law) = c.law() else { continue };
        if text.is_empty() {
            text = format!("# Acceptance by category, {source}.\n");
        }
        let name = serde_json::to_string(&c.category).expect("a string is JSON, and so a key of TOML");
        let law = match law {
            CategoryRates::ByContext { points } => {
                let points: Vec<String> = points.iter().map(|(tokens, rate)| format!("[{tokens}, {rate}]")).collect();
                format!("by-context = {{ points = [{}] }}", points.join(", "))
            }
            CategoryRates::ByDepth { rates } => {
                let rates: Vec<String> = rates.iter().map(ToString::to_string).collect();
                format!("by-depth = {{ rates = [{}] }}", rates.join(", "))
            }
            CategoryRates::Constant { .. } | CategoryRates::PromptLookup(_) => {
                unreachable!("no estimate is one of these")
            }
        };
        let drafted: u64 = c.contexts.iter().map(|band| band.drafted).sum();
        let right: u64 = c.contexts.iter().map(|band| band.right).sum();
        writeln!(
            text,
            "\n# {} outputs, {right} of {drafted} drafts right.\n[acceptance.source.by-category.categories.{name}]\n{law}",
            c.outputs
        )
        .expect("a string grows");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::{ObservedTruth, RecordedModel, TruthHeader};
    use super::*;
    use foretoken_sim::Luck;
    use foretoken_sim::Stream;

    fn table(families: &[&str], outputs: Vec<RecordedOutput>, observed: bool) -> TruthTable {
        let model = || RecordedModel { name: "m".into(), dtype: "f32".into(), digest: "0".into() };
        let observed = observed.then(|| ObservedTruth { lengths: vec![4], hazards: vec![0.5], seen: 1 });
        let header = TruthHeader {
            foretoken: "1".into(),
            target: model(),
            draft: model(),
            device: "d".into(),
            prompts: "p".into(),
            prompts_digest: "0".into(),
            temperature: 0.0,
            families: families.iter().map(ToString::to_string).collect(),
            observed,
        };
        TruthTable { header, outputs }
    }

    /// Makes `n` recorded outputs of `len` tokens. The draft token at each position is right with the probability
    /// `rate(context)`.
    fn outputs(family: u16, n: u64, prompt_len: u32, len: usize, rate: impl Fn(u64) -> f64) -> Vec<RecordedOutput> {
        let one = |i: u64| {
            let luck = Luck::new(3, Stream::Right, i + 1000 * u64::from(family));
            let right = |n: usize| luck.unit(n as u64) < rate(u64::from(prompt_len) + n as u64);
            let ranks: Vec<u8> = (0..len).map(|n| if right(n) { 1 } else { 2 }).collect();
            RecordedOutput::new(family, prompt_len, ranks, &vec![0.5; len])
        };
        (0..n).map(one).collect()
    }

    #[test]
    fn categories_have_their_own_rates() {
        let mut all = outputs(0, 40, 10, 200, |_| 0.8);
        all.extend(outputs(2, 40, 10, 200, |_| 0.3));
        let found = table(&["code", "unused", "chat"], all, false).by_category();
        let names: Vec<&str> = found.iter().map(|c| c.category.as_str()).collect();
        assert_eq!(names, ["code", "chat"]);
        for (category, rate) in found.iter().zip([0.8, 0.3]) {
            let [band] = category.contexts.as_slice() else { panic!("one band: {:?}", category.contexts) };
            let error = band.error.expect("40 outputs");
            assert!((band.rate - rate).abs() < 4.0 * error && error < 0.02, "{band:?}");
            assert_eq!((band.drafted, band.from, band.to), (40 * 199, 0, 512));
            let Some(CategoryRates::ByDepth { rates }) = category.law() else {
                panic!("by depth: {:?}", category.law())
            };
            assert!((rates[0] - rate).abs() < 0.03, "{rates:?}");
        }
    }

    #[test]
    fn a_rate_that_falls_with_the_context_is_found() {
        let mut all = Vec::new();
        for prompt in [100, 1500, 6000] {
            all.extend(outputs(0, 30, prompt, 300, |context| if context < 1000 { 0.8 } else { 0.4 }));
        }
        let found = table(&["documents"], all, false).by_category();
        let Some(CategoryRates::ByContext { points }) = found[0].law() else { panic!("by context") };
        assert_eq!(points.len(), 3, "{points:?}");
        assert!((points[0].1 - 0.8).abs() < 0.03 && (points[2].1 - 0.4).abs() < 0.03, "{points:?}");
        assert!(points[0].0 < 512 && (1024..2048).contains(&points[1].0) && points[2].0 > 4096, "{points:?}");
        let text = toml(&found, "of a test");
        assert!(text.contains("categories.\"documents\"]\nby-context = { points = [[2"), "{text}");
    }

    /// The outputs are drafted 4 tokens at a time, as by a server. Whether a draft token right after 4 accepted ones
    /// would be right is then unknown. The estimate of the acceptance rate is unbiased all the same.
    #[test]
    fn censored_rounds_do_not_lower_the_rate() {
        let full = outputs(0, 200, 10, 300, |_| 0.7);
        let seen = |output: &RecordedOutput| {
            let mut bits = vec![None; output.ranks.len()];
            let mut at = 1;
            while at < bits.len() {
                let accepted = output.ranks[at..].iter().take(4).take_while(|&&rank| rank == 1).count();
                bits[at..].iter_mut().take(accepted).for_each(|bit| *bit = Some(true));
                if accepted < 4 && at + accepted < bits.len() {
                    bits[at + accepted] = Some(false);
                }
                at += accepted + 1;
            }
            RecordedOutput::observed(0, 10, &bits)
        };
        let found = table(&["chat"], full.iter().map(seen).collect(), true).by_category();
        let band = found[0].contexts[0];
        assert!((band.rate - 0.7).abs() < 4.0 * band.error.expect("outputs"), "{band:?}");
        assert_eq!(found[0].depths.len(), 4);
        for depth in &found[0].depths {
            assert!((depth.rate.expect("reached") - 0.7).abs() < 0.03, "{depth:?}");
        }
    }

    #[test]
    fn nothing_drafted_gives_no_law() {
        let found = table(&["chat"], vec![RecordedOutput::observed(0, 5, &[None, None, None])], true).by_category();
        assert_eq!((found[0].law(), law(&found), toml(&found, "of a test")), (None, None, String::new()));
    }
}
