//! Computes what each policy would decide in a state of a server (requests, costs, observations) that the user writes
//! by hand. The decisions come from the policies' own code, in the draft loop that the engine uses. Each decision comes
//! with an estimate of the step's time and goodput (docs/model.md 12).

mod state;

use crate::spec::problem::{Problem, Result};
use foretoken_policies::{Belief, PolicyContext, PolicySpec, Told};
use foretoken_sim::scripted::Scripted;
use foretoken_sim::{
    BatchView, Candidate, Categories, ChunkTotals, DraftAt, DraftPlan, Drafting, Drafts, MAX_SPEC_LEN, RequestId,
    SpecPolicy, Speculation, StepOutcome, Time,
};
use serde::Serialize;
use state::{Request, State};
use std::collections::BTreeSet;

/// What one policy decides in a state that the user wrote: draft lengths, with estimates of the step's time and
/// goodput.
#[derive(Debug, Serialize)]
struct Decision {
    policy: String,
    /// The policy's label: its name, and every setting that differs from its default.
    label: String,
    /// Number of draft tokens for each request; for a tree of draft tokens, the tree's depth.
    draft_len: Vec<u32>,
    /// Number of draft tokens to verify for each request of the batch; for a tree, the depth of the deepest node to
    /// verify.
    verify_len: Vec<u32>,
    /// Number of draft passes: the largest value of `draft_len`, or at most 1 if one pass makes all draft tokens.
    draft_forwards: u32,
    /// Number of nodes to verify in each request's tree of draft tokens; absent for policies that draft chains.
    #[serde(skip_serializing_if = "Option::is_none")]
    verify_nodes: Option<Vec<u32>>,
    /// Number of requests in the step's batch: the batch has this number of the state's first requests. Absent if the
    /// policy does not choose the batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    batch_prefix: Option<usize>,
    /// Estimated time of the step for the decided lengths, seconds: draft passes and verify pass.
    estimated_step_s: f64,
    /// Expected output tokens of the step, computed from the confidences in the state, divided by `estimated_step_s`.
    estimated_token_goodput_tok_s: f64,
    /// The policy's estimate of the quantity that it maximises, such as goodput; `None` if it maximises none.
    own_estimate: Option<f64>,
    /// The draft lengths or trees that the policy weighed before it chose; `None` if they were not asked for
    /// (`--explain`).
    #[serde(skip_serializing_if = "Option::is_none")]
    candidates: Option<Vec<Weighed>>,
}

#[derive(Debug, Serialize)]
struct Weighed {
    what: String,
    estimate: f64,
}

impl From<Candidate> for Weighed {
    fn from(c: Candidate) -> Weighed {
        Weighed { what: c.what, estimate: c.estimate }
    }
}

/// The decision of each policy in a server's state, as JSON. `text` is the state as JSON; error messages call it
/// `name`. `explain` adds the candidates that each policy compared.
pub fn decisions(name: &str, text: &str, explain: bool) -> Result<String> {
    let state = State::parse(name, text)?;
    let decisions: Result<Vec<Decision>> =
        state.policies.iter().enumerate().map(|(i, p)| decide(name, &state, i, p, explain)).collect();
    serde_json::to_string_pretty(&decisions?)
        .map_err(|e| Problem::failed(format!("the decisions cannot be written as JSON: {e}")))
}

