//! Decides which drafted tokens are accepted: the greedy scan over trees of draft tokens, and rejection sampling over
//! chains of draft tokens.

use foretoken_sim::Luck;
use foretoken_sim::tree::ROOT;

/// A token that may come next in a text, with its probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The id of the token that may come next.
    pub token: u32,
    /// The token's probability. If the token was sampled, this is its probability in the distribution from which it was
    /// drawn. Otherwise it is the token's probability under the softmax of all logits.
    pub probability: f32,
}

/// A drafted tree that the target verifies. Row `first` of the target's logits belongs to the newest emitted token,
/// which is the root of the tree. Row `first + 1 + j` belongs to node `j`.
#[derive(Clone, Copy, Debug)]
pub struct Tree<'a> {
    /// Index of the tree's first row in the matrix of the target's logits, which has one row per verified token.
    pub first: usize,
    /// The drafted token of each node of the tree.
    pub tokens: &'a [u32],
    /// Parent of each node of the tree: an earlier node, or [`ROOT`], the newest emitted token.
    pub parents: &'a [u32],
}

/// A chain of draft tokens that were sampled from the draft model and that the target verifies. Rows `target … target +
/// tokens.len()` of the target's probabilities are the distributions of the tokens after the newest emitted token and
/// after each drafted token. Rows `draft … draft + tokens.len() − 1` of the draft model's probabilities are the
/// distributions from which the drafted tokens were sampled.
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a> {
    /// Index of the chain's first row in the matrix of the target's probabilities, which has one row per verified
    /// token.
    pub target: usize,
    /// Index of the chain's first row in the matrix of the draft model's probabilities, which has one row per draft
    /// token.
    pub draft: usize,
    /// The drafted tokens of the chain, in order.
    pub tokens: &'a [u32],
    /// The random draws with which the chain of draft tokens is verified. Draw 2·i decides whether token i is accepted.
    /// If token i is rejected, draw 2·i + 1 chooses its replacement. If all tokens are accepted, draw 2·`tokens.len()`
    /// + 1 chooses the token after the chain.
    pub luck: Luck,
}

/// The result of verifying one request's draft tokens: which are accepted, and the token that follows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// The indices of the accepted nodes in the tree (in a chain: 0, 1, and so on), from the root down.
    pub nodes: Vec<u32>,
    /// The token that the target chooses after the accepted nodes: the replacement of the first rejected draft token,
    /// or, if all are accepted, the target's own next token (the bonus token).
    pub next: u32,
}

/// Verifies a draft tree greedily: starts at the root and goes to a child as long as some child has the token that the
/// target chooses. `choice(row)` is the target's most likely token in a row of logits. A chain of draft tokens is a
/// tree in which each node is the parent of the next node (Leviathan et al., arXiv 2211.17192, at temperature 0; trees:
/// SpecInfer, arXiv 2305.09781, section 4).
pub fn greedy(tree: &Tree<'_>, mut choice: impl FnMut(usize) -> u32) -> Accepted {
    let mut nodes = Vec::new();
    let mut next = choice(tree.first);
    let mut at = ROOT;
    // A parent comes before its children in the list, so one scan of the nodes is enough.
    for (node, (&token, &parent)) in tree.tokens.iter().zip(tree.parents).enumerate() {
        if parent == at && token == next {
            at = node as u32;
            nodes.push(at);
            next = choice(tree.first + 1 + node);
        }
    }
    Accepted { nodes, next }
}

/// Verifies a chain by rejection sampling (Leviathan et al., arXiv 2211.17192, algorithm 1). p is the target's
/// distribution, q the draft model's. A drafted token x is accepted with probability min(1, p(x) / q(x)). A draw from
/// max(0, p − q) replaces the first rejected token. If all tokens are accepted, the next token is drawn from p. The
/// emitted tokens have the same distribution as the target's own samples, whatever the draft model proposes.
/// `target(i)` and `draft(i)` are the target's and the draft model's probabilities in row `i` of the chain.
pub fn reject<'p>(
    chain: &Chain<'_>,
    target: impl Fn(usize) -> &'p [f32],
    draft: impl Fn(usize) -> &'p [f32],
) -> Accepted {
    let mut nodes = Vec::new();
    for (i, &token) in chain.tokens.iter().enumerate() {
        let (p, q) = (target(i), draft(i));
        let (keep, replace) = (chain.luck.unit(2 * i as u64), chain.luck.unit(2 * i as u64 + 1));
        if keep * f64::from(q[token as usize]) < f64::from(p[token as usize]) {
            nodes.push(i as u32);
            continue;
        }
        let residual = |t: usize| (f64::from(p[t]) - f64::from(q[t])).max(0.0);
        return Accepted { nodes, next: draw(p.len(), residual, replace) };
    }
    let last = target(chain.tokens.len());
    let u = chain.luck.unit(2 * chain.tokens.len() as u64 + 1);
    Accepted { nodes, next: draw(last.len(), |t| last[t].into(), u) }
}

/// Draws a token from a row of probabilities. The uniform random number `u` in [0, 1) decides which token is drawn.
pub fn sample(probabilities: &[f32], u: f64) -> u32 {
    draw(probabilities.len(), |t| probabilities[t].into(), u)
}

/// Draws a token from a row of probabilities with the uniform random number `u` in [0, 1). Returns the token and its
/// probability. [`sample`] returns the same token for the same `u`.
pub fn sampled(probabilities: &[f32], u: f64) -> Choice {
    let token = sample(probabilities, u);
    Choice { token, probability: probabilities[token as usize] }
}

/// Returns the entropy of a row of probabilities, in nats.
pub fn entropy(probabilities: &[f32]) -> f64 {
    let term = |&p: &f32| if p > 0.0 { f64::from(-p) * f64::from(p).ln() } else { 0.0 };
    probabilities.iter().map(term).sum()
}

/// Returns KL(target ‖ draft) of two rows of probabilities, in nats. If the draft model's probability of a token is 0,
/// the smallest normal f32 takes its place.
pub fn divergence(target: &[f32], draft: &[f32]) -> f64 {
    let term = |(&p, &q): (&f32, &f32)| match p > 0.0 {
        true => f64::from(p) * (f64::from(p) / f64::from(q.max(f32::MIN_POSITIVE))).ln(),
        false => 0.0,
    };
    target.iter().zip(draft).map(term).sum()
}

/// Draws one of `tokens` tokens, each with probability proportional to its number `weight(token)`. `u` is a uniform
/// random number in [0, 1). A token of weight 0 is never drawn, except token 0 if all weights are 0.
fn draw(tokens: usize, weight: impl Fn(usize) -> f64, u: f64) -> u32 {
    let total: f64 = (0..tokens).map(&weight).sum();
    let (mut left, mut last) = (u * total, 0);
    for t in 0..tokens {
        let w = weight(t);
        if w > 0.0 {
            last = t as u32;
            if left < w {
                break;
            }
        }
        left -= w;
    }
    last
}

#[cfg(test)]
#[path = "accept_tests.rs"]
mod tests;
