//! Reads and writes SGLang's `adaptive_spec.json` (`--speculative-adaptive-config`).
//!
//! Files of generations 1 and 2 of SGLang's adaptive speculation have flat keys. From generation 3 on, keys that are
//! whole numbers are batch sizes, and the other keys are defaults for all of them; `strategy` chooses between `ema` and
//! `throughput_aware`. The file does not have the initial length, which is the server's `--speculative-num-steps`, and
//! does not say whether CUDA graphs are on. Source: `load_adaptive_config` in sgl-project/sglang
//! `srt/speculative/adaptive_spec_params.py` @13d3f642 and @015c8726, and `_parse_bs_candidates` in
//! `throughput_aware_controller.py` @088c5abe; restated in docs/model.md 1.1 to 1.4.
//!
//! SGLang sorts candidates and ignores unknown keys. Here unsorted candidates and unknown keys are errors, because such
//! a file does not say what runs.

use crate::PolicySpec;
use crate::sglang::ema_tier::EmaTier;
use crate::sglang::gen3::{SglangGen3, Slot};
use crate::sglang::throughput::{CandidateSlot, SglangThroughput};
use foretoken_sim::MAX_SPEC_LEN;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// An entry of an `adaptive_spec.json` that cannot be read, or a policy that has no such file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {why}")]
pub struct BadSglangJson {
    /// The wrong key of the file, such as `8.candidate_steps`, or a name for the whole file.
    pub key: String,
    /// What is wrong with the key's value, and which values are right.
    pub why: String,
}

fn bad<T>(key: impl Into<String>, why: impl Into<String>) -> Result<T, BadSglangJson> {
    Err(BadSglangJson { key: key.into(), why: why.into() })
}

/// Keys of SGLang's file whose values are numbers. The file may set them for all batch sizes, and an entry of one batch
/// size may set them too.
const NUMBERS: [&str; 5] = ["ema_alpha", "warmup_batches", "update_interval", "down_hysteresis", "up_hysteresis"];
const CANDIDATES: &str = "candidate_steps";
const CEILING: &str = "ceiling_coeff";

/// Parses an `adaptive_spec.json`. Flat keys give `sglang-gen1` (`sglang-gen2` reads the same file). Batch-size keys
/// give `sglang-gen3`, or `sglang-throughput` if `strategy` says so. The initial draft length is the policy's default,
/// because the file has none.
///
/// # Errors
/// The key that cannot be read, and which values are right.
pub fn from_sglang_json(text: &str) -> Result<PolicySpec, BadSglangJson> {
    let file = match serde_json::from_str(text) {
        Ok(Value::Object(file)) => file,
        Ok(other) => return bad("the file", format!("must be a JSON object, not {}", kind(&other))),
        Err(e) => return bad("the file", format!("is not JSON: {e}")),
    };
    let (slots, mut rest): (Map<_, _>, Map<_, _>) = file.into_iter().partition(|(key, _)| is_batch_size(key));
    let strategy = rest.remove("strategy");
    let policy = match strategy.as_ref().map(Value::as_str) {
        None if slots.is_empty() => PolicySpec::SglangGen1(flat(rest)?),
        None | Some(Some("ema")) => PolicySpec::SglangGen3(by_batch_size(sorted(slots)?, rest)?),
        Some(Some("throughput_aware")) => PolicySpec::SglangThroughput(throughput(sorted(slots)?, rest)?),
        Some(_) => return bad("strategy", "must be \"ema\" or \"throughput_aware\""),
    };
    match policy.check() {
        Ok(()) => Ok(policy),
        Err(e) => bad(e.key, e.why),
    }
}

/// Writes a policy as an `adaptive_spec.json`, without its initial length. Only `ema-tier`, `sglang-gen1` to
/// `sglang-gen3` and `sglang-throughput` have such a file.
///
/// # Errors
/// A policy that has no such file, or settings that its check refuses.
pub fn to_sglang_json(policy: &PolicySpec) -> Result<String, BadSglangJson> {
    if let Err(e) = policy.check() {
        return bad(e.key, e.why);
    }
    let file = match policy {
        PolicySpec::EmaTier(p) | PolicySpec::SglangGen1(p) | PolicySpec::SglangGen2(p) => {
            let mut file = numbers(p, &NUMBERS);
            let mut candidates = p.candidates.clone();
            candidates.sort_unstable();
            candidates.dedup();
            file.insert(CANDIDATES.into(), json!(candidates));
            file
        }
        PolicySpec::SglangGen3(p) => {
            let mut file = numbers(p, &NUMBERS);
            file.insert(CEILING.into(), json!(p.ceiling_coeff));
            for slot in &p.slots {
                let mut entry = numbers(slot, &NUMBERS);
                entry.extend(numbers(slot, &[CEILING]));
                entry.insert(CANDIDATES.into(), json!(slot.candidates));
                file.insert(slot.batch_size.to_string(), Value::Object(entry));
            }
            file
        }
        PolicySpec::SglangThroughput(p) => {
            let mut file = numbers(p, &THROUGHPUT_KEYS);
            file.insert("strategy".into(), json!("throughput_aware"));
            for slot in &p.slots {
                file.insert(slot.batch_size.to_string(), json!({ CANDIDATES: slot.candidates }));
            }
            file
        }
        other => return bad(other.name(), "has no adaptive_spec.json; SGLang's policies are ema-tier and sglang-*"),
    };
    Ok(serde_json::to_string_pretty(&Value::Object(file)).expect("plain values"))
}

