//! Compiles the kernels with NVRTC, once for each compute capability. The machine code is cached in the user's cache
//! folder.

use super::arguments::source;
use super::driver;
use super::error::CudaError;
use cudarc::nvrtc::result::{compile_program, create_program, destroy_program, get_program_log};
use cudarc::nvrtc::sys;
use std::ffi::CString;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// The kernels' machine code for one compute capability.
    pub cubin: Vec<u8>,
    /// The compiler's and assembler's output: registers, shared memory and spills of each kernel.
    pub log: String,
}

/// Returns the version of NVRTC, (major, minor).
pub fn version() -> Result<(i32, i32), CudaError> {
    if !driver::has_nvrtc() {
        return Err(CudaError::Missing("NVRTC (libnvrtc)"));
    }
    let (mut major, mut minor) = (0, 0);
    #[expect(unsafe_code, reason = "cudarc has no safe call for NVRTC's version")]
    // SAFETY: the call writes two integers to variables that outlive it. The library was found above.
    unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) }.result().map_err(|e| CudaError::compiler(&e, ""))?;
    Ok((major, minor))
}

/// Compiles all kernels for GPUs with the compute capability `capability` (major, minor).
pub fn compile(capability: (u32, u32)) -> Result<Compiled, CudaError> {
    version()?;
    let text = CString::new(source("")).expect("sources without zero bytes");
    let name = c"foretoken.cu";
    let program = create_program(&text, Some(name)).map_err(|e| CudaError::compiler(&e, ""))?;
    let result = run(program, &options(capability));
    #[expect(unsafe_code, reason = "cudarc's calls on programs are unsafe")]
    // SAFETY: the program was made above and is not used any more.
    unsafe { destroy_program(program) }.map_err(|e| CudaError::compiler(&e, ""))?;
    result
}

fn options((major, minor): (u32, u32)) -> Vec<String> {
    // The option names a real architecture (sm_), not a virtual one (compute_). The assembler then runs in this call,
    // and not in the driver at every start of the program.
    let architecture = format!("--gpu-architecture=sm_{major}{minor}");
    vec![architecture, "--std=c++17".into(), "--ptxas-options=-v".into(), "--extra-device-vectorization".into()]
}

#[expect(unsafe_code, reason = "cudarc's calls on programs are unsafe")]
fn run(program: sys::nvrtcProgram, options: &[String]) -> Result<Compiled, CudaError> {
    // SAFETY: `program` was made by `create_program` and is alive; buffers have the sizes that NVRTC returns.
    unsafe {
        let compiled = compile_program(program, options);
        let log = get_program_log(program).map_err(|e| CudaError::compiler(&e, ""))?;
        let log: Vec<u8> = log.into_iter().map(|c| c as u8).take_while(|&c| c != 0).collect();
        let log = String::from_utf8_lossy(&log).into_owned();
        compiled.map_err(|e| CudaError::compiler(&e, &log))?;
        let mut size = 0;
        sys::nvrtcGetCUBINSize(program, &raw mut size).result().map_err(|e| CudaError::compiler(&e, &log))?;
        let mut cubin = vec![0u8; size];
        sys::nvrtcGetCUBIN(program, cubin.as_mut_ptr().cast()).result().map_err(|e| CudaError::compiler(&e, &log))?;
        Ok(Compiled { cubin, log })
    }
}

/// Returns the machine code of the kernels for this compute capability: reads it from the cache, or compiles the
/// kernels.
pub(super) fn cached(capability: (u32, u32)) -> Result<Vec<u8>, CudaError> {
    let version = version()?;
    let Some(folder) = folder() else { return Ok(compile(capability)?.cubin) };
    cached_in(&folder, &key(capability, version), || Ok(compile(capability)?.cubin))
}

fn key(capability: (u32, u32), version: (i32, i32)) -> String {
    let all = format!("{}\n{:?}\nNVRTC {version:?}", source(""), options(capability));
    format!("sm_{}{}-{}", capability.0, capability.1, &blake3::hash(all.as_bytes()).to_hex()[..32])
}

fn folder() -> Option<PathBuf> {
    let caches = std::env::var_os("XDG_CACHE_HOME").filter(|x| !x.is_empty()).map(PathBuf::from);
    let caches = caches.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    Some(caches.join("foretoken"))
}

/// Returns the contents of the cache file for `key`, if the file is undamaged. Otherwise returns the result of `make`
/// and writes it to the cache file.
fn cached_in(
    folder: &Path,
    key: &str,
    make: impl FnOnce() -> Result<Vec<u8>, CudaError>,
) -> Result<Vec<u8>, CudaError> {
    let file = folder.join(format!("{key}.cubin"));
    if let Some(found) = std::fs::read(&file).ok().and_then(whole) {
        return Ok(found);
    }
    let made = make()?;
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        // Another process may write the same cache file at the same time. Each process therefore writes a file of a
        // different name, and renames this file when it is complete.
        let unfinished = folder.join(format!("{key}.{}.tmp", std::process::id()));
        std::fs::write(&unfinished, [blake3::hash(&made).as_bytes(), made.as_slice()].concat())?;
        std::fs::rename(&unfinished, &file)
    };
    // An error of writing the cache file (such as a full or read-only disk) is ignored. The next start then compiles
    // the kernels again, which takes some seconds.
    let _ = write();
    Ok(made)
}

/// Returns the contents of a cache file. `bytes` is the whole file: a digest and, after it, the contents. `None` if the
/// digest does not match the contents.
fn whole(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    let (digest, rest) = bytes.split_at_checked(blake3::OUT_LEN)?;
    let right = blake3::hash(rest).as_bytes() == digest;
    right.then(|| bytes.split_off(blake3::OUT_LEN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_entry_is_used_when_whole_and_made_again_when_not() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("new");
        let never = || -> Result<Vec<u8>, CudaError> { panic!("compiled again") };
        assert_eq!(cached_in(&folder, "k", || Ok(vec![1, 2, 3])).unwrap(), [1, 2, 3]);
        assert_eq!(cached_in(&folder, "k", never).unwrap(), [1, 2, 3]);
        let file = folder.join("k.cubin");
        for spoilt in [vec![], vec![7; 10], [std::fs::read(&file).unwrap(), vec![0]].concat()] {
            std::fs::write(&file, spoilt).unwrap();
            assert_eq!(cached_in(&folder, "k", || Ok(vec![4])).unwrap(), [4]);
            assert_eq!(cached_in(&folder, "k", never).unwrap(), [4]);
        }
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing unfinished is left");
        // That the cache file cannot be written is no error: `cached_in` returns the result of `make`.
        assert_eq!(cached_in(&file, "k", || Ok(vec![5])).unwrap(), [5]);
        assert_ne!(key((9, 0), (13, 0)), key((8, 0), (13, 0)));
        assert_ne!(key((9, 0), (13, 0)), key((9, 0), (12, 8)));
    }
}
