//! Searches again with the host time (scheduler, Python, kernel launches) that was measured on a real server, if the
//! experiment counts none: host time may turn around whether drafting carries more.

use crate::bar::Bar;
use crate::capacity::answer::{Answer, Capacity};
use crate::capacity::host::WithHost;
use crate::capacity::searcher::Searcher;
use crate::capacity::store::{SearchId, Store};
use crate::capacity::words::values;
use crate::cells::Folder;
use crate::host_band::{SOURCE, counted, leaves_out};
use crate::plan::Plan;
use crate::spec::capacity::CapacitySpec;
use crate::spec::problem::Result;
use crate::work::Work;
use rayon::prelude::*;

/// How far above and below the rate that was found without host time the searches begin.
const PLAIN: [f64; 2] = [0.95, 1.05];
const DRAFTING: [f64; 2] = [0.65, 1.0];

/// Searches, for each combination of swept values at which no host time is counted and a drafting policy carries most,
/// the capacities of this policy and of plain decoding with host time. Only with the first seed, because every seed's
/// search costs as much as the first.
pub fn look(plan: &Plan, spec: &CapacitySpec, folder: &Folder, work: &Work, answer: &Answer) -> Result<Vec<WithHost>> {
    let policies = plan.policies.len();
    let asked = (0..plan.variants.len()).filter(|&v| leaves_out(&plan.variants[v])).filter_map(|v| {
        let here = &answer.capacities[v * policies..(v + 1) * policies];
        Some((v, best(here)?, &here[plan.baseline]))
    });
    let asked: Vec<(usize, usize, &Capacity, &Capacity)> =
        asked.map(|(v, (p, best), plain)| (v, p, best, plain)).collect();
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let bar = Bar::new(2 * asked.len() as u64, "searches with host time", &work.counts);
    let look = |(v, p, drafting, plain): (usize, usize, &Capacity, &Capacity)| -> Result<WithHost> {
        let plan = &counted(plan, v)?;
        let store = Store::open(folder, &plan.digest(), &format!("host{v}-"))?;
        let searcher = Searcher { plan, spec, store, flag: work.interrupt.flag(), bar: &bar, to_the_end: false };
        let search = |policy: usize, of: &Capacity, around: [f64; 2]| -> Result<Option<f64>> {
            let near = of.seeds[0].req_s.map(|rate| around.map(|by| by * rate));
            let found = searcher.search(SearchId { variant: 0, policy, seed: 0 }, near)?;
            bar.inc(1);
            Ok(found.req_s)
        };
        let (with, without) = rayon::join(|| search(p, drafting, DRAFTING), || search(plan.baseline, plain, PLAIN));
        let (drafting_req_s, plain_req_s) = (with?, without?);
        Ok(WithHost {
            at: values(drafting),
            source: SOURCE.to_owned(),
            policy: drafting.policy.clone(),
            drafting_req_s,
            plain_req_s,
            turns: plain_req_s.unwrap_or(0.0) > drafting_req_s.unwrap_or(0.0),
            seed: plan.seeds[0],
        })
    };
    let found: Vec<Result<WithHost>> = asked.into_par_iter().map(look).collect();
    bar.finish();
    found.into_iter().collect()
}

/// The capacity that is the highest of all policies that a server can run, with its index. `None` if plain decoding has
/// it, or if some of the compared capacities is not known.
fn best(here: &[Capacity]) -> Option<(usize, &Capacity)> {
    // Of equal capacities the first one is taken, as in the headline.
    let able = here.iter().enumerate().rev().filter(|(_, c)| !c.bound);
    let (at, best) = able.max_by(|a, b| a.1.rank().total_cmp(&b.1.rank()))?;
    let known = |c: &Capacity| c.seeds.first().is_some_and(|s| s.req_s.is_some());
    (!best.baseline && known(best) && here.iter().any(|c| c.baseline)).then_some((at, best))
}
