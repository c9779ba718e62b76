//! Computes large matrix products with cuBLASLt.

use super::error::CudaError;
use super::event::event;
use super::program::{Matmul, MatmulShape};
use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys;
use cudarc::driver::result as driver;
use cudarc::driver::sys::CUstream;
use std::collections::HashMap;
use std::ffi::c_void;

/// Bytes of device memory that cuBLASLt's algorithms may use as workspace. For comparison: cuBLAS by itself allocates a
/// workspace of 32 MiB on Hopper.
pub(super) const WORKSPACE: u64 = 64 << 20;

/// Most algorithms of cuBLASLt that are timed for a shape of a matrix product.
const CANDIDATES: usize = 8;

/// How often each algorithm of cuBLASLt is timed for a shape of a matrix product.
const TRIES: usize = 3;

/// cuBLASLt's algorithm and matrix layouts for products of one shape (numbers of rows, inputs and outputs).
struct Plan {
    description: sys::cublasLtMatmulDesc_t,
    weights: sys::cublasLtMatrixLayout_t,
    x: sys::cublasLtMatrixLayout_t,
    out: sys::cublasLtMatrixLayout_t,
    algorithm: sys::cublasLtMatmulAlgo_t,
}

/// cuBLASLt's handle, and the plan for each shape of a matrix product.
pub(super) struct Blas {
    handle: sys::cublasLtHandle_t,
    plans: HashMap<MatmulShape, Plan>,
    workspace: u64,
}

// SAFETY: cuBLASLt's handle and descriptions are not tied to a thread. A lock makes the calls run one after the other.
#[expect(unsafe_code, reason = "raw handles of a library")]
unsafe impl Send for Blas {}

fn failed(e: CublasError) -> CudaError {
    CudaError::Failed { what: "cuBLASLt", why: e.to_string() }
}

impl Blas {
    /// Makes a handle of cuBLASLt. Its algorithms use the [`WORKSPACE`] bytes at the device address `workspace`.
    pub(super) fn new(workspace: u64) -> Result<Blas, CudaError> {
        Ok(Blas { handle: result::create_handle().map_err(failed)?, plans: HashMap::new(), workspace })
    }

    /// Adds the product `m` to the commands of `stream`. If `m` is the first product of its shape, the function also
    /// makes the plan for the shape: it times each algorithm that cuBLASLt suggests, and waits for the stream.
    pub(super) fn multiply(&mut self, m: &Matmul, stream: CUstream) -> Result<(), CudaError> {
        if !self.plans.contains_key(&m.shape) {
            let (mut plan, candidates) = plan(self.handle, &m.shape)?;
            plan.algorithm = self.fastest(m, &plan, candidates, stream)?;
            self.plans.insert(m.shape, plan);
        }
        let plan = &self.plans[&m.shape];
        self.run(m, plan, &plan.algorithm, stream)
    }

    /// Times each candidate algorithm [`TRIES`] times. Returns the candidate whose shortest time is the smallest.
    /// Before each product the L2 cache is filled with other data, because in a pass the other weights fill it. If two
    /// candidates take nearly equally long, the choice can differ from start to start, and then the rounding of results
    /// differs too.
    #[expect(unsafe_code, reason = "cudarc's calls on events and memory are unsafe")]
    fn fastest(
        &self,
        m: &Matmul,
        plan: &Plan,
        candidates: Vec<sys::cublasLtMatmulAlgo_t>,
        stream: CUstream,
    ) -> Result<sys::cublasLtMatmulAlgo_t, CudaError> {
        let failed = || CudaError::failed("timing a product");
        let [start, end] = [event(true)?, event(true)?];
        let time = |algorithm: &sys::cublasLtMatmulAlgo_t| -> Result<f32, CudaError> {
            // SAFETY: the workspace has `WORKSPACE` bytes, and the events and the stream belong to this context.
            unsafe {
                driver::memset_d8_async(self.workspace, 0, WORKSPACE as usize, stream)
                    .and_then(|()| driver::event::record(start, stream))
                    .map_err(failed())?;
                self.run(m, plan, algorithm, stream)?;
                driver::event::record(end, stream)
                    .and_then(|()| driver::event::synchronize(end))
                    .and_then(|()| driver::event::elapsed(start, end))
                    .map_err(failed())
            }
        };
        let mut best = (f32::INFINITY, None);
        for candidate in candidates {
            // An algorithm that fails counts as infinitely slow. If all algorithms fail, the first algorithm is chosen,
            // and reports its error when it runs.
            let times: Result<Vec<f32>, CudaError> = (0..TRIES).map(|_| time(&candidate)).collect();
            let shortest = times.map_or(f32::INFINITY, |times| times.into_iter().fold(f32::INFINITY, f32::min));
            if best.1.is_none() || shortest < best.0 {
                best = (shortest, Some(candidate));
            }
        }
        for event in [start, end] {
            // SAFETY: the event was made above and is not used any more.
            let _ = unsafe { driver::event::destroy(event) };
        }
        Ok(best.1.expect("`plan` returns at least one candidate"))
    }

