//! The costs of passes and of the host that are fitted to a table of benchmark results: a few numbers, equal for all
//! rows.

use foretoken_profiler::hardware::LatencySpec;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_sim::host::{HostLaw, WithoutGraph};
use foretoken_sim::{Coefficients, PassShape};
use serde::{Deserialize, Serialize};

/// One of the costs that are fitted to a table of benchmark results. The time per token of a row is close to linear in
/// each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Term {
    /// A fitted cost: seconds per target pass.
    Pass,
    /// A fitted cost: seconds that each token adds to a target pass.
    Token,
    /// A fitted cost: seconds per draft pass.
    DraftPass,
    /// A fitted cost: host seconds per step that verifies draft tokens.
    Speculating,
    /// A fitted cost: host seconds per request in a step that verifies draft tokens.
    SpeculatingRequest,
    /// Additional host seconds per step that verifies draft tokens, if the step has more than this number of
    /// requests. No captured CUDA graph is large enough for such a step.
    WithoutGraph(u32),
    /// A fitted cost: seconds from client to scheduler and back, per request.
    Frontend,
}

impl Term {
    /// By how many seconds the cost is changed to compute the slope of the results in this cost. The change is small
    /// compared with the cost's value on real servers.
    pub fn step(self) -> f64 {
        match self {
            Term::Pass | Term::Speculating | Term::WithoutGraph(_) | Term::Frontend => 1e-3,
            Term::DraftPass | Term::SpeculatingRequest => 1e-4,
            Term::Token => 1e-5,
        }
    }

    /// True if the cost occurs only in steps that make or verify draft tokens.
    pub fn speculates(self) -> bool {
        !matches!(self, Term::Pass | Term::Token | Term::Frontend)
    }

    /// True for the host time per step and for the host time per request. The fit leaves out such a cost if the
    /// measured numbers do not support it, because these host times may be 0.
    pub fn is_tested(self) -> bool {
        matches!(self, Term::Speculating | Term::SpeculatingRequest)
    }

    /// The name of this cost of passes or of the host, such as `target pass`.
    pub fn name(self) -> &'static str {
        match self {
            Term::Pass => "target pass",
            Term::Token => "target, a token",
            Term::DraftPass => "draft pass",
            Term::Speculating => "host, speculating, a step",
            Term::SpeculatingRequest => "host, speculating, a request",
            Term::WithoutGraph(_) => "host, speculating, without a captured graph",
            Term::Frontend => "client to scheduler",
        }
    }

    /// The name of this cost and its value `x`, in seconds, as text in ms or µs.
    pub fn in_words(self, x: f64) -> String {
        let (ms, us) = (format!("{:.3} ms", 1e3 * x), format!("{:.1} us", 1e6 * x));
        match self {
            Term::Pass => format!("target pass             {ms}"),
            Term::Token => format!("target, a token         {us}"),
            Term::DraftPass => format!("draft pass              {ms}"),
            Term::Speculating => format!("host, speculating       {ms} a step"),
            Term::SpeculatingRequest => format!("host, speculating       {us} a request"),
            Term::WithoutGraph(above) => {
                format!("host, speculating       {ms} a step of more than {above} requests (no captured graph)")
            }
            Term::Frontend => format!("client to scheduler     {ms}"),
        }
    }
}

/// The costs of passes and of the host with which the rows of a table are simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Law {
    /// The linear cost of a target pass. The time per token of context comes from the experiment or is 0.
    pub target: Coefficients,
    /// The cost of a draft pass, stated by the experiment or fitted.
    pub draft: LatencySpec,
    /// The host's time per step, by the step's requests, tokens and draft tokens.
    pub host: HostLaw,
    /// Seconds from client to scheduler and back, per request.
    pub frontend_s: f64,
}

impl Law {
    /// The costs before the fit: all costs that are fitted are 0. `alpha_s` is the target's time per token of context
    /// in seconds, and `draft` is the cost of draft passes. The caller takes these two values from the experiment, if
    /// it states them.
    pub fn known(alpha_s: f64, draft: Option<LatencySpec>) -> Law {
        Law {
            target: Coefficients { alpha_s, gamma_s: 0.0, delta_s: 0.0 },
            draft: draft.unwrap_or(LatencySpec::Linear(Coefficients::FREE)),
            host: HostLaw::default(),
            frontend_s: 0.0,
        }
    }

    /// Returns these costs with the given `values`, in seconds, for `terms`.
    pub fn with(&self, terms: &[Term], values: &[f64]) -> Law {
        let mut law = self.clone();
        for (&term, &x) in terms.iter().zip(values) {
            match term {
                Term::Pass => law.target.delta_s = x,
                Term::Token => law.target.gamma_s = x,
                Term::DraftPass => {
                    law.draft = LatencySpec::Linear(Coefficients { delta_s: x, ..Coefficients::FREE });
                }
                Term::Speculating => law.host.speculating.step_s = x,
                Term::SpeculatingRequest => law.host.speculating.request_s = x,
                Term::WithoutGraph(above) => {
                    law.host.without_graph = WithoutGraph { above, step_s: 0.0, speculating_s: x };
                }
                Term::Frontend => law.frontend_s = x,
            }
        }
        law
    }

    /// The costs as settings of an experiment, `key=value`. These settings replace the costs that the experiment
    /// states.
    pub fn sets(&self) -> Result<Vec<String>> {
        let target = LatencySpec::Linear(self.target);
        Ok(vec![
            format!("hardware.target={}", inline(&target)?),
            format!("hardware.draft={}", inline(&self.draft)?),
            format!("engine.host={}", inline(&self.host)?),
            format!("engine.frontend_s={:?}", self.frontend_s),
        ])
    }
}

/// The setting `value` as an inline table of TOML.
pub fn inline(value: &impl Serialize) -> Result<String> {
    let value = toml::Value::try_from(value);
    value.map(|v| v.to_string()).map_err(|e| Problem::failed(format!("a cost cannot be written as TOML: {e}")))
}

/// Seconds per token of context that a target reads, in a batch of 64 decodes; 0 if context costs nothing.
pub fn context_s(target: &LatencySpec) -> f64 {
    const FAR: u64 = 1 << 18;
    let model = target.build();
    let pass_s = |context| model.pass(PassShape { requests: 64, batched: 64, context, pairs: context + 64 }).as_s();
    (pass_s(2 * FAR) - pass_s(FAR)) / FAR as f64
}
