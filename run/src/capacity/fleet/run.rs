//! Searches the fewest replicas for every policy. Then compares fleets with and without drafting.

/// The beginning of the names of the files that store the searches.
pub const STORED: &str = "fleet-";
use super::answer::{Alternative, Crossover, FleetAnswer, LoadOverTime, PolicyFleet, SeedResult};
use super::host_search;
use super::kept::write;
use super::plan::Question;
use super::probe::{Probe, Probes, probe};
use super::search::{Next, Search};
use crate::bar::Bar;
use crate::capacity::answer::Answer;
use crate::capacity::load::Load;
use crate::capacity::load::slo;
use crate::capacity::probe::Trial;
use crate::capacity::run as one;
use crate::capacity::store::{SearchId, Store};
use crate::capacity::words::swept_in_words;
use crate::cells::{Folder, Mode, swept};
use crate::fleet::million_tokens;
use crate::plan::Plan;
use crate::setting::Setting;
use crate::spec::problem::Result;
use crate::work::Work;
use foretoken_sim::metrics::{Interval, Range, Slo};
use rayon::ThreadPool;
use rayon::prelude::*;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// Request rates at which fleets with and without drafting are compared, each as a multiple of the experiment's rate.
const RATES: [f64; 7] = [0.125, 0.25, 0.5, 0.7, 0.85, 1.0, 1.15];

/// Searches the fewest replicas for every policy, on the threads of `pool`, and writes the results into the folder at
/// `path`. Draws the figure only if `figures` is true. Continues an unfinished search if `mode` allows it. If the
/// folder is complete already, returns it unchanged.
pub fn complete(
    question: &Question,
    path: PathBuf,
    mode: Mode,
    figures: bool,
    pool: &ThreadPool,
    work: &Work,
) -> Result<Folder> {
    let search = |folder: &Folder| run(question, folder, work);
    let write = |answer: &FleetAnswer, folder: &Folder| write(answer, question, folder, figures);
    work.interrupt.keeps("every fleet that was tried is kept", one::GO_ON);
    one::into_folder(&question.plan, path, mode, pool, work, search, write)
}

/// For every policy at all swept values, searches the capacity of one replica, then the fewest replicas. Then compares
/// fleets with and without drafting. Uses the threads of the current pool.
pub fn run(question: &Question, folder: &Folder, work: &Work) -> Result<FleetAnswer> {
    let plan = &question.plan;
    // Builds the requests of every variant once, with the first seed, before anything runs. So an unusable load is
    // reported at the start.
    for variant in &plan.variants {
        Load::whole(&mut Setting::new(variant, plan.seeds[0])?, variant, &question.spec)?;
    }
    let alone = one::run(&question.alone, &question.spec, folder, work)?;
    let store = Store::open(folder, &plan.digest(), STORED)?;
    let bar = Bar::new(plan.cells() as u64, "fleets", &work.counts);
    let searcher = Searcher { question, alone: &alone, store, flag: work.interrupt.flag(), bar };
    let found: Vec<Result<PolicyFleet>> = pairs(plan).par_iter().map(|&(v, p)| searcher.fleet(v, p)).collect();
    let fleets: Vec<PolicyFleet> = found.into_iter().collect::<Result<_>>()?;
    let compared: Vec<Result<Compared>> =
        (0..plan.variants.len()).into_par_iter().map(|v| searcher.compare(v, &fleets)).collect();
    let (mut ways, mut crossovers) = (Vec::new(), Vec::new());
    for compared in compared {
        let (way, crossover) = compared?;
        ways.extend(way);
        crossovers.extend(crossover);
    }
    searcher.bar.finish();
    let load = searcher.load_over_time()?;
    let first = plan.variants[0].experiment.fleet.as_ref();
    let mut answer = FleetAnswer {
        name: plan.name.clone(),
        source: plan.source().to_string(),
        headlines: Vec::new(),
        share: question.spec.share,
        most_replicas: first.map_or(1, |fleet| fleet.most_replicas),
        load,
        asked: question.spec.clone(),
        warnings: plan.warnings().into_iter().map(str::to_owned).collect(),
        fleets,
        ways,
        crossovers,
        host: Vec::new(),
    };
    answer.host = host_search::look(question, &answer, work.interrupt.flag())?;
    answer.headlines = answer.said();
    Ok(answer)
}

