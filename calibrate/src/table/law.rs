//! The law that is fitted to a table: a few numbers for the cost of passes and of the host, equal for all rows.

use foretoken_hardware::LatencySpec;
use foretoken_sim::host::{HostLaw, WithoutGraph};
use foretoken_sim::{Coefficients, PassShape};
use foretoken_spec::problem::{Problem, Result};
use serde::{Deserialize, Serialize};

/// A number of the law that is fitted. The time per token of a cell is close to linear in each of these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Term {
    /// Seconds per target pass.
    Pass,
    /// Seconds per token of a target pass.
    Token,
    /// Seconds per draft pass.
    DraftPass,
    /// Host seconds per step that verifies drafts.
    Speculating,
    /// Host seconds per request in a step that verifies drafts.
    SpeculatingRequest,
    /// Additional host seconds per step that verifies drafts, if the step has more than this number of requests: no
    /// captured graph is that large.
    WithoutGraph(u32),
    /// Seconds from client to scheduler and back.
    Frontend,
}

impl Term {
    /// The change of the term in seconds with which its slope is computed. It is small compared with the values of real
    /// servers.
    pub fn step(self) -> f64 {
        match self {
            Term::Pass | Term::Speculating | Term::WithoutGraph(_) | Term::Frontend => 1e-3,
            Term::DraftPass | Term::SpeculatingRequest => 1e-4,
            Term::Token => 1e-5,
        }
    }

    /// True if the term counts only in steps that draft or verify drafts.
    pub fn speculates(self) -> bool {
        !matches!(self, Term::Pass | Term::Token | Term::Frontend)
    }

    /// The term with its value as text.
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

/// The costs of passes and of the host with which the cells of a table are simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Law {
    /// The cost of a target pass. The cost of context comes from the experiment or is 0.
    pub target: Coefficients,
    /// The cost of a draft pass, stated by the experiment or fitted.
    pub draft: LatencySpec,
    /// The host's time per step.
    pub host: HostLaw,
    /// Seconds from client to scheduler and back.
    pub frontend_s: f64,
}

impl Law {
    /// The law with all fitted numbers 0. `alpha_s` is the target's time per token of context in seconds, `draft` the
    /// draft's cost. Both come from the experiment, if it states them.
    pub fn known(alpha_s: f64, draft: Option<LatencySpec>) -> Law {
        Law {
            target: Coefficients { alpha_s, gamma_s: 0.0, delta_s: 0.0 },
            draft: draft.unwrap_or(LatencySpec::Linear(Coefficients::FREE)),
            host: HostLaw::default(),
            frontend_s: 0.0,
        }
    }

    /// The law in which `terms` have these `values`, in seconds.
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

    /// The law as settings of an experiment, `key=value`, which replace the experiment's own.
    ///
    /// # Errors
    /// A value cannot be written as TOML.
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

/// A value as an inline table of TOML.
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
