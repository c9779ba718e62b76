//! What requests ask: the tokens of their prompts.

use super::CannotServe;
use foretoken_sim::luck::{Luck, Stream};
use foretoken_sim::{EngineConfig, RequestId, Workload};

/// The prompts of a workload.
pub trait Prompts: Sync {
    /// Appends the tokens of a request's prompt. Must be a pure function of the request.
    fn fill(&self, id: RequestId, out: &mut Vec<u32>);
}

/// One prompt a request.
impl Prompts for Vec<Vec<u32>> {
    fn fill(&self, id: RequestId, out: &mut Vec<u32>) {
        if let Some(prompt) = self.get(id as usize) {
            out.extend_from_slice(prompt);
        }
    }
}

/// Random ids, for weights that understand nothing anyway.
#[derive(Clone, Copy, Debug)]
pub struct RandomPrompts<'a> {
    /// Which ids.
    pub seed: u64,
    /// Ids are below it.
    pub vocab: u32,
    /// Says how long prompts are.
    pub workload: &'a Workload,
}

impl Prompts for RandomPrompts<'_> {
    fn fill(&self, id: RequestId, out: &mut Vec<u32>) {
        let luck = Luck::new(self.seed, Stream::Prompt, id.into());
        let token = |i: u32| (u64::from(luck.half(i.into())) * u64::from(self.vocab) >> 32) as u32;
        out.extend((0..self.workload.prompt_len[id as usize]).map(token));
    }
}

/// Has every prompt the workload's length, and tokens that the target knows? Those that the engine will reject for their
/// length are left to it.
pub(super) fn check(
    prompts: &dyn Prompts,
    workload: &Workload,
    config: &EngineConfig,
    vocab: u32,
) -> Result<(), CannotServe> {
    let mut tokens = Vec::new();
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
        } else {
            continue;
        };
        return Err(CannotServe::Prompt { request, why });
    }
    Ok(())
}
