//! The backend for a GPU. The GPU carries out commands one after the other on one stream.

use super::arguments::*;
use super::backend::{Backend, DeviceMemory, Graph, Mark};
use super::blas::{Blas, WORKSPACE};
use super::compile;
use super::driver;
use super::error::CudaError;
use super::event::event;
use super::program::{Command, Launch, Program};
use cudarc::driver::sys::{self, CUfunction_attribute_enum as Attribute};
use cudarc::driver::{CudaContext, CudaGraph, CudaStream, result};
use std::ffi::{CString, c_void};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Bytes of page-locked host memory for copies. The host fills one half while the GPU copies the other half.
const STAGING: usize = 16 << 20;

/// A GPU with its context, stream, kernels and copy buffers.
pub(super) struct Gpu {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    module: sys::CUmodule,
    functions: Vec<sys::CUfunction>,
    dependent_launches: bool,
    blas: Mutex<Blas>,
    workspace: u64,
    staging: Mutex<Staging>,
    marks: [sys::CUevent; 2],
}

// SAFETY: the driver's handles belong to a context, not to a thread. Each call first binds the context to its thread.
// Locks guard all parts that only one thread may use at a time.
#[expect(unsafe_code, reason = "raw handles of the driver")]
unsafe impl Send for Gpu {}
// SAFETY: calls on any thread first bind the context, and locks guard the parts that only one thread may use at a
// time.
#[expect(unsafe_code, reason = "raw handles of the driver")]
unsafe impl Sync for Gpu {}

/// Page-locked host memory through which all copies to and from the GPU go. The host does not wait until a copy to the
/// GPU is done.
struct Staging {
    at: *mut u8,
    /// For each half of the page-locked memory: an event of the stream. The stream reaches the event after the last
    /// copy from this half.
    done: [sys::CUevent; 2],
    half: usize,
}

fn failed(what: &'static str) -> impl Fn(result::DriverError) -> CudaError {
    CudaError::failed(what)
}

impl Gpu {
    /// Opens the GPU with the number `ordinal` and loads the kernels.
    pub(super) fn new(ordinal: usize, dependent_launches: bool) -> Result<Gpu, CudaError> {
        for (there, name) in [
            (driver::has_driver(), "the CUDA driver (libcuda)"),
            (driver::has_nvrtc(), "NVRTC (libnvrtc)"),
            (driver::has_cublaslt(), "cuBLASLt (libcublasLt)"),
        ] {
            if !there {
                return Err(CudaError::Missing(name));
            }
        }
        result::init().map_err(failed("starting the CUDA driver"))?;
        let count = CudaContext::device_count().map_err(failed("counting GPUs"))?.max(0) as usize;
        if ordinal >= count {
            return Err(CudaError::NoDevice { ordinal, count });
        }
        let context = CudaContext::new(ordinal).map_err(failed("opening the GPU"))?;
        let (major, minor) = context.compute_capability().map_err(failed("asking the GPU what it is"))?;
        let capability = (major.max(0) as u32, minor.max(0) as u32);
        if capability < (8, 0) {
            let name = context.name().unwrap_or_default();
            return Err(CudaError::TooOld { ordinal, name, capability });
        }
        let cubin = compile::cached(capability)?;
        context.bind_to_thread().map_err(failed("binding the GPU to a thread"))?;
        let stream = context.new_stream().map_err(failed("making a stream"))?;
        let (module, functions) = load(&cubin)?;
        let workspace = allocate(WORKSPACE)?;
        let dependent_launches = dependent_launches && capability >= (9, 0);
        let (staging, marks) = (Staging::new()?, [event(true)?, event(true)?]);
        let blas = Mutex::new(Blas::new(workspace)?);
        let staging = Mutex::new(staging);
        Ok(Gpu { context, stream, module, functions, dependent_launches, blas, workspace, staging, marks })
    }

    /// Makes the GPU's CUDA context the current context of this thread.
    fn bind(&self) -> Result<(), CudaError> {
        self.context.bind_to_thread().map_err(failed("binding the GPU to a thread"))
    }

