//! The source of the prompts' tokens, and checks of these tokens.

use super::error::CannotServe;
use foretoken_sim::luck::{Luck, Stream, mix};
use foretoken_sim::{EngineConfig, RequestId, Workload};
use std::collections::HashMap;

/// A source of the tokens of a workload's prompts.
pub trait Prompts: Sync {
    /// Appends the tokens of the prompt of request `id` to `out`. It must append the same tokens at every call.
    fn fill(&self, id: RequestId, out: &mut Vec<u32>);
}

/// A list of prompts. Element `id` has the tokens of the prompt of request `id`. A request without an element has an
/// empty prompt.
impl Prompts for Vec<Vec<u32>> {
    fn fill(&self, id: RequestId, out: &mut Vec<u32>) {
        if let Some(prompt) = self.get(id as usize) {
            out.extend_from_slice(prompt);
        }
    }
}

/// Prompts of random tokens, for models with random weights, to which text means nothing. Prompts with the same prefix
/// blocks have the same tokens in these blocks.
#[derive(Clone, Copy, Debug)]
pub struct RandomPrompts<'a> {
    pub seed: u64,
    /// Size of the vocabulary: tokens are below this number.
    pub vocab: u32,
    /// The workload, which states the lengths of the prompts and their shared prefix blocks.
    pub workload: &'a Workload,
}

impl Prompts for RandomPrompts<'_> {
    fn fill(&self, id: RequestId, out: &mut Vec<u32>) {
        let token = |luck: &Luck, i: u32| ((u64::from(luck.half(i.into())) * u64::from(self.vocab)) >> 32) as u32;
        let start = out.len();
        for &block in self.workload.prefix(id) {
            let luck = Luck::new(self.seed, Stream::PromptBlock, block);
            out.extend((0..self.workload.prefix_block).map(|i| token(&luck, i)));
        }
        let shared = (out.len() - start) as u32;
        let luck = Luck::new(self.seed, Stream::Prompt, id.into());
        out.extend((shared..self.workload.prompt_len[id as usize]).map(|i| token(&luck, i)));
    }
}

/// Checks that every prompt has the workload's length and only tokens of the target's vocabulary. With prefix caching,
/// also checks that shared prefix blocks have equal tokens. Prompts of `max_model_len` tokens or more are not checked,
/// because the engine rejects them.
pub(super) fn check(
    prompts: &dyn Prompts,
    workload: &Workload,
    config: &EngineConfig,
    vocab: u32,
) -> Result<(), CannotServe> {
    let mut tokens = Vec::new();
    let mut shared = SharedBlocks::default();
    for (request, &said) in (0..).zip(&workload.prompt_len) {
        if said >= config.max_model_len {
            continue;
        }
        tokens.clear();
        prompts.fill(request, &mut tokens);
        let why = if tokens.len() != said as usize {
            format!("its prompt has {} tokens where the workload says {said}", tokens.len())
        } else if let Some(at) = tokens.iter().position(|&t| t >= vocab) {
            format!("token {at} of its prompt is {}, but the vocabulary has {vocab}", tokens[at])
        } else if let Some(why) = shared.differs(request, workload, &tokens).filter(|_| config.prefix_caching) {
            why
        } else {
            continue;
        };
        return Err(CannotServe::Prompt { request, why });
    }
    Ok(())
}

/// Checks that prefix blocks with equal ids have equal tokens. The prefix cache relies on this.
#[derive(Default)]
struct SharedBlocks {
    /// The first request with each sequence of prefix blocks. The key is the hash of a sequence of block ids that
    /// begins at the prompt's start. The value is (the first request with this sequence, the tokens of the last block
    /// of the sequence).
    first: HashMap<u64, (RequestId, Vec<u32>)>,
}

impl SharedBlocks {
    /// Compares the tokens of `prompt` with earlier prompts that have the same ids of prefix blocks. Returns an error
    /// text if the tokens of a shared block differ.
    fn differs(&mut self, request: RequestId, workload: &Workload, prompt: &[u32]) -> Option<String> {
        let mut chain = 0;
        for (&id, block) in workload.prefix(request).iter().zip(prompt.chunks(workload.prefix_block.max(1) as usize)) {
            chain = mix(chain ^ mix(id));
            let (other, there) = self.first.entry(chain).or_insert_with(|| (request, block.to_vec()));
            if *there != block {
                return Some(format!(
                    "its prompt differs from request {other}'s within prefix block {id}, which the workload says they \
                     share: set engine.prefix_caching to false, or give them the same text"
                ));
            }
        }
        None
    }
}
