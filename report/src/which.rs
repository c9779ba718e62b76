//! The one rule by which every command names a policy to run, or a draft length: `run`, its sweeps and `recommend`.
//!
//! A policy's loss at a load is the share by which its cost (such as the mean end-to-end latency) exceeds the least
//! cost there. Policies are compared by their largest loss over the loads. Those within [`AS_GOOD`] of the smallest one
//! are as good as the best. Of these, the rule takes what the server runs now; then a fixed draft length, plain
//! decoding included; then the shortest drafts, which lose least if drafts are worse than expected.

/// Policies whose losses differ by at most this share are as good as each other.
pub const AS_GOOD: f64 = 0.01;

/// A policy that a server could run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The largest loss of the policy over the loads, as a share. `None` if the policy cannot be taken: it has no cost
    /// at some load.
    pub loss: Option<f64>,
    /// The draft length of a policy that always drafts the same number of tokens; 0 for plain decoding. `None` for
    /// other policies.
    pub fixed: Option<u32>,
    /// The largest number of draft tokens that the policy gives a request in a step; the largest `u32` if not known.
    pub longest: u32,
    /// Does the server run this policy now?
    pub now: bool,
}

impl Choice {
    /// A policy with this loss that a server does not run now. `fixed` is its draft length, if it has one.
    pub fn new(loss: Option<f64>, fixed: Option<u32>) -> Choice {
        Choice { loss, fixed, longest: fixed.unwrap_or(u32::MAX), now: false }
    }
}

/// The index of the policy to run; `None` if no policy can be taken.
pub fn which(all: &[Choice]) -> Option<usize> {
    let least = all.iter().filter_map(|c| c.loss).min_by(f64::total_cmp)?;
    let as_good = (0..all.len()).filter(|&at| all[at].loss.is_some_and(|loss| loss <= least + AS_GOOD));
    as_good.min_by_key(|&at| (!all[at].now, all[at].fixed.is_none(), all[at].longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_policies_that_are_as_good_the_present_one_is_taken_then_a_fixed_and_then_a_short_one() {
        let of = |loss: f64, fixed: Option<u32>| Choice::new(Some(loss), fixed);
        assert_eq!(which(&[of(0.0, Some(3)), of(0.0099, Some(1)), of(0.0101, Some(0))]), Some(1));
        assert_eq!(which(&[of(0.0, None), of(0.009, Some(5))]), Some(1));
        assert_eq!(which(&[of(0.0, None), of(0.011, Some(5))]), Some(0));
        let now = Choice { now: true, ..of(0.009, Some(4)) };
        assert_eq!(which(&[of(0.0, Some(3)), now]), Some(1), "a tie with what runs now keeps it");
        assert_eq!(which(&[of(0.0, Some(3)), Choice { loss: Some(0.02), ..now }]), Some(0));
        let short_rule = Choice { longest: 2, ..of(0.0, None) };
        assert_eq!(which(&[of(0.0, None), short_rule]), Some(1));
        assert_eq!(which(&[Choice::new(None, Some(0)), of(9.0, Some(1))]), Some(1), "no cost, no choice");
        assert_eq!(which(&[Choice::new(None, Some(0))]), None);
    }
}
