//! The CUDA device: its state, and how its commands run. Within a pass the commands are collected; outside of a pass
//! they run at once.

use super::arena::Arena;
use super::arguments::*;
use super::backend::Backend;
use super::batch::Sent;
use super::error::CudaError;
use super::gpu::Gpu;
use super::memory::{Buffer, Memory, stride};
use super::passes::{self, Passes};
use super::program::Program;
use super::tuning::Tuning;
use crate::device::Device;
use crate::paged::Batch;
use std::sync::Arc;
use std::time::Duration;

/// Most rows (tokens) of a pass. It is CUDA's limit for the y dimension of a grid of thread blocks.
const MOST_ROWS: usize = 65_535;

/// An NVIDIA GPU (or a backend that emulates one) with the state of the present pass and the CUDA graphs made so far.
pub struct Cuda {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) tuning: Tuning,
    pub(super) arena: Arena,
    /// The commands collected for the present pass, or for the present operation outside of a pass.
    pub(super) program: Program,
    /// True while the commands of a pass are being collected. At the end of the pass, the collected commands run
    /// together.
    pub(super) in_pass: bool,
    /// Device addresses of the arrays that describe the batch of the present pass. Outside of a pass: of the batch of
    /// the last operation.
    pub(super) sent: Option<Sent>,
    pub(super) passes: Passes,
    /// Device memory for the results of an operation that the host reads, such as chosen tokens. `host` is the copy of
    /// the results on the host.
    pub(super) results: Memory,
    pub(super) host: Vec<u8>,
}

impl Cuda {
    /// Opens the GPU with the number `ordinal`, with the tuning that environment variables give
    /// ([`Tuning::from_environment`]).
    pub fn new(ordinal: usize) -> Result<Cuda, CudaError> {
        Cuda::tuned(ordinal, Tuning::from_environment())
    }

    /// Opens the GPU with the number `ordinal`, with the settings `tuning`.
    pub fn tuned(ordinal: usize, tuning: Tuning) -> Result<Cuda, CudaError> {
        Cuda::on(Arc::new(Gpu::new(ordinal, tuning.dependent_launches)?), tuning)
    }

    /// Makes a CUDA device whose commands `backend` carries out.
    pub fn on(backend: Arc<dyn Backend>, tuning: Tuning) -> Result<Cuda, CudaError> {
        let (arena, results) = (Arena::new(&backend)?, Memory::new(&backend, 1 << 16)?);
        Ok(Cuda {
            backend,
            tuning,
            arena,
            program: Program::default(),
            in_pass: false,
            sent: None,
            passes: Passes::default(),
            results,
            host: Vec::new(),
        })
    }

    pub fn name(&self) -> String {
        self.backend.name()
    }

    /// Returns (free memory, total memory) of the device in bytes.
    pub fn memory(&self) -> Result<(u64, u64), CudaError> {
        self.backend.memory().map(|m| (m.free, m.total))
    }