/// The settings named by `keys` as JSON values, for writing them to SGLang's `adaptive_spec.json`.
fn numbers(settings: &impl Serialize, keys: &[&str]) -> Map<String, Value> {
    let Ok(Value::Object(all)) = serde_json::to_value(settings) else { unreachable!("settings are a table") };
    all.into_iter().filter(|(key, _)| keys.contains(&key.as_str())).collect()
}

const THROUGHPUT_KEYS: [&str; 6] = [
    "window_size", "update_interval", "switch_hysteresis", "profile_run_seq_len", "profile_run_batch_sizes",
    "max_profile_run_batch_size",
];

fn is_batch_size(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|b| b.is_ascii_digit())
}

/// The entries of SGLang's file that belong to batch sizes, in rising order of batch size. Refuses keys that are no
/// batch size from 1 on, entries that are no object, sizes that are given twice, and a file without batch sizes.
fn sorted(slots: Map<String, Value>) -> Result<Vec<(u32, Entry)>, BadSglangJson> {
    let mut found = Vec::new();
    for (key, value) in slots {
        let size = match key.parse::<u32>() {
            Ok(size) if size > 0 => size,
            _ => return bad(key, "is not a batch size from 1 on"),
        };
        let Value::Object(settings) = value else {
            return bad(key, format!("must be an object with {CANDIDATES}, not {}", kind(&value)));
        };
        if found.iter().any(|&(other, _)| other == size) {
            return bad(key, "is given twice");
        }
        found.push((size, Entry { prefix: format!("{key}."), settings }));
    }
    if found.is_empty() {
        return bad("the file", format!("has no batch-size key, such as {{\"1\": {{\"{CANDIDATES}\": [1, 3, 7]}}}}"));
    }
    found.sort_by_key(|&(size, _)| size);
    Ok(found)
}

/// A JSON object of SGLang's `adaptive_spec.json`, with its settings that were not read yet. Reading a setting removes
/// it.
struct Entry {
    /// The prefix of the object's keys in error messages: `8.` for the entry of batch size 8, nothing for the whole
    /// file.
    prefix: String,
    settings: Map<String, Value>,
}

impl Entry {
    fn full_key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn number(&mut self, key: &str) -> Result<Option<f64>, BadSglangJson> {
        match self.settings.remove(key) {
            None => Ok(None),
            Some(Value::Number(n)) => Ok(n.as_f64()),
            Some(other) => bad(self.full_key(key), format!("must be a number, not {}", kind(&other))),
        }
    }

    fn count(&mut self, key: &str) -> Result<Option<u32>, BadSglangJson> {
        match self.settings.remove(key) {
            None => Ok(None),
            Some(value) => match whole(&value) {
                Some(n) => Ok(Some(n)),
                None => bad(self.full_key(key), format!("must be a whole number of 0 or more, not {value}")),
            },
        }
    }

    /// Takes the setting `key` out of the object as [`count`](Entry::count) does, for keys that may be `null`. `null`
    /// counts as a missing key.
    fn optional_count(&mut self, key: &str) -> Result<Option<u32>, BadSglangJson> {
        if self.settings.get(key) == Some(&Value::Null) {
            self.settings.remove(key);
        }
        self.count(key)
    }

    fn counts(&mut self, key: &str) -> Result<Option<Vec<u32>>, BadSglangJson> {
        let Some(value) = self.settings.remove(key) else { return Ok(None) };
        match value.as_array().and_then(|list| list.iter().map(whole).collect::<Option<Vec<u32>>>()) {
            Some(list) => Ok(Some(list)),
            None => bad(self.full_key(key), format!("must be a list of whole numbers of 0 or more, not {value}")),
        }
    }

    /// Takes the list of draft lengths `candidate_steps` out of the object: at least `fewest` lengths, ascending, each
    /// from `shortest` to `MAX_SPEC_LEN`. `None` if the object does not have the key.
    fn candidates(&mut self, fewest: usize, shortest: u32) -> Result<Option<Vec<u32>>, BadSglangJson> {
        let Some(list) = self.counts(CANDIDATES)? else { return Ok(None) };
        let at = self.full_key(CANDIDATES);
        if !list.is_sorted_by(|a, b| a < b) {
            let mut right = list.clone();
            right.sort_unstable();
            right.dedup();
            return bad(at, format!("{list:?} is not ascending; SGLang runs {right:?}, so write that"));
        }
        if let Some(other) = list.iter().find(|&&c| c < shortest || c > MAX_SPEC_LEN) {
            return bad(at, format!("{other} is not a draft length from {shortest} to {MAX_SPEC_LEN}"));
        }
        if list.len() < fewest {
            return bad(at, format!("{list:?} leaves nothing to choose; at least {fewest} needed"));
        }
        Ok(Some(list))
    }

