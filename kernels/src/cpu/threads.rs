//! Spreading work over threads. How it is spread never changes a result: every task writes numbers of its own.

use rayon::prelude::*;

/// Multiply-adds below which waking a thread costs more than it saves: a fork and join takes some microseconds.
const WORTH_SHARING: usize = 1 << 17;

/// Runs tasks `0..tasks`, which together do about `work` multiply-adds, on the threads of the pool it is called in.
pub(super) fn share(tasks: usize, work: usize, task: impl Fn(usize) + Send + Sync) {
    if tasks == 1 || work < WORTH_SHARING || rayon::current_num_threads() == 1 {
        (0..tasks).for_each(task);
    } else {
        (0..tasks).into_par_iter().for_each(task);
    }
}
