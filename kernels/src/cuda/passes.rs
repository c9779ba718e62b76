//! Passes that have been seen, and their graphs.

use super::backend::{Backend, Graph};
use super::error::CudaError;
use super::program::Program;
use std::collections::HashMap;

/// Most passes that are remembered. A graph takes some memory of the device.
const MOST: usize = 512;

struct Pass {
    program: Program,
    /// Made when it comes for the second time: the first also loads kernels and chooses algorithms.
    graph: Option<Box<dyn Graph>>,
}

/// Passes by their hash. Two that share one are told apart by their commands; the later takes the place.
#[derive(Default)]
pub(super) struct Passes(HashMap<u64, Pass>);

impl Passes {
    /// Runs the program, as a graph if it has been run before.
    pub(super) fn run(&mut self, backend: &dyn Backend, program: &Program) -> Result<(), CudaError> {
        let hash = program.hash();
        match self.0.get_mut(&hash).filter(|known| known.program == *program) {
            Some(known) => {
                if known.graph.is_none() {
                    known.graph = Some(backend.capture(program)?);
                }
                known.graph.as_ref().expect("made above").launch()
            }
            None => {
                run(backend, program)?;
                if self.0.len() >= MOST {
                    // Graphs may still be running.
                    backend.synchronize()?;
                    self.0.clear();
                }
                self.0.insert(hash, Pass { program: program.clone(), graph: None });
                Ok(())
            }
        }
    }

    /// Graphs made so far.
    pub(super) fn graphs(&self) -> usize {
        self.0.values().filter(|pass| pass.graph.is_some()).count()
    }
}

/// Runs the commands one by one.
pub(super) fn run(backend: &dyn Backend, program: &Program) -> Result<(), CudaError> {
    program.commands().try_for_each(|command| backend.run(&command))
}
