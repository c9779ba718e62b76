//! Pipes as files. The bytes of a pipe are kept, because a trace is read more than once (for its format, its digest,
//! every seed) and a pipe can be read only once. `foretoken traces inspect <(zcat t.csv.gz)` uses such a pipe.

use crate::limits;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Error, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A pipe, and the bytes read from it so far.
struct Pipe {
    file: File,
    bytes: Vec<u8>,
}

impl Pipe {
    /// Waits for up to 64 KiB more and appends them to `bytes`. If no byte comes, the pipe has ended. An error if the
    /// pipe has given more than a sixteenth of the memory limit.
    fn fetch(&mut self) -> std::io::Result<()> {
        let most = limits::memory() / 16;
        if self.bytes.len() as u64 > most {
            let what = format!("more than {} came out of the pipe: write them into a file", limits::bytes(most));
            return Err(Error::new(ErrorKind::QuotaExceeded, what));
        }
        (&self.file).take(1 << 16).read_to_end(&mut self.bytes).map(drop)
    }
}

/// A reader of a pipe, from its first byte.
pub(crate) struct Reader {
    pipe: Arc<Mutex<Pipe>>,
    at: usize,
}

/// Opens the pipe at `path`, once for the life of the program.
pub(crate) fn open(path: &Path) -> std::io::Result<Reader> {
    static PIPES: Mutex<BTreeMap<PathBuf, Arc<Mutex<Pipe>>>> = Mutex::new(BTreeMap::new());
    let mut pipes = locked(&PIPES);
    if !pipes.contains_key(path) {
        let pipe = Pipe { file: File::open(path)?, bytes: Vec::new() };
        pipes.insert(path.to_path_buf(), Arc::new(Mutex::new(pipe)));
    }
    Ok(Reader { pipe: Arc::clone(&pipes[path]), at: 0 })
}

/// Ignores lock poisoning: a thread that panics while it holds one of these locks leaves nothing half-done.
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
