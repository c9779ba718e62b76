//! The rules of a release of vLLM's V1 scheduler, as numbers and switches; and how they follow from its settings.
//!
//! Read in vLLM 0.33.0 and 0.32.0 (`v1/core/sched/scheduler.py`, `config/vllm.py`, `config/speculative.py`) and held to both by
//! the recorded schedules of `tests/vllm/`.

use serde::{Deserialize, Serialize};

/// A release whose scheduler is replicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Release {
    /// vLLM 0.32.
    #[serde(rename = "vllm-0.32")]
    V0_32,
    /// vLLM 0.33.
    #[serde(rename = "vllm-0.33")]
    V0_33,
}

/// Where drafts come from, as far as the scheduler must know (vLLM's `method`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DraftMethod {
    /// Nowhere.
    #[default]
    None,
    /// The text so far: n-gram and suffix lookups.
    Ngram,
    /// A draft model; in parallel: all tokens in one forward (PARD).
    DraftModel {
        /// All tokens in one forward?
        parallel: bool,
    },
    /// An EAGLE head; in parallel: P-EAGLE.
    Eagle {
        /// All tokens in one forward?
        parallel: bool,
    },
    /// Multi-token prediction with so many modules.
    Mtp {
        /// `num_nextn_predict_layers`.
        modules: u32,
    },
    /// A block-diffusion drafter.
    Dflash,
    /// A semi-autoregressive drafter.
    Dspark {
        /// Does it fill in a block that starts with a mask (`sample_from_anchor` false)?
        fill_in: bool,
    },
}

/// Which model runner executes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Runner {
    /// The first one: CPUs, n-gram, suffix.
    V1,
    /// The default.
    #[default]
    V2,
}

/// Who is served first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulingPolicy {
    /// First come, first served.
    #[default]
    Fcfs,
    /// By the requests' priority, the least first, then by arrival.
    Priority,
}

/// Settings of vLLM's scheduler: its names, its defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerSettings {
    /// The release.
    pub release: Release,
    /// Where drafts come from.
    pub method: DraftMethod,
    /// `num_speculative_tokens`.
    pub num_speculative_tokens: u32,
    /// `num_speculative_tokens_per_batch_size`: first and last batch size, and the drafts a request there. Empty is none.
    pub per_batch_size: Vec<(i64, i64, i64)>,
    /// The model runner.
    pub runner: Runner,
    /// Who is served first.
    pub policy: SchedulingPolicy,
    /// `max_num_seqs`.
    pub max_num_seqs: u32,
    /// `max_num_active_seqs`; 0 is unset.
    pub max_num_active_seqs: u32,
    /// `max_num_batched_tokens`.
    pub max_num_batched_tokens: u32,
    /// `max_model_len`.
    pub max_model_len: u32,
    /// `enable_chunked_prefill`.
    pub chunked_prefill: bool,
    /// `long_prefill_token_threshold`; 0 is none.
    pub long_prefill_token_threshold: u32,
    /// `long_prefill_token_threshold_adaptive`.
    pub long_prefill_token_threshold_adaptive: bool,
    /// `scheduler_reserve_full_isl`.
    pub reserve_full_isl: bool,
    /// `watermark`, a share of all blocks.
    pub watermark: f64,
    /// `prefill_schedule_interval`.
    pub prefill_schedule_interval: u32,
    /// `enable_prefix_caching`.
    pub prefix_caching: bool,
    /// `block_size`, tokens.
    pub block_size: u32,
    /// Blocks of the pool, the null block included.
    pub num_gpu_blocks: u32,
}

/// Settings with which vLLM does not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("engine.{key}: {why}")]
pub struct Refusal {
    /// The setting.
    pub key: &'static str,
    /// What is wrong and what would be right.
    pub why: String,
}

