//! A backend that emulates a GPU: the CUDA kernels are compiled for the CPU and run thread by thread. Tests with the
//! emulation show that kernels and host agree on what is computed. They show nothing about a GPU's timing, caches and
//! memory order, and nothing about NVRTC and the driver.

#![expect(unsafe_code, reason = "calls into the compiled kernels, which are given addresses of emulated memory")]

use foretoken_kernels::cuda::arguments::{KERNELS, argument_names, source};
use foretoken_kernels::cuda::backend::{Backend, DeviceMemory, Graph, Mark};
use foretoken_kernels::cuda::program::{Command, Matmul, Program};
use foretoken_kernels::cuda::{Cuda, CudaError, Tuning};
use foretoken_tests::Part;
use libloading::{Library, Symbol};
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::process::Command as Process;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

type Emulate = unsafe extern "C" fn(u32, *const u32, *const u32, u32, *const c_void) -> *const c_char;
type EmulateMatmul = unsafe extern "C" fn(*const c_void, *const c_void, *mut c_void, *const u32, u32);

/// The library of the kernels that are compiled for the CPU; `None` if there is no C++ compiler. The lock allows one
/// launch at a time.
static LIBRARY: OnceLock<Option<Mutex<Library>>> = OnceLock::new();

/// Makes a CUDA device whose backend is the emulated GPU. Prints a skip message and returns `None` if there is no C++
/// compiler.
pub fn device(tuning: Tuning) -> Option<Cuda> {
    if LIBRARY.get_or_init(build).is_none() {
        foretoken_tests::skip(Part::Cxx, "no C++ compiler emulates the CUDA kernels");
        return None;
    }
    Some(Cuda::on(Arc::new(Emulated::default()), tuning).expect("memory"))
}

