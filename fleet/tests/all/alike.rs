//! A fleet of one is an engine, and a fleet whose replicas share nothing is several engines.

use crate::world::{Renumbered, World, assert_same, requests, routers};
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
