//! Stores the program (the list of commands) of each earlier pass with its CUDA graph. A later pass with an equal
//! program is launched as this graph.

use super::backend::{Backend, Graph};
use super::error::CudaError;
use super::program::Program;
use std::collections::HashMap;

/// Most passes whose programs (lists of commands) are stored. If a new pass would exceed this number, all stored passes
/// are dropped first. The number is limited because graphs take device memory.
const MOST: usize = 512;

struct Pass {
    program: Program,
    /// The pass as a CUDA graph. It is made when an equal pass runs for the second time, and is `None` before. The
    /// first run makes no graph, because it also loads kernels and times cuBLASLt's algorithms.
    graph: Option<Box<dyn Graph>>,
}

/// The stored passes by the hash of their program (the list of commands). If two different programs have the same hash,
/// the later program replaces the earlier one.
#[derive(Default)]
pub(super) struct Passes(HashMap<u64, Pass>);

impl Passes {
    /// Runs `program`, the list of commands of a pass. If an equal program has run before, it is launched as a CUDA
    /// graph.
    pub(super) fn run(&mut self, backend: &dyn Backend, program: &Program) -> Result<(), CudaError> {
        let hash = program.hash();
        match self.0.get_mut(&hash).filter(|pass| pass.program == *program) {
            Some(pass) => {
                if pass.graph.is_none() {
                    pass.graph = Some(backend.capture(program)?);
                }
                pass.graph.as_ref().expect("made above").launch()
            }
            None => {
                run(backend, program)?;
                if self.0.len() >= MOST {
                    // A graph must not be dropped while it runs. The device must therefore finish before the stored
                    // graphs are dropped.
                    backend.synchronize()?;
                    self.0.clear();
                }
                self.0.insert(hash, Pass { program: program.clone(), graph: None });
                Ok(())
            }
        }
    }

    /// Returns the number of CUDA graphs that are stored now.
    pub(super) fn graphs(&self) -> usize {
        self.0.values().filter(|pass| pass.graph.is_some()).count()
    }
}

/// Runs the commands of a program one by one, without a graph.
pub(super) fn run(backend: &dyn Backend, program: &Program) -> Result<(), CudaError> {
    program.commands().try_for_each(|command| backend.run(&command))
}
