//! Shows how another program runs an experiment: `cargo run --release -p foretoken-run --example quickstart`.
//!
//! Reads the quickstart experiment with one seed, runs it into a temporary folder, and prints the fastest policy that a
//! server can run, with its speedup over decoding without speculation.

use foretoken_run::cells::Mode;
use foretoken_run::compare::PolicyResult;
use foretoken_run::complete::{How, complete};
use foretoken_run::plan::Plan;
use foretoken_run::spec::problem::Result;
use foretoken_run::work::Work;
use std::path::Path;

fn main() -> Result<()> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments/quickstart.toml");
    let plan = Plan::load(&file, &["seeds=[1]".to_owned()])?;
    let threads = rayon::ThreadPoolBuilder::new().build().expect("a machine can start a thread for each core");
    let folder = std::env::temp_dir().join("foretoken-quickstart");
    let how = How { mode: Mode::Overwrite, figures: false };
    let made =
        complete(&plan, folder, how, &threads, &Work::default())?.made.expect("an overwritten folder is made anew");
    let policies = &made.results.comparison.variants[0].policies;
    let speedup = |policy: &PolicyResult| policy.speedup.map_or(0.0, |s| s.mean);
    let servers = policies.iter().filter(|policy| !policy.sees_hidden_truth);
    let fastest = servers.max_by(|a, b| speedup(a).total_cmp(&speedup(b))).expect("the quickstart has policies");
    println!("{}: {:.3} times as fast as without speculation", fastest.policy, speedup(fastest));
    Ok(())
}
