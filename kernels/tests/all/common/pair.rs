//! Runs the target and draft that ship with this crate on the CPU, one request at a time: plain decoding, speculation,
//! and how often the draft model predicts the target's token.

#![allow(dead_code, reason = "tests and the benchmark use their part")]

use foretoken_kernels::accept::{Accepted, Tree};
use foretoken_kernels::cpu::Cpu;
use foretoken_kernels::device::{Choice, Device};
use foretoken_kernels::forward::{Limits, Llama};
use foretoken_kernels::model::preset;
use foretoken_kernels::paged::{BLOCK_SIZE, Batch, Logits};
use foretoken_kernels::weights::Checkpoint;
use foretoken_traces::text::{END, Family, prompt_of_len};
use itertools::zip_eq;
use std::time::{Duration, Instant};

/// Longest context of a request, in tokens.
pub const CONTEXT: usize = 768;

/// Bytes of a prompt, which is a question with some worked examples. The models' tokens are bytes.
pub const PROMPT: usize = 256;

/// Most tokens of an answer. In all families of prompts (kinds of text), the answers are shorter.
pub const ANSWER: usize = 256;

/// Seed of the generated documents. The target and draft were trained on documents of other seeds.
pub const HELD_OUT: u64 = 2;

/// Returns prompt `index` of a family (a kind of text) as tokens. The prompt is from the documents of the seed
/// [`HELD_OUT`].
pub fn prompt(family: Family, index: u64) -> Vec<u32> {
    prompt_of_len(family, HELD_OUT, index, PROMPT).into_iter().map(u32::from).collect()
}

/// Counts of decoding steps with draft tokens, by depth: the index of a draft token in its chain, from 0.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    /// For each depth: number of steps that had a draft token of this depth and accepted all draft tokens of smaller
    /// depths.
    pub reached: Vec<u64>,
    /// For each depth: number of steps that accepted the draft token of this depth.
    pub accepted: Vec<u64>,
}

impl Rounds {
    fn add(&mut self, drafted: usize, kept: usize) {
        self.reached.resize(self.reached.len().max(drafted), 0);
        self.accepted.resize(self.reached.len(), 0);
        self.reached[..drafted.min(kept + 1)].iter_mut().for_each(|n| *n += 1);
        self.accepted[..kept].iter_mut().for_each(|n| *n += 1);
    }
}

/// The target and the draft, with memory for one request.
pub struct Pair {
    target: Llama<Cpu>,
    draft: Llama<Cpu>,
    table: Vec<u32>,
    batch: Batch,
    choices: Vec<Choice>,
    accepted: Vec<Accepted>,
}

impl Pair {
    pub fn load(cpu: &mut Cpu) -> Pair {
        let blocks = CONTEXT.div_ceil(BLOCK_SIZE) as u32;
        let limits = Limits { kv_blocks: blocks, max_rows: CONTEXT, max_logit_rows: CONTEXT };
        let mut load = |name| {
            let (shape, weights) = (preset(name).unwrap(), Checkpoint::shipped(name).unwrap());
            Llama::load(cpu, &shape, &weights, limits).unwrap()
        };
        let (target, draft) = (load("tiny-target"), load("tiny-draft"));
        let (batch, choices, accepted) = (Batch::default(), Vec::new(), Vec::new());
        Pair { target, draft, table: (0..blocks).collect(), batch, choices, accepted }
    }

    /// Decodes greedily without draft tokens. The answer ends with the token [`END`] or after [`ANSWER`] tokens.
    /// Returns its tokens, including [`END`], and the time since the end of the prompt's pass.
    pub fn plain(&mut self, cpu: &mut Cpu, prompt: &[u32]) -> (Vec<u32>, Duration) {
        let mut all = prompt.to_vec();
        all.push(self.target_next(cpu, prompt, 0));
        let start = Instant::now();
        while !ended(&all[prompt.len()..]) {
            let last = all.len() - 1;
            let next = self.target_next(cpu, &all[last..], last);
            all.push(next);
        }
        (all.split_off(prompt.len()), start.elapsed())
    }