/// The searches for the fewest replicas in an experiment, as (index of the variant, index of the policy). They are
/// sorted by variant, then by policy.
pub fn pairs(plan: &Plan) -> Vec<(usize, usize)> {
    let policies = plan.policies.len();
    (0..plan.variants.len()).flat_map(|v| (0..policies).map(move |p| (v, p))).collect()
}

/// Searches the fewest replicas for one policy at one combination of swept values, with all seeds, and stores every
/// tried number of replicas. `alone` has the capacity of one replica alone.
pub fn search_one(
    question: &Question,
    alone: &Answer,
    (variant, policy): (usize, usize),
    folder: &Folder,
    work: &Work,
) -> Result<()> {
    let store = Store::open(folder, &question.plan.digest(), STORED)?;
    let bar = Bar::new(question.plan.seeds.len() as u64, "fleets", &work.counts);
    let searcher = Searcher { question, alone, store, flag: work.interrupt.flag(), bar };
    searcher.fleet(variant, policy)?;
    searcher.bar.finish();
    Ok(())
}

fn over_time(load: &Load) -> LoadOverTime {
    LoadOverTime::of(&load.at(load.own_rate()), load.counted.len() as u32)
}

/// The comparison of fleets at one combination of swept values: three fleets, and the request rate at which drafting
/// begins or ceases to pay. Empty and `None` if nothing is compared.
type Compared = (Vec<Alternative>, Option<Crossover>);

struct Searcher<'a> {
    question: &'a Question,
    alone: &'a Answer,
    store: Store,
    flag: &'a AtomicBool,
    bar: Bar,
}

/// What simulated runs with one seed at one combination of swept values need: the server, the requests and the SLO
/// bounds.
struct Prepared {
    setting: Setting,
    load: Load,
    slo: Slo,
}

