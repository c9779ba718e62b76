//! In what releases of vLLM differ.

use crate::config::choices::{DraftAt, Runner};

/// In what a release of vLLM differs from others.
#[derive(Debug, PartialEq)]
pub struct Release {
    /// The release's name in experiment files.
    pub name: &'static str,
    /// The release's version number.
    pub number: &'static str,
    /// Whether the scheduler is SGLang's.
    pub sglang: bool,

    /// Whether a step has either prompts or decode requests, as in v0. Otherwise one loop schedules both.
    pub prefills_apart: bool,
    /// Whether draft tokens are charged to the token budget.
    pub charges_drafts: bool,
    /// Default of `draft_at`: when draft tokens are made.
    pub draft_at: DraftAt,
    /// Default of `runner` for drafters that both model runners serve.
    pub runner: Runner,
    /// Default of `chunked_prefill`: whether a prompt may be split over several steps.
    pub chunked_prefill: bool,
    /// Default of `scheduler_reserve_full_isl`: whether a request is admitted only if its whole sequence fits.
    pub reserve_full_isl: bool,
    /// Default of `watermark`: share of the KV blocks that must stay free at an admission.
    pub watermark: f64,
    /// Whether the watermark also counts while no other request runs.
    pub watermark_always: bool,
    /// Default of `pad_admissions`: whether an admitted request with one token left to compute gets padding tokens.
    pub pad_admissions: bool,
    /// Whether there is a setting `prefill_schedule_interval`.
    pub defers_prefills: bool,

    /// Number of KV blocks that are given to no request.
    pub null_blocks: u32,
    /// Number of free blocks that a decode step needs beside those that it takes.
    pub spare_blocks: u32,
    /// Number of tokens beyond `max_model_len` with which a request ends.
    pub tokens_beyond_model_len: u32,
    /// Whether the waiting list is sorted by priority. Otherwise it is sorted when a request with a lower priority is
    /// looked for.
    pub sorts_waiting: bool,
    /// Whether a request that can never run is rejected when it arrives, and not at the head of the waiting list.
    pub rejects_on_arrival: bool,
    /// Whether a waiting request of which no token may run ends the admissions of the step. Otherwise it is passed
    /// over.
    pub stops_at_unsplittable: bool,
    /// Whether a request that preempted itself for want of blocks leaves later requests of higher priority a chance.
    pub goes_on_after_self_preemption: bool,

    /// Whether the block hashes of EAGLE-like drafters cover the tokens that the drafter looks ahead.
    pub hashes_lookahead: bool,
    /// Whether the last block of a prefix-cache hit is computed again for block drafters, and for EAGLE-like drafters
    /// whatever their hashes cover.
    pub drops_last_hit: bool,
    /// Whether several MTP modules with prefix caching need KV blocks of at least the draft length.
    pub mtp_needs_long_blocks: bool,
    /// Whether blocks that decoding with draft tokens filled are cached as soon as the tokens are verified.
    pub caches_when_verified: bool,

    /// Whether async scheduling works with prompt lookups on runner V2.
    pub ngram_async: bool,
    /// Whether a table of draft lengths by batch size is ignored for DSpark on runner V1.
    pub ignores_dspark_table: bool,
    /// Whether block drafters take extra tokens of each request from the token budget. Then these tokens, and not the
    /// lookahead slots, must fit into the budget.
    pub charges_draft_blocks: bool,
    /// Whether block drafters bound the number of running requests by the token budget.
    pub bounds_block_batches: bool,
    /// Whether drafting is skipped in a step in which no request can use draft tokens, on runner V2.
    pub skips_useless_drafts: bool,
    /// Whether a block drafter on runner V2 that drafts nothing only writes the context.
    pub writes_context_alone: bool,
    /// Whether the release has vLLM's adaptive verification.
    pub adapts_verification: bool,
}
