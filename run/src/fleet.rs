//! Runs the workload of one seed on several replicas behind a router. Each replica has its own engine, hardware and
//! policy.

use crate::load::is_autoregressive;
use crate::plan::Variant;
use crate::server::Server;
use crate::spec::document::Path;
use crate::spec::fleet::FleetSpec;
use crate::spec::problem::Result;
use crate::split::Common;
use foretoken_fleet::{EngineLimits, Fleet, FleetRun, Growing, Role, RouterContext, SplitFleet, Splitting};
use foretoken_policies::PolicySpec;
use foretoken_sim::luck::{Luck, Stream};
use foretoken_sim::{Arrivals, EngineConfig, Patience, Replica, Simulation, Speculation, Workload, in_lock_step};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

/// The replicas of a fleet and the router that sends each request to a replica.
pub struct Replicas {
    spec: FleetSpec,
    /// The servers of those kinds of replicas that state an engine or hardware of their own, by index in the
    /// experiment's `fleet.replicas`. All other kinds use the experiment's server.
    own: BTreeMap<usize, Server>,
    /// The policy of each kind of replicas, in the order of `fleet.replicas`; `None` for a kind that runs the policy
    /// that the experiment compares with others.
    policies: Vec<Option<PolicySpec>>,
    /// For each replica of the fleet its kind, as an index in the experiment's `fleet.replicas`.
    kind_of: Vec<usize>,
    /// What prefill and decode replicas of the fleet share: block size, bytes of KV per token, and token budget. `None`
    /// without prefill replicas.
    common: Option<Common>,
    /// The latency bound (SLO) on a request's time to first token, seconds; infinity for none.
    ttft_s: f64,
    /// The SLO bound on time per output token that the experiment's file states, seconds; infinity for none.
    tpot_s: f64,
}

impl Replicas {
    /// Builds the fleet of a variant; `None` if the variant has no `[fleet]`. `server` is the server of all kinds of
    /// replicas that state no engine or hardware of their own. Adds warnings about the cost estimates that policies get
    /// to `belief_notes`.
    pub(crate) fn of(
        variant: &Variant,
        server: &Server,
        seed: u64,
        workload: &Workload,
        belief_notes: &mut Vec<String>,
    ) -> Result<Option<Replicas>> {
        let Some(spec) = variant.experiment.fleet.clone() else { return Ok(None) };
        let mut own = BTreeMap::new();
        for (&i, kind) in &variant.kinds {
            own.insert(i, Server::new(kind, seed, workload, kind.engine(false)?, belief_notes)?);
        }
        let kinds = spec.replicas.kinds();
        let wrong = |key: &str, message: String| variant.document().problem_at(&Path::of(key), message);
        for (i, kind) in kinds.iter().enumerate() {
            let server = own.get(&i).unwrap_or(server);
            let policies = if kind.policy.is_some() { kind.policy.as_slice() } else { &variant.experiment.policies };
            for policy in policies {
                server.starts(policy).map_err(|err| {
                    let (why, policy) = (err.why, policy.label());
                    wrong("fleet.replicas", format!("fleet.replicas[{i}]: engine.{}: {why} ({policy})", err.key))
                })?;
            }
        }
        let size = |kind: usize| own.get(&kind).unwrap_or(server).plain.block_size;
        let other = (1..kinds.len()).find(|&kind| size(kind) != size(0));
        if let Some(other) = other.filter(|_| spec.router.definition().about().reads_prefixes) {
            let (router, first, other) = (spec.router.name(), size(0), size(other));
            let message = format!(
                "the router {router} compares prefixes in KV blocks, and the replicas have blocks of {first} and {other} tokens"
            );
            return Err(wrong("fleet.router", message)
                .help("give all replicas one engine.block_size, or choose a router that reads no prefixes"));
        }
        let kind_of = (0..kinds.len()).flat_map(|i| (0..kinds[i].count).map(move |_| i)).collect();
        let ttft_s = variant.experiment.slo.ttft_s.unwrap_or(f64::INFINITY);
        let tpot_s = variant.experiment.slo.tpot_s.unwrap_or(f64::INFINITY);
        let policies = kinds.into_iter().map(|kind| kind.policy).collect();
        let common = Common::of(variant, &spec)?;
        Ok(Some(Replicas { spec, own, policies, kind_of, common, ttft_s, tpot_s }))
    }

