//! The interface [`Backend`]: a device that carries out commands on its memory. A GPU implements the interface. In
//! tests, an emulation of a GPU implements it, so that all code above the interface runs without a GPU.

use super::error::CudaError;
use super::program::{Command, Program};
use std::time::Duration;

/// The memory of a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Bytes of device memory that no process uses.
    pub free: u64,
    /// Bytes of device memory, used or free.
    pub total: u64,
}

/// A device that carries out commands in order. A method may return before its command is done, and may report an error
/// of an earlier command. Only those methods wait whose description says so.
pub trait Backend: Send + Sync {
    fn name(&self) -> String;

    fn memory(&self) -> Result<DeviceMemory, CudaError>;

    /// Allocates zeroed device memory, at an address that is a multiple of 256.
    fn allocate(&self, bytes: u64) -> Result<u64, CudaError>;

    /// Waits until all commands are done, then frees the memory that was allocated at `address`.
    fn free(&self, address: u64);

    /// Copies the host memory `from` to the device address `to`. The caller may change `from` as soon as the call
    /// returns.
    fn upload(&self, to: u64, from: &[u8]) -> Result<(), CudaError>;

    /// Waits until all earlier commands are done, then copies device memory from the address `from` to the host memory
    /// `to`.
    fn download(&self, from: u64, to: &mut [u8]) -> Result<(), CudaError>;

    /// Copies `bytes` bytes of device memory from the address `from` to the address `to`.
    fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), CudaError>;

    /// Carries out one command: a launch of a kernel, or a matrix product by cuBLASLt.
    fn run(&self, command: &Command<'_>) -> Result<(), CudaError>;

    /// Makes a graph of `program`, the list of commands of a pass, which has run before. Launching the graph once
    /// starts all commands of the program. This function itself does not run the commands.
    fn capture(&self, program: &Program) -> Result<Box<dyn Graph>, CudaError>;

    /// Waits until all commands are done.
    fn synchronize(&self) -> Result<(), CudaError>;

    /// Records the time, on the device's clock, at which all earlier commands are done.
    fn mark(&self, mark: Mark) -> Result<(), CudaError>;

    /// Waits until the device reaches the last `End` mark. Returns the time between the last `Start` mark and this
    /// `End` mark, on the device's clock.
    fn elapsed(&self) -> Result<Duration, CudaError>;
}

/// Says whether a mark begins or ends a time measurement. A mark is a place in the stream of commands; the device
/// records the time at which it reaches the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The mark is the beginning of the time measurement.
    Start,
    /// The mark is the end of the time measurement.
    End,
}

/// A program (the commands of a pass) that the device starts with one launch, such as a CUDA graph.
pub trait Graph: Send + Sync {
    /// Starts all commands of the program.
    fn launch(&self) -> Result<(), CudaError>;
}
