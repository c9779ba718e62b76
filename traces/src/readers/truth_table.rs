//! Reads a truth table (which draft tokens were right on a target model's outputs) as a trace: lengths, families of
//! prompts as categories, and which draft tokens were right.

use super::collector::{Collector, Names};
use super::trace::Trace;
use crate::error::TraceError;
use crate::trace_spec::TraceSpec;
use crate::truth::TruthTable;
use foretoken_sim::{Request, Time};

const NAMES: Names = Names { time: "", prompt: "prompt_len", output: "output_len" };

pub(super) fn read(spec: &TraceSpec, mut collector: Collector) -> Result<Trace, TraceError> {
    collector.gives.arrivals = false;
    let table = TruthTable::read(&spec.path)?;
    let names = table.header.families.iter();
    let categories: Vec<u16> = names.map(|name| collector.category(0, name)).collect::<Result<_, _>>()?;
    let recordings = table.recordings();
    for ((i, output), recorded) in (1..).zip(&table.outputs).zip(recordings) {
        let mut request = Request::new(Time::ZERO, output.prompt_len, output.ranks.len() as u32);
        request.category = categories[usize::from(output.family)];
        request.recording = Some(collector.recording(recorded));
        collector.push(i, request, NAMES)?;
    }
    let mut trace = collector.finish()?;
    trace.workload.hazards = table.hazards();
    Ok(trace)
}
