//! A target and its draft model on one device, loaded once for any number of runs.

use super::capacity::{Capacity, Needs};
use super::error::CannotServe;
use crate::device::Device;
use crate::forward::{Llama, LoadError};
use crate::model::{LlamaShape, MemoryNeeded};
use crate::paged::{BLOCK_SIZE, Batch, Logits};
use crate::weights::{Dtype, Weights};
use foretoken_sim::{DraftAt, DraftKv, EngineConfig};

/// Buffers for distributions over the vocabulary, for runs that need them ([`Needs::distributions`]).
pub(super) struct Distributions<D: Device> {
    /// The target's distributions over the vocabulary, one row per token of the pass that needs logits.
    pub(super) target: D::Buffer,
    /// The draft model's distributions over the vocabulary, one row per token of the pass that needs logits.
    pub(super) draft: D::Buffer,
    /// The draft model's distributions for all drafted tokens of a step. Row `i · kept_len + j` belongs to drafted
    /// token `j` of request `i` of the step's batch. [`Capacity::kept_len`] is the largest number of drafted tokens per
    /// request.
    pub(super) kept: D::Buffer,
}

/// A target model and its draft model on one device, with their buffers.
pub struct Pair<D: Device> {
    pub(super) target: Llama<D>,
    pub(super) draft: Option<Llama<D>>,
    pub(super) distributions: Option<Distributions<D>>,
    pub(super) capacity: Capacity,
}

impl<D: Device> Pair<D> {
    /// Loads the target and the draft model with the memory sizes that `capacity` gives.
    pub fn load(
        device: &mut D,
        target: (&LlamaShape, &impl Weights),
        draft: Option<(&LlamaShape, &impl Weights)>,
        capacity: Capacity,
    ) -> Result<Pair<D>, LoadError<D::Error>> {
        let draft_kind = draft.map(|(shape, weights)| (shape, weights.dtype()));
        let needed = Pair::memory_needed(device, (target.0, target.1.dtype()), draft_kind, capacity);
        if let Some(available) = device.available_bytes() {
            needed.fits(available)?;
        }
        let loaded_target = Llama::load(device, target.0, target.1, capacity.target())?;
        let loaded_draft = match draft {
            Some((shape, weights)) => Some(Llama::load(device, shape, weights, capacity.draft())?),
            None => None,
        };
        let mut buffer = |rows| device.buffer(rows, target.0.vocab as usize).map_err(LoadError::Device);
        let distributions = match capacity.kept_rows() {
            0 => None,
            kept => Some(Distributions {
                target: buffer(capacity.logit_rows)?,
                draft: buffer(capacity.draft_logit_rows)?,
                kept: buffer(kept)?,
            }),
        };
        Ok(Pair { target: loaded_target, draft: loaded_draft, distributions, capacity })
    }

    /// Computes the bytes that [`Pair::load`] needs for models of these shapes and weight types.
    pub fn memory_needed(
        device: &D,
        target: (&LlamaShape, Dtype),
        draft: Option<(&LlamaShape, Dtype)>,
        capacity: Capacity,
    ) -> MemoryNeeded {
        let mut needed = Llama::<D>::memory_needed(device, target.0, target.1, capacity.target());
        if let Some((shape, dtype)) = draft {
            let more = Llama::<D>::memory_needed(device, shape, dtype, capacity.draft());
            needed.weights += more.weights;
            needed.kv += more.kv;
            needed.activations += more.activations;
        }
        if capacity.kept_rows() > 0 {
            let rows = capacity.logit_rows + capacity.draft_logit_rows + capacity.kept_rows();
            needed.activations += 4 * rows as u64 * u64::from(target.0.vocab);
        }
        needed
    }

    /// Checks whether a target and a draft of these shapes can serve with the settings `config`. The check works before
    /// the models are loaded.
    pub fn check_shapes(
        config: &EngineConfig,
        needs: Needs,
        target: &LlamaShape,
        draft: Option<&LlamaShape>,
    ) -> Result<(), CannotServe> {
        let bad = |key, why: String| Err(CannotServe::Engine { key, why });
        if config.release().sglang {
            return bad("version", "SGLang's scheduler gives no KV blocks to a device: take a version of vLLM".into());
        }
        if config.draft_at.unwrap_or(config.release().draft_at) != DraftAt::StepStart {
            let why = "a device drafts at the start of the step that verifies, one step at a time: take \"step-start\"";
            return bad("draft_at", why.into());
        }
        if config.block_size as usize != BLOCK_SIZE {
            return bad(
                "block_size",
                format!("{} is not {BLOCK_SIZE}, the block of the device's KV", config.block_size),
            );
        }
        if config.prefix_caching && matches!(config.draft_kv, DraftKv::Separate { .. }) {
            let why = "cached blocks hold no KV of a draft with a pool of its own: set it to false, or share the pool";
            return bad("prefix_caching", why.into());
        }
        let too_long = |shape: &LlamaShape, which: &str| {
            let most = shape.max_positions;
            (config.max_model_len > most)
                .then(|| format!("{} is more than the {most} positions of the {which}", config.max_model_len))
        };
        if let Some(why) = too_long(target, "target") {
            return bad("max_model_len", why);
        }
        if !needs.draft {
            return Ok(());
        }
        if !config.draft_prefill {
            return bad("draft_prefill", "a draft model needs the prompts' KV: set it to true".into());
        }
        let Some(draft) = draft else { return Err(CannotServe::NoDraft) };
        if draft.vocab != target.vocab {
            return Err(CannotServe::Vocabulary { target: target.vocab, draft: draft.vocab });
        }
        too_long(draft, "draft").map_or(Ok(()), |why| bad("max_model_len", why))
    }

    pub(super) fn check(&self, config: &EngineConfig, needs: Needs) -> Result<(), CannotServe> {
        Pair::<D>::check_shapes(config, needs, self.target.shape(), self.draft.as_ref().map(|d| d.shape()))?;
        let mut needed = Capacity::of(config, needs);
        if !needs.draft {
            (needed.draft_blocks, needed.draft_scratch, needed.draft_logit_rows) = (0, 0, 0);
        }
        self.capacity.covers(&needed)
    }

    /// Returns the capacity with which the target and the draft were loaded.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// Returns the target and the draft (`None` if the pair has no draft model), for passes outside of a run. A later
    /// run overwrites the KV that these passes write.
    pub fn models(&mut self) -> (&mut Llama<D>, Option<&mut Llama<D>>) {
        (&mut self.target, self.draft.as_mut())
    }

    /// Returns the number of tokens in the vocabulary, which the target and the draft model share.
    pub fn vocab(&self) -> u32 {
        self.target.shape().vocab
    }

    /// Warms up the target and the draft model before the first step of a run, so that threads and caches are warm and
    /// a GPU's kernels are loaded. Runs each model `times` times over one token and over up to 64 tokens. These passes
    /// write to the null block, whose contents do not matter.
    pub fn warm_up(&mut self, device: &mut D, times: usize) -> Result<(), D::Error> {
        let mut batch = Batch::default();
        for model in std::iter::once(&mut self.target).chain(&mut self.draft) {
            let many = model.limits().max_rows.min(64);
            for rows in (0..times).flat_map(|_| [1, many]) {
                batch.clear();
                for _ in 0..rows {
                    batch.push_chain(&[0], 0, &[0], Logits::Skip);
                }
                batch.logit_rows.push(0);
                model.forward(device, &batch)?;
            }
        }
        Ok(())
    }
}
