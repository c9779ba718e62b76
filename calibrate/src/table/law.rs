//! The law that is fitted to a table: what a pass costs, and what the host takes. None of its numbers belongs to a row.

use foretoken_hardware::LatencySpec;
use foretoken_sim::host::{HostLaw, WithoutGraph};
use foretoken_sim::{Coefficients, PassShape};
use foretoken_spec::problem::{Problem, Result};
use serde::{Deserialize, Serialize};

/// A number of the law. Every cell's time per token is close to a line in each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Term {
    /// Seconds of a target pass.
    Pass,
    /// Seconds of a token in a target pass.
    Token,
    /// Seconds of a draft pass.
    DraftPass,
    /// Host seconds of a step that verifies drafts.
    Speculating,
    /// Host seconds of a request in such a step.
    SpeculatingRequest,
    /// Host seconds of such a step above this number of requests, where captured graphs end.
    WithoutGraph(u32),
    /// Seconds between client and scheduler.
    Frontend,
}

impl Term {
    /// A change of the term that is small for servers, in its unit.
    pub fn step(self) -> f64 {
        match self {
            Term::Pass | Term::Speculating | Term::WithoutGraph(_) | Term::Frontend => 1e-3,
            Term::DraftPass | Term::SpeculatingRequest => 1e-4,
            Term::Token => 1e-5,
        }
    }

    /// True if the term acts in steps that verify drafts only.
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

/// A law with values.
#[derive(Clone, Debug, PartialEq)]
pub struct Law {
    /// The target's pass: context is known, or counts nothing.
    pub target: Coefficients,
    /// The draft's pass: stated by the experiment, or fitted.
    pub draft: LatencySpec,
    /// Host time.
    pub host: HostLaw,
    /// Seconds between client and scheduler.
    pub frontend_s: f64,
}

impl Law {
    /// The law without any fitted number. `alpha_s` is the target's time per token of context, and `draft` the draft's
    /// cost, as far as they are known.
    pub fn known(alpha_s: f64, draft: Option<LatencySpec>) -> Law {
        Law {
            target: Coefficients { alpha_s, gamma_s: 0.0, delta_s: 0.0 },
            draft: draft.unwrap_or(LatencySpec::Linear(Coefficients::FREE)),
            host: HostLaw::default(),
            frontend_s: 0.0,
        }
    }

    /// The law with these values.
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

    /// The law as replaced values of an experiment.
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

/// A value as inline TOML.
pub fn inline(value: &impl Serialize) -> Result<String> {
    let value = toml::Value::try_from(value);
    value.map(|v| v.to_string()).map_err(|e| Problem::failed(format!("a cost cannot be written as TOML: {e}")))
}

/// Seconds per token of context that a target reads, at a batch of decodes; 0 of a model without.
pub fn context_s(target: &LatencySpec) -> f64 {
    const FAR: u64 = 1 << 18;
    let model = target.build();
    let at = |context| model.pass(PassShape { requests: 64, batched: 64, context, pairs: context + 64 }).as_s();
    (at(2 * FAR) - at(FAR)) / FAR as f64
}
