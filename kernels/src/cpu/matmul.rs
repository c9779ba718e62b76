//! The matrix product `x · weightsᵀ`, in which each weight is read from memory once for all rows of `x`.
//!
//! A result is the dot product of one row of `x` with the weights of one output, computed in a fixed order. [`DEPTH`]
//! inputs make one chain of multiply-adds, and the results of the chains are added one after the other. The order does
//! not depend on which rows and outputs are computed together, or on which thread computes them.

use super::buffer::{Buffer, Shared};
use super::lanes::{Kernel, LANES, Lanes};
use super::level::Level;
use super::matrix::{Matrix, Panels};
use super::pairs::Pairs;
use super::team::Team;
use std::ptr;

/// Number of inputs of the product that one chain of multiply-adds covers. The weights of a panel (sixteen outputs) for
/// these inputs stay in the nearest cache, together with these inputs of the rows.
const DEPTH: usize = 256;

/// How far ahead a tile (a group of `rows` rows that are multiplied together) prefetches weights, in pairs of weights.
/// With three rows or more, arithmetic is the limit: the tile prefetches the weights of the next chain of
/// multiply-adds. With one or two rows, memory is the limit: weights that are prefetched too early would evict other
/// weights from the cache.
const fn ahead(rows: usize) -> usize {
    if rows <= 2 { 16 } else { DEPTH / 2 }
}

/// Approximate number of bytes of weights that one task of a matrix product reads. The number decides into how many
/// tasks a product is divided.
const TASK_BYTES: usize = 256 << 10;

/// Most panels that a row is multiplied with at a time. A task has a multiple of this number of panels; only the last
/// task may have another number.
const TOGETHER: usize = 4;

/// Most panels that a row is multiplied with at a time if there are several tiles (groups of rows). The tiles read the
/// same panels one after the other, so the panels should stay in the nearest cache. The weights of four panels for one
/// chain of multiply-adds take 32 KiB in bf16, which fills the nearest cache of many processors. Each tile would then
/// read them again from the next cache.
const STAYING: usize = 2;

/// Most rows of a tile. The rows of a tile are multiplied together with a panel, the weights of sixteen outputs.
const MOST_ROWS: usize = 6;

/// Computes the matrix product `x · weightsᵀ` and writes it to `out`.
pub(super) fn matmul((team, level): (&mut Team, Level), x: &Buffer, weights: &Matrix, out: &mut Buffer) {
    assert_eq!(weights.outputs, out.width, "outputs of the weights and width of the result");
    out.set_rows(x.rows);
    match &weights.panels {
        Panels::F32(pairs) => spread((team, level), x, pairs, out),
        Panels::Bf16(pairs) => spread((team, level), x, pairs, out),
    }
}

fn spread<P: Pairs>((team, level): (&mut Team, Level), x: &Buffer, weights: &[P], out: &mut Buffer) {
    let (panels, depth) = (out.width.div_ceil(LANES), x.width.div_ceil(2));
    assert_eq!(weights.len(), panels * depth, "inputs of the weights and width of the activations");
    // The number of tasks is a multiple of the number of threads, so that no thread waits for another at the end. But a
    // task has at least one group of `TOGETHER` panels. If there are fewer such groups than tasks, each group is a
    // task.
    let (groups, threads) = (panels.div_ceil(TOGETHER), team.threads());
    let tasks = (size_of_val(weights) / TASK_BYTES).max(2 * threads).next_multiple_of(threads).min(groups);
    let shared = out.shared();
    let work = x.rows * panels * LANES * x.width;
    team.share(tasks, work, |i| {
        let [first, end] = [i, i + 1].map(|i| (i * groups / tasks * TOGETHER).min(panels));
        level.run(Outputs { x, weights: &weights[first * depth..end * depth], first, depth, out: shared });
    });
}

/// A task of a matrix product: it computes the outputs of some neighbouring panels (sixteen outputs each), for all
/// rows.
struct Outputs<'a, P> {
    x: &'a Buffer,
    weights: &'a [P],
    /// Index of the task's first panel (the weights of sixteen outputs).
    first: usize,
    /// Number of pairs of inputs in a panel, which has the weights of sixteen outputs.
    depth: usize,
    out: Shared<'a>,
}

impl<P: Pairs> Kernel for Outputs<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let panels = self.weights.len() / self.depth;
        // The rows are divided into as few tiles (groups that are multiplied together) as possible, of sizes as equal
        // as possible.
        let (rows, tiles) = (self.x.rows, self.x.rows.div_ceil(MOST_ROWS));
        let mut panel = 0;
        while panel < panels {
            let left = panels - panel;
            let most = if tiles > 1 { STAYING } else { TOGETHER };
            let n = together::<L>(rows / tiles.max(1)).min(most).min(1 << left.ilog2());
            for from in (0..self.depth).step_by(DEPTH / 2) {
                let pairs = (from, (from + DEPTH / 2).min(self.depth));
                for tile in 0..tiles {
                    let (row, end) = (tile * rows / tiles, (tile + 1) * rows / tiles);
                    match end - row {
                        1 => self.tiles::<L, 1>(row, (panel, n), pairs),
                        2 => self.tiles::<L, 2>(row, (panel, n), pairs),
                        3 => self.tiles::<L, 3>(row, (panel, n), pairs),
                        4 => self.tiles::<L, 4>(row, (panel, n), pairs),
                        5 => self.tiles::<L, 5>(row, (panel, n), pairs),
                        _ => self.tiles::<L, MOST_ROWS>(row, (panel, n), pairs),
                    }
                }
            }
            panel += n;
        }
    }
}