fn decide(file: &str, state: &State, index: usize, spec: &PolicySpec, explain: bool) -> Result<Decision> {
    let wrong = |message: String| Problem::bad_input(format!("{file}: policies[{index}]: {message}"));
    spec.check().map_err(|e| wrong(e.to_string()))?;
    if spec.sees_hidden_truth() {
        let problem = wrong(format!("`{}` needs the hidden truth, and a state has none", spec.label()));
        return Err(problem.help("oracles and clairvoyants belong into an experiment: foretoken run"));
    }
    let belief = state.belief();
    let columns = Columns::of(state);
    let context = PolicyContext {
        belief,
        profile: state,
        max_draft_len: state.max_draft_len,
        max_num_seqs: MAX_NUM_SEQS.max(state.requests.len() as u32),
        max_num_batched_tokens: MAX_NUM_BATCHED_TOKENS.max(state.requests.len() as u32 * (state.max_draft_len + 1)),
        seed: state.seed,
        staleness_steps: 0,
        draft_at: DraftAt::StepStart,
        categories: &columns.category_names,
        told: Some(Told {
            acceptance_rate: state.acceptance_rate,
            prev_confidence: state.prev_confidence,
            contexts: &columns.context,
        }),
        truths: None,
        own_rates: None,
    };
    let mut decision = match spec.build(&context) {
        Speculation::Policy(mut policy) => {
            if explain {
                policy.explain();
            }
            if spec.definition().learns_from_counts() {
                state
                    .history
                    .iter()
                    .filter(|batch| !batch.is_empty())
                    .for_each(|accepted| learn(&mut *policy, accepted));
            }
            let trees = policy.limits().tree_tokens;
            let columns = if trees > 0 { columns.with_limit(trees) } else { columns };
            let taking_part = policy.max_batch(&columns.view(columns.ids.len()));
            let n = taking_part.unwrap_or(columns.ids.len()).clamp(1, columns.ids.len());
            let view = columns.view(n);
            let mut script =
                Scripted { confidence: state.requests.iter().map(Request::drafts).collect(), ..Scripted::default() };
            let drafts = script.decide(&mut policy, &view, state.max_draft_len, &mut Vec::new());
            let mut decision = estimate(state, &belief, &view, &drafts);
            decision.batch_prefix = taking_part;
            let explanation = policy.explain();
            decision.own_estimate = explanation.estimate;
            decision.candidates = explain.then(|| explanation.candidates.into_iter().map(Weighed::from).collect());
            decision
        }
        // Without a drafter, no tokens are drafted. Oracles were refused above, because they need to know which draft
        // tokens are right.
        Speculation::Off | Speculation::Oracle(_) => {
            let view = columns.view(columns.ids.len());
            let mut drafts = Drafts::default();
            drafts.reset(view.len(), state.max_draft_len);
            drafts.verify_len.resize(view.len(), 0);
            let mut decision = estimate(state, &belief, &view, &drafts);
            decision.candidates = explain.then(Vec::new);
            decision
        }
    };
    decision.policy = spec.name().to_owned();
    decision.label = spec.label();
    Ok(decision)
}

/// vLLM's defaults for the most requests and the most tokens of a step (docs/model.md 4.1), because a state of
/// `foretoken decide` does not have these two settings. The policies' cost tables reach to these sizes.
const MAX_NUM_SEQS: u32 = 256;
const MAX_NUM_BATCHED_TOKENS: u32 = 8192;

/// Makes the policy observe one past step, in which request i had `accepted[i]` accepted draft tokens. First lets the
/// policy choose lengths for a batch of that size, because some policies update their state when they choose.
fn learn(policy: &mut dyn SpecPolicy, accepted: &[u32]) {
    let n = accepted.len();
    let columns = Columns::new(vec![1; n], MAX_SPEC_LEN, f64::INFINITY);
    policy.propose(&columns.view(n), &mut DraftPlan { draft_len: vec![0; n], ..DraftPlan::default() });
    // The history does not say how many tokens were drafted. Assumes the most that is possible, so that no request has
    // more accepted than drafted tokens.
    let drafted = vec![MAX_SPEC_LEN; n];
    policy.observe(&StepOutcome {
        ids: &columns.ids,
        drafted: &drafted,
        verified: &drafted,
        accepted,
        drafts: &Drafts::default(),
        draft_time: Time::ZERO,
        verify_time: Time::ZERO,
    });
}

