//! When the data-parallel ranks of a server begin prompts, as TensorRT-LLM balances them. Ranks wait for each other's
//! passes, so a prompt of one rank is a pause of all. Prompts are therefore held back until every rank has one
//! (TensorRT-LLM 1.2, `_torch/pyexecutor/py_executor.py`, `PyExecutor._balance_adp_requests`).

use serde::{Deserialize, Serialize};

/// TensorRT-LLM's `attention_dp_config` with `enable_balance = true`. A step of the server has prompts only if every
/// rank has one to run and a free slot, or if a rank has neither a decode request nor a dummy one, or after a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PromptBalance {
    /// A step has prompts after this number of steps in which not every rank had one (`timeout_iters`). Steps without
    /// any prompt count too.
    pub timeout_iters: u32,
    /// Number of steps for which prompts are held back once every rank has one, so that more of them come
    /// (`batching_wait_iters`).
    pub batching_wait_iters: u32,
}

/// TensorRT-LLM's defaults (`llmapi/llm_args.py`, `AttentionDpConfig`).
impl Default for PromptBalance {
    fn default() -> PromptBalance {
        PromptBalance { timeout_iters: 50, batching_wait_iters: 10 }
    }
}

/// What a rank could run in the next step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Runnable {
    /// Whether it has a prompt to begin or to go on with.
    pub(crate) prompts: bool,
    /// Number of requests that it decodes; 1 for the dummy request of a rank without requests.
    pub(crate) decodes: usize,
    /// Most requests that it runs at once.
    pub(crate) slots: usize,
}

/// The counts of the rule from step to step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    /// Steps in which not every rank had a prompt, since prompts last went through.
    uneven: u32,
    /// Steps in which every rank had a prompt and all were held back.
    batching: u32,
}

impl Waits {
    /// Whether the prompts of all ranks are held back in this step.
    pub(crate) fn holds(&mut self, rule: &PromptBalance, ranks: &[Runnable]) -> bool {
        let all_decode = ranks.iter().all(|rank| rank.decodes > 0);
        if ranks.iter().all(|rank| rank.prompts && rank.decodes < rank.slots) {
            self.uneven = 0;
            let holds = all_decode && self.batching < rule.batching_wait_iters;
            if all_decode {
                self.batching = if holds { self.batching + 1 } else { 0 };
            }
            return holds;
        }
        self.uneven += 1;
        let goes = self.uneven >= rule.timeout_iters || !all_decode;
        if goes {
            self.uneven = 0;
        }
        !goes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TensorRT-LLM's own method, recorded (`tests/trtllm/`).
    #[test]
    fn prompts_are_held_back_as_tensorrt_llm_does() {
        let text = include_str!("../../tests/trtllm/balance.txt");
        let mut steps = 0;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let numbers: Vec<Vec<usize>> =
                line.split(' ').map(|group| group.split(',').map(|n| n.parse().expect("a number")).collect()).collect();
            let [timeout, batching, slots, ranks] = numbers[0][..] else { panic!("{line}") };
            let rule = PromptBalance { timeout_iters: timeout as u32, batching_wait_iters: batching as u32 };
            let mut waits = Waits::default();
            for step in &numbers[1..] {
                assert_eq!(step.len(), 2 * ranks + 1, "{line}");
                let has = |r: usize| Runnable { prompts: step[2 * r] > 0, decodes: step[2 * r + 1], slots };
                let has: Vec<Runnable> = (0..ranks).map(has).collect();
                assert_eq!(waits.holds(&rule, &has), step[2 * ranks] == 0, "step {steps}: {line}");
                steps += 1;
            }
        }
        assert!(steps >= 3000, "{steps} steps");
    }
}