impl Searcher<'_> {
    fn plan(&self) -> &Plan {
        &self.question.plan
    }

    fn fleet(&self, variant: usize, policy: usize) -> Result<PolicyFleet> {
        let plan = self.plan();
        let mut seeds: Vec<SeedResult> = Vec::new();
        let mut tok_s = 0.0;
        for seed in 0..plan.seeds.len() {
            let (found, seed_tok_s) = self.search(SearchId { variant, policy, seed })?;
            seeds.push(found);
            tok_s += seed_tok_s / plan.seeds.len() as f64;
            self.bar.inc(1);
        }
        let (entrant, of_variant) = (&plan.policies[policy], &plan.variants[variant]);
        let router = &of_variant.experiment.fleet.as_ref().expect("every variant has a fleet").router;
        let numbers: Option<Vec<f64>> = seeds.iter().map(|s| s.replicas.map(f64::from)).collect();
        let replicas = seeds.iter().map(|s| s.replicas).collect::<Option<Vec<u32>>>().and_then(|r| r.into_iter().max());
        let price_gpu_hour = self.question.price_gpu_hour(variant);
        let gpus = replicas.map(|replicas| replicas * of_variant.gpus_of_one());
        let cost_hour = gpus.map(|gpus| f64::from(gpus) * price_gpu_hour);
        Ok(PolicyFleet {
            policy: entrant.spec.label(),
            baseline: policy == plan.baseline,
            bound: entrant.spec.sees_hidden_truth() || router.sees_hidden_truth(),
            router: router.name().to_owned(),
            sweep: swept(plan, variant),
            gpus_of_one: of_variant.gpus_of_one(),
            price_gpu_hour,
            replicas,
            over_seeds: numbers.and_then(|n| Interval::within(Range::FromOne, &n)),
            gpus,
            cost_hour,
            cost_mtok: cost_hour.map(|cost| million_tokens(cost, tok_s)),
            seeds,
        })
    }

    /// Searches the fewest replicas for one policy with one seed, and stores each tried number of replicas. Also
    /// returns the load of this seed in output tokens per second.
    fn search(&self, id: SearchId) -> Result<(SeedResult, f64)> {
        let (plan, variant) = (self.plan(), &self.plan().variants[id.variant]);
        let Prepared { mut setting, load, slo } = self.prepare(id.variant, id.seed)?;
        let over_time = over_time(&load);
        let one_req_s = self.one_req_s(id);
        let perfect = one_req_s.map(|rate| over_time.perfect(rate));
        let most = variant.experiment.fleet.as_ref().map_or(1, |fleet| fleet.most_replicas);
        let search = Search { first: perfect.map_or(1, |p| p.peak), most };
        let policy = &plan.policies[id.policy].spec;
        let trial = Trial { load: &load, policy, slo, flag: self.flag };
        let mut stored: Probes = self.store.load(id);
        let end = loop {
            let tried: Vec<_> = stored.probes.iter().map(Probe::tried).collect();
            match search.next(&tried) {
                Next::Try(replicas) => {
                    self.bar.say(format!("{}: {replicas} replicas", policy.label()));
                    stored.probes.push(probe(&trial, &mut setting, replicas, load.own_rate(), false)?);
                    self.store.save(id, &stored)?;
                }
                end => break end,
            }
        };
        if id.seed == 0 {
            self.finish(&trial, &mut setting, id, &mut stored)?;
        }
        if !stored.ended {
            stored.ended = true;
            self.store.save(id, &stored)?;
        }
        stored.probes.sort_by_key(|p| p.replicas);
        let replicas = if let Next::Found(n) = end { Some(n) } else { None };
        let seed = plan.seeds[id.seed];
        Ok((
            SeedResult { seed, replicas, slo, one_req_s, perfect, probes: stored.probes },
            load.own_rate() * load.output_tokens,
        ))
    }

    /// Finds the largest tried fleet that does not carry the load. If its run was stopped early, repeats the run until
    /// all counted requests have ended, because the figure shows this fleet's latency.
    fn finish(&self, trial: &Trial<'_>, setting: &mut Setting, id: SearchId, stored: &mut Probes) -> Result<()> {
        let failed = stored.probes.iter_mut().filter(|p| !p.carried).max_by_key(|p| p.replicas);
        if let Some(early) = failed.filter(|p| p.latencies.is_none()) {
            let carried = early.carried;
            *early = Probe { carried, ..probe(trial, setting, early.replicas, trial.load.own_rate(), true)? };
            self.store.save(id, stored)?;
        }
        Ok(())
    }

    /// The capacity of one replica alone, requests per second; `None` if the search found no capacity for it.
    fn one_req_s(&self, id: SearchId) -> Option<f64> {
        let variant = self.question.alone_of(id.variant);
        let label = self.plan().policies[id.policy].spec.label();
        let values = swept(&self.question.alone, variant);
        let found = self.alone.capacities.iter().find(|c| c.policy == label && c.sweep == values)?;
        found.seeds.get(id.seed)?.req_s
    }

    fn prepare(&self, variant: usize, seed: usize) -> Result<Prepared> {
        let variant = &self.plan().variants[variant];
        let mut setting = Setting::new(variant, self.plan().seeds[seed])?;
        let load = Load::whole(&mut setting, variant, &self.question.spec)?;
        // A bound that is scaled is scaled from one replica.
        setting.set_replicas(1);
        let slo = slo(&mut setting, self.plan(), self.flag)?;
        Ok(Prepared { setting, load, slo })
    }

    fn load_over_time(&self) -> Result<LoadOverTime> {
        let load = self.prepare(0, 0)?.load;
        Ok(over_time(&load))
    }

    /// Takes the drafting policy with the fewest replicas, among policies that see no hidden truth (such as which draft
    /// tokens will be accepted). Compares three fleets: the fleet with this policy, as many replicas without drafting,
    /// and one more replica without drafting. Also finds the rate at which drafting begins or ceases to pay. Compares
    /// nothing if no fleet with such a policy carries the load.
    fn compare(&self, variant: usize, fleets: &[PolicyFleet]) -> Result<Compared> {
        let policies = self.plan().policies.len();
        let fleets = &fleets[variant * policies..(variant + 1) * policies];
        let drafts = (0..policies).filter(|&p| !fleets[p].baseline && !fleets[p].bound);
        let found = drafts.filter_map(|p| Some((p, fleets[p].replicas?))).min_by_key(|(_, replicas)| *replicas);
        let Some((policy, replicas)) = found else { return Ok((Vec::new(), None)) };
        let baseline = self.plan().baseline;
        if !fleets[baseline].baseline || fleets[policy].policy == fleets[baseline].policy {
            return Ok((Vec::new(), None));
        }
        let at = swept_in_words(&fleets[policy].sweep);
        let mut ways = Vec::new();
        for (p, n) in [(baseline, replicas), (policy, replicas), (baseline, replicas + 1)] {
            ways.push(self.alternative(at.clone(), (variant, p), n, &fleets[p])?);
        }
        let mut speedups = Vec::new();
        for by in RATES {
            let run = |p: usize| self.whole(SearchId { variant, policy: p, seed: 0 }, replicas, by);
            let (plain, drafting) = (run(baseline)?, run(policy)?);
            if let (Some(without), Some(with)) = (plain.1.latencies, drafting.1.latencies) {
                speedups.push((plain.0, without.e2e.mean / with.e2e.mean));
            }
        }
        Ok((ways, Some(Crossover::of(at, fleets[policy].policy.clone(), replicas, speedups))))
    }

    fn alternative(
        &self,
        at: String,
        (variant, policy): (usize, usize),
        replicas: u32,
        fleet: &PolicyFleet,
    ) -> Result<Alternative> {
        let seeds = 0..self.plan().seeds.len();
        let probes: Vec<Probe> = seeds
            .map(|seed| Ok(self.whole(SearchId { variant, policy, seed }, replicas, 1.0)?.1))
            .collect::<Result<_>>()?;
        let kept: Vec<f64> = probes.iter().filter_map(Probe::attainment).collect();
        let mean = |f: &dyn Fn(&Probe) -> Option<f64>| {
            let values: Option<Vec<f64>> = probes.iter().map(f).collect();
            values.map(|values| values.iter().sum::<f64>() / values.len() as f64)
        };
        let drafts = if fleet.baseline { "no drafts".to_owned() } else { fleet.policy.clone() };
        Ok(Alternative {
            at,
            what: format!("{drafts}, {replicas} replicas"),
            replicas,
            cost_hour: f64::from(replicas * fleet.gpus_of_one) * fleet.price_gpu_hour,
            kept: Interval::within(Range::Share, &kept).expect("every run went to its end"),
            ttft_p99_s: mean(&|p| Some(p.latencies?.ttft.p99)),
            tpot_p99_s: mean(&|p| Some(p.latencies?.tpot?.p99)),
            e2e_mean_s: mean(&|p| Some(p.latencies?.e2e.mean)),
        })
    }

    /// The result of a run with `replicas` replicas at `by` times the experiment's request rate. The run lasts until
    /// all counted requests have ended. Returns (rate in requests per second, result). Takes a stored result with this
    /// rate and number of replicas, or runs a new one and stores it.
    fn whole(&self, id: SearchId, replicas: u32, by: f64) -> Result<(f64, Probe)> {
        let mut stored: Probes = self.store.load(id);
        let Prepared { mut setting, load, slo } = self.prepare(id.variant, id.seed)?;
        let rate = by * load.own_rate();
        if let Some(&found) = stored.others.iter().find(|(r, p)| *r == rate && p.replicas == replicas) {
            return Ok(found);
        }
        let trial = Trial { load: &load, policy: &self.plan().policies[id.policy].spec, slo, flag: self.flag };
        let found = (rate, probe(&trial, &mut setting, replicas, rate, true)?);
        stored.others.push(found);
        self.store.save(id, &stored)?;
        Ok(found)
    }
}
