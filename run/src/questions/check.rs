//! Checks the `[question]` table of an experiment, which states a question of users and its answers.

use crate::papers::check_claims;
use crate::plan::Plan;
use crate::spec::document::Path;
use crate::spec::paper::Claim;
use crate::spec::problem::{Problem, Result};
use crate::spec::question::{Question, Reported};

/// Checks the `[question]` table of a plan; does nothing without it. Claims may name only policies, swept values and
/// bounds of the experiment. The answers and `decided_by` may name only claims. `decided_by` must not be empty, and the
/// URL must begin with https://.
pub fn check(plan: &Plan) -> Result<()> {
    let Some(question) = &plan.variants[0].experiment.question else { return Ok(()) };
    let claims: Vec<Claim> = question.claims.iter().map(Reported::as_claim).collect();
    check_claims(plan, &claims, "question")?;
    let ids: Vec<&str> = claims.iter().map(|c| c.id.as_str()).collect();
    let wrong = |key: &str, message: String| {
        let problem = plan.variants[0].document().problem_at(&Path::of("question").key(key), message);
        problem.help(format!("claims here: {}", ids.join(", ")))
    };
    if question.decided_by.is_empty() {
        let message = "question.decided_by is empty: no claim decides the answer".to_owned();
        return Err(wrong("decided_by", message));
    }
    if let Some(id) = question.decided_by.iter().find(|id| !ids.contains(&id.as_str())) {
        return Err(wrong("decided_by", format!("question.decided_by: no claim is called `{id}`")));
    }
    for (key, text) in [("answer", &question.answer), ("otherwise", &question.otherwise)] {
        if let Some(id) = places(text).find(|id| !ids.contains(id)) {
            return Err(wrong(key, format!("question.{key}: no claim is called `{id}`")));
        }
    }
    address(plan, question)
}

/// The names in braces in the text of an answer, such as `id` in `{id}`.
fn places(text: &str) -> impl Iterator<Item = &str> {
    text.split('{').skip(1).filter_map(|part| part.split_once('}')).map(|(id, _)| id)
}

fn address(plan: &Plan, question: &Question) -> Result<()> {
    if question.url.starts_with("https://") {
        return Ok(());
    }
    let message = format!("question.url: `{}` is not an address that begins with https://", question.url);
    let problem: Box<Problem> = plan.variants[0].document().problem_at(&Path::of("question.url"), message);
    Err(problem)
}
