//! The shapes of passes that are timed for a profile, and [`grid`], which lists them.

use foretoken_sim::{ContextReads, Pair, PassShape};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Which of the two models runs a pass: the target or the draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The target model, whose tokens are emitted.
    Target,
    /// The draft model, which drafts tokens.
    Draft,
}

impl Role {
    /// Both roles: the target, then the draft model.
    pub const BOTH: [Role; 2] = [Role::Target, Role::Draft];
    /// The role of the target and the role of the draft model, as a [`Pair`].
    pub const EACH: Pair<Role> = Pair { target: Role::Target, draft: Role::Draft };

    /// Returns the draft's role for the target, and the target's role for the draft.
    pub fn other(self) -> Role {
        match self {
            Role::Target => Role::Draft,
            Role::Draft => Role::Target,
        }
    }

    /// Returns the name of this role (target or draft) in files and messages.
    pub fn name(self) -> &'static str {
        match self {
            Role::Target => "target",
            Role::Draft => "draft",
        }
    }
}

/// What the new tokens of a pass are for. The kind decides for which tokens logits are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Decode: each request has one new token.
    Decode,
    /// Each request has several new tokens. In a target pass they are the newest token and draft tokens to verify, all
    /// with logits. In a draft pass they are tokens that the draft model has not run over yet (a draft gap), and only
    /// the last one has logits.
    Verify,
    /// Each request has a chunk of its prompt. A target pass computes logits for the chunk's last token; a draft pass
    /// computes none.
    Prefill,
}

/// The shape of a pass in which all requests have the same number of new tokens and the same context length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Shape {
    /// What the new tokens of the pass are for: decoding, verification or a prompt.
    pub kind: Kind,
    pub requests: u32,
    /// Number of new tokens of each request.
    pub new: u32,
    /// Number of tokens of each request whose KV exists before the pass.
    pub context: u32,
}

/// Most new tokens of a pass in the regions decode and verify, for which α, γ and δ must be good. (A region is a group
/// of passes whose errors are reported together.) Larger decode and verification passes are in the region wide.
pub const SERVING_TOKENS: u64 = 64;

/// A group of passes for which the errors of fitted costs are reported together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Region {
    /// Decode passes: one new token per request, at most [`SERVING_TOKENS`] tokens in the pass.
    Decode,
    /// Verification passes: several new tokens per request, at most [`SERVING_TOKENS`] tokens in the pass.
    Verify,
    /// Decode and verification passes with more than [`SERVING_TOKENS`] new tokens.
    Wide,
    /// Prefill passes: chunks of prompts.
    Prefill,
}

impl Region {
    /// All regions, in the order in which reports list them.
    pub const ALL: [Region; 4] = [Region::Decode, Region::Verify, Region::Wide, Region::Prefill];

    /// Returns the region of a pass of the kind `kind` with `batched` new tokens.
    pub fn of_pass(kind: Kind, batched: u64) -> Region {
        match kind {
            Kind::Prefill => Region::Prefill,
            _ if batched > SERVING_TOKENS => Region::Wide,
            Kind::Decode => Region::Decode,
            Kind::Verify => Region::Verify,
        }
    }

    /// Returns the name of this region in files and messages.
    pub fn name(self) -> &'static str {
        match self {
            Region::Decode => "decode",
            Region::Verify => "verify",
            Region::Wide => "wide",
            Region::Prefill => "prefill",
        }
    }
}

impl Shape {
    /// Returns the number of new tokens of all requests of the pass together.
    pub fn batched(&self) -> u64 {
        u64::from(self.requests) * u64::from(self.new)
    }

    /// Returns the number of tokens whose KV must fit into memory: the context and the new tokens of all requests.
    pub fn kv_tokens(&self) -> u64 {
        u64::from(self.requests) * u64::from(self.context + self.new)
    }

    pub fn region(&self) -> Region {
        Region::of_pass(self.kind, self.batched())
    }

