//! A fleet with one replica gives the run of a single engine. A fleet with random routing gives the runs of several
//! separate engines.

use crate::setup::{Renumbered, Setup, assert_same, conversations, requests, routers};
use foretoken_fleet::RouterSpec;
use foretoken_sim::{Arrivals, DraftAt, Run, Time, Version, Workload};

/// A fleet with one replica and any router gives the same run as a single engine without a fleet. The test tries open
/// and closed loops, two engine versions, and drafting at the default time and at the start of a step.
#[test]
fn one_replica_is_an_engine() {
    for (version, draft_at) in [
        (Version::default(), None),
        (Version::default(), Some(DraftAt::StepStart)),
        (Version::V0, None),
        (Version::Sglang0_5_23, None),
    ] {
        for (arrivals, caching) in [(Arrivals::Open, false), (Arrivals::Closed { clients: 12 }, true)] {
            let mut setup = Setup::new(requests(150, 8.0, 80, 1));
            setup.config.version = version;
            setup.config.draft_at = draft_at;
            setup.config.frontend_s = 0.004;
            setup.config.prefix_caching = caching;
            setup.config.max_model_len = 2000;
            setup.arrivals = arrivals;
            for k in [0, 3] {
                let alone = setup.alone(k);
                for router in routers() {
                    let what = format!("{version:?} {draft_at:?} {arrivals:?} k = {k}, {}", router.name());
                    let fleet = setup.fleet(&router, &[k], 5).run;
                    assert_same(&alone, &fleet, &what);
                    assert!(fleet.replicas.is_none(), "{what}");
                }
            }
        }
    }
}

/// In sessions, a fleet with one replica and any router gives the same run as a single engine without a fleet. At least
/// 100 turns find tokens of earlier turns in the prefix cache.
#[test]
fn one_replica_is_an_engine_with_sessions() {
    let mut setup = Setup::new(conversations(60, 3, 4.0));
    setup.config.prefix_caching = true;
    setup.arrivals = Arrivals::Sessions;
    for k in [0, 3] {
        let alone = setup.alone(k);
        assert!(alone.records.cached_tokens.iter().filter(|&&tokens| tokens > 0).count() >= 100);
        for router in routers() {
            assert_same(&alone, &setup.fleet(&router, &[k], 5).run, router.name());
        }
    }
}

/// In sessions on three replicas, each turn finishes, and the next turn of the session arrives after its gap. The
/// router `smg-cache-aware` makes over 1.4 times as many prompt tokens come from prefix caches as the router `random`.
#[test]
fn sessions_go_on_across_replicas() {
    let mut setup = Setup::new(conversations(60, 3, 4.0));
    setup.config.prefix_caching = true;
    setup.arrivals = Arrivals::Sessions;
    let cached = |router: &RouterSpec| {
        let run = setup.fleet(router, &[3, 3, 3], 5).run;
        let r = &run.records;
        for id in 0..r.len() as u32 {
            assert!(r.finished(id as usize), "{} of {}", id, router.name());
            if let Some((next, gap)) = setup.workload.following(id) {
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

/// A fleet gives the same run whether or not steps without decisions are computed in one go. With skipping, a replica
/// on which nothing ends runs later than the router's choices, so this also compares every router's choices. The order
/// of a step's phases and the noise of pass times vary.
#[test]
fn skipping_changes_no_fleet() {
    for (version, draft_at, noise_cv) in [
        (Version::default(), None, 0.0),
        (Version::default(), Some(DraftAt::StepStart), 0.0),
        (Version::V0_32, None, 0.1),
        (Version::V0, None, 0.0),
    ] {
        let mut setup = Setup::new(requests(300, 12.0, 80, 6));
        (setup.config.version, setup.config.draft_at, setup.noise_cv) = (version, draft_at, noise_cv);
        (setup.config.frontend_s, setup.config.step_overhead_s) = (0.004, 0.001);
        setup.config.max_model_len = 2000;
        for router in routers() {
            let mut run = |skip| {
                setup.config.skip_stretches = skip;
                setup.fleet(&router, &[0, 0, 2, 0], 5).run
            };
            let (skipped, stepped) = (run(true), run(false));
            let what = format!("{version:?} {draft_at:?} {}", router.name());
            assert_same(&skipped, &stepped, &what);
            assert_eq!(skipped.replicas, stepped.replicas, "{what}");
        }
    }
}

/// If pass times are noisy, a fleet with one replica gives the same run as a single engine without a fleet, because
/// both draw the same noise.
#[test]
fn one_replica_is_an_engine_with_noise() {
    let mut setup = Setup::new(requests(100, 8.0, 80, 2));
    setup.noise_cv = 0.2;
    assert_same(&setup.alone(3), &setup.fleet(&routers()[0], &[3], 5).run, "noise");
}

/// Two replicas behind a random router run as two separate engines, each with the requests that were sent to it. The
/// request's id decides which of its draft tokens are right; the replica does not matter.
#[test]
fn random_splitting_is_thinning() {
    let setup = Setup::new(requests(400, 16.0, 80, 3));
    let random = RouterSpec::Random(Default::default());
    for lengths in [[0, 0], [3, 3], [3, 0]] {
        let fleet = setup.fleet(&random, &lengths, 7).run;
        let routed = &fleet.replicas.as_ref().unwrap().routed;
        for (replica, &k) in lengths.iter().enumerate() {
            let ids: Vec<u32> = (0..400).filter(|&i| routed[i as usize] as usize == replica).collect();
            assert!((150..250).contains(&ids.len()), "{} of 400", ids.len());
            let alone = thinned(&setup, &ids, k);
            for (i, &id) in ids.iter().enumerate() {
                let outcome = |r: &Run, i: usize| {
                    let r = &r.records;
                    (r.first_scheduled[i], r.first_token[i], r.finish[i], r.emitted[i], r.verified[i], r.accepted[i])
                };
                assert_eq!(
                    outcome(&alone, i),
                    outcome(&fleet, id as usize),
                    "request {id} on replica {replica} {lengths:?}"
                );
            }
            let did = fleet.replicas.as_ref().unwrap().each[replica];
            assert_eq!((did.steps, did.emitted), (alone.totals.steps, alone.totals.emitted));
        }
    }
}

/// The run of a single engine that gets only the requests `ids` of the workload. The same draft tokens of these
/// requests are right as in the run of the whole workload.
fn thinned(setup: &Setup, ids: &[u32], k: u32) -> Run {
    let mut workload: Workload = ids.iter().map(|&id| setup.workload.get(id)).collect();
    workload.prefix_block = setup.workload.prefix_block;
    let mut alone = Setup::new(workload);
    let acceptance = Setup::new(requests(400, 16.0, 80, 3)).acceptance;
    alone.acceptance = Box::new(Renumbered { original: Box::leak(acceptance), numbers: ids.to_vec() });
    alone.alone(k)
}

/// In the merged run of three replicas, each request's arrival, first scheduling, first token and end are in this order
/// of time. Every router is tried.
#[test]
fn a_router_sees_no_later_than_it_decides() {
    let setup = Setup::new(requests(300, 16.0, 80, 4));
    for router in routers() {
        let run = setup.fleet(&router, &[3, 0, 2], 1).run;
        for i in 0..300 {
            let r = &run.records;
            assert_eq!(r.arrival[i], setup.workload.arrival[i]);
            assert!(r.arrival[i] <= r.first_scheduled[i] && r.first_scheduled[i] <= r.first_token[i]);
            assert!(r.first_token[i] <= r.finish[i] && r.finish[i] < Time::MAX);
        }
    }
}