    #[expect(unsafe_code, reason = "launching a kernel")]
    fn launch(&self, launch: &Launch<'_>) -> Result<(), CudaError> {
        let function = self.functions[launch.kernel];
        let mut parameters = [launch.arguments.as_ptr() as *mut c_void];
        let value = sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 };
        let id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        let mut attribute = sys::CUlaunchAttribute { id, pad: [0; 4], value };
        let config = sys::CUlaunchConfig {
            gridDimX: launch.grid[0],
            gridDimY: launch.grid[1],
            gridDimZ: launch.grid[2],
            blockDimX: launch.block[0],
            blockDimY: launch.block[1],
            blockDimZ: 1,
            sharedMemBytes: launch.shared,
            hStream: self.stream.cu_stream(),
            attrs: &raw mut attribute,
            numAttrs: self.dependent_launches.into(),
        };
        // SAFETY: the kernel takes one struct, and these words are a struct of this type (`Kernel` ties them together).
        // The call copies the struct. The addresses in it are of live memory, which is freed only after the stream has
        // ended.
        let done = unsafe {
            sys::cuLaunchKernelEx(&raw const config, function, parameters.as_mut_ptr(), std::ptr::null_mut())
        };
        done.result().map_err(|e| CudaError::Failed {
            what: "launching a kernel",
            why: format!("{} with {:?} blocks of {:?} threads: {e}", KERNELS[launch.kernel], launch.grid, launch.block),
        })
    }

    fn do_one(&self, command: &Command<'_>) -> Result<(), CudaError> {
        match command {
            Command::Launch(launch) => self.launch(launch),
            Command::Matmul(product) => {
                let mut blas = self.blas.lock().unwrap_or_else(PoisonError::into_inner);
                blas.multiply(product, self.stream.cu_stream())
            }
        }
    }

    fn wait(&self) -> Result<(), CudaError> {
        self.stream.synchronize().map_err(failed("running kernels"))
    }
}

/// Loads the compiled kernels onto the GPU. Returns the CUDA module and the functions of the kernels.
#[expect(unsafe_code, reason = "cudarc's calls on modules are unsafe")]
fn load(cubin: &[u8]) -> Result<(sys::CUmodule, Vec<sys::CUfunction>), CudaError> {
    // SAFETY: `cubin` is undamaged (its digest was checked, or it was just compiled), and the driver copies it.
    let module = unsafe { result::module::load_data(cubin.as_ptr().cast()) }.map_err(failed("loading the kernels"))?;
    let functions: Result<Vec<_>, _> = KERNELS
        .iter()
        .map(|name| {
            let name = CString::new(*name).expect("a name without zero bytes");
            // SAFETY: the module was loaded above.
            unsafe { result::module::get_function(module, name) }.map_err(failed("finding a kernel"))
        })
        .collect();
    let functions = functions?;
    let large = [
        (MATMUL_FEW.index, FEW_MEMORY),
        (GATED_FEW.index, FEW_MEMORY),
        (QKV_FEW.index, FEW_MEMORY),
        (ATTEND_SPLIT_64.index, split_memory(64)),
        (ATTEND_SPLIT_128.index, split_memory(128)),
        (ATTEND_TILE_64.index, tile_memory(64)),
        (ATTEND_TILE_128.index, tile_memory(128)),
    ];
    // All kernels get the same carve-out (share of a multiprocessor's memory that is shared memory). Successive kernels
    // then run side by side on a multiprocessor. With different carve-outs, a multiprocessor would first have to become
    // empty before it divides its memory anew.
    for &function in &functions {
        let share = Attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
        // SAFETY: the function belongs to the module loaded above.
        unsafe { result::function::set_function_attribute(function, share, 100) }
            .map_err(failed("asking for shared memory"))?;
    }
    for (kernel, bytes) in large {
        let most = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function belongs to the module loaded above.
        unsafe { result::function::set_function_attribute(functions[kernel], most, bytes as i32) }
            .map_err(failed("asking for shared memory"))?;
    }
    Ok((module, functions))
}