    /// Returns the sizes of the pass that a latency model gets, counted as the engine counts them
    /// (`foretoken_sim::shape`). `reads` says whether the context of a decode or verification pass counts once per
    /// request or once per new token. The context of a prefill chunk always counts once.
    pub fn pass(&self, reads: ContextReads) -> PassShape {
        let (r, n, c) = (u64::from(self.requests), u64::from(self.new), u64::from(self.context));
        let context = match (reads, self.kind) {
            (ContextReads::PerPosition, Kind::Decode | Kind::Verify) => n * c + n * (n - 1) / 2,
            _ => c,
        };
        PassShape { requests: r, batched: r * n, context: r * context, pairs: r * (n * c + n * (n + 1) / 2) }
    }
}

/// Limits on the shapes of one model's passes. Shapes within these limits can be measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Room {
    /// Longest context of a request that the model supports, tokens.
    pub max_positions: u32,
    /// Size of the KV pool for all requests together, tokens.
    pub kv_tokens: u64,
    /// Most new tokens of a pass.
    pub max_batched: u32,
    pub max_requests: u32,
    /// Numbers of tokens for which the device has captured CUDA graphs. A pass is padded to the next larger such
    /// number, so pass times jump after each of these numbers.
    pub graph_sizes: Vec<u32>,
}

/// How many shapes of passes are timed for a profile: all, or about a quarter of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Density {
    /// For a quick look: about a quarter of the shapes of passes are timed.
    Quick,
    /// For real use: all shapes of passes are timed.
    Full,
}

/// Returns the shapes to measure of the model `role`, sorted, within the limits of `room`:
/// - decode and verification passes, as combinations of numbers of requests, new tokens and context tokens;
/// - decode passes with as many requests as each captured CUDA-graph size, and with one request more;
/// - prefill chunks.
pub fn grid(role: Role, room: &Room, density: Density) -> Vec<Shape> {
    let full = density == Density::Full;
    let requests: &[u32] = if full { &[1, 2, 4, 8, 16, 32, 64, 128, 256] } else { &[1, 4, 16, 64, 256] };
    let requests: BTreeSet<u32> = requests.iter().copied().chain([room.max_requests]).collect();
    // Numbers of new tokens of each request. A target pass verifies draft tokens. A draft pass runs over tokens that
    // the draft model has not run over yet (a draft gap).
    let new: &[u32] = match (role, full) {
        (Role::Target, true) => &[1, 2, 3, 4, 5, 7, 9],
        (Role::Target, false) => &[1, 3, 6],
        (Role::Draft, true) => &[1, 2, 4],
        (Role::Draft, false) => &[1, 2],
    };
    let mut contexts = contexts(room);
    if !full && contexts.len() > 3 {
        // A quick profile measures every second context length, and always the longest one.
        let last = contexts[contexts.len() - 1];
        contexts = contexts.into_iter().step_by(2).chain([last]).collect::<BTreeSet<_>>().into_iter().collect();
    }
    let mut shapes = BTreeSet::new();
    let mut add = |kind, requests: u32, new: u32, context: u32| {
        let shape = Shape { kind, requests, new, context };
        let fits = context.saturating_add(new) <= room.max_positions
            && shape.batched() <= u64::from(room.max_batched)
            && requests <= room.max_requests
            && shape.kv_tokens() <= room.kv_tokens;
        if fits {
            shapes.insert(shape);
        }
    };
    let kind = |new| if new == 1 { Kind::Decode } else { Kind::Verify };
    for r in requests {
        for &n in new {
            for (i, &c) in contexts.iter().enumerate() {
                // To save time, verification passes of more than two requests are measured at every second context
                // length only.
                if n == 1 || r <= 2 || !full || (i + r.ilog2() as usize + n as usize).is_multiple_of(2) {
                    add(kind(n), r, n, c);
                }
            }
        }
    }
    // Adds decode passes with as many requests as each captured CUDA-graph size, and with one request more.
    for &size in &room.graph_sizes {
        for r in [size, size + 1] {
            add(Kind::Decode, r, 1, contexts[0]);
        }
    }
    let chunks: &[u32] = if full { &[16, 32, 64, 128, 256, 512, 1024, 2048, 4096] } else { &[32, 128, 512, 2048] };
    for chunk in chunks.iter().copied().chain([room.max_batched]) {
        for context in std::iter::once(0).chain(contexts.iter().copied().skip(1).step_by(2)) {
            add(Kind::Prefill, 1, chunk, context);
        }
        // Adds a prefill pass of four short prompts that are admitted together.
        add(Kind::Prefill, 4, chunk / 4, 0);
    }
    shapes.into_iter().collect()
}

