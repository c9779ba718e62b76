//! Registers Python policies, so that experiments can name them. An experiment stores a policy's settings and the
//! digest of its Python source (`code`). The digest selects the factory, the Python function that makes the policy. A
//! policy with changed source therefore counts as another policy, and stored results are not reused for it.

use crate::hooks::{Running, throw};
use crate::passes::{self, PassTimes};
use foretoken_policies::{About, BadParameter, Belief, Definition, PolicyContext, register_again};
use foretoken_sim::{Coefficients, Speculation};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// The name of the setting that holds the digest of the policy's Python source.
const CODE: &str = "code";

/// What a Python program stated about its policy when it registered the policy: the policy's name, a summary and its
/// source.
#[derive(Clone, Copy)]
struct Description {
    name: &'static str,
    summary: &'static str,
    source: &'static str,
}

/// A registered policy: its description, and its factory, which is the Python function that makes the policy.
struct Registered {
    description: Description,
    factory: Py<PyAny>,
}

/// All registered policies, by the digest of their source.
static KNOWN: LazyLock<Mutex<HashMap<String, Registered>>> = LazyLock::new(Mutex::default);

fn known() -> MutexGuard<'static, HashMap<String, Registered>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A policy's settings: the default settings of its factory (the function that makes the policy), changed by the values
/// that the experiment sets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
struct Outside(Map<String, Value>);

impl JsonSchema for Outside {
    fn schema_name() -> Cow<'static, str> {
        "Outside".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object" })
    }
}

impl Outside {
    fn code(&self) -> &str {
        self.0.get(CODE).and_then(Value::as_str).unwrap_or_default()
    }

    fn description(&self) -> Description {
        known().get(self.code()).map_or(Description { name: "unknown", summary: "", source: "" }, |k| k.description)
    }
}

impl Definition for Outside {
    fn about(&self) -> About {
        About {
            summary: self.description().summary,
            source: self.description().source,
            sees: "what a server sees",
            differences: "none",
        }
    }

    fn check(&self) -> Result<(), BadParameter> {
        match known().contains_key(self.code()) {
            true => Ok(()),
            false => Err(BadParameter {
                policy: "policy",
                key: CODE,
                why: format!("nothing with the code `{}` is registered in this process", self.code()),
            }),
        }
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        let built = Python::attach(|py| {
            let found = known().get(self.code()).map(|k| (k.description, k.factory.clone_ref(py)));
            let (description, factory) = found.expect("the settings passed their check");
            self.start(py, description, &factory, context)
                .unwrap_or_else(|e| throw(py, description.name, "its factory", &e))
        });
        Speculation::Policy(Box::new(built))
    }
}

impl Outside {
    /// Calls the policy's factory (a Python function) with the policy's settings and with `context`: the pass costs
    /// that the policy assumes, the engine's limits and the run's seed. The factory makes the policy of one cell (a run
    /// of one policy).
    fn start(
        &self,
        py: Python<'_>,
        description: Description,
        factory: &Py<PyAny>,
        context: &PolicyContext,
    ) -> PyResult<Running> {
        let mut settings = self.0.clone();
        settings.remove(CODE);
        let settings = Value::Object(settings).to_string();
        let settings = py.import("json")?.call_method1("loads", (settings,))?;
        let settings = settings.cast_into::<PyDict>()?;
        let object = passes::lend(py, context.profile, |profile| {
            factory.bind(py).call((seen(py, context, profile)?,), Some(&settings))
        })?;
        Running::new(py, description.name, &object, context.max_draft_len)
    }
}

/// Converts `context` to a Python object, `foretoken.policy.Context`. The context has the pass costs that a policy
/// assumes, the engine's limits and the run's seed.
fn seen<'py>(py: Python<'py>, context: &PolicyContext, profile: &Bound<'py, PassTimes>) -> PyResult<Bound<'py, PyAny>> {
    let policy = py.import("foretoken.policy")?;
    let model = |c: Coefficients| policy.getattr("Coefficients")?.call1((c.alpha_s, c.gamma_s, c.delta_s));
    let Belief { draft, target, context_reads, drafting } = context.belief;
    let word = |value: Result<Value, serde_json::Error>| {
        value.ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
    };
    let (reads, drafting) = (word(serde_json::to_value(context_reads)), word(serde_json::to_value(drafting)));
    let belief = policy.getattr("Belief")?.call1((model(draft)?, model(target)?, reads, drafting))?;
    let PolicyContext { max_draft_len, max_num_seqs, max_num_batched_tokens, seed, staleness_steps, .. } = *context;
    let categories = PyTuple::new(py, context.categories)?;
    let numbers =
        (belief, max_draft_len, max_num_seqs, max_num_batched_tokens, seed, staleness_steps, profile, categories);
    policy.getattr("Context")?.call1(numbers)
}

/// Registers a factory (the Python function that makes a policy) under a name, in place of an earlier factory of this
/// name. `settings` are the factory's default settings as JSON. `code` is the digest of the factory's Python code.
/// `summary` and `source` are the texts that lists of policies show.
///
/// # Errors
/// `settings` is no JSON object, the name is not in kebab-case, or it belongs to a built-in policy.
#[pyfunction]
pub fn register(
    name: &str,
    code: String,
    settings: &str,
    summary: &str,
    source: &str,
    factory: Py<PyAny>,
) -> PyResult<()> {
    let wrong = |e: String| PyValueError::new_err(e);
    let mut preset: Map<String, Value> = serde_json::from_str(settings).map_err(|e| wrong(e.to_string()))?;
    preset.insert(CODE.to_owned(), Value::String(code.clone()));
    // The table of policies needs texts that live until the program ends, so the few texts of a registered policy are
    // leaked.
    let kept = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
    let earlier = known().get(&code).map(|k| k.description);
    let description = earlier.filter(|t| t.name == name).unwrap_or_else(|| Description {
        name: kept(name),
        summary: kept(summary),
        source: kept(source),
    });
    known().insert(code, Registered { description, factory });
    register_again(description.name, Outside(preset)).map_err(|e| wrong(e.to_string()))
}