fn build() -> Option<Mutex<Library>> {
    let folder = tempfile::tempdir().expect("a folder");
    let (text, library) = (folder.path().join("kernels.cpp"), folder.path().join("kernels.so"));
    let names = KERNELS.iter().zip(argument_names());
    let cases: String = names
        .enumerate()
        .map(|(i, (name, arguments))| {
            format!("case {i}: return run_grid([](const void* a) {{ {name}(*(const {arguments}*)a); }}, g, b, s, a);\n")
        })
        .collect();
    let entry = format!(
        "extern \"C\" const char* emulate(u32 kernel, const u32* g, const u32* b, u32 s, const void* a) {{\n\
         switch (kernel) {{\n{cases}}}\nreturn \"no such kernel\";\n}}\n"
    );
    std::fs::write(&text, source(include_str!("platform.hpp")) + &entry).expect("a source");
    let mut compiler = Process::new(std::env::var_os("CXX").unwrap_or_else(|| "g++".into()));
    compiler
        .args(["-std=c++17", "-O2", "-fno-strict-aliasing", "-shared", "-fPIC", "-Wno-unknown-pragmas", "-w", "-o"]);
    let Ok(output) = compiler.arg(&library).arg(&text).output() else {
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // SAFETY: the library was just compiled, and its initialisers do nothing.
    Some(Mutex::new(unsafe { Library::new(&library) }.expect("the library that was just compiled")))
}

fn library() -> MutexGuard<'static, Library> {
    let library = LIBRARY.get().and_then(Option::as_ref).expect("built before");
    library.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Memories {
    sizes: HashMap<u64, u64>,
    marks: [Option<Instant>; 2],
}

/// A backend that runs the compiled kernels on the CPU.
#[derive(Default)]
struct Emulated(Arc<Mutex<Memories>>);

/// Bytes of memory of the emulated GPU: one GiB.
const TOTAL: u64 = 1 << 30;

impl Emulated {
    fn memories(&self) -> MutexGuard<'_, Memories> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn run(command: &Command<'_>) -> Result<(), CudaError> {
    let library = library();
    match command {
        Command::Launch(launch) => {
            // SAFETY: the library's function `emulate` has the name and the type that the function `build` gives it.
            // Each kernel gets the words of its struct of arguments.
            let why = unsafe {
                let emulate: Symbol<'_, Emulate> = library.get(b"emulate").expect("its name");
                let (grid, block) = (launch.grid.as_ptr(), launch.block.as_ptr());
                emulate(launch.kernel as u32, grid, block, launch.shared, launch.arguments.as_ptr().cast())
            };
            if why.is_null() {
                return Ok(());
            }
            // SAFETY: the string lives as long as the library.
            let why = unsafe { CStr::from_ptr(why) }.to_string_lossy();
            Err(CudaError::Failed { what: "emulation", why: format!("{}: {why}", KERNELS[launch.kernel]) })
        }
        Command::Matmul(Matmul { x, weights, out, shape: s }) => {
            let sizes = [s.rows, s.inputs, s.outputs, s.x_stride, s.weight_stride, s.out_stride];
            // SAFETY: the function's name and type are those in the library's source.
            unsafe {
                let multiply: Symbol<'_, EmulateMatmul> = library.get(b"emulate_matmul").expect("its name");
                multiply(*x as *const _, *weights as *const _, *out as *mut _, sizes.as_ptr(), s.wide.into());
            }
            Ok(())
        }
    }
}

impl Backend for Emulated {
    fn name(&self) -> String {
        "emulation".into()
    }

    fn memory(&self) -> Result<DeviceMemory, CudaError> {
        let used: u64 = self.memories().sizes.values().sum();
        Ok(DeviceMemory { free: TOTAL - used, total: TOTAL })
    }

    fn allocate(&self, bytes: u64) -> Result<u64, CudaError> {
        let free = self.memory()?.free;
        if bytes > free {
            return Err(CudaError::OutOfMemory { asked: bytes >> 20, free: free >> 20, total: TOTAL >> 20 });
        }
        // SAFETY: the function's name and type are those in the library's source.
        let at = unsafe {
            let library = library();
            let allocate: Symbol<'_, unsafe extern "C" fn(u64) -> *mut c_void> =
                library.get(b"emulate_allocate").expect("its name");
            allocate(bytes)
        };
        assert!(!at.is_null(), "memory for {bytes} bytes");
        self.memories().sizes.insert(at as u64, bytes);
        Ok(at as u64)
    }

    fn free(&self, address: u64) {
        let bytes = self.memories().sizes.remove(&address).expect("allocated before");
        // SAFETY: the function's name and type are those in the library's source. The memory is freed once.
        unsafe {
            let library = library();
            let free: Symbol<'_, unsafe extern "C" fn(*mut c_void, u64)> =
                library.get(b"emulate_free").expect("its name");
            free(address as *mut _, bytes);
        }
    }

    fn upload(&self, to: u64, from: &[u8]) -> Result<(), CudaError> {
        // SAFETY: the destination is emulated memory. The page after its end is protected, so that a write beyond it
        // stops the test.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to as *mut u8, from.len()) };
        Ok(())
    }

    fn download(&self, from: u64, to: &mut [u8]) -> Result<(), CudaError> {
        // SAFETY: the source is emulated memory. The page after its end is protected, so that a read beyond it stops
        // the test.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), CudaError> {
        // SAFETY: both addresses are of emulated memory; the page after its end is protected.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes as usize) };
        Ok(())
    }

    fn run(&self, command: &Command<'_>) -> Result<(), CudaError> {
        run(command)
    }

    fn capture(&self, program: &Program) -> Result<Box<dyn Graph>, CudaError> {
        Ok(Box::new(Replay(program.clone())))
    }

    fn synchronize(&self) -> Result<(), CudaError> {
        Ok(())
    }

    fn mark(&self, mark: Mark) -> Result<(), CudaError> {
        self.memories().marks[mark as usize] = Some(Instant::now());
        Ok(())
    }

    fn elapsed(&self) -> Result<Duration, CudaError> {
        let [start, end] = self.memories().marks;
        Ok(end.expect("an end") - start.expect("a start"))
    }
}

struct Replay(Program);

impl Graph for Replay {
    fn launch(&self) -> Result<(), CudaError> {
        self.0.commands().try_for_each(|command| run(&command))
    }
}
