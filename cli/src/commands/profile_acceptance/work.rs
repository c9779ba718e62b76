//! `foretoken profile-acceptance`: records for each token that the target writes greedily whether the draft model would
//! have drafted the same token. The result is a truth table.

use super::{ProfileAcceptanceArgs, show};
use crate::cli::format::Format;
use crate::commands::print;
use crate::work;
use foretoken_live::acceptance_prompts::PromptsRequest;
use foretoken_live::record_acceptance::{AcceptanceRequest, Recorded, record};
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_sim::Pair;
use std::path::Path;

/// Lets the target write greedily, records which tokens of the draft model are right (the truth table), and prints a
/// summary.
pub fn run(args: &ProfileAcceptanceArgs) -> Result<()> {
    if args.temperature != 0.0 {
        let message = format!("--temperature {}: only greedy outputs can be recorded", args.temperature);
        let help = "a position is right or wrong where the target has one choice: leave it out, or give 0";
        return Err(Problem::bad_input(message).help(help));
    }
    work().interrupt.keeps("nothing was written", "the same command begins anew");
    let Recorded { table, summary, bytes } = record(&request(args))?;
    eprintln!("truth table: {} ({bytes} bytes)", args.output.display());
    match args.format {
        Format::Table => print(&show::text(&table, &summary)),
        Format::Json => print(&(serde_json::to_string_pretty(&summary).expect("plain data always serialises") + "\n")),
    }
}

/// What the recorder must record, made from the command's arguments.
fn request(args: &ProfileAcceptanceArgs) -> AcceptanceRequest<'_> {
    AcceptanceRequest {
        models: Pair { target: &args.target, draft: &args.draft },
        device: args.device.0,
        threads: args.threads.map(usize::from),
        instructions: args.instructions,
        prompts: PromptsRequest {
            file: Some(Path::new(&args.prompts)).filter(|file| *file != Path::new("families")),
            n: args.n,
            prompt_len: args.prompt_len,
            seed: args.seed,
            output_len: args.output_len,
        },
        ignore_eos: args.ignore_eos,
        batch: args.batch,
        output: &args.output,
        overwrite: args.overwrite,
        plot: args.plot.as_deref(),
        work: work(),
    }
}