#[expect(unsafe_code, reason = "cudarc's call is unsafe since memory must be written before it is read")]
fn allocate(bytes: u64) -> Result<u64, CudaError> {
    // SAFETY: callers set the memory to zero before they use it. Only the workspace is not zeroed, and only its written
    // bytes are read.
    unsafe { result::malloc_sync(bytes as usize) }.map_err(|e| {
        let (free, total) = result::mem_get_info().unwrap_or_default();
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        if e.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            CudaError::OutOfMemory { asked: mib(bytes), free: mib(free as u64), total: mib(total as u64) }
        } else {
            failed("allocating memory")(e)
        }
    })
}

impl Staging {
    #[expect(unsafe_code, reason = "cudarc's call is unsafe since memory must be written before it is read")]
    fn new() -> Result<Staging, CudaError> {
        // SAFETY: every byte of the memory is written before it is copied further.
        let at = unsafe { result::malloc_host(STAGING, 0) }.map_err(failed("allocating page-locked memory"))?;
        Ok(Staging { at: at.cast(), done: [event(false)?, event(false)?], half: 0 })
    }

    /// Waits until the GPU no longer copies from the half of the page-locked memory that is used next. Returns this
    /// half, and the event that the caller must record after the copy from this half.
    #[expect(unsafe_code, reason = "a slice of page-locked memory")]
    fn next(&mut self) -> Result<(&mut [u8], sys::CUevent), CudaError> {
        self.half = 1 - self.half;
        let done = self.done[self.half];
        // SAFETY: the event was made in `new`. An event that was never recorded counts as reached.
        unsafe { result::event::synchronize(done) }.map_err(failed("copying"))?;
        // SAFETY: the slice is within the allocation and borrows `self`. The last copy from this half is done.
        let half = unsafe { std::slice::from_raw_parts_mut(self.at.add(self.half * STAGING / 2), STAGING / 2) };
        Ok((half, done))
    }
}

impl Backend for Gpu {
    fn name(&self) -> String {
        self.context.name().unwrap_or_else(|e| format!("a GPU that does not say its name ({e})"))
    }

    fn memory(&self) -> Result<DeviceMemory, CudaError> {
        self.bind()?;
        let (free, total) = result::mem_get_info().map_err(failed("asking for free memory"))?;
        Ok(DeviceMemory { free: free as u64, total: total as u64 })
    }

    #[expect(unsafe_code, reason = "cudarc's calls on memory are unsafe")]
    fn allocate(&self, bytes: u64) -> Result<u64, CudaError> {
        self.bind()?;
        let address = allocate(bytes)?;
        // SAFETY: the memory was allocated above and has `bytes` bytes.
        unsafe { result::memset_d8_async(address, 0, bytes as usize, self.stream.cu_stream()) }
            .map_err(failed("clearing memory"))?;
        Ok(address)
    }

    #[expect(unsafe_code, reason = "cudarc's calls on memory are unsafe")]
    fn free(&self, address: u64) {
        // An error of an earlier command is not reported here. The next call of the backend reports it.
        if self.bind().is_ok() {
            let _ = self.wait();
            // SAFETY: `allocate` gave this memory. Its only owner frees it once, and no command uses it any more.
            let _ = unsafe { result::free_sync(address) };
        }
    }

    #[expect(unsafe_code, reason = "cudarc's calls on memory are unsafe")]
    fn upload(&self, to: u64, from: &[u8]) -> Result<(), CudaError> {
        self.bind()?;
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        for (i, piece) in from.chunks(STAGING / 2).enumerate() {
            let (half, done) = staging.next()?;
            let half = &mut half[..piece.len()];
            half.copy_from_slice(piece);
            let at = to + (i * STAGING / 2) as u64;
            let stream = self.stream.cu_stream();
            // SAFETY: the destination is the caller's memory and is large enough. The source does not change until the
            // copy is done: `next` waits for the event that is recorded after the copy.
            unsafe { result::memcpy_htod_async(at, half, stream).and_then(|()| result::event::record(done, stream)) }
                .map_err(failed("copying to the GPU"))?;
        }
        Ok(())
    }