    /// Returns an error if a setting of the object was not taken out, because its key is unknown. `known` is the list
    /// of known keys for the message.
    fn end(self, known: &str) -> Result<(), BadSglangJson> {
        match self.settings.keys().next() {
            None => Ok(()),
            Some(key) => bad(self.full_key(key), format!("is no key of this file; known are {known}")),
        }
    }
}

fn whole(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|n| u32::try_from(n).ok())
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn flat(settings: Map<String, Value>) -> Result<EmaTier, BadSglangJson> {
    let mut file = Entry { prefix: String::new(), settings };
    let usual = EmaTier::default();
    let policy = EmaTier {
        candidates: file.candidates(2, 1)?.unwrap_or(usual.candidates),
        ema_alpha: file.number("ema_alpha")?.unwrap_or(usual.ema_alpha),
        warmup_batches: file.count("warmup_batches")?.unwrap_or(usual.warmup_batches),
        update_interval: file.count("update_interval")?.unwrap_or(usual.update_interval),
        down_hysteresis: file.number("down_hysteresis")?.unwrap_or(usual.down_hysteresis),
        up_hysteresis: file.number("up_hysteresis")?.unwrap_or(usual.up_hysteresis),
        initial_steps: usual.initial_steps,
        off_list: usual.off_list,
    };
    file.end(&format!("{CANDIDATES}, {}, and batch sizes", NUMBERS.join(", ")))?;
    Ok(policy)
}

fn by_batch_size(slots: Vec<(u32, Entry)>, settings: Map<String, Value>) -> Result<SglangGen3, BadSglangJson> {
    let known = format!("{}, {CEILING}", NUMBERS.join(", "));
    let mut policy = SglangGen3::default();
    policy.slots.clear();
    for (batch_size, mut entry) in slots {
        let Some(candidates) = entry.candidates(1, 0)? else { return bad(entry.full_key(CANDIDATES), "is missing") };
        policy.slots.push(Slot {
            batch_size,
            candidates,
            ema_alpha: entry.number("ema_alpha")?,
            warmup_batches: entry.count("warmup_batches")?,
            update_interval: entry.count("update_interval")?,
            down_hysteresis: entry.number("down_hysteresis")?,
            up_hysteresis: entry.number("up_hysteresis")?,
            ceiling_coeff: entry.number(CEILING)?,
        });
        entry.end(&format!("{CANDIDATES}, {known}"))?;
    }
    let mut file = Entry { prefix: String::new(), settings };
    policy.ema_alpha = file.number("ema_alpha")?.unwrap_or(policy.ema_alpha);
    policy.warmup_batches = file.count("warmup_batches")?.unwrap_or(policy.warmup_batches);
    policy.update_interval = file.count("update_interval")?.unwrap_or(policy.update_interval);
    policy.down_hysteresis = file.number("down_hysteresis")?.unwrap_or(policy.down_hysteresis);
    policy.up_hysteresis = file.number("up_hysteresis")?.unwrap_or(policy.up_hysteresis);
    policy.ceiling_coeff = file.number(CEILING)?.unwrap_or(policy.ceiling_coeff);
    if file.settings.contains_key(CANDIDATES) {
        return bad(CANDIDATES, "stands beside batch sizes, which have their own; SGLang would not look at it");
    }
    file.end(&format!("{known}, strategy and batch sizes"))?;
    Ok(policy)
}

fn throughput(slots: Vec<(u32, Entry)>, settings: Map<String, Value>) -> Result<SglangThroughput, BadSglangJson> {
    let mut policy = SglangThroughput::default();
    policy.slots.clear();
    for (batch_size, mut entry) in slots {
        let Some(candidates) = entry.candidates(1, 1)? else { return bad(entry.full_key(CANDIDATES), "is missing") };
        policy.slots.push(CandidateSlot { batch_size, candidates });
        entry.end(CANDIDATES)?;
    }
    let mut file = Entry { prefix: String::new(), settings };
    policy.window_size = file.count("window_size")?.unwrap_or(policy.window_size);
    policy.update_interval = file.count("update_interval")?.unwrap_or(policy.update_interval);
    policy.switch_hysteresis = file.number("switch_hysteresis")?.unwrap_or(policy.switch_hysteresis);
    policy.profile_run_seq_len = file.optional_count("profile_run_seq_len")?.unwrap_or(policy.profile_run_seq_len);
    policy.max_profile_run_batch_size = file.optional_count("max_profile_run_batch_size")?;
    if file.settings.get("profile_run_batch_sizes") == Some(&Value::Null) {
        file.settings.remove("profile_run_batch_sizes");
    }
    policy.profile_run_batch_sizes = file.counts("profile_run_batch_sizes")?;
    // SGLang's number of warm-up repetitions of a measurement has no effect here, because simulated pass times are
    // exact.
    file.count("profile_run_n_warmup")?;
    file.count("profile_run_n_measure")?;
    let known = THROUGHPUT_KEYS.join(", ");
    file.end(&format!("{known}, profile_run_n_warmup, profile_run_n_measure, strategy and batch sizes"))?;
    Ok(policy)
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
