//! `foretoken export vllm`: vLLM's `speculative_config`.

use super::sweep::SweepArgs;
use crate::commands::print;
use foretoken_run::spec::problem::Result;

pub const EXAMPLES: &str = "Examples:
  foretoken export vllm experiments/quickstart.toml
  foretoken export vllm experiments/quickstart.toml --batch-sizes 1,8,32,128 --method eagle --model path/to/draft

Every length from 0 to engine.max_draft_len runs in closed loops of as many clients as each batch size says, with the
drafter loaded (at length 0 too) and with every seed of the experiment: output tokens over time, prompts included. Each
length is compared with the fastest, seed by seed. Of the lengths within 1 % of the fastest, or not told apart from it
and within 3 %, the smallest is taken. A length that is further behind and not told apart makes the row too noisy to say:
then the fastest is taken, and more seeds are asked for.

vLLM looks its table up by the number of requests scheduled in a step, prompts among them. Where clients wait for
memory or for the token budget, a step schedules fewer than there are clients: a row stands for what its median step
schedules, and a batch size between two rows has the length of the nearer one. A row that schedules no more than the
one before it is not reached. vLLM gives a batch beyond the last row the length of that row. Where vLLM's runner v2
makes as many passes of a draft model as the table's longest length has tokens, rows with shorter drafts are measured
on such a server. At the end the table itself runs in the same loops, and where it is behind the fastest length, a
warning says so. The rows go to stderr, the JSON to stdout.";

pub fn run(args: &SweepArgs) -> Result<()> {
    print(&format!("{}\n", args.run()?.speculative_config()?))
}
