//! The answer to a question that users asked in a public thread, and the claims that decide the answer.

use super::verdict::{Verdict, holds, verdict};
use crate::papers::compared::{rounded, stated};
use crate::papers::measure::measure;
use crate::papers::render::{in_words, number};
use crate::papers::results::{Measured, Results};
use crate::plan::Plan;
use crate::spec::paper::Stated;
use crate::spec::problem::Result;
use crate::spec::question::{Question, Reported};
use foretoken_report::Cell;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A question of users with its answer, and each claim on which the answer rests, with its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The issue or pull request that asks the question, such as `vllm-project/vllm#49369`.
    pub thread: String,
    /// The URL of the public thread in which the question was asked.
    pub url: String,
    /// The users' question in one sentence.
    pub asks: String,
    /// Do the claims that decide the answer hold for all values that the experiment assumes?
    pub decided: Decided,
    /// The answer in one sentence. If the question's claims do not decide the answer, the sentence names the first
    /// claim that holds only for some assumed values or was not measured.
    pub answer: String,
    /// Facts that the thread does not state, with the values that the experiment assumes for them.
    pub assumed: Vec<String>,
    /// The claims that the question's answer rests on, each with its measured value, in the order of the experiment's
    /// file.
    pub claims: Vec<Finding>,
}

/// Do the claims that decide a question's answer (`decided_by`) hold for all values that the experiment assumes?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decided {
    /// All claims in `decided_by` (the claims on which the answer rests) hold for all assumed values.
    Yes,
    /// At least one claim in `decided_by` (the claims on which the answer rests) holds for no assumed value.
    No,
    /// The answer is not `No`, but at least one claim in `decided_by` holds only for some assumed values, or was not
    /// measured.
    CannotSay,
}

/// One claim of a question, with the value that this run measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Name of the claim, unique within the experiment.
    pub id: String,
    /// What is claimed, in our words.
    pub says: String,
    /// The value that the question's thread reports for the claim; absent if it reports none.
    pub reported: Option<Measured>,
    /// The value that this run measured for the claim: the range over all values that the experiment assumes.
    pub ours: Measured,
    /// Are the claim's values shares? Then 0.1 means a gain of 10 %.
    pub share: bool,
    /// How the value that this run measured compares with the value that the thread reports.
    pub verdict: Verdict,
    /// Why the measured and the reported value differ, or why the claim cannot be decided; absent if no reason is
    /// given.
    pub because: Option<String>,
}

impl Answer {
    pub fn of(question: &Question, plan: &Plan, cells: &[Cell]) -> Result<Answer> {
        let results = Results { plan, cells };
        let claims: Vec<Finding> =
            question.claims.iter().map(|claim| Finding::of(claim, results)).collect::<Result<_>>()?;
        let deciding = || question.decided_by.iter().filter_map(|id| claims.iter().find(|c| c.id == *id));
        let each: Vec<Option<bool>> = deciding().map(|c| holds(c.verdict, &c.ours, c.share)).collect();
        let (decided, answer) = if each.contains(&Some(false)) {
            (Decided::No, filled(&question.otherwise, &claims))
        } else if let Some(at) = each.iter().position(Option::is_none) {
            let open = deciding().nth(at).expect("`each` has one entry for each deciding claim");
            (Decided::CannotSay, cannot_say(open))
        } else {
            (Decided::Yes, filled(&question.answer, &claims))
        };
        Ok(Answer {
            thread: question.thread.clone(),
            url: question.url.clone(),
            asks: question.asks.clone(),
            decided,
            answer,
            assumed: question.assumed.clone(),
            claims,
        })
    }
}

impl Finding {
    fn of(claim: &Reported, results: Results) -> Result<Finding> {
        let (ours, share) = (rounded(measure(&claim.measure, results)?), claim.measure.is_share());
        let reported = claim.reported.as_ref().and_then(|value: &Stated| stated(value));
        Ok(Finding {
            id: claim.id.clone(),
            says: claim.says.clone(),
            verdict: verdict(reported.as_ref(), &ours, share),
            reported,
            ours,
            share,
            because: claim.because.clone(),
        })
    }

    /// The claim's measured value as text; equal policies are named once.
    pub fn ours_shown(&self) -> String {
        match &self.ours {
            Measured::Policies(labels) => {
                let names: BTreeSet<&str> = labels.iter().map(String::as_str).collect();
                Vec::from_iter(names).join(" or ")
            }
            // If both ends of a measured range are equal after rounding, one number is shown.
            &Measured::Numbers(Some(low), Some(high)) if self.digits(low) == self.digits(high) => self.digits(low),
            ours => in_words(ours, true, |x| self.digits(x)),
        }
    }

    /// The value that the thread reports for a claim, as text; `-` if there is none.
    pub fn reported_shown(&self) -> String {
        self.reported
            .as_ref()
            .map_or_else(|| "-".to_owned(), |reported| in_words(reported, false, |x| number(x, self.share)))
    }

    /// A number that this run measured as text with two significant digits, or as a whole number. A share is in
    /// percent.
    fn digits(&self, x: f64) -> String {
        let x = if self.share { x * 100.0 } else { x };
        let whole = x.fract() == 0.0 || x.abs() >= 9.95;
        let digits = if whole { 0 } else { (1.0 - x.abs().log10().floor()) as usize };
        if self.share { format!("{x:+.digits$} %") } else { format!("{x:.digits$}") }
    }
}

/// Replaces each `{id}` in the text `template` by the value that this run measured for the claim called `id`.
fn filled(template: &str, claims: &[Finding]) -> String {
    claims.iter().fold(template.to_owned(), |text, c| text.replace(&format!("{{{}}}", c.id), &c.ours_shown()))
}

fn cannot_say(open: &Finding) -> String {
    let because = open.because.as_ref().map(|b| format!(" {b}")).unwrap_or_default();
    format!("Cannot say. {}: {} over what is assumed.{because}", open.says, open.ours_shown())
}