/// Returns the number of panels that a tile of `rows` rows is multiplied with at a time. The number is large enough
/// that no addition waits for the addition before, and small enough that all sums fit in registers.
#[inline(always)]
fn together<L: Lanes>(rows: usize) -> usize {
    match (rows, L::WIDE) {
        (_, true) | (1, false) => 4,
        (2, false) => 2,
        _ => 1,
    }
}

impl<P: Pairs> Outputs<'_, P> {
    /// Multiplies `R` rows with `n` panels by calls of [`tile`](Self::tile): one call if the sums of `n` panels fit in
    /// registers together, else one call per panel.
    #[inline(always)]
    fn tiles<L: Lanes, const R: usize>(&self, row: usize, (panel, n): (usize, usize), pairs: (usize, usize)) {
        match n {
            4 if together::<L>(R) == 4 => self.tile::<L, R, 4>(row, panel, pairs),
            2 if together::<L>(R) >= 2 => self.tile::<L, R, 2>(row, panel, pairs),
            _ => {
                // `n` panels were chosen for the smaller of the two sizes of tiles (groups of rows). For a tile with
                // one row more, `together` may allow fewer than `n` panels. Such a tile is multiplied with one panel
                // after the other.
                for panel in panel..panel + n {
                    self.tile::<L, R, 1>(row, panel, pairs);
                }
            }
        }
    }

    /// Multiplies `R` rows with `N` panels over one chain of multiply-adds, which covers the pairs of inputs
    /// `from..to`. The first chain (`from` is 0) writes its results to the outputs; later chains add their results to
    /// the outputs.
    #[inline(always)]
    fn tile<L: Lanes, const R: usize, const N: usize>(&self, row: usize, panel: usize, (from, to): (usize, usize)) {
        // This function uses plain loops, because a closure that is not inlined is compiled without vector
        // instructions.
        let len = to - from;
        let (mut weights, mut x): ([&[P]; N], [&[f32]; R]) = ([&[]; N], [&[]; R]);
        for (n, weights) in weights.iter_mut().enumerate() {
            *weights = &self.weights[(panel + n) * self.depth + from..][..len];
        }
        for (r, x) in x.iter_mut().enumerate() {
            *x = &self.x.padded_row(row + r)[2 * from..][..2 * len];
        }
        let mut sums = [[L::zero(); N]; R];
        for i in 0..len {
            // The accesses below are unchecked. The compiler does not remove the bounds checks of these slices, and the
            // checks would cost as much as the arithmetic.
            #[expect(unsafe_code, reason = "checked once for the loop, not in each turn")]
            // SAFETY: every slice was just cut to `len` pairs, and `i < len`.
            unsafe {
                for n in 0..N {
                    let weights = weights[n].get_unchecked(i);
                    L::prefetch(ptr::from_ref(weights).wrapping_add(const { ahead(R) }));
                    let w = weights.first::<L>();
                    for r in 0..R {
                        sums[r][n] = sums[r][n].fma(w, L::splat(*x[r].get_unchecked(2 * i)));
                    }
                    let w = weights.second::<L>();
                    for r in 0..R {
                        sums[r][n] = sums[r][n].fma(w, L::splat(*x[r].get_unchecked(2 * i + 1)));
                    }
                }
            }
        }
        for (r, sums) in sums.into_iter().enumerate() {
            for (n, sum) in sums.into_iter().enumerate() {
                let output = (self.first + panel + n) * LANES;
                let width = LANES.min(self.out.width - output);
                #[expect(unsafe_code, reason = "outputs are split by panels")]
                // SAFETY: two tasks write different outputs. A task uses one part of `out` at a time.
                let out = unsafe { self.out.part(row + r, output, width) };
                put(sum, out, from > 0);
            }
        }
    }
}

/// Writes `sum`, sixteen results of a matrix product, to `out`. If `more` is true, adds `sum` to the numbers that
/// earlier chains of multiply-adds wrote to `out`.
#[inline(always)]
fn put<L: Lanes>(sum: L, out: &mut [f32], more: bool) {
    if let Some(out) = out.as_mut_array::<LANES>() {
        let all = if more { L::load(out).add(sum) } else { sum };
        return all.store(out);
    }
    // The last panel of a matrix may have fewer than sixteen outputs.
    let mut numbers = [0.0; LANES];
    for (number, out) in numbers.iter_mut().zip(out.iter()) {
        *number = if more { *out } else { 0.0 };
    }
    let all = if more { L::load(&numbers).add(sum) } else { sum };
    all.store(&mut numbers);
    for (out, number) in out.iter_mut().zip(numbers) {
        *out = number;
    }
}
