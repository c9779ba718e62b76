//! Remembers passes that have run, and their graphs.

use super::backend::{Backend, Graph};
use super::error::CudaError;
use super::program::Program;
use std::collections::HashMap;

/// Most passes that are remembered. A graph takes some memory of the device.
const MOST: usize = 512;

struct Pass {
    program: Program,
    /// Made when the pass comes for the second time: the first run also loads kernels and chooses algorithms.
    graph: Option<Box<dyn Graph>>,
}

/// Passes by their hash. Two passes with the same hash differ in their commands; the later one replaces the earlier.
#[derive(Default)]
pub(super) struct Passes(HashMap<u64, Pass>);

impl Passes {
    /// Runs the program, as a graph if it has run before.
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

    /// Returns the number of graphs made so far.
    pub(super) fn graphs(&self) -> usize {
        self.0.values().filter(|pass| pass.graph.is_some()).count()
    }
}

/// Runs the commands one by one.
pub(super) fn run(backend: &dyn Backend, program: &Program) -> Result<(), CudaError> {
    program.commands().try_for_each(|command| backend.run(&command))
}
