//! Random inputs for the CPU and the CUDA device, and the comparison of their results.

use foretoken_kernels::cpu::Cpu;
use foretoken_kernels::cuda::{Buffer, Cuda, Matrix, Vector};
use foretoken_kernels::device::Device;
use foretoken_kernels::weights::{Dtype, TensorData};
use foretoken_sim::{Luck, Stream};
use half::bf16;
use std::cell::Cell;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// The device under test: a GPU, or an emulated GPU. The emulated GPU is slow and gets only small sizes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    Gpu,
    Emulated,
}

impl Scale {
    /// Returns the sizes to test: `small` on the emulated GPU, `small` and `large` on a GPU.
    pub fn sizes<T: Clone>(self, small: &[T], large: &[T]) -> Vec<T> {
        let large = if self == Scale::Gpu { large } else { &[] };
        [small, large].concat()
    }
}

thread_local! {
    /// The seed of this thread's test if [`repeat`] has fixed it, else `None`.
    static FIXED: Cell<Option<u64>> = const { Cell::new(None) };
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// Fixes the seed of this test. A test on the emulation must fail only if the code changed, and not because a run drew
/// other random numbers.
pub fn repeat() {
    FIXED.set(Some(1));
}

/// Returns a sequence of random numbers for a test's inputs, a different one at every call in the test. Unless
/// [`repeat`] was called, the sequences also differ from run to run. To repeat a run, set the environment variable
/// `FORETOKEN_SEED` to the seed that the run printed.
pub fn luck() -> Luck {
    static FRESH: LazyLock<u64> = LazyLock::new(|| {
        let given = std::env::var("FORETOKEN_SEED").ok().and_then(|s| s.parse().ok());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos();
        let seed = given.unwrap_or(u64::from(now));
        eprintln!("FORETOKEN_SEED={seed}");
        seed
    });
    let call = CALLS.replace(CALLS.get() + 1);
    Luck::new(FIXED.get().unwrap_or_else(|| *FRESH), Stream::Weights, call)
}

/// Returns `count` uniform random numbers in [−1, 1], rounded to bf16.
pub fn numbers(count: usize) -> Vec<f32> {
    let luck = luck();
    (0..count as u64).map(|i| bf16::from_f32((2.0 * luck.unit(i) - 1.0) as f32).to_f32()).collect()
}

/// Makes a buffer with these rows on the CPU and one on the GPU. The GPU's buffer is f32 if `wide`, else bf16.
pub fn both(
    cpu: &mut Cpu,
    cuda: &mut Cuda,
    rows: &[f32],
    width: usize,
    wide: bool,
) -> (foretoken_kernels::cpu::Buffer, Buffer) {
    let count = rows.len() / width;
    let mut one = cpu.buffer(count, width).unwrap();
    one.set_rows(count);
    (0..count).for_each(|r| one.row_mut(r).copy_from_slice(&rows[r * width..][..width]));
    let mut other = if wide { cuda.buffer(count, width) } else { cuda.narrow_buffer(count, width) }.unwrap();
    cuda.fill(rows, &mut other).unwrap();
    (one, other)
}

/// Makes an empty buffer on the CPU and one on the GPU. The GPU's buffer is f32 if `wide`, else bf16.
pub fn empty(
    cpu: &mut Cpu,
    cuda: &mut Cuda,
    rows: usize,
    width: usize,
    wide: bool,
) -> (foretoken_kernels::cpu::Buffer, Buffer) {
    let other = if wide { cuda.buffer(rows, width) } else { cuda.narrow_buffer(rows, width) };
    (cpu.buffer(rows, width).unwrap(), other.unwrap())
}

fn stored(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect()
}

/// Makes a bf16 matrix with the weights `weights` on the CPU and one on the GPU.
pub fn matrices(
    cpu: &mut Cpu,
    cuda: &mut Cuda,
    weights: &[f32],
    inputs: usize,
) -> (foretoken_kernels::cpu::Matrix, Matrix) {
    let bytes = stored(weights);
    let parts = [(TensorData::Stored { dtype: Dtype::Bf16, bytes: &bytes }, weights.len() / inputs)];
    (cpu.matrix(&parts, inputs, Dtype::Bf16).unwrap(), cuda.matrix(&parts, inputs, Dtype::Bf16).unwrap())
}

/// Makes the gains of an RMSNorm on the CPU and on the GPU.
pub fn gains(cpu: &mut Cpu, cuda: &mut Cuda, gains: &[f32]) -> (Vec<f32>, Vector) {
    let bytes = stored(gains);
    let data = TensorData::Stored { dtype: Dtype::Bf16, bytes: &bytes };
    (cpu.vector(data, gains.len()).unwrap(), cuda.vector(data, gains.len()).unwrap())
}

/// Downloads the numbers of a GPU buffer to the host.
pub fn downloaded(cuda: &mut Cuda, buffer: &Buffer) -> Vec<f32> {
    let mut out = Vec::new();
    cuda.download(buffer, &mut out).unwrap();
    out
}

/// Checks each number of `got` against the expected number e. The two may differ by at most `tolerance` · (|e| + root
/// mean square of e's row).
pub fn close(what: &str, got: &[f32], expected: &[f32], width: usize, tolerance: f32) {
    assert_eq!(got.len(), expected.len(), "{what}: how many");
    for (row, (got, expected)) in got.chunks(width).zip(expected.chunks(width)).enumerate() {
        let mean = (expected.iter().map(|x| x * x).sum::<f32>() / width as f32).sqrt();
        for (i, (g, e)) in got.iter().zip(expected).enumerate() {
            let off = (g - e).abs();
            assert!(off <= tolerance * (e.abs() + mean), "{what}: row {row}, number {i}: {g} instead of {e}");
        }
    }
}

/// Checks a buffer of the GPU against the same buffer of the CPU, with [`close`].
pub fn same(what: &str, cuda: &mut Cuda, got: &Buffer, expected: &foretoken_kernels::cpu::Buffer, tolerance: f32) {
    assert_eq!((got.rows(), got.width()), (expected.rows(), expected.width()), "{what}: sizes");
    let expected: Vec<f32> = (0..expected.rows()).flat_map(|r| expected.row(r).to_vec()).collect();
    close(what, &downloaded(cuda, got), &expected, got.width(), tolerance);
}
