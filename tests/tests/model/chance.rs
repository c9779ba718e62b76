//! The random draws that `tests/vllm/README.md` defines: which draft tokens are right, and how many draft tokens are
//! proposed.

/// The output of the random number generator SplitMix64 after the state `value`.
pub fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn draw(seed: u64, kind: u64, request: usize, position: i64) -> u64 {
    mix(mix(mix(mix(seed) ^ kind) ^ request as u64) ^ position as u64)
}

/// Number of accepted draft tokens among `drafts` draft tokens of a request. The first draft token is for output
/// position `position`.
pub fn accepted(seed: u64, permille: u64, request: usize, position: i64, drafts: i64) -> i64 {
    let wrong = |&at: &i64| draw(seed, 1, request, position + at) % 1000 >= permille;
    (0..drafts).find(wrong).unwrap_or(drafts.max(0))
}

/// Number of draft tokens proposed for a request with `position` output tokens, from 0 to `k`. This is for workloads in
/// which every request draws a draft length of its own in every step.
pub fn proposed(seed: u64, k: i64, request: usize, position: i64) -> i64 {
    (draw(seed, 2, request, position) % (k as u64 + 1)) as i64
}
