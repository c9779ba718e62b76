//! The law of host time (`[engine.host]`): how long the host works for a step. The time depends on the step's requests
//! and tokens. It is longer if the step verifies draft tokens, and if no captured CUDA graph is large enough for the
//! step. The constant `engine.step_overhead_s` is added to it.
//!
//! The law has two parts, which overlap with the device in different ways when steps are asynchronous. The host's own
//! work (requests, tokens, speculation) follows the output of a step, and the device runs the next step meanwhile.
//! Kernel launches without a captured CUDA graph delay the device, because the device waits for each of these launches.

use crate::time::Time;
use serde::{Deserialize, Serialize};

/// Host time of a step that is added to the constant `engine.step_overhead_s`, seconds, each ≥ 0. Default: 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HostLaw {
    /// Host time for each request of a step, seconds.
    pub request_s: f64,
    /// Host time for each token of the target pass, seconds.
    pub token_s: f64,
    /// Further host time of steps whose target pass verifies draft tokens: for the step, its requests and its draft
    /// tokens.
    pub speculating: SpeculatingSeconds,
    /// Further host time of steps with more decode requests than the largest captured CUDA graph.
    pub without_graph: WithoutGraph,
}

/// Further host time, seconds, of a step whose target pass verifies draft tokens, or padding in their place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SpeculatingSeconds {
    /// Host time that is added once to a step that verifies draft tokens, or padding in their place, seconds.
    pub step_s: f64,
    /// Host time that is added for each decode request of a step that verifies draft tokens, seconds.
    pub request_s: f64,
    /// Host time for each draft token that is verified, padding included, seconds.
    pub token_s: f64,
}

/// Host time of kernel launches in steps for which no captured CUDA graph is large enough. The device waits for them,
/// so this time overlaps with nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WithoutGraph {
    /// The largest number of decode requests with a captured graph (SGLang's `cuda_graph_max_bs`).
    pub above: u32,
    /// Host time of a step with more than `above` decode requests, seconds.
    pub step_s: f64,
    /// Host time, seconds, that replaces `step_s` for a step with more than `above` decode requests that verifies draft
    /// tokens.
    pub speculating_s: f64,
}

impl HostLaw {
    /// True if all times of this law are 0: the host time of a step is then `engine.step_overhead_s` alone.
    pub fn is_zero(&self) -> bool {
        self.times().iter().all(|(_, s)| *s == 0.0)
    }

    /// Host time, seconds, of a step of `requests` decode requests with `tokens` tokens in total, if no part of this
    /// time overlaps with the device. `engine.step_overhead_s` is not included. Each request has one token that is no
    /// draft token; all further tokens count as draft tokens.
    pub fn decode_step_s(&self, requests: u32, tokens: u32) -> f64 {
        let (decodes, tokens) = (u64::from(requests), u64::from(tokens));
        let drafts = tokens.saturating_sub(decodes);
        Host::of(self).time(HostStep { decodes, requests: decodes, tokens, drafts }).whole().as_s()
    }

    /// All host times of the setting `engine.host`, seconds, each with its key below `engine`.
    fn times(&self) -> [(&'static str, f64); 7] {
        let (more, without) = (&self.speculating, &self.without_graph);
        [
            ("host.request_s", self.request_s),
            ("host.token_s", self.token_s),
            ("host.speculating.step_s", more.step_s),
            ("host.speculating.request_s", more.request_s),
            ("host.speculating.token_s", more.token_s),
            ("host.without_graph.step_s", without.step_s),
            ("host.without_graph.speculating_s", without.speculating_s),
        ]
    }

    /// Checks the host times.
    ///
    /// # Errors
    /// A time is negative or not finite. The error has the key of this time, below `engine`, and the reason.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        match self.times().into_iter().find(|(_, s)| !(*s >= 0.0 && s.is_finite())) {
            Some((key, s)) => Err((key, format!("{s} is not a time ≥ 0 s"))),
            None => Ok(()),
        }
    }
}

/// The numbers of requests and tokens of a step on which its host time depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostStep {
    /// Number of the step's requests that decode.
    pub decodes: u64,
    /// Number of requests in the target pass: decode requests and requests in prefill.
    pub requests: u64,
    /// Number of tokens of the step's target pass.
    pub tokens: u64,
    /// Number of draft tokens among `tokens`, padding included.
    pub drafts: u64,
}

