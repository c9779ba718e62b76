//! Settings that decide how the GPU is used. They change the speed; they change results only by rounding.

/// Most rows of a matrix product that the kernels for few rows can compute.
pub(super) const MOST_FEW_ROWS: usize = 8;

/// Settings that decide how the GPU is used, and so its speed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    pub graphs: bool,
    /// The sizes of CUDA graphs: numbers of rows (tokens) to which passes are padded, in rising order. Passes with more
    /// rows are not padded.
    pub graph_sizes: Vec<usize>,
    /// Matrix products with up to this number of rows (at most 8) use a kernel of this crate. Larger products use
    /// cuBLASLt.
    pub few_rows: usize,
    /// Number of thread blocks of split attention that the GPU runs at the same time. Split attention derives from it
    /// the number of parts into which it divides a context.
    pub split_blocks: usize,
    /// True if a kernel may start before the previous kernel has ended (CUDA's programmatic dependent launch). The
    /// setting takes effect from compute capability 9.0 on.
    pub dependent_launches: bool,
}

impl Default for Tuning {
    /// The default graph sizes are vLLM's sizes: 1, 2, 4, then multiples of 8 up to 256, then multiples of 16 up to
    /// 512. The default of `split_blocks` is for H100 and H200: 132 multiprocessors, each with three thread blocks of
    /// split attention.
    fn default() -> Tuning {
        let graph_sizes = [1, 2, 4].into_iter().chain((8..256).step_by(8)).chain((256..=512).step_by(16)).collect();
        Tuning { graphs: true, graph_sizes, few_rows: MOST_FEW_ROWS, split_blocks: 396, dependent_launches: true }
    }
}

impl Tuning {
    /// Returns the default settings, changed by three environment variables. With the value 0, `FORETOKEN_CUDA_GRAPHS`
    /// and `FORETOKEN_CUDA_DEPENDENT_LAUNCHES` turn the feature off, and `FORETOKEN_CUDA_FEW_ROWS` gives all products
    /// to cuBLASLt.
    pub fn from_environment() -> Tuning {
        let number = |name: &str| std::env::var(name).ok()?.parse::<usize>().ok();
        let default = Tuning::default();
        Tuning {
            graphs: number("FORETOKEN_CUDA_GRAPHS").map_or(default.graphs, |n| n > 0),
            dependent_launches: number("FORETOKEN_CUDA_DEPENDENT_LAUNCHES")
                .map_or(default.dependent_launches, |n| n > 0),
            few_rows: number("FORETOKEN_CUDA_FEW_ROWS").unwrap_or(default.few_rows).min(MOST_FEW_ROWS),
            ..default
        }
    }

    /// Returns the number of rows to which a pass of `rows` rows (tokens) is padded: the smallest graph size that is at
    /// least `rows`. The result is `rows` itself if graphs are off, if `rows` is 0, or if all graph sizes are smaller.
    pub(super) fn padded(&self, rows: usize) -> usize {
        if !self.graphs || rows == 0 {
            return rows;
        }
        let at = self.graph_sizes.partition_point(|&size| size < rows);
        self.graph_sizes.get(at).copied().unwrap_or(rows)
    }

    /// True if a pass of `rows` rows (tokens) is replayed as a CUDA graph when an equal pass has run before.
    pub(super) fn has_graph(&self, rows: usize) -> bool {
        self.graphs && self.graph_sizes.last().is_some_and(|&most| rows <= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_padded_to_the_next_size() {
        let tuning = Tuning::default();
        assert_eq!(
            [0, 1, 3, 4, 5, 9, 250, 257, 512, 513, 4000].map(|n| tuning.padded(n)),
            [0, 1, 4, 4, 8, 16, 256, 272, 512, 513, 4000]
        );
        assert!(tuning.has_graph(512) && !tuning.has_graph(513));
        assert_eq!(Tuning { graphs: false, ..tuning }.padded(3), 3);
    }
}
