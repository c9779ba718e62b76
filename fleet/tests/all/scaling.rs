//! Tests of fleets that grow and shrink.

use crate::conservation::{Book, BookedReplica};
use crate::setup::{Setup, requests};
use foretoken_fleet::{DynamoPlanner, Fixed, FleetRun, LlmDSaturation, RouterSpec, Scaling, ScalingRule, Signals};
use foretoken_sim::metrics::{ReplicaHours, Scaled};
use foretoken_sim::{Arrivals, Ending, Outcome, Replica, Time};
use proptest::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;

fn scaling(rule: ScalingRule, boot_s: f64) -> Scaling {
    let signals = Some(Signals { interval_s: 0.1, delay_s: 0.02 });
    Scaling { rule, min_replicas: 1, max_replicas: 5, boot_s, interval_s: Some(0.25), signals }
}

/// llm-d's saturation rule without the window for scaling down, so that the fleet grows and shrinks often.
fn nervous() -> ScalingRule {
    ScalingRule::LlmD(LlmDSaturation { down_window_s: 0.0, ..LlmDSaturation::default() })
}

fn planner() -> ScalingRule {
    ScalingRule::DynamoPlanner(DynamoPlanner { throughput_interval_s: 1.0, ..DynamoPlanner::default() })
}

fn routers() -> Vec<RouterSpec> {
    RouterSpec::all().into_iter().filter(|router| router.definition().about().scales).collect()
}

/// Runs a fleet with scaling. Returns the run, and the log of the requests that replicas were given and ended.
fn booked(setup: &Setup, router: &RouterSpec, scaling: &Scaling, replicas: usize) -> (FleetRun, Book) {
    let book = Rc::new(RefCell::new(Book::default()));
    let write = book.clone();
    let around = move |inner, number| -> Box<dyn Replica> {
        Box::new(BookedReplica { inner, book: write.clone(), number, eager: false })
    };
    let run = setup.scaled(router, (scaling, replicas), around);
    let book = book.take();
    (run, book)
}

fn scaled(run: &FleetRun) -> &Scaled {
    run.run.replicas.as_ref().unwrap().scaled.as_ref().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// For every rule, boot time and router: each request ends once, on the replica to which it was sent, and this
    /// replica was serving when the request was sent.
    #[test]
    fn every_request_ends_once_on_a_replica_that_serves(
        rule in 0..3usize,
        which in 0..16usize,
        replicas in 1..4usize,
        boot_s in prop::sample::select(vec![0.0, 0.1, 1.0, 5.0]),
        n in 1..120u32,
        rate in 1.0..200.0f64,
        clients in prop::option::of(1..40u32),
        blocks in 30..400u32,
        asynchronous in any::<bool>(),
        seed in 0..1000u64,
    ) {
        let mut setup = Setup::new(requests(n, rate, 60, seed));
        setup.config.num_gpu_blocks = blocks;
        setup.config.max_num_seqs = 8;
        setup.config.async_scheduling = asynchronous.then_some(true);
        setup.arrivals = clients.map_or(Arrivals::Open, |clients| Arrivals::Closed { clients });
        let rule = [nervous(), planner(), ScalingRule::Fixed(Fixed {})][rule].clone();
        let (routers, scaling) = (routers(), scaling(rule, boot_s));
        let (run, mut book) = booked(&setup, &routers[which % routers.len()], &scaling, replicas);
        prop_assert_eq!(run.run.ending, Ending::Done);
        let n = n as usize;
        let records = &run.run.records;
        prop_assert!((0..n).all(|i| records.outcome[i] != Outcome::InFlight));
        for i in (0..n).filter(|&i| records.finished(i)) {
            prop_assert_eq!(records.emitted[i], setup.workload.output_len[i]);
        }
        let emitted = records.emitted.iter().map(|&e| u64::from(e)).sum::<u64>();
        prop_assert_eq!(run.run.totals.emitted, emitted);
        let of = run.run.replicas.as_ref().unwrap();
        prop_assert_eq!(of.each.iter().map(|did| did.emitted).sum::<u64>(), emitted);
        let grown = scaled(&run);
        prop_assert_eq!(of.each.len(), grown.lives.len());
        for (&(id, replica), &at) in book.given.iter().zip(&book.times) {
            let life = grown.lives[replica];
            prop_assert_eq!(usize::from(of.routed[id as usize]), replica);
            prop_assert!(life.ready <= at && at <= life.drained, "{} at {:?} of {:?}", id, at, life);
            prop_assert!(records.finish[id as usize] <= life.ended);
        }
        book.given.sort_unstable();
        book.ended.sort_unstable();
        prop_assert_eq!(&book.given, &book.ended);
        prop_assert_eq!(book.given.iter().map(|g| g.0 as usize).collect::<Vec<_>>(), (0..n).collect::<Vec<_>>());
        for life in &grown.lives {
            prop_assert!(life.ordered == Time::ZERO && life.ready == Time::ZERO
                || life.ready == Time::MAX
                || life.ready == life.ordered + Time::from_s(boot_s));
        }
        for (_, [booting, serving, _]) in grown.over_time() {
            prop_assert!(booting + serving <= scaling.max_replicas);
        }
    }
}

