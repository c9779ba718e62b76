//! Checks of single settings of the engine. A check takes the name (key) and the value of a setting; its error has this
//! name.

use super::bad::BadConfig;
use super::choices::{DecisionSeconds, DraftKv, DraftWeights};

pub(super) type Checked = Result<(), BadConfig>;

fn refuse_if(wrong: bool, key: &'static str, why: impl FnOnce() -> String) -> Checked {
    if wrong { Err(BadConfig { key, why: why() }) } else { Ok(()) }
}

/// Checks that a number is at least 1.
pub(super) fn positive(key: &'static str, value: &u32) -> Checked {
    refuse_if(*value == 0, key, || "must be at least 1".into())
}

/// Checks that a number of tokens is at most `most`.
pub(super) fn tokens_up_to(most: u32) -> impl Fn(&'static str, &u32) -> Checked {
    move |key, value| refuse_if(*value > most, key, || format!("{value} is over the limit of {most} tokens"))
}

/// Checks that a number of KV blocks is at most `most`.
pub(super) fn blocks_up_to(most: u32) -> impl Fn(&'static str, &u32) -> Checked {
    move |key, value| refuse_if(*value > most, key, || format!("{value} is over the limit of {most} blocks"))
}

/// Checks that a number of tokens is from 1 to `most`.
pub(super) fn tokens_from_1_to(most: u32) -> impl Fn(&'static str, &u32) -> Checked {
    move |key, value| positive(key, value).and_then(|()| tokens_up_to(most)(key, value))
}

/// Checks that a share is in [0, 1): less than the whole.
pub(super) fn share(key: &'static str, value: &f64) -> Checked {
    refuse_if(!(0.0..1.0).contains(value), key, || format!("{value} is not a share in [0, 1)"))
}

/// Checks that a share is in [0, 1].
pub(super) fn whole_share(key: &'static str, value: &f64) -> Checked {
    refuse_if(!(0.0..=1.0).contains(value), key, || format!("{value} is not a share in [0, 1]"))
}

/// Checks that a time, in seconds, is finite and at least 0.
pub(super) fn time(key: &'static str, value: &f64) -> Checked {
    refuse_if(!(*value >= 0.0 && value.is_finite()), key, || format!("{value} is not a time ≥ 0 s"))
}

/// Makes a check of a setting that may be left out: it applies `check` to the value if the setting is set.
pub(super) fn optional<T>(check: impl Fn(&'static str, &T) -> Checked) -> impl Fn(&'static str, &Option<T>) -> Checked {
    move |key, value| value.as_ref().map_or(Ok(()), |value| check(key, value))
}

/// Checks that the three host times of a policy's decisions, in seconds, are finite and at least 0.
pub(super) fn decision_times(_: &'static str, value: &DecisionSeconds) -> Checked {
    time("decision_s.propose", &value.propose)?;
    time("decision_s.keep_drafting", &value.keep_drafting)?;
    time("decision_s.select", &value.select)
}

/// Checks the draft model's weights that may be given up: there are blocks, bytes and a link.
pub(super) fn draft_weights(_: &'static str, value: &DraftWeights) -> Checked {
    positive("draft_weights.blocks", &value.blocks)?;
    for (key, number) in [("draft_weights.bytes", value.bytes), ("draft_weights.link_bytes_s", value.link_bytes_s)] {
        refuse_if(!(number > 0.0 && number.is_finite()), key, || format!("{number} is not a number > 0"))?;
    }
    Ok(())
}

/// Checks the draft model's KV memory: the ratio is finite and at least 0, or there is at least one separate block.
pub(super) fn draft_kv(_: &'static str, value: &DraftKv) -> Checked {
    match value {
        DraftKv::None => Ok(()),
        DraftKv::EqualSplit { ratio } => {
            refuse_if(!(*ratio >= 0.0 && ratio.is_finite()), "draft_kv.equal-split.ratio", || {
                format!("{ratio} is not a ratio ≥ 0")
            })
        }
        DraftKv::Separate { blocks } => positive("draft_kv.separate.blocks", blocks),
    }
}
