//! The values that vLLM derives from its settings (`config/vllm.py`, `config/speculative.py`, `config/scheduler.py`).

use crate::workload::{Release, Workload};

/// The values that vLLM derives from its settings. The comments give vLLM's names.
#[derive(Clone, Debug)]
pub struct Derived {
    /// `num_lookahead_tokens`: KV slots that are reserved after a request's scheduled tokens.
    pub lookahead: i64,
    /// `max_num_new_slots_for_drafting`: extra tokens that each request takes from the token budget for its drafter.
    pub slots: i64,
    /// `num_prefill_lookahead_tokens`: number of prompt tokens after the end of a prefill chunk that the drafter needs.
    pub prefill_lookahead: i64,
    /// `num_hash_lookahead_tokens`: number of tokens after a KV block that the block's hash also covers; 0 in vLLM
    /// 0.32.
    pub hash_lookahead: i64,
    /// The scheduler's `use_eagle_block_drop`: is the last KV block of a prefix cache hit dropped?
    pub drop: bool,
    /// `max_num_active_reqs`: the most requests that may run at once.
    pub active: i64,
    pub watermark_blocks: i64,
    pub can_skip: bool,
    /// Draft length for each number of scheduled requests, from 0 on; empty without a table of draft lengths.
    pub table: Vec<i64>,
    /// Does the drafter use several MTP modules (multi-token-prediction heads)?
    pub modules: bool,
    /// `local_prefill_interval`: the least number of steps from one prefill to the next while requests decode.
    pub interval: i64,
}

impl Derived {
    pub fn of(w: &Workload) -> Derived {
        let (new, k) = (w.release == Release::V0_33, w.k);
        let is = |names: &[&str]| k > 0 && names.contains(&w.drafter.as_str());
        let block = is(&["dflash", "dspark"]);
        let eagle_like = is(&["eagle", "eagle3", "mtp"]);
        let modules = is(&["mtp"]) && w.modules.min(k) > 1;
        let lookahead = match () {
            () if is(&["dflash"]) || (is(&["dspark"]) && w.fill_in) => k + 1,
            () if eagle_like || is(&["dspark", "draft-model"]) => k,
            () => 0,
        };
        let slots = match () {
            () if new && block => 0,
            () if is(&["dflash"]) => k,
            () if is(&["dspark"]) => k - 1,
            () if is(&["draft-model"]) => {
                if w.parallel {
                    k
                } else {
                    1
                }
            }
            () if w.parallel && k > 0 => k - 1,
            () => 0,
        };
        let prefill_lookahead = match () {
            () if modules => k,
            () => i64::from(eagle_like || block),
        };
        let hash_lookahead = if new && eagle_like && w.caching { prefill_lookahead } else { 0 };
        let active = if w.active > 0 { w.active } else { w.seqs };
        Derived {
            lookahead,
            slots,
            prefill_lookahead,
            hash_lookahead,
            drop: if new { eagle_like && hash_lookahead == 0 } else { eagle_like || block },
            active: if new && block { active.min(w.budget / lookahead) } else { active },
            watermark_blocks: (w.watermark as f64 / 1000.0 * w.blocks as f64) as i64,
            can_skip: new && lookahead > 0 && w.runner == 2,
            table: table(w),
            modules,
            interval: if new { w.interval } else { 1 },
        }
    }

    /// The line `D` of a recording of vLLM: the values that vLLM derives from its settings, by name.
    pub fn line(&self, w: &Workload) -> String {
        let mut line = format!(
            "D lookahead={} slots={} prefill_lookahead={} hash_lookahead={} drop={} active={} length={} \
             watermark_blocks={} can_skip={} table={}",
            self.lookahead,
            self.slots,
            self.prefill_lookahead,
            self.hash_lookahead,
            i64::from(self.drop),
            self.active,
            w.length,
            self.watermark_blocks,
            i64::from(self.can_skip),
            i64::from(!self.table.is_empty()),
        );
        if w.core {
            let (queue, modules) = (1 + i64::from(w.asynchronous), i64::from(self.modules));
            line += &format!(" queue={queue} modules={modules} drafter_length={}", w.length);
        }
        line + "\n"
    }
}

/// The draft length for each batch size (vLLM's `build_dynamic_sd_schedule_lookup`). A size between two ranges has the
/// length of the range before it.
fn table(w: &Workload) -> Vec<i64> {
    let mut lengths = Vec::new();
    if !w.table.is_empty() && w.k > 0 {
        for size in 0..=w.seqs {
            let mut length = 0;
            for &(first, _, k) in &w.table {
                if first <= size {
                    length = k.min(w.k);
                }
            }
            lengths.push(length);
        }
    }
    lengths
}
