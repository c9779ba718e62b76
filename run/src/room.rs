//! Checks, before anything large is allocated, that all runs that are in progress at the same time fit into memory.

use crate::plan::Variant;
use crate::spec::document::Path;
use crate::spec::problem::{Problem, Result};
use foretoken_sim::acceptance::Rates;
use foretoken_sim::{DraftKv, EngineConfig};
use foretoken_traces::limits;

/// Bytes that the engine reserves for each KV block: number of references 4, hash 8, links in the free queue 8, hash
/// and id in the list of evicted blocks 16. The map of cached blocks grows during the run and is not counted.
const BLOCK: u64 = 36;

/// One part of the memory that simulated runs need: the path of the setting that decides the part's size, the part's
/// name, and its bytes.
struct Need {
    key: &'static str,
    what: String,
    bytes: u64,
}

/// Checks that simulated runs fit into memory, if each thread has one run in progress. A run has `requests` requests
/// with outputs of up to `output` tokens, and an engine with the settings `config`.
pub fn check(variant: &Variant, (requests, output): (u64, u32), config: &EngineConfig) -> Result<()> {
    let at_a_time = rayon::current_num_threads() as u64;
    let needs = needs(variant, (requests, output), config);
    let one_engine = needs.iter().fold(0u64, |sum, need| sum.saturating_add(need.bytes));
    // Every replica of a fleet stores a state for every request, because the router may send any request to it.
    let replicas = variant.experiment.fleet.as_ref().map_or(1, |fleet| u64::from(fleet.most_at_a_time()));
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

fn needs(variant: &Variant, (requests, output): (u64, u32), config: &EngineConfig) -> [Need; 4] {
    // Memory for the acceptance of the running requests. Each output position has up to two bits for each draft depth:
    // whether the draft token is right, and whether a real run showed this or the value is invented.
    let running = requests.min(config.max_num_seqs.into());
    let output = output.min(config.max_model_len);
    let depths = match &variant.experiment.acceptance.source {
        Rates::ByDepth { rates } => rates.len() as u64,
        Rates::ByCategory(of) => of.depths() as u64,
        Rates::Marginal { shares } => shares.len() as u64,
        Rates::DraftedShare { k, .. } => u64::from(*k) + 1,
        Rates::MeanLength(of) | Rates::Forced(of) => u64::from(of.longest()) + 1,
        // For suffix decoding, each output position takes 10 bits (5 times 2): two bits, and a byte with the most
        // tokens that are proposed there.
        Rates::Suffix(_) => 5,
        Rates::Counterfactual(_) | Rates::LookupBesideModel(_) => variant.experiment.engine.max_draft_len.into(),
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