    #[expect(unsafe_code, reason = "cudarc's calls of cuBLASLt are unsafe")]
    fn run(
        &self,
        m: &Matmul,
        plan: &Plan,
        algorithm: &sys::cublasLtMatmulAlgo_t,
        stream: CUstream,
    ) -> Result<(), CudaError> {
        let (one, zero) = (1.0f32, 0.0f32);
        // SAFETY: the plan's parts live as long as `self`. The addresses hold matrices of the plan's sizes, which the
        // device's operations check. The call reads the scalars before it returns (host pointer mode).
        let done = unsafe {
            result::matmul(
                self.handle,
                plan.description,
                (&raw const one).cast(),
                (&raw const zero).cast(),
                m.weights as *const c_void,
                plan.weights,
                m.x as *const c_void,
                plan.x,
                m.out as *const c_void,
                plan.out,
                m.out as *mut c_void,
                plan.out,
                std::ptr::from_ref(algorithm),
                self.workspace as *mut c_void,
                WORKSPACE as usize,
                stream.cast(),
            )
        };
        done.map_err(failed)
    }
}

/// Makes the plan for a shape, with the algorithm that cuBLASLt expects to be the fastest. Also returns all algorithms
/// that cuBLASLt suggests, at most [`CANDIDATES`]. cuBLASLt is column-major: it sees the rows of `x` and of the result
/// as columns, and the weights as a matrix of inputs × outputs. For cuBLASLt the product is therefore result = weightsᵀ
/// · x.
#[expect(unsafe_code, reason = "cudarc's calls of cuBLASLt are unsafe")]
fn plan(handle: sys::cublasLtHandle_t, s: &MatmulShape) -> Result<(Plan, Vec<sys::cublasLtMatmulAlgo_t>), CudaError> {
    let number = sys::cudaDataType_t::CUDA_R_16BF;
    let out = if s.wide { sys::cudaDataType_t::CUDA_R_32F } else { number };
    let layout = |kind, rows: u32, columns: u32, stride: u32| {
        result::create_matrix_layout(kind, rows.into(), columns.into(), stride.into()).map_err(failed)
    };
    let weights = layout(number, s.inputs, s.outputs, s.weight_stride)?;
    let x = layout(number, s.inputs, s.rows, s.x_stride)?;
    let out = layout(out, s.outputs, s.rows, s.out_stride)?;
    let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
    let description = result::create_matmul_desc(compute, sys::cudaDataType_t::CUDA_R_32F).map_err(failed)?;
    let preference = result::create_matmul_pref().map_err(failed)?;
    // The value of CUBLAS_OP_T (cuBLAS library, `cublasOperation_t`); cudarc's bindings of cuBLASLt do not define it.
    let transposed = 1i32;
    let room = WORKSPACE as usize;
    let mut found: Vec<sys::cublasLtMatmulHeuristicResult_t> = Vec::with_capacity(CANDIDATES);
    let mut count = 0;
    // SAFETY: the handles were made above; attributes are integers of the given sizes, copied by the call. The list has
    // room for `CANDIDATES` results, and its first `count` results are written.
    let done = unsafe {
        let attribute = sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA;
        result::set_matmul_desc_attribute(description, attribute, (&raw const transposed).cast(), 4).map_err(failed)?;
        let attribute = sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        result::set_matmul_pref_attribute(preference, attribute, (&raw const room).cast(), size_of::<usize>())
            .map_err(failed)?;
        let done = sys::cublasLtMatmulAlgoGetHeuristic(
            handle,
            description,
            weights,
            x,
            out,
            out,
            preference,
            CANDIDATES as i32,
            found.as_mut_ptr(),
            &raw mut count,
        );
        result::destroy_matmul_pref(preference).map_err(failed)?;
        found.set_len(if done.result().is_ok() { count.max(0) as usize } else { 0 });
        done
    };
    let usable = found.iter().filter(|f| f.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS);
    let algorithms: Vec<_> = usable.map(|f| f.algo).collect();
    let Some(&algorithm) = algorithms.first() else {
        let why = format!("no algorithm for {} rows of {} · {}: {done:?}", s.rows, s.inputs, s.outputs);
        return Err(CudaError::Failed { what: "cuBLASLt", why });
    };
    Ok((Plan { description, weights, x, out, algorithm }, algorithms))
}

impl Drop for Blas {
    #[expect(unsafe_code, reason = "cudarc's calls of cuBLASLt are unsafe")]
    fn drop(&mut self) {
        // SAFETY: `self` made these objects and does not use them any more. Errors are ignored, because the program
        // cannot react to them.
        unsafe {
            for plan in self.plans.values() {
                let _ = result::destroy_matmul_desc(plan.description);
                for layout in [plan.weights, plan.x, plan.out] {
                    let _ = result::destroy_matrix_layout(layout);
                }
            }
            let _ = result::destroy_handle(self.handle);
        }
    }
}
