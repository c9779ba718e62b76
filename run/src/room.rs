//! Checks that the runs that are in progress at one time fit into memory, before anything large is allocated.

use crate::plan::Variant;
use foretoken_sim::acceptance::Rates;
use foretoken_sim::{DraftKv, EngineConfig, Workload};
use foretoken_spec::document::Path;
use foretoken_spec::problem::{Problem, Result};
use foretoken_traces::limits;

/// Bytes that the engine needs per KV block: references, hash, neighbours in the free queue, position among evicted
/// blocks.
const BLOCK: u64 = 28;

/// A part of a run that takes memory: the key that sets its size, its name, and its bytes.
struct Need {
    key: &'static str,
    what: String,
    bytes: u64,
}

/// Checks that a workload and an engine fit into memory, on all threads at one time.
///
/// # Errors
/// The runs need more memory than the program's limit or than the system grants. The error points at the setting that
/// needs most.
pub fn check(variant: &Variant, workload: &Workload, config: &EngineConfig) -> Result<()> {
    let at_a_time = rayon::current_num_threads() as u64;
    let needs = needs(variant, workload, config);
    let one_engine = needs.iter().fold(0u64, |sum, need| sum.saturating_add(need.bytes));
    // Every replica stores a state of every request, since the router may send any request to it.
    let replicas = variant.experiment.fleet.as_ref().map_or(1, |fleet| u64::from(fleet.replicas.number()));
    let total = one_engine.saturating_mul(at_a_time).saturating_mul(replicas);
    // The machine's free memory may be less than the program's limit, so the allocation is tried.
    let granted = || usize::try_from(total).is_ok_and(|n| Vec::<u8>::new().try_reserve_exact(n).is_ok());
    let most = needs.into_iter().max_by_key(|need| need.bytes).expect("there is a list of needs");
    let Need { key, what, bytes } = most;
    let engines = if replicas == 1 { String::new() } else { format!(" on each of {replicas} replicas") };
    let takes = format!("{key}: {what} take {}{engines} in each of {at_a_time} runs at a time", limits::bytes(bytes));
    let wrong = |message: String| variant.document().problem_at(&Path::of(key), message);
    let help = "lower it, or run fewer cells at a time with --threads 1";
    if total > limits::memory() {
        return Err(wrong(format!("{takes}: that is too much memory")).help(format!("{help}; {}", limits::raise())));
    }
    if granted() {
        return Ok(());
    }
    let message = format!("out of memory: the runs need {}; {takes}", limits::bytes(total));
    Err(Problem::failed(message).help(format!("give the program more memory, {help}; --resume goes on")))
}

fn needs(variant: &Variant, workload: &Workload, config: &EngineConfig) -> [Need; 4] {
    let requests = workload.len() as u64;
    // Memory for the acceptance of the running requests. For each output token and draft depth there is a bit that says
    // whether the draft is right, and a bit that says whether the first bit was drawn yet.
    let running = requests.min(config.max_num_seqs.into());
    let output = workload.output_len.iter().copied().max().unwrap_or(0).min(config.max_model_len);
    let depths = match &variant.experiment.acceptance.source {
        Rates::ByDepth { rates } => rates.len() as u64,
        Rates::ByCategory(of) => of.depths() as u64,
        // 10 bits (5 times 2) for each position: the two bits, and a byte.
        Rates::Suffix(_) => 5,
        Rates::LookupBesideModel(_) => variant.experiment.engine.max_draft_len.into(),
        _ => 1,
    };
    let truth = running.saturating_mul(u64::from(output) / 4 + 64).saturating_mul(depths);
    let draft_blocks = match config.draft_kv {
        DraftKv::Separate { blocks } => blocks,
        DraftKv::None | DraftKv::EqualSplit { .. } => 0,
    };
    [
        Need {
            key: "engine.draft_kv.separate.blocks",
            what: format!("{draft_blocks} KV blocks of the draft"),
            bytes: u64::from(draft_blocks) * BLOCK,
        },
        Need { key: "workload", what: format!("{requests} requests"), bytes: requests.saturating_mul(limits::REQUEST) },
        Need {
            key: "engine.num_gpu_blocks",
            what: format!("{} KV blocks", config.num_gpu_blocks),
            bytes: u64::from(config.num_gpu_blocks) * BLOCK,
        },
        Need { key: "workload.lengths", what: format!("outputs of up to {output} tokens"), bytes: truth },
    ]
}