/// What the settings come to.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// The release.
    pub release: Release,
    /// KV slots to reserve beyond the tokens that are scheduled.
    pub num_lookahead_tokens: u32,
    /// Slots a request takes of the input budget beside its tokens (`max_num_new_slots_for_drafting`).
    pub draft_slots: u32,
    /// A prefill chunk never ends nearer than this to the end of a prompt, unless at it.
    pub num_prefill_lookahead_tokens: u32,
    /// Tokens after a block that its hash covers.
    pub num_hash_lookahead_tokens: u32,
    /// Is the last block of a hit left out?
    pub drop_last_hit: bool,
    /// Requests that may run.
    pub max_num_active_seqs: u32,
    /// Blocks kept free on admission while something runs.
    pub watermark_blocks: u32,
    /// Is a request that is alone spared the threshold of long prefills?
    pub lift_threshold_when_alone: bool,
    /// Under priority scheduling, do those behind a request that preempted itself get their turn?
    pub goes_on_after_self_preemption: bool,
    /// Are drafts skipped in a step in which nobody can use them?
    pub can_skip_drafts: bool,
    /// Drafts a request, by the number of scheduled requests.
    pub per_batch_size: Option<Vec<u32>>,
    /// Drafts that an admission with one token left is padded with; 0 is no padding.
    pub pad_admissions: u32,
    /// Are blocks that decoding fills cached once their tokens are verified (0.33), and not when the next is scheduled?
    pub cache_when_verified: bool,
}

impl Rules {
    /// What these settings come to.
    ///
    /// # Errors
    /// vLLM does not start with them.
    pub fn of(s: &SchedulerSettings) -> Result<Rules, Refusal> {
        check(s)?;
        let (k, new) = (s.num_speculative_tokens, s.release >= Release::V0_33);
        let lookahead = num_lookahead_tokens(s.method, k);
        let prefill_lookahead = num_prefill_lookahead_tokens(s.method, k);
        let eagle_like = matches!(s.method, DraftMethod::Eagle { .. } | DraftMethod::Mtp { .. });
        let reads_hidden_states = eagle_like || matches!(s.method, DraftMethod::Dflash | DraftMethod::Dspark { .. });
        let hash_lookahead = if new && eagle_like && s.prefix_caching { prefill_lookahead } else { 0 };
        let active = if s.max_num_active_seqs == 0 { s.max_num_seqs } else { s.max_num_active_seqs };
        let wide = new && matches!(s.method, DraftMethod::Dflash | DraftMethod::Dspark { .. });
        let table = (!s.per_batch_size.is_empty() && !drops_table(s)).then(|| lookup(s));
        Ok(Rules {
            release: s.release,
            num_lookahead_tokens: lookahead,
            draft_slots: draft_slots(s.release, s.method, k),
            num_prefill_lookahead_tokens: prefill_lookahead,
            num_hash_lookahead_tokens: hash_lookahead,
            drop_last_hit: if new { eagle_like && hash_lookahead == 0 } else { reads_hidden_states },
            max_num_active_seqs: if wide { active.min(s.max_num_batched_tokens / lookahead) } else { active },
            watermark_blocks: (s.watermark * f64::from(s.num_gpu_blocks)) as u32,
            lift_threshold_when_alone: true,
            goes_on_after_self_preemption: new && s.policy == SchedulingPolicy::Priority,
            can_skip_drafts: new && lookahead > 0 && s.runner == Runner::V2,
            pad_admissions: if table.is_none() { k } else { 0 },
            per_batch_size: table,
            cache_when_verified: new && k > 0,
        })
    }
}

/// vLLM's `num_lookahead_tokens`.
fn num_lookahead_tokens(method: DraftMethod, k: u32) -> u32 {
    match method {
        DraftMethod::None | DraftMethod::Ngram => 0,
        DraftMethod::DraftModel { .. } | DraftMethod::Eagle { .. } | DraftMethod::Mtp { .. } => k,
        DraftMethod::Dspark { fill_in: false } => k,
        DraftMethod::Dflash | DraftMethod::Dspark { fill_in: true } => k + 1,
    }
}

/// vLLM's `max_num_new_slots_for_drafting`.
fn draft_slots(release: Release, method: DraftMethod, k: u32) -> u32 {
    match method {
        DraftMethod::DraftModel { parallel } => {
            if parallel {
                k
            } else {
                1
            }
        }
        DraftMethod::Eagle { parallel: true } => k - 1,
        DraftMethod::Dflash if release == Release::V0_32 => k,
        DraftMethod::Dspark { .. } if release == Release::V0_32 => k - 1,
        _ => 0,
    }
}

/// vLLM's `num_prefill_lookahead_tokens`.
fn num_prefill_lookahead_tokens(method: DraftMethod, k: u32) -> u32 {
    match method {
        DraftMethod::None | DraftMethod::Ngram | DraftMethod::DraftModel { .. } => 0,
        DraftMethod::Mtp { modules } if modules > 1 && k > 1 => k,
        _ => 1,
    }
}

