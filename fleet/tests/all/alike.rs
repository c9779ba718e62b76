//! A fleet of one is an engine, and a fleet whose replicas share nothing is several engines.

use crate::world::{Renumbered, World, assert_same, conversations, requests, routers};
use foretoken_fleet::RouterSpec;
use foretoken_sim::{Arrivals, DraftAt, Run, Time, Version, Workload};

/// With one replica every router gives the run of the engine alone, for each order of steps, open and closed.
#[test]
fn one_replica_is_an_engine() {
    for (version, draft_at) in
        [(Version::default(), None), (Version::default(), Some(DraftAt::StepStart)), (Version::V0, None)]
    {
        for (arrivals, caching) in [(Arrivals::Open, false), (Arrivals::Closed { clients: 12 }, true)] {
            let mut world = World::new(requests(150, 8.0, 80, 1));
            world.config.version = version;
            world.config.draft_at = draft_at;
            world.config.frontend_s = 0.004;
            world.config.prefix_caching = caching;
            world.config.max_model_len = 2000;
            world.arrivals = arrivals;
            for k in [0, 3] {
                let alone = world.alone(k);
                for router in routers() {
                    let what = format!("{version:?} {draft_at:?} {arrivals:?} k = {k}, {}", router.name());
                    let fleet = world.fleet(&router, &[k], 5).run;
                    assert_same(&alone, &fleet, &what);
                    assert!(fleet.replicas.is_none(), "{what}");
                }
            }
        }
    }
}

/// With sessions, too, whose turns find what was said before in the replica's cache.
#[test]
fn one_replica_is_an_engine_with_sessions() {
    let mut world = World::new(conversations(60, 3, 4.0));
    world.config.prefix_caching = true;
    world.arrivals = Arrivals::Sessions;
    for k in [0, 3] {
        let alone = world.alone(k);
        assert!(alone.records.cached_tokens.iter().filter(|&&tokens| tokens > 0).count() >= 100);
        for router in routers() {
            assert_same(&alone, &world.fleet(&router, &[k], 5).run, router.name());
        }
    }
}

/// On several replicas each turn ends, follows the turn before it, and a router that knows prefixes finds more of them.
#[test]
fn sessions_go_on_across_replicas() {
    let mut world = World::new(conversations(60, 3, 4.0));
    world.config.prefix_caching = true;
    world.arrivals = Arrivals::Sessions;
    let cached = |router: &RouterSpec| {
        let run = world.fleet(router, &[3, 3, 3], 5).run;
        let r = &run.records;
        for id in 0..r.len() as u32 {
            assert!(r.finished(id as usize), "{} of {}", id, router.name());
            if let Some((next, gap)) = world.workload.following(id) {
                assert_eq!(r.arrival[next as usize], r.finish[id as usize] + gap);
            }
        }
        r.cached_tokens.iter().map(|&tokens| u64::from(tokens)).sum::<u64>()
    };
    let random = cached(&RouterSpec::Random(Default::default()));
    for router in routers() {
        let cached = cached(&router);
        if router.name() == "smg-cache-aware" {
            assert!(5 * cached > 7 * random, "{}: {cached} against {random}", router.name());
        }
    }
}

/// Noise does not break it: the first replica's noise is the engine's.
#[test]
fn one_replica_is_an_engine_with_noise() {
    let mut world = World::new(requests(100, 8.0, 80, 2));
    world.noise_cv = 0.2;
    assert_same(&world.alone(3), &world.fleet(&routers()[0], &[3], 5).run, "noise");
}

/// Two replicas behind a random router are two engines, each with the requests that it was sent. A request has the
/// luck of its own number on either.
#[test]
fn random_splitting_is_thinning() {
    let world = World::new(requests(400, 16.0, 80, 3));
    let random = RouterSpec::Random(Default::default());
    for lengths in [[0, 0], [3, 3], [3, 0]] {
        let fleet = world.fleet(&random, &lengths, 7).run;
        let routed = &fleet.replicas.as_ref().unwrap().routed;
        for (replica, &k) in lengths.iter().enumerate() {
            let ids: Vec<u32> = (0..400).filter(|&i| routed[i as usize] as usize == replica).collect();
            assert!((150..250).contains(&ids.len()), "{} of 400", ids.len());
            let alone = thinned(&world, &ids, k);
            for (i, &id) in ids.iter().enumerate() {
                let of = |r: &Run, i: usize| {
                    let r = &r.records;
                    (r.first_scheduled[i], r.first_token[i], r.finish[i], r.emitted[i], r.verified[i], r.accepted[i])
                };
                assert_eq!(of(&alone, i), of(&fleet, id as usize), "request {id} on replica {replica} {lengths:?}");
            }
            let did = fleet.replicas.as_ref().unwrap().each[replica];
            assert_eq!((did.steps, did.emitted), (alone.totals.steps, alone.totals.emitted));
        }
    }
}

/// The run of an engine with these requests of a world alone.
fn thinned(world: &World, ids: &[u32], k: u32) -> Run {
    let mut workload: Workload = ids.iter().map(|&id| world.workload.get(id)).collect();
    workload.prefix_block = world.workload.prefix_block;
    let mut alone = World::new(workload);
    let of = World::new(requests(400, 16.0, 80, 3)).acceptance;
    alone.acceptance = Box::new(Renumbered { of: Box::leak(of), there: ids.to_vec() });
    alone.alone(k)
}

/// The merged run has the requests of all, and every instant lies on one clock.
#[test]
fn a_router_sees_no_later_than_it_decides() {
    let world = World::new(requests(300, 16.0, 80, 4));
    for router in routers() {
        let run = world.fleet(&router, &[3, 0, 2], 1).run;
        for i in 0..300 {
            let r = &run.records;
            assert_eq!(r.arrival[i], world.workload.arrival[i]);
            assert!(r.arrival[i] <= r.first_scheduled[i] && r.first_scheduled[i] <= r.first_token[i]);
            assert!(r.first_token[i] <= r.finish[i] && r.finish[i] < Time::MAX);
        }
    }
}
