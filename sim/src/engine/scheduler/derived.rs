//! Values that several rules of the scheduler share, such as the number of lookahead slots. They are derived from the
//! settings and the drafter's properties in the same way as in a release of vLLM. Settings that are left out take the
//! release's values. Source: the vLLM files that [`rules`](super::rules) names.

use super::speculative_config::SpeculativeConfig;
use crate::config::{DraftAt, DraftMethod, EngineConfig, FirstDraftPass, Runner};

/// The engine's settings, and the values derived from them that several rules of the scheduler need, such as the number
/// of lookahead slots.
pub(in crate::engine) struct Derived<'a> {
    /// The engine's settings as the user gave them, before defaults of the vLLM release are filled in.
    pub config: &'a EngineConfig,
    /// The drafter's properties that the scheduler must know, such as its longest draft length.
    pub spec: &'a SpeculativeConfig,
    /// The most draft tokens of a request in a step; 0 without speculation.
    pub k: u32,
    /// Whether one draft pass writes the context and another gives all draft tokens (DFlash, DSpark).
    pub block: bool,
    /// The version of vLLM's model runner (V1 or V2), the part of a worker that runs passes.
    pub runner: Runner,
    /// Whether draft tokens are made at the start or the end of a step.
    pub draft_at: DraftAt,
    /// Which tokens the first draft pass of a step processes: all tokens of the step, or only those that the draft
    /// model has not processed yet.
    pub first_draft_pass: FirstDraftPass,
    /// Why async scheduling is not possible with these settings; `None` if it is possible.
    pub never_async: Option<&'static str>,
    /// Whether the next step is scheduled while a step is in flight: as the setting `async_scheduling` says, or else
    /// wherever it is possible, as in vLLM.
    pub asynchronous: bool,
    /// vLLM's value of `num_lookahead_tokens` for the drafter: the number of KV slots that are reserved for a request
    /// in addition to the slots of its scheduled tokens. The engine's setting `num_lookahead_tokens` has no effect on
    /// this value.
    pub lookahead: u32,
    /// vLLM's value of `max_num_new_slots_for_drafting` for the drafter: the number of extra tokens that each request
    /// takes from the token budget. The engine's setting `max_num_new_slots_for_drafting` has no effect on this value.
    pub draft_slots: u32,
    /// vLLM's `num_prefill_lookahead_tokens`: the number of prompt tokens after the end of a prefill chunk that the
    /// drafter needs.
    pub prefill_lookahead: u32,
}

impl<'a> Derived<'a> {
    /// Derives the values that several rules of the scheduler share from the engine's settings and from the properties
    /// of the drafter.
    pub fn of(config: &'a EngineConfig, spec: &'a SpeculativeConfig) -> Derived<'a> {
        let (k, runner, draft_at) = (spec.num_speculative_tokens, runner(config, spec), config.drafts_at());
        let first_draft_pass = config.first_draft_pass.unwrap_or(match draft_at {
            DraftAt::StepEnd => FirstDraftPass::Padded,
            DraftAt::StepStart => FirstDraftPass::Unseen,
        });
        let never_async = match config.method {
            DraftMethod::Ngram | DraftMethod::Suffix if k > 0 && config.release().sglang => {
                Some("the drafter looks up what was accepted")
            }
            _ if config.release().sglang => None,
            _ if draft_at == DraftAt::StepStart => Some("drafts are made at the start of a step"),
            _ if k == 0 => None,
            _ if first_draft_pass == FirstDraftPass::Unseen => Some("the first draft pass waits for what was accepted"),
            DraftMethod::Suffix => Some("the drafter looks up what was accepted"),
            DraftMethod::Ngram if !config.release().ngram_async || runner == Runner::V1 => {
                Some("the drafter looks up what was accepted")
            }
            _ => None,
        };
        Derived {
            config,
            spec,
            k,
            block: is_block(config.method),
            runner,
            draft_at,
            first_draft_pass,
            never_async,
            asynchronous: config.async_scheduling.unwrap_or(never_async.is_none()),
            lookahead: lookahead(config.method, k),
            draft_slots: draft_slots(config, spec),
            prefill_lookahead: prefill_lookahead(config, k),
        }
    }

    /// vLLM's table of draft lengths: entry n is the draft length if n requests are scheduled. `None` if no table is
    /// set, or if the vLLM release ignores the table. A number of requests between two ranges of the table, or beyond
    /// the last range, has the draft length of the previous range. A number below the first range has length 0.
    pub fn per_batch_size(&self) -> Option<Vec<u32>> {
        let dspark = matches!(self.config.method, DraftMethod::Dspark | DraftMethod::DsparkFillIn);
        let ignored = self.config.release().ignores_dspark_table && self.runner == Runner::V1 && dspark;
        if self.spec.per_batch_size.is_empty() || ignored {
            return None;
        }
        let most = i64::from(self.k);
        let mut ranges = self.spec.per_batch_size.clone();
        ranges.sort_unstable();
        let length =
            |n: i64| ranges.iter().rev().find(|&&(first, _, _)| first <= n).map_or(0, |&(_, _, k)| k.min(most) as u32);
        Some((0..=i64::from(self.config.max_num_seqs)).map(length).collect())
    }
}

fn is_block(method: DraftMethod) -> bool {
    matches!(method, DraftMethod::Dflash | DraftMethod::Dspark | DraftMethod::DsparkFillIn)
}

/// The version of the model runner: the setting `runner`, or else the version that the vLLM release takes for this
/// drafter.
fn runner(c: &EngineConfig, spec: &SpeculativeConfig) -> Runner {
    let old = c.method == DraftMethod::Suffix || (spec.parallel_drafting && !is_block(c.method));
    let needs_v1 = spec.num_speculative_tokens > 0 && old;
    c.runner.unwrap_or(if needs_v1 { Runner::V1 } else { c.release().runner })
}

fn lookahead(method: DraftMethod, k: u32) -> u32 {
    match method {
        _ if k == 0 => 0,
        DraftMethod::Ngram | DraftMethod::Suffix => 0,
        DraftMethod::DraftModel | DraftMethod::Eagle | DraftMethod::Eagle3 | DraftMethod::Mtp | DraftMethod::Dspark => {
            k
        }
        DraftMethod::Dflash | DraftMethod::DsparkFillIn => k + 1,
    }
}

fn draft_slots(c: &EngineConfig, spec: &SpeculativeConfig) -> u32 {
    let (k, blocks) = (spec.num_speculative_tokens, c.release().charges_draft_blocks);
    match c.method {
        _ if k == 0 => 0,
        DraftMethod::DraftModel if spec.parallel_drafting => k,
        DraftMethod::DraftModel => 1,
        DraftMethod::Eagle | DraftMethod::Eagle3 if spec.parallel_drafting => k - 1,
        DraftMethod::Dflash if blocks => k,
        DraftMethod::Dspark | DraftMethod::DsparkFillIn if blocks => k - 1,
        _ => 0,
    }
}

fn prefill_lookahead(c: &EngineConfig, k: u32) -> u32 {
    match c.method {
        _ if k == 0 => 0,
        DraftMethod::Ngram | DraftMethod::Suffix | DraftMethod::DraftModel => 0,
        DraftMethod::Mtp if c.mtp_modules > 1 && k > 1 => k,
        _ => 1,
    }
}
