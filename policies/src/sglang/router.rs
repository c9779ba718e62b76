//! How SGLang finds the settings of a batch size. It pads the size up to a captured size. Then it takes the largest key
//! that is not above the padded size.
//!
//! Source: sgl-project/sglang `srt/speculative/adaptive_step_router.py` (@a12239f6) and, for the captured sizes,
//! `generate_decode_cuda_graph_batch_sizes` in its server arguments; restated in docs/model.md 1.3.

use crate::shared::profile::padded;

/// Finds the slot of a batch size. A slot is a range of batch sizes that has its own draft lengths.
pub(crate) struct Router {
    /// Smallest batch size of each slot (a range of batch sizes with its own settings), ascending.
    keys: Vec<u32>,
    /// Batch sizes that were captured as CUDA graphs, ascending; empty without CUDA graphs.
    captured: Vec<u32>,
}

impl Router {
    /// A router from batch sizes to slots (ranges of batch sizes). `keys` are the smallest batch sizes of the slots,
    /// ascending, at least one. `captured` are the CUDA-graph sizes to which batches are padded; it may be empty.
    pub fn new(keys: Vec<u32>, captured: Vec<u32>) -> Router {
        Router { keys, captured }
    }

    /// The index of the slot (range of batch sizes) to which a batch size belongs: the last slot whose smallest batch
    /// size is not above the padded batch size, or the first slot if there is none.
    pub fn slot(&self, batch_size: u32) -> usize {
        let size = padded(&self.captured, batch_size);
        self.keys.partition_point(|&key| key <= size).saturating_sub(1)
    }

    /// The batch sizes that were captured as CUDA graphs, ascending; empty without CUDA graphs.
    pub fn captured(&self) -> &[u32] {
        &self.captured
    }
}

/// The batch sizes for which SGLang captures CUDA graphs with speculation: 1 to 8, then steps of 2, 4, 8 and 16 up to
/// `max_num_seqs`, which is the last.
pub(crate) fn captured_sizes(max_num_seqs: u32) -> Vec<u32> {
    let steps = (1..9).chain((10..33).step_by(2)).chain((40..65).step_by(4)).chain((72..257).step_by(8));
    let mut sizes: Vec<u32> =
        steps.chain((272..=max_num_seqs).step_by(16)).filter(|&size| size <= max_num_seqs).collect();
    if sizes.last() != Some(&max_num_seqs) {
        sizes.push(max_num_seqs);
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_sglangs() {
        assert_eq!(captured_sizes(12), [1, 2, 3, 4, 5, 6, 7, 8, 10, 12]);
        assert_eq!(captured_sizes(33)[18..], [30, 32, 33]);
        assert_eq!(captured_sizes(300)[captured_sizes(300).len() - 3..], [272, 288, 300]);
        assert_eq!(captured_sizes(64).len(), 8 + 12 + 7);
    }

    #[test]
    fn a_batch_is_padded_up_and_floored_to_a_key() {
        let keys = vec![1, 8, 32, 64];
        let graphs = Router::new(keys.clone(), captured_sizes(80));
        // With captured CUDA-graph sizes, a batch of 31 requests is padded to 32 and a batch of 61 to 64. 81 is above
        // the largest captured size and stays.
        let slots = |router: &Router| [1, 7, 8, 30, 31, 32, 60, 61, 64, 81].map(|b| router.slot(b));
        assert_eq!(slots(&graphs), [0, 0, 1, 1, 2, 2, 2, 3, 3, 3]);
        assert_eq!(slots(&Router::new(keys, Vec::new())), [0, 0, 1, 1, 1, 2, 2, 2, 3, 3]);
        // A batch that is smaller than the start of every slot (range of batch sizes) uses the first slot.
        assert_eq!(Router::new(vec![4, 8], Vec::new()).slot(2), 0);
    }
}