    /// Waits until all commands of the device are done.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.backend.synchronize()
    }

    /// Calls `run`. Returns its result and the time that the commands of `run` took on the device's clock.
    pub fn timed<R>(
        &mut self,
        run: impl FnOnce(&mut Cuda) -> Result<R, CudaError>,
    ) -> Result<(R, Duration), CudaError> {
        self.start_timer()?;
        let result = run(self)?;
        Ok((result, self.stop_timer()?.unwrap_or_default()))
    }

    /// Copies `bytes` bytes within the device's memory nine times, and returns the median time of a copy. The bandwidth
    /// is 2 · `bytes` divided by this time, because each byte is read and written.
    pub fn copy_time(&mut self, bytes: u64) -> Result<Duration, CudaError> {
        let (from, to) = (Memory::new(&self.backend, bytes)?, Memory::new(&self.backend, bytes)?);
        let copy = |cuda: &mut Cuda| cuda.backend.copy(to.address, from.address, bytes);
        copy(self)?;
        let mut times = (0..9).map(|_| Ok(self.timed(copy)?.1)).collect::<Result<Vec<_>, CudaError>>()?;
        times.sort();
        Ok(times[times.len() / 2])
    }

    /// Returns the number of CUDA graphs that the device holds now.
    pub fn graphs(&self) -> usize {
        self.passes.graphs()
    }

    /// Writes `numbers` into the rows of the buffer `out`, and sets the buffer's number of rows in use. `numbers` must
    /// be whole rows.
    pub fn fill(&mut self, numbers: &[f32], out: &mut Buffer) -> Result<(), CudaError> {
        let width = out.width;
        assert!(numbers.len().is_multiple_of(width), "whole rows");
        out.set_rows(numbers.len() / width);
        let dense = Memory::new(&self.backend, 4 * numbers.len() as u64)?;
        self.backend.upload(dense.address, &bytes_of(numbers))?;
        let arguments = PackArgs {
            input: In::at(dense.address),
            out: Out::at(out.memory.address),
            width: width as u32,
            stride: out.stride(),
            wide: out.wide.into(),
            _even: 0,
        };
        let grid = [width.div_ceil(256), out.rows, 1];
        self.now(|program| program.launch(&PACK, grid, [256, 1], 0, &arguments))?;
        self.backend.synchronize()
    }

    /// Calls `add`, which adds commands to the device's program. Within a pass the commands run later, with the other
    /// commands of the pass. Outside of a pass they run at once.
    pub(super) fn now(&mut self, add: impl FnOnce(&mut Program)) -> Result<(), CudaError> {
        if self.in_pass {
            add(&mut self.program);
            return Ok(());
        }
        self.program.clear();
        add(&mut self.program);
        self.arena.send(&self.backend)?;
        passes::run(&*self.backend, &self.program)
    }

    /// Returns the number of rows that the kernels compute for a batch of `rows` rows, padding included. Within a pass
    /// the number is the next size of a CUDA graph; outside of a pass it is `rows`.
    pub(super) fn padded(&self, rows: usize) -> usize {
        if self.in_pass { self.tuning.padded(rows) } else { rows }
    }

    /// Begins an operation. Outside of a pass, this function first forgets the batch of the previous operation, and
    /// empties the arena.
    pub(super) fn begin(&mut self) {
        if !self.in_pass {
            self.arena.clear();
            self.sent = None;
        }
    }

    /// Returns the device addresses of the arrays of `batch`. The first call with a batch adds its arrays to the arena,
    /// the device memory for the integers of a batch.
    pub(super) fn send(&mut self, batch: &Batch) -> Sent {
        self.begin();
        if let Some(sent) = self.sent.as_ref().filter(|sent| sent.is(batch)) {
            return sent.clone();
        }
        let sent = Sent::new(batch, &self.tuning, self.in_pass, &mut self.arena);
        self.sent = Some(sent.clone());
        sent
    }

    pub(super) fn any_buffer(&mut self, rows: usize, width: usize, wide: bool) -> Result<Buffer, CudaError> {
        if rows > MOST_ROWS {
            return Err(CudaError::Unsupported(format!("{rows} rows of a pass; at most {MOST_ROWS}")));
        }
        let capacity = self.tuning.padded(rows);
        let bytes = (capacity * stride(width) * if wide { 4 } else { 2 }) as u64;
        let memory = Memory::new(&self.backend, bytes)?;
        Ok(Buffer { memory, rows: 0, width, most: rows, capacity, wide })
    }

    /// Makes sure that there are `bytes` bytes of device memory for an operation's results that the host will read
    /// (such as chosen tokens), and returns their address.
    pub(super) fn results(&mut self, bytes: usize) -> Result<u64, CudaError> {
        if (self.results.bytes as usize) < bytes {
            self.results = Memory::new(&self.backend, bytes.next_power_of_two() as u64)?;
        }
        Ok(self.results.address)
    }

    /// Waits for the device, and downloads `bytes` bytes of an operation's results (such as chosen tokens) into
    /// `self.host`.
    pub(super) fn fetch(&mut self, bytes: usize) -> Result<(), CudaError> {
        // A download of zero bytes would not wait for the device, so `fetch` waits explicitly.
        self.backend.synchronize()?;
        self.host.resize(bytes, 0);
        self.backend.download(self.results.address, &mut self.host)
    }
}

pub(super) fn bytes_of(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

pub(super) fn word(bytes: &[u8], i: usize) -> u32 {
    u32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().expect("four bytes"))
}
