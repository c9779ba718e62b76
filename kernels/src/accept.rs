//! Which drafted tokens are kept: the greedy scan over trees, and rejection sampling over chains.

use foretoken_sim::Luck;
use foretoken_sim::tree::ROOT;

/// One of the likeliest next tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The token.
    pub token: u32,
    /// Its probability under the softmax over the whole vocabulary.
    pub probability: f32,
}

/// A drafted tree to check. Logits row `first` belongs to the newest emitted token, below which it hangs, row
/// `first + 1 + j` to its node `j`.
#[derive(Clone, Copy, Debug)]
pub struct Tree<'a> {
    /// First of its rows of the target's logits.
    pub first: usize,
    /// Its tokens.
    pub tokens: &'a [u32],
    /// Parent node of each, an earlier one, or [`ROOT`].
    pub parents: &'a [u32],
}

/// A sampled chain to check. Rows `target … target + tokens.len()` of the target's probabilities belong to the newest
/// emitted token and the drafted ones; rows `draft …` of the draft's are those the drafted tokens were sampled from.
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a> {
    /// First of its rows of the target's probabilities.
    pub target: usize,
    /// First of its rows of the draft's.
    pub draft: usize,
    /// Its tokens.
    pub tokens: &'a [u32],
    /// Its draws: position 2·i decides on token i, the odd position after it chooses what replaces it.
    pub luck: Luck,
}

/// What was kept of one request's draft.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// The kept nodes, from the root down.
    pub nodes: Vec<u32>,
    /// The target's own token after them.
    pub next: u32,
}

/// Greedy verification: walks down as long as a child is the token the target chooses. `choice(row)` is the target's
/// choice. A chain is the tree whose every node follows the one before (Leviathan et al., arXiv 2211.17192, at
/// temperature 0; trees: SpecInfer, arXiv 2305.09781, section 4).
pub fn greedy(tree: &Tree<'_>, mut choice: impl FnMut(usize) -> u32) -> Accepted {
    let mut nodes = Vec::new();
    let mut next = choice(tree.first);
    let mut at = ROOT;
    // Parents come before their children, so one scan suffices: whatever follows `at` lies behind it.
    for (node, (&token, &parent)) in tree.tokens.iter().zip(tree.parents).enumerate() {
        if parent == at && token == next {
            at = node as u32;
            nodes.push(at);
            next = choice(tree.first + 1 + node);
        }
    }
    Accepted { nodes, next }
}

/// Rejection sampling (Leviathan et al., arXiv 2211.17192, algorithm 1): token x is kept with probability min(1, p(x) /
/// q(x)); the first that is not is replaced by a draw from max(0, p − q), and after the last a token is drawn from p.
/// What is emitted is distributed as the target's own samples are, whatever the draft. `target(i)` and `draft(i)` are
/// the probabilities of the chain's row `i`.
pub fn reject<'p>(
    chain: &Chain<'_>,
    target: impl Fn(usize) -> &'p [f32],
    draft: impl Fn(usize) -> &'p [f32],
) -> Accepted {
    let mut nodes = Vec::new();
    for (i, &token) in chain.tokens.iter().enumerate() {
        let (p, q) = (target(i), draft(i));
        let (keep, again) = (chain.luck.unit(2 * i as u64), chain.luck.unit(2 * i as u64 + 1));
        if keep * f64::from(q[token as usize]) < f64::from(p[token as usize]) {
            nodes.push(i as u32);
            continue;
        }
        let residual = |t: usize| (f64::from(p[t]) - f64::from(q[t])).max(0.0);
        return Accepted { nodes, next: draw(p.len(), residual, again) };
    }
    let last = target(chain.tokens.len());
    let u = chain.luck.unit(2 * chain.tokens.len() as u64 + 1);
    Accepted { nodes, next: draw(last.len(), |t| last[t].into(), u) }
}

/// A token drawn from a row of probabilities with the uniform `u` in [0, 1).
pub fn sample(probabilities: &[f32], u: f64) -> u32 {
    draw(probabilities.len(), |t| probabilities[t].into(), u)
}

/// [`sample`], with the token's probability.
pub fn sampled(probabilities: &[f32], u: f64) -> Choice {
    let token = sample(probabilities, u);
    Choice { token, probability: probabilities[token as usize] }
}

/// Entropy of a row of probabilities, nats.
pub fn entropy(probabilities: &[f32]) -> f64 {
    let of = |&p: &f32| if p > 0.0 { f64::from(-p) * f64::from(p).ln() } else { 0.0 };
    probabilities.iter().map(of).sum()
}

/// KL(target ‖ draft) of two rows of probabilities, nats. A draft that rounds a token to 0 counts as the smallest f32.
pub fn divergence(target: &[f32], draft: &[f32]) -> f64 {
    let of = |(&p, &q): (&f32, &f32)| match p > 0.0 {
        true => f64::from(p) * (f64::from(p) / f64::from(q.max(f32::MIN_POSITIVE))).ln(),
        false => 0.0,
    };
    target.iter().zip(draft).map(of).sum()
}

/// Inverts the distribution that has these weights; they need not sum to one. Never a token of weight 0.
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
