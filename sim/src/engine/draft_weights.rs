//! What the engine does with the draft model's weights if a policy may give them up.

use super::drafter::Drafter;
use super::state::{Engine, Watch};
use super::weights::{State, Weights};
use crate::executor::Executor;
use crate::policy::Memory;
use crate::time::Time;

impl<E: Executor, D: Drafter<E>, W: Watch> Engine<'_, E, D, W> {
    /// Does what the policy says about the draft model's weights, if it may give them up. Returns the most draft tokens
    /// of a request in the step that begins at `now`: `most`, or 0 without weights.
    #[inline]
    pub(super) fn most_drafts(&mut self, now: Time) -> u32 {
        let most = self.drafter.num_spec_tokens(self.config.max_draft_len);
        match self.weights {
            None => most,
            Some(weights) => self.with_weights(weights, now, most),
        }
    }

    #[cold]
    fn with_weights(&mut self, Weights { setting, state }: Weights, now: Time, most: u32) -> u32 {
        let keeps = self.drafter.keeps_weights(&Memory {
            loaded: state == State::Loaded,
            num_running: self.scheduler.running().len() as u32,
            num_waiting: self.scheduler.num_waiting() as u32,
            free_blocks: self.scheduler.kv_cache_manager().num_free_blocks(),
            weight_blocks: setting.blocks,
        });
        let state = match state {
            State::Loaded if !keeps => {
                self.scheduler.give_up_weights();
                State::Gone
            }
            State::Gone if keeps && self.scheduler.make_room_for_weights(setting.blocks) => {
                State::Coming { until: now + Time::from_s(setting.bytes / setting.link_bytes_s) }
            }
            State::Coming { until } if until <= now => State::Loaded,
            state => state,
        };
        self.weights = Some(Weights { setting, state });
        let loaded = state == State::Loaded;
        self.scheduler.set_drafter_loaded(loaded);
        if loaded { most } else { 0 }
    }
}