    #[expect(unsafe_code, reason = "cudarc's calls on memory are unsafe")]
    fn download(&self, from: u64, to: &mut [u8]) -> Result<(), CudaError> {
        self.bind()?;
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        for (i, piece) in to.chunks_mut(STAGING / 2).enumerate() {
            let (half, _) = staging.next()?;
            let half = &mut half[..piece.len()];
            let at = from + (i * STAGING / 2) as u64;
            // SAFETY: the source is the caller's memory and is large enough. The destination is read only after the
            // stream has ended.
            unsafe { result::memcpy_dtoh_async(half, at, self.stream.cu_stream()) }
                .map_err(failed("copying from the GPU"))?;
            self.wait()?;
            piece.copy_from_slice(half);
        }
        Ok(())
    }

    #[expect(unsafe_code, reason = "cudarc's calls on memory are unsafe")]
    fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), CudaError> {
        self.bind()?;
        // SAFETY: the source and the destination are the caller's memory, and are large enough.
        unsafe { result::memcpy_dtod_async(to, from, bytes as usize, self.stream.cu_stream()) }
            .map_err(failed("copying on the GPU"))
    }

    fn run(&self, command: &Command<'_>) -> Result<(), CudaError> {
        self.bind()?;
        self.do_one(command)
    }

    fn capture(&self, program: &Program) -> Result<Box<dyn Graph>, CudaError> {
        self.bind()?;
        let error = |e: result::DriverError| CudaError::Failed {
            what: "making a CUDA graph (FORETOKEN_CUDA_GRAPHS=0 does without)",
            why: e.to_string(),
        };
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.stream.begin_capture(mode).map_err(error)?;
        let all = program.commands().try_for_each(|command| self.do_one(&command));
        // The capture of the stream must be ended also after an error.
        let graph = self.stream.end_capture(sys::CUgraphInstantiate_flags(0));
        all?;
        let graph = graph
            .map_err(error)?
            .ok_or_else(|| CudaError::Failed { what: "making a CUDA graph", why: "the driver returned none".into() })?;
        Ok(Box::new(Replay(graph)))
    }

    fn synchronize(&self) -> Result<(), CudaError> {
        self.bind()?;
        self.wait()
    }

    #[expect(unsafe_code, reason = "cudarc's calls on events are unsafe")]
    fn mark(&self, mark: Mark) -> Result<(), CudaError> {
        self.bind()?;
        // SAFETY: the event and the stream belong to this context.
        unsafe { result::event::record(self.marks[mark as usize], self.stream.cu_stream()) }
            .map_err(failed("recording an event"))
    }

    #[expect(unsafe_code, reason = "cudarc's calls on events are unsafe")]
    fn elapsed(&self) -> Result<Duration, CudaError> {
        self.bind()?;
        let [start, end] = self.marks;
        // SAFETY: the events belong to this context. The wait makes sure that both events are reached.
        let ms = unsafe { result::event::synchronize(end).and_then(|()| result::event::elapsed(start, end)) };
        Ok(Duration::from_secs_f64(f64::from(ms.map_err(failed("timing kernels"))?) / 1e3))
    }
}

/// A CUDA graph of one pass. It is launched each time an equal pass runs.
struct Replay(CudaGraph);

// SAFETY: a graph belongs to a context, not to a thread. Only one thread at a time launches it, because a launch needs
// a mutable borrow of the device.
#[expect(unsafe_code, reason = "raw handles of the driver")]
unsafe impl Send for Replay {}
// SAFETY: only one thread at a time launches the graph, because a launch needs a mutable borrow of the device.
#[expect(unsafe_code, reason = "raw handles of the driver")]
unsafe impl Sync for Replay {}

impl Graph for Replay {
    fn launch(&self) -> Result<(), CudaError> {
        self.0.launch().map_err(failed("launching a CUDA graph"))
    }
}

impl Drop for Gpu {
    #[expect(unsafe_code, reason = "cudarc's calls on handles are unsafe")]
    fn drop(&mut self) {
        if self.bind().is_err() {
            return;
        }
        let _ = self.wait();
        let staging = self.staging.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: `self` made these objects and does not use them any more. Errors are ignored, because the program
        // cannot react to them.
        unsafe {
            for event in self.marks.into_iter().chain(staging.done) {
                let _ = result::event::destroy(event);
            }
            let _ = result::free_host(staging.at.cast());
            let _ = result::free_sync(self.workspace);
            let _ = result::module::unload(self.module);
        }
    }
}
