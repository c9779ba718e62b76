//! `foretoken decide`: prints what each policy would draft. The user writes the state of a server as JSON: its
//! requests, pass costs and earlier acceptance.

use super::print;
use clap::Args;
use foretoken_run::decide::decisions;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_run::spec::text;
use std::path::PathBuf;

pub const EXAMPLES: &str = r#"A state (seconds, tokens; confidences[j] is the draft's confidence in the j-th token it would draft):
  {"draft": {"alpha_s": 1e-9, "gamma_s": 2e-6, "delta_s": 5e-4},
   "target": {"alpha_s": 1e-7, "gamma_s": 4e-5, "delta_s": 8e-3},
   "context_reads": "once", "max_draft_len": 4, "acceptance_rate": 0.7,
   "prev_confidence": 0.6, "slo_tpot_s": null, "history": [[3, 1], [0, 2]],
   "requests": [{"context": 512, "confidences": [0.9, 0.8, 0.6, 0.5]},
                {"context": 90, "confidences": [0.5, 0.4, 0.7, 0.2]}],
   "policies": [{"smartspec": {}}, {"adaspec": {"slo": "step"}},
                {"fixed": {"k": 3}}]}

A state is that of one step that drafts at its start: what is decided is drafted and verified in it. (vLLM drafts behind
the step before; there a policy sees what is sure of the same requests then.)

A request may have a "category" (by-category). Also "drafting": "parallel" (one draft pass for all tokens), and for
policies with a cost table
  "tables": {"draft_s": [[8, 0.0005], [64, 0.0007]],
             "target_s": [[8, 0.008], [512, 0.02]]}
by tokens of a pass. Without it vllm-adaptive and dspark get the linear model of passes over the state's own requests at
the captured sizes; adaspec-code and sglang-throughput that of the batches and contexts they time when they start.

Examples:
  foretoken decide state.json
  foretoken decide state.json --explain
  foretoken decide - < state.json"#;

#[derive(Debug, Args)]
pub struct DecideArgs {
    /// The state of the server, a JSON file (requests, pass costs, earlier acceptance, policies); `-` reads stdin
    pub state: PathBuf,
    /// Also print the choices that each policy compared
    #[arg(long)]
    pub explain: bool,
}

/// Reads the server's state (requests, pass costs, earlier acceptance) and prints each policy's decision as JSON.
pub fn run(args: &DecideArgs) -> Result<()> {
    let name = args.state.display().to_string();
    let text = match name.as_str() {
        "-" => text::whole(std::io::stdin())
            .map_err(|e| Problem::bad_input(format!("cannot read the state from stdin: {e}")))?,
        _ => text::read(&args.state)
            .map_err(|e| Problem::bad_input(format!("cannot read the state: {e}")).help("`-` reads it from stdin"))?,
    };
    print(&format!("{}\n", decisions(&name, &text, args.explain)?))
}
