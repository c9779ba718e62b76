//! A policy that decides for an engine in another process. The engine writes one line of JSON for each of its steps to
//! this program's standard input, and gets one line with the draft lengths back. `tests/vllm/clockwork/seated.py` lets
//! vLLM's scheduler run with any policy of this crate in this way.
//!
//! The steps have vLLM's order: the engine verifies the draft tokens that its requests hold, then it asks for the draft
//! tokens that the next step verifies.

use foretoken_policies::PolicySpec;
use foretoken_policies::seat::{Seat, Setup};
use foretoken_sim::scripted::Scripted;
use foretoken_sim::{BatchView, Categories, ChunkTotals, Drafts, RequestId, SpecPolicy, StepOutcome, Time};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::io::{BufRead, Write};

/// The first line of standard input: the policy, and what the engine knows before its first step.
#[derive(Deserialize)]
struct First {
    policy: PolicySpec,
    #[serde(flatten)]
    setup: Setup,
}

/// Each later line of standard input: a step of the engine whose target pass is over.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    /// The prompt chunks of the step: for each, how many of the request's tokens were computed before the step, and how
    /// many the chunk has.
    chunks: Vec<(u32, u32)>,
    num_running: u32,
    num_waiting: u32,
    /// The requests for which draft tokens are made now.
    next: Vec<Next>,
    /// The decode requests of the step's target pass: the id, and how many of the verified draft tokens were accepted.
    accepted: Vec<(RequestId, u32)>,
    /// Seconds of the step's target pass.
    target_s: f64,
    /// Seconds of the draft passes that made the verified draft tokens.
    draft_s: f64,
    /// Requests that have ended and are in no later step.
    ended: Vec<RequestId>,
}

/// A request that may get draft tokens.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Next {
    id: RequestId,
    /// Number of the request's tokens in the target's KV.
    context: u32,
    /// Number of output tokens that the request has emitted so far.
    emitted: u32,
    /// The confidence that the draft model would have in each of the next `max_draft_len` tokens.
    confidences: Vec<f64>,
}

/// The answer to a step. Both lists have one entry for each request, in the order of [`Step::next`].
#[derive(Serialize)]
struct Answer {
    /// Number of tokens that the draft model makes for each request.
    drafted: Vec<u32>,
    /// How many of each request's draft tokens the next step is to verify.
    verified: Vec<u32>,
}

/// The draft tokens that the requests hold until the next step verifies them.
#[derive(Default)]
struct Held {
    ids: Vec<RequestId>,
    drafts: Drafts,
}

impl Held {
    /// The draft tokens that the requests `ids` hold, in the order of `ids`. A request without held draft tokens gets
    /// draft length 0.
    fn rows(&self, ids: &[RequestId], max_draft_len: u32) -> Drafts {
        let mut rows = Drafts::default();
        rows.reset(ids.len(), max_draft_len);
        rows.verify_len.resize(ids.len(), 0);
        (rows.wants, rows.passes) = (self.drafts.wants, self.drafts.passes);
        for (i, id) in ids.iter().enumerate() {
            if let Some(row) = self.ids.iter().position(|held| held == id) {
                (rows.draft_len[i], rows.verify_len[i]) = (self.drafts.draft_len[row], self.drafts.verify_len[row]);
                for j in 0..rows.draft_len[i] as usize {
                    rows.set_confidence(i, j, self.drafts.confidence(row, j));
                }
            }
        }
        rows
    }
}

/// Lets the policy decide on the draft tokens that are made at the end of step number `number`. Returns these tokens.
fn decide(policy: &mut Box<dyn SpecPolicy>, step: &Step, number: u64, max_draft_len: u32) -> Held {
    let column = |of: fn(&Next) -> u32| step.next.iter().map(of).collect::<Vec<u32>>();
    let (ids, context, emitted) = (column(|n| n.id), column(|n| n.context), column(|n| n.emitted));
    let n = ids.len();
    let mut prefill = ChunkTotals::default();
    step.chunks.iter().for_each(|&(computed, tokens)| prefill.add(computed, tokens));
    let view = BatchView {
        now: Time::ZERO,
        step: number,
        ids: &ids,
        context: &context,
        emitted: &emitted,
        limit: &vec![max_draft_len; n],
        draft_gap: &vec![0; n],
        slo_tpot_s: &vec![f64::INFINITY; n],
        categories: Categories::default(),
        context_sum: context.iter().map(|&c| u64::from(c)).sum(),
        prefill,
        draft_prefill: prefill,
        always_extend: false,
        num_running: step.num_running,
        num_waiting: step.num_waiting,
    };
    let confidence = step.next.iter().map(|n| n.confidences.clone()).collect();
    let mut script = Scripted { confidence, ..Scripted::default() };
    let drafts = script.decide(policy, &view, max_draft_len, &mut Vec::new());
    Held { ids, drafts }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut lines = std::io::stdin().lock().lines();
    let First { policy, setup } = serde_json::from_str(&lines.next().ok_or("the first line is missing")??)?;
    let mut seat = Seat::with_confidences(&policy, &setup)?;
    let policy = seat.policy();
    let mut held = Held::default();
    for (number, line) in (0..).zip(lines) {
        let step: Step = serde_json::from_str(&line?)?;
        let fresh = decide(policy, &step, number, setup.max_draft_len);
        let (ids, accepted): (Vec<RequestId>, Vec<u32>) = step.accepted.iter().copied().unzip();
        let drafts = held.rows(&ids, setup.max_draft_len);
        policy.observe(&StepOutcome {
            ids: &ids,
            drafted: &drafts.draft_len,
            verified: &drafts.verify_len,
            accepted: &accepted,
            drafts: &drafts,
            draft_time: Time::from_s(step.draft_s),
            verify_time: Time::from_s(step.target_s),
        });
        step.ended.iter().for_each(|&id| policy.request_finished(id));
        let answer = Answer { drafted: fresh.drafts.draft_len.clone(), verified: fresh.drafts.verify_len.clone() };
        println!("{}", serde_json::to_string(&answer)?);
        std::io::stdout().flush()?;
        held = fresh;
    }
    Ok(())
}
