//! The draft model's weights as memory: a policy may give them up, KV blocks then take their place, and they come back
//! over a link. Meanwhile nothing is drafted, and the draft model misses the tokens of all requests.

use crate::config::{DraftWeights, EngineConfig};
use crate::time::Time;

/// The weights of an engine that may give them up.
#[derive(Clone, Copy, Debug)]
pub struct Weights {
    pub setting: DraftWeights,
    pub state: State,
}

/// Where the weights are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum State {
    Loaded,
    Gone,
    /// On their way back; their memory is taken.
    Coming {
        until: Time,
    },
}

impl Weights {
    /// The weights of an engine with a drafter; `None` if they stay in any case.
    pub fn of(config: &EngineConfig, drafter: bool) -> Option<Weights> {
        config.draft_weights.filter(|_| drafter).map(|setting| Weights { setting, state: State::Loaded })
    }
}