/// Returns the context lengths to measure, in tokens. The longest length that `room` allows leaves 16 tokens for new
/// tokens. The first length is 16, or half the longest length if that is smaller. Each further length is 4 times the
/// length before. The longest length is the last, if it is more than 1.5 times the length before.
fn contexts(room: &Room) -> Vec<u32> {
    let longest = room.max_positions.min(u32::try_from(room.kv_tokens).unwrap_or(u32::MAX)).saturating_sub(16).max(1);
    let first = 16.min(longest / 2).max(1);
    let mut all: Vec<u32> =
        std::iter::successors(Some(first), |c| c.checked_mul(4)).take_while(|&c| c < longest).collect();
    // The longest context is left out if it is not more than 1.5 times the length before, because it would hardly
    // improve the fit.
    if all.last().is_none_or(|&last| u64::from(last) * 3 / 2 < u64::from(longest)) {
        all.push(longest);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room() -> Room {
        Room { max_positions: 512, kv_tokens: 16 * 512, max_batched: 512, max_requests: 32, graph_sizes: vec![] }
    }

    #[test]
    fn a_shape_counts_as_the_engine_does() {
        let verify = Shape { kind: Kind::Verify, requests: 2, new: 3, context: 100 };
        let once = verify.pass(ContextReads::Once);
        assert_eq!((once.batched, once.context, once.pairs), (6, 200, 2 * (101 + 102 + 103)));
        assert_eq!(verify.pass(ContextReads::PerPosition).context, 2 * (100 + 101 + 102));
        let chunk = Shape { kind: Kind::Prefill, requests: 1, new: 64, context: 128 };
        assert_eq!(chunk.pass(ContextReads::PerPosition).context, 128);
        assert_eq!((verify.region(), chunk.region()), (Region::Verify, Region::Prefill));
        assert_eq!(Shape { kind: Kind::Decode, requests: 65, new: 1, context: 9 }.region(), Region::Wide);
    }

    #[test]
    fn every_shape_fits_and_every_region_is_there() {
        for role in Role::BOTH {
            for density in [Density::Quick, Density::Full] {
                let shapes = grid(role, &room(), density);
                for s in &shapes {
                    assert!(s.context + s.new <= 512 && s.batched() <= 512 && s.requests <= 32, "{s:?}");
                    assert!(s.kv_tokens() <= 16 * 512, "{s:?}");
                }
                for region in Region::ALL {
                    let n = shapes.iter().filter(|s| s.region() == region).count();
                    // Every region has at least two shapes. A draft model is allowed fewer in the region wide (decode
                    // and verification passes of more than 64 tokens).
                    let few = region == Region::Wide && role == Role::Draft;
                    assert!(n >= 2 || few, "{role:?} {density:?} {region:?}: {n} of {}", shapes.len());
                }
                assert!(shapes.len() < 160, "{role:?} {density:?}: {} shapes", shapes.len());
            }
        }
        assert!(
            grid(Role::Target, &room(), Density::Quick).len() * 2 < grid(Role::Target, &room(), Density::Full).len()
        );
    }

    #[test]
    fn both_sides_of_a_captured_size_are_measured() {
        let shapes = grid(Role::Target, &Room { graph_sizes: vec![24], ..room() }, Density::Quick);
        for requests in [24, 25] {
            assert!(shapes.iter().any(|s| s.kind == Kind::Decode && s.requests == requests), "{requests}");
        }
    }

    #[test]
    fn a_tiny_room_still_has_a_grid() {
        let tiny = Room { max_positions: 24, kv_tokens: 48, max_batched: 8, max_requests: 2, graph_sizes: vec![] };
        let shapes = grid(Role::Target, &tiny, Density::Full);
        assert!(
            shapes.iter().any(|s| s.region() == Region::Decode) && shapes.iter().any(|s| s.region() == Region::Verify)
        );
    }
}
