//! Replays a recorded workload with our scheduler. Every step must equal the step that vLLM made in the recording.

use super::blocks::Blocks;
use super::compare::{Differs, IDLE_STEPS, cuts_padding, differs, entries};
use super::core;
use super::fixture::{Recorded, Step};
use foretoken_sim::engine::{Order, Rules, Scheduler, SpecDecode};
use foretoken_sim::{BadConfig, DraftMethod, Part, Time, Version};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

/// Replays a recorded workload with our scheduler, under the rules of its vLLM release. First compares the values that
/// vLLM derived from the settings with ours. If vLLM or our rules refuse the settings, only the refusals are compared.
///
/// # Errors
/// The first difference to the recording.
pub fn replay(recorded: &Recorded) -> Result<(), Differs> {
    // vLLM refuses a pool that does not hold a request of `max_model_len` tokens. Our rules have no such check, but
    // they may refuse the same pool because it does not hold one decode request.
    let c = &recorded.config;
    let room = u64::from(c.num_gpu_blocks.saturating_sub(1)) * u64::from(c.block_size);
    let small = recorded.checked && room < u64::from(c.max_model_len) && recorded.ending == "pool-below-length";
    match rules(recorded) {
        Err(refusal) if kind_of(refusal.key, &refusal.why) == recorded.ending => Ok(()),
        Err(BadConfig { key: "num_gpu_blocks", .. }) | Ok(_) if small && recorded.derived.is_none() => Ok(()),
        Err(refusal) => Err(differs("start", &recorded.ending, refusal.to_string())),
        Ok(_) if recorded.derived.is_none() => Err(differs("start", &recorded.ending, "it starts")),
        Ok(rules) => {
            compare_derived(recorded, &rules)?;
            replay_by(recorded, rules)
        }
    }
}

/// Our scheduler's rules for a recorded workload of vLLM. Rules that only our scheduler has, and not vLLM's, are
/// switched off.
///
/// # Errors
/// vLLM refuses the settings of the workload.
pub fn rules(recorded: &Recorded) -> Result<Rules, BadConfig> {
    let mut rules = Rules::of(&recorded.config, &recorded.speculation)?;
    rules.guarded = false;
    Ok(rules)
}

/// Replays a recorded workload of vLLM's scheduler with our scheduler, which applies `rules`.
///
/// # Errors
/// The first difference between our steps and the recorded ones.
pub fn replay_by(recorded: &Recorded, rules: Rules) -> Result<(), Differs> {
    if recorded.core {
        return core::replay(recorded, rules);
    }
    let version = rules.version;
    let scheduler = Scheduler::new(&recorded.config, Cow::Borrowed(&recorded.workload), rules, f64::INFINITY, true);
    Replay {
        recorded,
        scheduler,
        version,
        spec: SpecDecode::default(),
        arrived: 0,
        refused: Vec::new(),
        blocks: Blocks::default(),
    }
    .run()
}

/// The word with which a recording names the reason why vLLM refuses the settings. Our error for the same settings has
/// the key `key` and the message `why`.
fn kind_of(key: &str, why: &str) -> &'static str {
    match key {
        "max_num_batched_tokens" if why.contains("max_num_seqs") => "budget-below-seqs",
        "max_num_batched_tokens" if why.contains("max_model_len") => "budget-below-length",
        "max_num_batched_tokens" => "budget-below-drafts",
        "max_num_active_seqs" => "active-above-seqs",
        "long_prefill_token_threshold" => "threshold-above-length",
        "mtp_modules" => "drafts-not-divisible",
        "block_size" => "block-below-drafts",
        "num_speculative_tokens_per_batch_size" => "table",
        "runner" => "runner",
        "async_scheduling" => "async",
        _ => "unknown",
    }
}

fn compare_derived(recorded: &Recorded, rules: &Rules) -> Result<(), Differs> {
    let c = &recorded.config;
    let several_modules = c.method == DraftMethod::Mtp && c.mtp_modules > 1 && rules.num_speculative_tokens > 1;
    let ours: BTreeMap<&str, u64> = BTreeMap::from([
        ("lookahead", rules.num_lookahead_tokens.into()),
        ("slots", rules.draft_slots.into()),
        ("prefill_lookahead", rules.num_prefill_lookahead_tokens.into()),
        ("hash_lookahead", rules.num_hash_lookahead_tokens.into()),
        ("drop", rules.drop_last_hit.into()),
        ("active", rules.max_num_active_seqs.into()),
        ("length", recorded.config.max_model_len.into()),
        ("watermark_blocks", rules.watermark_blocks.into()),
        ("can_skip", rules.can_skip_drafts.into()),
        ("table", rules.per_batch_size.is_some().into()),
        ("queue", if rules.order == Order::Async { 2 } else { 1 }),
        ("modules", u64::from(several_modules)),
        ("drafter_length", recorded.config.max_model_len.into()),
    ]);
    for (name, theirs) in recorded.derived.iter().flatten() {
        match ours.get(name.as_str()) {
            Some(ours) if ours == theirs => {}
            ours => return Err(differs(name, theirs, ours)),
        }
    }
    Ok(())
}

struct Replay<'a> {
    recorded: &'a Recorded,
    scheduler: Scheduler<'a>,
    version: Version,
    spec: SpecDecode,
    arrived: usize,
    refused: Vec<u32>,
    blocks: Blocks,
}

