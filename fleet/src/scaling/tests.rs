//! Compares each scaling rule with a second implementation on random states. The second implementation is written only
//! from the code of the original program (llm-d, Dynamo). Also tests the settings.

mod dynamo;
mod llm_d;

use super::{EngineLimits, Fixed, LlmDSaturation, Scaling, ScalingRule, Traffic};
use crate::report_board::Report;
use foretoken_sim::luck::{Luck, Stream};
use foretoken_sim::{Load, Time};

/// A source of random numbers, from which the tests make states.
pub(super) struct Dice {
    luck: Luck,
    count: u64,
}

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice { luck: Luck::new(seed, Stream::Replica, 77), count: 0 }
    }

    /// A whole number from `low` to `high`.
    pub fn whole(&mut self, low: u64, high: u64) -> u64 {
        self.count += 1;
        low + self.luck.bits(self.count) % (high - low + 1)
    }
}

pub(super) const LIMITS: EngineLimits =
    EngineLimits { block_size: 16, max_num_batched_tokens: 2048, max_num_seqs: 128, slo_s: [f64::INFINITY; 2] };

/// The counts `traffic`, plus a random number of further requests that were sent and that ended.
pub(super) fn grown(dice: &mut Dice, traffic: Traffic) -> Traffic {
    let (sent, ended) = (dice.whole(0, 30), dice.whole(0, 30));
    Traffic {
        sent: traffic.sent + sent,
        prompt_tokens: traffic.prompt_tokens + sent * dice.whole(1, 3000),
        ended: traffic.ended + ended,
        ended_prompt_tokens: traffic.ended_prompt_tokens + ended * dice.whole(1, 3000),
        output_tokens: traffic.output_tokens + ended * dice.whole(1, 900),
    }
}

/// A replica's load some random steps after `before`. The time of the steps, the waiting requests and the used blocks
/// grow with `level` (1 to 4).
pub(super) fn later(dice: &mut Dice, before: Load, level: u64) -> Load {
    let usable_blocks = 4000;
    let steps = dice.whole(0, 50);
    let batch = dice.whole(0, 60);
    let prompts = steps * dice.whole(0, 400);
    let context = batch * dice.whole(50, 4000);
    let busy = Time(
        level * steps * (10_000_000_000 + 10_000_000 * (prompts / steps.max(1)) + 100_000 * context + dice.whole(0, 9)),
    );
    Load {
        running: batch as u32,
        waiting: dice.whole(0, 3 * level) as u32,
        waiting_tokens: dice.whole(0, 5) * dice.whole(0, 4000),
        used_blocks: (dice.whole(0, 4) * 250 * level).min(dice.whole(0, 1000 * level)) as u32,
        usable_blocks,
        emitted: before.emitted + steps * batch * dice.whole(1, 3),
        busy: before.busy + busy,
        steps: before.steps + steps,
        request_steps: before.request_steps + steps * batch,
        prefill_tokens: before.prefill_tokens + prompts,
        context_time: before.context_time + u128::from(context) * u128::from(busy.0),
    }
}

pub(super) fn report(load: Load, at: Time) -> Report {
    Report { at, load, tok_s: 0.0 }
}

#[test]
fn settings_out_of_range_are_refused() {
    let good = Scaling {
        rule: ScalingRule::Fixed(Fixed {}),
        min_replicas: 1,
        max_replicas: 4,
        boot_s: 60.0,
        interval_s: None,
        signals: None,
    };
    let key = |scaling: &Scaling, replicas| scaling.check(replicas).map_err(|(key, ..)| key);
    assert_eq!(key(&good, 2), Ok(()));
    assert_eq!(key(&good, 5), Err("max_replicas".into()));
    assert_eq!(key(&Scaling { min_replicas: 0, ..good.clone() }, 2), Err("min_replicas".into()));
    assert_eq!(key(&Scaling { min_replicas: 5, ..good.clone() }, 2), Err("min_replicas".into()));
    for boot_s in [-1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(key(&Scaling { boot_s, ..good.clone() }, 2), Err("boot_s".into()));
    }
    assert_eq!(key(&Scaling { interval_s: Some(0.0), ..good.clone() }, 2), Err("interval_s".into()));
    let rule = ScalingRule::LlmD(LlmDSaturation { scale_down_boundary: 0.9, ..LlmDSaturation::default() });
    assert_eq!(key(&Scaling { rule, ..good }, 2), Err("rule.llm-d.scale_down_boundary".into()));
}