    /// Returns `count` greedy tokens of the target after `prompt`. The function does not stop at the end of the answer.
    pub fn tokens(&mut self, cpu: &mut Cpu, prompt: &[u32], count: usize) -> Vec<u32> {
        let mut all = prompt.to_vec();
        all.push(self.target_next(cpu, prompt, 0));
        while all.len() < prompt.len() + count {
            let last = all.len() - 1;
            let next = self.target_next(cpu, &all[last..], last);
            all.push(next);
        }
        all.split_off(prompt.len())
    }

    /// Decodes greedily with a chain of `k` draft tokens per step. Adds the counts of each step to `rounds`. Returns
    /// the answer's tokens, including [`END`], and the time since the end of the prompt's pass.
    pub fn speculative(
        &mut self,
        cpu: &mut Cpu,
        prompt: &[u32],
        k: usize,
        rounds: &mut Rounds,
    ) -> (Vec<u32>, Duration) {
        let mut all = prompt.to_vec();
        all.push(self.target_next(cpu, prompt, 0));
        self.draft_next(cpu, prompt, 0);
        let mut drafted = prompt.len();
        let parents: Vec<u32> = (0..k as u32).map(|i| i.wrapping_sub(1)).collect();
        let start = Instant::now();
        while !ended(&all[prompt.len()..]) {
            let context = all.len() - 1;
            while all.len() < context + 1 + k {
                let next = self.draft_next(cpu, &all[drafted..], drafted);
                drafted = all.len();
                all.push(next);
            }
            let Pair { target, table, batch, accepted, .. } = self;
            batch.clear();
            batch.push_chain(&all[context..], context, table, Logits::All);
            target.forward(cpu, batch).unwrap();
            let tree = Tree { first: 0, tokens: &all[context + 1..], parents: &parents };
            cpu.accept_greedy(target.logits(), &[tree], accepted).unwrap();
            let kept = accepted[0].nodes.len();
            rounds.add(k, kept);
            all.truncate(context + 1 + kept);
            all.push(accepted[0].next);
            drafted = drafted.min(all.len() - 1);
            // In its last step the target may have accepted draft tokens after `END`. They are not part of the answer.
            if let Some(end) = all[context + 1..].iter().position(|&t| t == u32::from(END)) {
                all.truncate(context + 2 + end);
            }
        }
        let time = start.elapsed();
        all.truncate(prompt.len() + ANSWER);
        (all.split_off(prompt.len()), time)
    }

    /// Returns for each position of `answer`: true if the token is the draft model's most likely token, given the
    /// prompt and all tokens of the answer before it.
    pub fn agreement(&mut self, cpu: &mut Cpu, prompt: &[u32], answer: &[u32]) -> Vec<bool> {
        let all: Vec<u32> = prompt.iter().chain(answer).copied().collect();
        let Pair { draft, table, batch, choices, .. } = self;
        batch.clear();
        batch.push_chain(&all, 0, table, Logits::All);
        draft.forward(cpu, batch).unwrap();
        cpu.top_k(draft.logits(), 1, choices).unwrap();
        // The draft model's guess for the position after the answer is not compared.
        let guesses = &choices[prompt.len() - 1..all.len() - 1];
        zip_eq(guesses, answer).map(|(choice, &token)| choice.token == token).collect()
    }

    fn target_next(&mut self, cpu: &mut Cpu, tokens: &[u32], computed: usize) -> u32 {
        next(&mut self.target, cpu, (&mut self.batch, &mut self.choices), tokens, computed, &self.table)
    }

    fn draft_next(&mut self, cpu: &mut Cpu, tokens: &[u32], computed: usize) -> u32 {
        next(&mut self.draft, cpu, (&mut self.batch, &mut self.choices), tokens, computed, &self.table)
    }
}

fn ended(answer: &[u32]) -> bool {
    answer.last() == Some(&u32::from(END)) || answer.len() >= ANSWER
}

fn next(
    llama: &mut Llama<Cpu>,
    cpu: &mut Cpu,
    (batch, choices): (&mut Batch, &mut Vec<Choice>),
    tokens: &[u32],
    computed: usize,
    table: &[u32],
) -> u32 {
    batch.clear();
    batch.push_chain(tokens, computed, table, Logits::Last);
    llama.forward(cpu, batch).unwrap();
    cpu.top_k(llama.logits(), 1, choices).unwrap();
    choices[0].token
}
