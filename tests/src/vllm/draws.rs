//! The random draws of a recorded workload. Rust and the Python recorder compute the same draws
//! (`tests/vllm/README.md`).

use super::fixture::Recorded;
use foretoken_sim::RequestId;

impl Recorded {
    /// The number of draft tokens that were accepted while vLLM was recorded, computed from the same random draws. The
    /// request `id` has `outputs` output tokens and `drafts` scheduled draft tokens.
    pub(super) fn accepted(&self, id: RequestId, outputs: u32, drafts: u32) -> u32 {
        (0..drafts).take_while(|&p| self.holds(id, outputs + p)).count() as u32
    }

    /// Number of draft tokens that were proposed, while vLLM was recorded, for the request `id` with `outputs` output
    /// tokens. It is `k`, with one exception. If the workload draws lengths by request and `k` is above 0, it is a
    /// number drawn from 0 to the longest draft length.
    pub(super) fn proposed(&self, id: RequestId, outputs: u32, k: u32) -> u32 {
        match self.lengths.as_str() {
            "request" if k > 0 => {
                let most = u64::from(self.speculation.num_speculative_tokens);
                (draw(self.seed, 2, id, outputs) % (most + 1)) as u32
            }
            _ => k,
        }
    }

    /// True if, in the recorded run of vLLM, the target accepts a draft token for output `position` of the request
    /// `id`.
    pub(super) fn holds(&self, id: RequestId, position: u32) -> bool {
        draw(self.seed, 1, id, position) % 1000 < self.accept
    }
}

pub(crate) fn mix(value: u64) -> u64 {
    foretoken_sim::luck::mix(value.wrapping_add(0x9E37_79B9_7F4A_7C15))
}

pub(crate) fn draw(seed: u64, kind: u64, request: RequestId, position: u32) -> u64 {
    mix(mix(mix(mix(seed) ^ kind) ^ u64::from(request)) ^ u64::from(position))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The random draws equal the test vectors of `tests/vllm/README.md`.
    #[test]
    fn draws_equal_the_readmes_test_vectors() {
        assert_eq!((mix(0), mix(1)), (16_294_208_416_658_607_535, 10_451_216_379_200_822_465));
        assert_eq!(draw(7, 1, 3, 10), 8_220_720_420_851_324_349);
        assert_eq!(draw(7, 2, 3, 10), 10_707_932_757_137_194_472);
    }
}