/// A replica serves exactly `boot_s` seconds after it was ordered, and the next request can be sent to it.
#[test]
fn a_boot_takes_its_time() {
    let mut setup = Setup::new(requests(400, 60.0, 60, 4));
    setup.config.num_gpu_blocks = 100;
    let scaling = scaling(nervous(), 1.5);
    let (run, book) = booked(&setup, &RouterSpec::LeastRequests(Default::default()), &scaling, 1);
    let grown = scaled(&run);
    let second = grown.lives[1];
    assert_eq!(second.ready, second.ordered + Time::from_s(1.5));
    assert_eq!(second.ordered, grown.decisions[0].at);
    assert_eq!((grown.decisions[0].serving, grown.decisions[0].booting), (1, 0));
    let at = book.given.iter().position(|given| given.1 == 1).unwrap();
    assert!(book.times[at] >= second.ready);
    let before = book.times.iter().filter(|at| **at >= second.ready && **at < book.times[book.times.len() - 1]).min();
    assert_eq!(Some(&book.times[at]), before, "an empty replica gets the next request");
}

/// The replica-hours of a fleet with two replicas and no scaling decisions: each replica serves from the start of the
/// run until the last request ends.
#[test]
fn hours_end_with_the_last_request() {
    let setup = Setup::new(requests(3, 1.0, 20, 1));
    let scaling = scaling(ScalingRule::Fixed(Fixed {}), 60.0);
    let (run, _) = booked(&setup, &RouterSpec::RoundRobin(Default::default()), &scaling, 2);
    let end = *run.run.records.finish.iter().max().unwrap();
    assert_eq!(scaled(&run).end, end);
    let serving = (end + end).as_s() / 3600.0;
    assert_eq!(scaled(&run).hours(), ReplicaHours { booting: 0.0, serving, draining: 0.0 });
}

/// The rule `fixed`, and any other rule whose least and greatest number of replicas are both 3, give the same run as a
/// fleet of 3 replicas without scaling.
#[test]
fn a_fleet_that_may_not_change_is_a_fleet_without_scaling() {
    for clients in [None, Some(12)] {
        let mut setup = Setup::new(requests(200, 30.0, 60, 9));
        setup.arrivals = clients.map_or(Arrivals::Open, |clients| Arrivals::Closed { clients });
        for router in routers() {
            let plain = setup.fleet(&router, &[2, 2, 2], 3).run;
            for rule in [ScalingRule::Fixed(Fixed {}), nervous(), planner()] {
                let stays = Scaling { min_replicas: 3, max_replicas: 3, ..scaling(rule, 1.0) };
                let run = setup.scaled(&router, (&stays, 3), |replica, _| replica).run;
                assert_eq!(run.records, plain.records, "{}", router.name());
                assert_eq!((run.totals.steps, run.totals.busy), (plain.totals.steps, plain.totals.busy));
                let (a, b) = (run.replicas.unwrap(), plain.replicas.as_ref().unwrap());
                assert_eq!((&a.routed, &a.each, &a.series), (&b.routed, &b.each, &b.series), "{}", router.name());
            }
        }
    }
}

/// Two runs with the same scaling rule, seed and requests are equal. In each run the rule changes the number of
/// replicas at least once.
#[test]
fn scaling_is_deterministic() {
    let mut setup = Setup::new(requests(400, 40.0, 60, 5));
    setup.config.num_gpu_blocks = 120;
    for rule in [nervous(), planner()] {
        let scaling = scaling(rule, 0.5);
        let run = || setup.scaled(&RouterSpec::VllmDp(Default::default()), (&scaling, 2), |replica, _| replica).run;
        let (a, b) = (run(), run());
        assert_eq!(a.replicas, b.replicas);
        assert!(!a.replicas.unwrap().scaled.unwrap().decisions.is_empty());
    }
}