impl Replay<'_> {
    fn run(&mut self) -> Result<(), Differs> {
        let (mut now, mut idle) = (0, 0);
        let mut theirs = self.recorded.steps.iter();
        let ending = loop {
            if self.arrive(now) {
                idle = 0;
            }
            let next = self.recorded.workload.arrival.get(self.arrived).map(|at| at.0 / 1_000_000);
            if self.scheduler.is_idle() {
                match next {
                    None => break "done",
                    Some(at) => now = at,
                }
                continue;
            }
            let Some((step, sampled)) = self.step(now) else {
                match next {
                    None => break "stuck",
                    Some(at) => now = at,
                }
                continue;
            };
            let index = self.recorded.steps.len() - theirs.len();
            match theirs.next() {
                Some(recorded) if self.same(recorded, &step) => {}
                None if cuts_padding(self.recorded, &step) => break "assertion",
                other => return Err(differs(format!("step {index}"), other, Some(step))),
            }
            now = step.end();
            idle = if sampled { 0 } else { idle + 1 };
            if idle == IDLE_STEPS {
                break "endless";
            }
        };
        if self.refused != self.recorded.refused {
            return Err(differs("refused requests", &self.recorded.refused, &self.refused));
        }
        // The recorder (the Python program that recorded vLLM) does not write the step in which an assertion of vLLM
        // failed. The block hash after that step is then not known. It is also not known for vLLM v0.
        let unknown = self.version == Version::V0 || ending == "assertion";
        let blocks = unknown || self.recorded.blocks == self.blocks.hash;
        match (self.recorded.ending == ending, blocks, theirs.next()) {
            (true, true, None) => Ok(()),
            (_, _, left) => {
                let theirs = (&self.recorded.ending, self.recorded.blocks, left);
                Err(differs("the end", theirs, (ending, self.blocks.hash)))
            }
        }
    }

    fn same(&self, recorded: &Step, ours: &Step) -> bool {
        match self.version {
            Version::V0 => Step { blocks: 0, ..recorded.clone() } == *ours,
            _ => recorded == ours,
        }
    }

    /// Gives the requests that have arrived by `now` (µs) to the scheduler. Returns true if there were any.
    fn arrive(&mut self, now: u64) -> bool {
        let begin = self.arrived;
        while let Some(&at) = self.recorded.workload.arrival.get(self.arrived)
            && at.0 / 1_000_000 <= now
        {
            let id = self.arrived;
            self.arrived += 1;
            if self.scheduler.add_request(id as u32, at, Part::Whole).is_err() {
                self.refused.push(id as u32);
            }
        }
        self.arrived > begin
    }

    /// Runs one step at `now` (µs). Returns the step, and true if a request sampled a token in it. `None` if no request
    /// was scheduled or preempted.
    fn step(&mut self, now: u64) -> Option<(Step, bool)> {
        let k = self.recorded.speculation.num_speculative_tokens;
        self.scheduler.schedule(Time(now * 1_000_000), k);
        let output = self.scheduler.output();
        let preempted: Vec<u32> = output.preempted.iter().map(|r| r.id).collect();
        self.refused.extend(output.rejected.iter().map(|r| r.id));
        preempted.iter().for_each(|&id| self.blocks.forget(id));
        let (k, skip_drafts) = (output.num_spec_tokens_to_schedule, output.skip_drafts);
        let entries = entries(&self.scheduler);
        if self.version != Version::V0 {
            // For vLLM v0 (0.6.3) no hash is computed: its free list of KV blocks has another order than ours, so block
            // tables are not compared. The order matters only with prefix caching.
            self.blocks.note(&self.scheduler, &entries);
        }
        if entries.is_empty() && preempted.is_empty() {
            return None;
        }
        let mut step = Step {
            start: now,
            entries,
            free: i64::from(self.scheduler.kv_cache_manager().num_free_blocks()),
            k,
            skip_drafts,
            preempted,
            finished: Vec::new(),
            blocks: self.blocks.hash & 0xFFF,
        };
        let sampled = !step.entries.is_empty() && self.update(&mut step);
        Some((step, sampled))
    }

    /// Gives the scheduler the output of a step: the sampled tokens and draft tokens that the recorded run got from its
    /// stand-ins for model and drafter. Returns true if a request sampled a token.
    fn update(&mut self, step: &mut Step) -> bool {
        self.scheduler.prepare_inputs();
        let batch = self.scheduler.step_plan().batch;
        let sampled = !batch.is_empty() || self.scheduler.step_plan().chunks.iter().any(|chunk| chunk.last);
        self.spec.reset(batch.len(), batch.limit.iter().copied().max().unwrap_or(0));
        self.spec.drafts.draft_len.copy_from_slice(batch.limit);
        self.spec.drafts.verify_len.extend_from_slice(batch.limit);
        for (i, &id) in batch.ids.iter().enumerate() {
            self.spec.accepted[i] = self.recorded.accepted(id, batch.emitted[i], batch.limit[i]);
        }
        step.finished = self.scheduler.update_from_output(&self.spec).finished.iter().map(|r| r.id).collect();
        step.finished.iter().for_each(|&id| self.blocks.forget(id));
        let sampling: HashSet<u32> = step.entries.iter().map(|e| e.request).collect();
        let (recorded, k) = (self.recorded, if step.skip_drafts { 0 } else { step.k });
        self.scheduler.update_draft_tokens(|r| match sampling.contains(&r.id) {
            true => recorded.proposed(r.id, r.num_output_tokens, k),
            false => r.num_spec_tokens,
        });
        sampled
    }
}
