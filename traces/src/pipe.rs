//! Reads a pipe like a file. A trace is read several times (for its format, its digest, and once for every seed), but a
//! pipe can be read only once. So the bytes of a pipe are kept. `foretoken traces inspect <(zcat t.csv.gz)` uses such a
//! pipe.

use crate::limits;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Error, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A pipe, and all bytes that were read from it so far.
struct Pipe {
    file: File,
    bytes: Vec<u8>,
}

impl Pipe {
    /// Waits for up to 64 KiB of further bytes, and appends them to `bytes`. Appends nothing if the pipe has ended.
    /// Fails if the pipe has already given more than a sixteenth of the memory limit.
    fn fetch(&mut self) -> std::io::Result<()> {
        let most = limits::memory() / 16;
        if self.bytes.len() as u64 > most {
            let what = format!("more than {} came out of the pipe: write them into a file", limits::bytes(most));
            return Err(Error::new(ErrorKind::QuotaExceeded, what));
        }
        (&self.file).take(1 << 16).read_to_end(&mut self.bytes).map(drop)
    }
}

/// A reader of a pipe's bytes. It starts at the pipe's first byte, also if the pipe was read before.
pub(crate) struct Reader {
    pipe: Arc<Mutex<Pipe>>,
    at: usize,
}

/// Opens the pipe at `path`, or takes the pipe that was opened at this path before.
pub(crate) fn open(path: &Path) -> std::io::Result<Reader> {
    static PIPES: Mutex<BTreeMap<PathBuf, Arc<Mutex<Pipe>>>> = Mutex::new(BTreeMap::new());
    let mut pipes = locked(&PIPES);
    if !pipes.contains_key(path) {
        let pipe = Pipe { file: File::open(path)?, bytes: Vec::new() };
        pipes.insert(path.to_path_buf(), Arc::new(Mutex::new(pipe)));
    }
    Ok(Reader { pipe: Arc::clone(&pipes[path]), at: 0 })
}

/// Locks, and ignores lock poisoning: a thread that panics while it holds one of these locks leaves no inconsistent
/// data.
fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Read for Reader {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let mut pipe = locked(&self.pipe);
        if self.at == pipe.bytes.len() {
            pipe.fetch()?;
        }
        let n = out.len().min(pipe.bytes.len() - self.at);
        out[..n].copy_from_slice(&pipe.bytes[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}
