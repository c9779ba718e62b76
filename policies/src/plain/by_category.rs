//! `by-category`: a draft length for each category of requests. Each request states its category. A length of 0
//! switches speculation off for a category.

use crate::definition::{About, BadParameter, Check, Definition, PolicyContext};
use crate::shared::by_request::ByRequest;
use foretoken_sim::{BatchView, MAX_SPEC_LEN, Speculation};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Settings of the policy `by-category`, which has a draft length for each category of requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ByCategory {
    /// Draft tokens per request and step for requests whose category is not in `lengths`, 0 to 32.
    pub k: u32,
    /// Draft tokens per request and step, by the name of the request's category, 0 to 32; 0 drafts nothing.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub lengths: BTreeMap<String, u32>,
}

impl Default for ByCategory {
    fn default() -> Self {
        ByCategory { k: 3, lengths: BTreeMap::new() }
    }
}

impl Definition for ByCategory {
    fn about(&self) -> About {
        About {
            summary: "drafts k tokens, and for named categories of requests a length of their own; 0 opts them out",
            source: "asked for in SGLang #30263, vLLM #17984 and llama.cpp #23052: speculation switched off by \
                     request; in no release",
            sees: "the category of each request",
            differences: "no engine has it. The draft runs over the prompts of all requests, as EAGLE's does. vLLM \
                          gives all requests slots for the longest length of a step where it schedules \
                          asynchronously or on runner V2, so that an opted-out request still verifies padding beside \
                          one that drafts. The token budget is charged as in the last step",
        }
    }

    fn asks_for(&self) -> Option<(&'static str, u32)> {
        match self.lengths.values().copied().max() {
            Some(longest) if longest > self.k => Some(("lengths", longest)),
            _ => Some(("k", self.k)),
        }
    }

    fn names_categories(&self) -> Vec<&str> {
        self.lengths.keys().map(String::as_str).collect()
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("by-category");
        let why = |k: u32| format!("{k} is not a draft length from 0 to {MAX_SPEC_LEN}");
        check.that("k", self.k <= MAX_SPEC_LEN, || why(self.k))?;
        for (name, &k) in &self.lengths {
            check.that("lengths", k <= MAX_SPEC_LEN, || format!("{name}: {}", why(k)))?;
        }
        let some = self.k > 0 || self.lengths.values().any(|&k| k > 0);
        check.that("k", some, || "no category has a length above 0: use autoregressive".into())
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        let most = context.max_draft_len;
        let length = |name: &String| self.lengths.get(name).copied().unwrap_or(self.k).min(most);
        let by_index: Vec<u32> = context.categories.iter().map(length).collect();
        let others = self.k.min(most);
        let longest = by_index.iter().copied().max().unwrap_or(others).max(others);
        ByRequest::build(longest, move |batch: &BatchView, i| {
            let category = batch.category(i).map(usize::from);
            category.and_then(|category| by_index.get(category)).copied().unwrap_or(others)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Batch, CONTEXT, Run};

    fn policy(k: u32, lengths: &[(&str, u32)]) -> ByCategory {
        ByCategory { k, lengths: lengths.iter().map(|&(name, k)| (name.to_owned(), k)).collect() }
    }

    #[test]
    fn each_category_has_its_length() {
        let names = ["code", "creative", "chat"].map(str::to_owned);
        let context = PolicyContext { categories: &names, ..CONTEXT };
        let mut run = Run::of(&policy(3, &[("code", 6), ("creative", 0)]), &context);
        let batch = Batch { categories: vec![1, 0, 2, 0, 7], ..Batch::new(&[9; 5], &[8, 8, 8, 4, 8]) };
        assert_eq!(run.step(&batch, |_, _| 0.9, &[8; 5]).draft_len, [0, 6, 3, 4, 3]);
    }

    #[test]
    fn without_categories_all_get_k() {
        let mut run = Run::of(&policy(3, &[("code", 6)]), &CONTEXT);
        assert_eq!(run.step(&Batch::new(&[9; 2], &[8; 2]), |_, _| 0.9, &[8; 2]).draft_len, [3, 3]);
    }

    #[test]
    fn a_batch_that_opted_out_is_charged_for_no_drafts() {
        let names = ["code", "creative"].map(str::to_owned);
        let context = PolicyContext { categories: &names, ..CONTEXT };
        let Speculation::Policy(mut running) = policy(4, &[("creative", 0)]).build(&context) else {
            panic!("a policy")
        };
        let mut charged = |categories: Vec<u16>| {
            let n = categories.len();
            let batch = Batch { categories, ..Batch::new(&vec![9; n], &vec![8; n]) };
            let mut plan = foretoken_sim::DraftPlan { draft_len: vec![0; n], ..Default::default() };
            running.propose(&batch.view(), &mut plan);
            (running.limits().depth, running.limits().max_depth)
        };
        assert_eq!([charged(vec![1, 1]), charged(vec![1, 0]), charged(vec![])], [(0, 4), (4, 4), (4, 4)]);
    }

    #[test]
    fn bad_settings_are_named() {
        assert_eq!(policy(33, &[]).check().map_err(|e| e.key), Err("k"));
        assert_eq!(policy(3, &[("code", 33)]).check().map_err(|e| e.key), Err("lengths"));
        assert_eq!(policy(0, &[("code", 0)]).check().map_err(|e| e.key), Err("k"));
        assert_eq!(policy(0, &[("code", 2)]).asks_for(), Some(("lengths", 2)));
        assert_eq!(policy(0, &[("code", 2)]).check(), Ok(()));
    }
}
