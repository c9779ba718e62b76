//! `autoregressive`: no speculation; the plain engine without a drafter (INVARIANTS.md, 7). It is the baseline of every
//! comparison.

use crate::definition::{About, BadParameter, Definition, PolicyContext};
use foretoken_sim::Speculation;
use serde::{Deserialize, Serialize};

/// `autoregressive` has no parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Autoregressive {}

impl Definition for Autoregressive {
    fn about(&self) -> About {
        About {
            summary: "never drafts; one token a request and step, and the whole KV pool for the target",
            source: "the plain engine",
            sees: "nothing",
            differences: "none",
        }
    }

    fn is_blind(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), BadParameter> {
        Ok(())
    }

    fn build(&self, _: &PolicyContext) -> Speculation {
        Speculation::Off
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::CONTEXT;

    #[test]
    fn it_has_no_drafter() {
        assert!(matches!(Autoregressive {}.build(&CONTEXT), Speculation::Off));
    }
}