/// The host time of a step, in two parts: kernel launches and work. The parts overlap with the device in different
/// ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostTime {
    /// Time of kernel launches, during which the device waits.
    pub launch: Time,
    /// Time of the host's own work, which comes after the step's output.
    pub work: Time,
}

impl HostTime {
    /// Launch time plus work time: the host time of a step, if no part of this time overlaps with another step.
    pub fn whole(self) -> Time {
        self.launch + self.work
    }
}

/// How long the host works for a step, by the step's requests and tokens (`engine.host`). Times are in whole
/// picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host {
    request: Time,
    token: Time,
    /// Host time that is added where draft tokens are verified: for the step, for each decode request, for each draft
    /// token.
    speculating: [Time; 3],
    above: u64,
    /// Time of kernel launches in a step for which no captured CUDA graph is large enough: (without draft tokens, with
    /// draft tokens to verify).
    launch: [Time; 2],
}

impl Host {
    /// Host times that are all 0: a step takes only the constant `engine.step_overhead_s`.
    pub const NONE: Host = Host {
        request: Time::ZERO,
        token: Time::ZERO,
        speculating: [Time::ZERO; 3],
        above: 0,
        launch: [Time::ZERO; 2],
    };

    /// Converts the host times of the setting `engine.host` from seconds to picoseconds.
    pub fn of(law: &HostLaw) -> Host {
        let (more, without) = (&law.speculating, &law.without_graph);
        Host {
            request: Time::from_s(law.request_s),
            token: Time::from_s(law.token_s),
            speculating: [more.step_s, more.request_s, more.token_s].map(Time::from_s),
            above: without.above.into(),
            launch: [without.step_s, without.speculating_s].map(Time::from_s),
        }
    }

    /// True if these host times add nothing to any step.
    pub fn is_none(&self) -> bool {
        Host { above: 0, ..*self } == Host::NONE
    }

    /// The host time of a step with the numbers of requests and tokens in `step`.
    pub fn time(&self, step: HostStep) -> HostTime {
        let mut work = self.request * step.requests + self.token * step.tokens;
        if step.drafts > 0 {
            let [once, request, token] = self.speculating;
            work = work + once + request * step.decodes + token * step.drafts;
        }
        let launch = if step.decodes > self.above { self.launch[usize::from(step.drafts > 0)] } else { Time::ZERO };
        HostTime { launch, work }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: HostStep = HostStep { decodes: 9, requests: 10, tokens: 136, drafts: 27 };

    fn law() -> HostLaw {
        HostLaw {
            request_s: 1e-12,
            token_s: 1e-11,
            speculating: SpeculatingSeconds { step_s: 1e-6, request_s: 1e-9, token_s: 1e-10 },
            without_graph: WithoutGraph { above: 8, step_s: 2e-3, speculating_s: 5e-3 },
        }
    }

    #[test]
    fn every_part_of_the_law_counts_once() {
        let host = Host::of(&law());
        let work = Time(10 + 136 * 10 + 1_000_000 + 9 * 1000 + 27 * 100);
        assert_eq!(host.time(STEP), HostTime { launch: Time(5_000_000_000), work });
        let plain = HostStep { tokens: 109, drafts: 0, ..STEP };
        assert_eq!(host.time(plain), HostTime { launch: Time(2_000_000_000), work: Time(10 + 109 * 10) });
        let captured = host.time(HostStep { decodes: 8, ..STEP });
        assert_eq!(captured.launch, Time::ZERO);
        assert!(!host.is_none() && Host::of(&HostLaw::default()).is_none());
    }

    #[test]
    fn a_largest_graph_without_times_adds_nothing() {
        let law = HostLaw { without_graph: WithoutGraph { above: 8, ..Default::default() }, ..HostLaw::default() };
        assert!(law.is_zero() && Host::of(&law).is_none());
    }

    #[test]
    fn a_negative_or_infinite_time_is_refused_with_its_key() {
        let bad = SpeculatingSeconds { request_s: -1.0, ..Default::default() };
        let negative = HostLaw { speculating: bad, ..law() };
        assert_eq!(negative.check(), Err(("host.speculating.request_s", "-1 is not a time ≥ 0 s".into())));
        let nan = HostLaw { token_s: f64::NAN, ..law() };
        assert_eq!(nan.check(), Err(("host.token_s", "NaN is not a time ≥ 0 s".into())));
        assert_eq!(law().check(), Ok(()));
    }
}