    pub(crate) fn set_number(&mut self, replicas: u32) {
        self.kind_of = vec![0; replicas as usize];
    }

    /// The policy that a replica runs in a run of the compared policy `policy`: its kind's own policy if it has one,
    /// else `policy`. If `policy` is autoregressive decoding, all replicas run it, so that the baseline drafts nowhere.
    fn policy<'p>(&'p self, replica: usize, policy: &'p PolicySpec) -> &'p PolicySpec {
        match &self.policies[self.kind_of[replica]] {
            Some(own) if !is_autoregressive(policy) => own,
            _ => policy,
        }
    }

    /// Runs the fleet. `server` is the server of all kinds of replicas that state no engine or hardware of their own.
    /// `slo_tpot_s` is the bound on time per output token, seconds; infinity for none. `lives`: record the parts of
    /// each request's latency? If `patience` is given, the run ends as soon as it is certain whether more requests than
    /// `patience` allows miss their latency bounds.
    pub(crate) fn run(
        &self,
        server: &Server,
        (workload, arrivals): (&Workload, Arrivals),
        (policy, slo_tpot_s): (&PolicySpec, f64),
        interrupt: &AtomicBool,
        (lives, patience): (bool, Option<Patience>),
    ) -> FleetRun {
        let servers: Vec<&Server> = self.kind_of.iter().map(|kind| self.own.get(kind).unwrap_or(server)).collect();
        let models: Vec<_> = servers.iter().map(|server| server.models()).collect();
        let speculations = servers.iter().enumerate().map(|(r, s)| s.speculation(self.policy(r, policy)));
        let with_configs: Vec<(Speculation, &EngineConfig)> = speculations
            .zip(&servers)
            .map(|(speculation, server)| {
                let config = server.config(&speculation);
                (speculation, config)
            })
            .collect();
        let block_size: Vec<u32> = with_configs.iter().map(|(_, config)| config.block_size).collect();
        let drafts: Vec<bool> = with_configs.iter().map(|(s, _)| !matches!(s, Speculation::Off)).collect();
        let simulation =
            |r: usize, config| servers[r].simulation((workload, arrivals), config, &models[r], slo_tpot_s, interrupt);
        let limits = EngineLimits {
            block_size: block_size[0],
            max_num_batched_tokens: with_configs[0].1.max_num_batched_tokens,
            max_num_seqs: with_configs[0].1.max_num_seqs,
            // Plain decoding runs without a TPOT bound, but a rule that scales the fleet always has the bound.
            slo_s: [self.ttft_s, slo_tpot_s.min(self.tpot_s)],
        };
        let engines = with_configs
            .into_iter()
            .enumerate()
            .map(|(r, (speculation, config))| (numbered(simulation(r, config), r, lives), speculation));
        let replicas: Vec<Box<dyn Replica + '_>> = match self.spec.lock_step {
            true => in_lock_step(engines.collect(), self.spec.prompt_balance),
            false => engines.map(|(simulation, speculation)| simulation.replica(speculation)).collect(),
        };
        let true_steps = match self.spec.router.sees_hidden_truth() {
            true => server.true_steps(workload, policy),
            false => Vec::new(),
        };
        let context = RouterContext {
            replicas: replicas.len(),
            seed: server.seed,
            block_size: &block_size,
            slo_s: [self.ttft_s, slo_tpot_s],
            true_steps: &true_steps,
        };
        let mut ran = match self.common {
            Some(common) => {
                self.run_split((workload, arrivals), replicas, (common, &drafts), context, (interrupt, patience))
            }
            None => {
                let router = (self.spec.router.build(&context), self.spec.router.needs());
                let mut fleet = Fleet::new(workload, replicas, router, self.spec.signals(), slo_tpot_s);
                if self.spec.lock_step {
                    fleet.be_in_lock_step();
                }
                patience.into_iter().for_each(|patience| fleet.be_patient(patience));
                if let Some(scaling) = &self.spec.scaling {
                    let make = |number: usize| {
                        let speculation = servers[0].speculation(self.policy(0, policy));
                        let config = servers[0].config(&speculation);
                        numbered(simulation(0, config), number, lives).replica(speculation)
                    };
                    fleet.grow(Growing { scaling, limits, make: Box::new(make) });
                }
                fleet.run(arrivals, interrupt)
            }
        };
        if self.common.is_none() && (self.spec.link.is_some() || self.spec.split.is_some()) {
            ran.run.warnings.push(NO_PREFILL.to_owned());
        }
        for (server, models) in servers.iter().zip(&models) {
            let new: Vec<String> = server.beyond(models).filter(|w| !ran.run.warnings.contains(w)).collect();
            ran.run.warnings.extend(new);
        }
        ran
    }

    /// Runs a fleet with prefill replicas. `drafts` says for each replica whether it drafts. `context` has what a
    /// router may know of the fleet. It describes all replicas; the router of the prefill replicas and the router of
    /// the decode replicas each get a part of it.
    fn run_split<'r>(
        &'r self,
        (workload, arrivals): (&'r Workload, Arrivals),
        replicas: Vec<Box<dyn Replica + 'r>>,
        (common, drafts): (Common, &[bool]),
        context: RouterContext,
        (interrupt, patience): (&AtomicBool, Option<Patience>),
    ) -> FleetRun {
        let (link, split) = (self.spec.link.as_ref().expect("it was checked"), self.spec.split());
        let kinds = self.spec.replicas.kinds();
        let roles: Vec<Role> = self.kind_of.iter().map(|&kind| kinds[kind].role).collect();
        let prefill = roles.iter().filter(|role| **role == Role::Prefill).count();
        // For routers that know how many decode steps a request takes: on a prefill replica it is one, because the
        // replica ends the request in the step that ends its prompt.
        let one_step = vec![1; context.true_steps.len()];
        let of_prefill = RouterContext { replicas: prefill, true_steps: &one_step, ..context };
        let of_decode = RouterContext { replicas: replicas.len() - prefill, ..context };
        let (first, second) = (self.spec.prefill_router(), &self.spec.router);
        let routing = [
            (first.build(&of_prefill), first.needs(), self.spec.prefill_signals()),
            (second.build(&of_decode), second.needs(), self.spec.signals()),
        ];
        let draft_kv: Vec<bool> = drafts.iter().map(|drafts| *drafts && link.draft_kv).collect();
        let splitting = Splitting {
            roles: &roles,
            rule: &split.when,
            hand_off: split.hand_off,
            link,
            block_size: common.block_size,
            token_bytes: common.token_bytes,
            draft_kv: &draft_kv,
            token_budget: common.token_budget,
        };
        let mut fleet = SplitFleet::new(workload, replicas, splitting, routing, context.slo_s[1]);
        patience.into_iter().for_each(|patience| fleet.be_patient(patience));
        fleet.run(arrivals, interrupt)
    }
}

/// The warning that `fleet.link` and `fleet.split` have no effect, because no replica computes prompts for other
/// replicas.
const NO_PREFILL: &str =
    "fleet.link and fleet.split have no effect: no replica has role = \"prefill\", so each serves whole requests";

/// What replica `number` (counted from 0) simulates: `simulation`, which has the seed of the run, with the replica's
/// own seed for the noise of its pass times. `keep_lives`: record the parts of each request's latency?
fn numbered(simulation: Simulation, number: usize, keep_lives: bool) -> Simulation {
    let seed = noise_seed(simulation.seed, number);
    Simulation { keep_lives, seed, ..simulation }
}

/// The seed of the random noise in a replica's pass times. The first replica has the run's seed, so that a fleet with
/// one replica gives the same run as an experiment without a fleet.
fn noise_seed(seed: u64, replica: usize) -> u64 {
    if replica == 0 { seed } else { Luck::new(seed, Stream::Replica, replica as u64).bits(0) }
}

/// The price of a million output tokens of servers that cost `hour` an hour and make `tok_s` tokens a second.
pub fn million_tokens(hour: f64, tok_s: f64) -> f64 {
    hour / (3600.0 * tok_s) * 1e6
}