/// The decided draft lengths with two estimates (docs/model.md 12): the step's time by the linear cost model, and its
/// expected tokens by the confidences of the state. All policies get the same formula. The fields that only the policy
/// knows stay empty.
fn estimate(state: &State, belief: &Belief, view: &BatchView, drafts: &Drafts) -> Decision {
    let n = view.len();
    let (step_s, drafted_tokens) = if drafts.in_trees() {
        let trees = &drafts.trees[..n];
        let scores = trees.iter().flat_map(|t| t.nodes()).filter(|node| node.kept).map(|node| node.score);
        (belief.tree_step_s(view, trees), scores.sum::<f64>())
    } else {
        let expected = |(r, &v): (&Request, &u32)| {
            r.drafts()
                .iter()
                .take(v as usize)
                .scan(1.0, |path, c| {
                    *path *= c;
                    Some(*path)
                })
                .sum::<f64>()
        };
        let tokens = state.requests.iter().zip(&drafts.verify_len).map(expected).sum::<f64>();
        (belief.step_s(view, &drafts.draft_len, &drafts.verify_len), tokens)
    };
    let longest = drafts.draft_len.iter().copied().max().unwrap_or(0);
    // One length per request of the state. Requests that the policy left out of the step get length 0.
    let padded = |lens: &[u32]| (0..state.requests.len()).map(|i| lens.get(i).copied().unwrap_or(0)).collect();
    Decision {
        policy: String::new(),
        label: String::new(),
        draft_len: padded(&drafts.draft_len),
        verify_len: padded(&drafts.verify_len),
        draft_forwards: match belief.drafting {
            Drafting::Autoregressive => longest,
            Drafting::Parallel => longest.min(1),
        },
        verify_nodes: drafts.in_trees().then(|| drafts.trees[..n].iter().map(|t| t.kept()).collect()),
        batch_prefix: None,
        estimated_step_s: step_s,
        estimated_token_goodput_tok_s: (n as f64 + drafted_tokens) / step_s,
        own_estimate: None,
        candidates: None,
    }
}

/// A batch of decode requests in columns, one entry per request, as policies get it. No request is in prefill, and the
/// draft model has processed all tokens of every request.
struct Columns {
    ids: Vec<RequestId>,
    context: Vec<u32>,
    emitted: Vec<u32>,
    limit: Vec<u32>,
    gap: Vec<u32>,
    slo_tpot_s: Vec<f64>,
    /// Index of each request's category in `category_names`; `u16::MAX` if the request has no category.
    categories: Vec<u16>,
    category_names: Vec<String>,
}

impl Columns {
    fn of(state: &State) -> Columns {
        let context = state.requests.iter().map(|r| r.context).collect();
        let names: BTreeSet<&String> = state.requests.iter().filter_map(|r| r.category.as_ref()).collect();
        let index = |r: &Request| {
            let at = r.category.as_ref().and_then(|own| names.iter().position(|name| *name == own));
            at.map_or(u16::MAX, |at| at as u16)
        };
        Columns {
            categories: state.requests.iter().map(index).collect(),
            category_names: names.into_iter().cloned().collect(),
            ..Columns::new(context, state.max_draft_len, state.slo_tpot_s.unwrap_or(f64::INFINITY))
        }
    }

    fn new(context: Vec<u32>, limit: u32, slo_tpot_s: f64) -> Columns {
        let n = context.len();
        Columns {
            ids: (0..n as RequestId).collect(),
            context,
            emitted: vec![1; n],
            limit: vec![limit; n],
            gap: vec![0; n],
            slo_tpot_s: vec![slo_tpot_s; n],
            categories: Vec::new(),
            category_names: Vec::new(),
        }
    }

    /// Sets the most draft tokens that each request may have to `tokens`. For a tree of draft tokens, the limit counts
    /// the tokens of the tree and not its depth.
    fn with_limit(mut self, tokens: u32) -> Columns {
        self.limit.fill(tokens);
        self
    }

    /// The first `n` requests of the batch, in the form in which policies see them.
    fn view(&self, n: usize) -> BatchView<'_> {
        BatchView {
            now: Time::ZERO,
            step: 0,
            ids: &self.ids[..n],
            context: &self.context[..n],
            emitted: &self.emitted[..n],
            limit: &self.limit[..n],
            draft_gap: &self.gap[..n],
            slo_tpot_s: &self.slo_tpot_s[..n],
            categories: Categories::by_id(&self.categories),
            context_sum: self.context[..n].iter().map(|&c| u64::from(c)).sum(),
            prefill: ChunkTotals::default(),
            draft_prefill: ChunkTotals::default(),
            always_extend: false,
            num_running: n as u32,
            num_waiting: 0,
        }
    }
}