/// Runner V1 of 0.33 falls back to the fixed length where its drafter cannot change it.
fn drops_table(s: &SchedulerSettings) -> bool {
    s.release >= Release::V0_33 && s.runner == Runner::V1 && matches!(s.method, DraftMethod::Dspark { .. })
}

/// Drafts by the number of scheduled requests, from 0: gaps and the tail take the length before them.
fn lookup(s: &SchedulerSettings) -> Vec<u32> {
    let most = i64::from(s.num_speculative_tokens);
    let mut ranges = s.per_batch_size.clone();
    ranges.sort_unstable();
    let at = |n: i64| ranges.iter().rev().find(|&&(first, _, _)| first <= n).map_or(0, |&(_, _, k)| k.min(most) as u32);
    (0..=i64::from(s.max_num_seqs)).map(at).collect()
}

/// What vLLM itself refuses.
fn check(s: &SchedulerSettings) -> Result<(), Refusal> {
    let refuse = |key, why: String| Err(Refusal { key, why });
    let (budget, k) = (s.max_num_batched_tokens, s.num_speculative_tokens);
    if budget < s.max_num_seqs {
        return refuse("max_num_batched_tokens", format!("{budget} is below max_num_seqs = {}", s.max_num_seqs));
    }
    if !s.chunked_prefill && budget < s.max_model_len {
        let why = format!(
            "{budget} is below max_model_len = {}: without chunked prefill no prompt is split",
            s.max_model_len
        );
        return refuse("max_num_batched_tokens", why);
    }
    if s.max_num_active_seqs > s.max_num_seqs {
        let why = format!("{} is above max_num_seqs = {}", s.max_num_active_seqs, s.max_num_seqs);
        return refuse("max_num_active_seqs", why);
    }
    if s.long_prefill_token_threshold > s.max_model_len {
        let why = format!("{} is above max_model_len = {}", s.long_prefill_token_threshold, s.max_model_len);
        return refuse("long_prefill_token_threshold", why);
    }
    let needed = match s.release {
        Release::V0_32 => draft_slots(s.release, s.method, k),
        Release::V0_33 => num_lookahead_tokens(s.method, k),
    };
    if k > 0 && budget <= needed {
        let why = format!("{budget} leaves no room for a token beside the {needed} slots that drafting takes");
        return refuse("max_num_batched_tokens", why);
    }
    if let Some(why) = runner_cannot(s) {
        return refuse("runner", why.into());
    }
    if let DraftMethod::Mtp { modules } = s.method {
        if k > modules && !k.is_multiple_of(modules) {
            return refuse("num_speculative_tokens", format!("{k} is no multiple of the {modules} MTP modules"));
        }
        if modules > 1 && k > 1 && s.prefix_caching && s.block_size < k {
            let why =
                format!("{} is below the {k} tokens that several MTP modules draft, with prefix caching", s.block_size);
            return refuse("block_size", why);
        }
    }
    check_table(s)
}

/// Why the model runner cannot serve the drafter.
fn runner_cannot(s: &SchedulerSettings) -> Option<&'static str> {
    match (s.runner, s.method) {
        (Runner::V2, DraftMethod::DraftModel { parallel: true } | DraftMethod::Eagle { parallel: true }) => {
            Some("runner V2 drafts no tokens in parallel: take V1")
        }
        (Runner::V1, DraftMethod::Dspark { .. }) => Some("runner V1 does not serve DSpark: take V2"),
        _ => None,
    }
}

fn check_table(s: &SchedulerSettings) -> Result<(), Refusal> {
    let refuse = |why: String| Err(Refusal { key: "num_speculative_tokens_per_batch_size", why });
    let mut ranges = s.per_batch_size.clone();
    ranges.sort_unstable();
    let mut before = 0;
    for &(first, last, k) in &ranges {
        match () {
            () if first < 1 => return refuse(format!("batch size {first} is below 1")),
            () if last < first => return refuse(format!("batch sizes {first} to {last} are no range")),
            () if first <= before => return refuse(format!("batch size {first} stands in two ranges")),
            () if before == 0 && first > 1 => return refuse(format!("it begins at batch size {first}, not at 1")),
            () if k < 0 => return refuse(format!("{k} draft tokens")),
            () => before = last,
        }
    }
    Ok(())
}
