//! Every request ends exactly once, on one replica. Its tokens and KV blocks belong to that replica.

use crate::setup::{Setup, requests};
use foretoken_fleet::{FleetRun, RouterSpec};
use foretoken_sim::{
    Arrivals, DraftAt, Ending, Given, Load, Outcome, Replica, RequestId, RequestRecords, Reserved, Run, Time,
};
use proptest::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;

/// The log of a test fleet: the requests that were given to replicas, and the requests that ended on them.
#[derive(Default)]
pub struct Book {
    pub given: Vec<(RequestId, usize)>,
    pub ended: Vec<(RequestId, usize)>,
    /// When each request of `given` was given to its replica.
    pub times: Vec<Time>,
}

/// A replica that logs its given and ended requests in a [`Book`]. It asserts three things: only running requests hold
/// KV blocks, no KV blocks are held at the end, and it has no more records than requests.
pub struct BookedReplica<'a> {
    pub inner: Box<dyn Replica + 'a>,
    pub book: Rc<RefCell<Book>>,
    pub number: usize,
    /// Whether the fleet runs the replica step by step, because the replica never promises a longer time without ends.
    pub eager: bool,
}

impl Replica for BookedReplica<'_> {
    fn be_forgetful(&mut self) {
        self.inner.be_forgetful();
    }

    fn give(&mut self, given: Given) -> RequestId {
        self.book.borrow_mut().given.push((given.id, self.number));
        self.book.borrow_mut().times.push(given.sent);
        self.inner.give(given)
    }

    fn take_reserved(&mut self, into: &mut Vec<Reserved>) {
        self.inner.take_reserved(into);
    }

    fn kv_arrived(&mut self, id: RequestId, at: Time, draft_kv: bool) {
        self.inner.kv_arrived(id, at, draft_kv);
    }

    fn computes_here(&mut self, id: RequestId, at: Time) {
        self.inner.computes_here(id, at);
    }

    fn release(&mut self, id: RequestId, at: Time) {
        self.inner.release(id, at);
    }

    fn run_until(&mut self, until: Time, to_the_next_end: bool) {
        self.inner.run_until(until, to_the_next_end);
        let load = self.inner.load();
        assert!(load.used_blocks <= load.usable_blocks);
        assert!(load.running > 0 || load.used_blocks == 0, "only running requests hold blocks: {load:?}");
    }

    fn now(&self) -> Time {
        self.inner.now()
    }

    fn next_step(&self) -> Time {
        self.inner.next_step()
    }

    fn quiet_until(&self) -> Time {
        if self.eager { self.inner.next_step() } else { self.inner.quiet_until() }
    }

    fn take_ended(&mut self, records: &mut RequestRecords, into: &mut Vec<(RequestId, Time)>) {
        let before = into.len();
        self.inner.take_ended(records, into);
        let new = into[before..].iter().map(|&(id, _)| (id, self.number));
        self.book.borrow_mut().ended.extend(new);
    }

    fn first_token(&self, index: RequestId) -> (Time, Outcome) {
        self.inner.first_token(index)
    }

    fn load(&self) -> Load {
        self.inner.load()
    }

    fn finish(self: Box<Self>, ending: Ending) -> Run {
        let load = self.inner.load();
        assert_eq!((load.running, load.waiting, load.used_blocks), (0, 0, 0), "all blocks were given back");
        let run = self.inner.finish(ending);
        let own = self.book.borrow().given.iter().filter(|given| given.1 == self.number).count();
        assert!(self.eager || run.records.len() <= own, "it has records of its own requests alone");
        run
    }
}

fn check(setup: &Setup, router: &RouterSpec, lengths: &[u32]) -> Result<FleetRun, TestCaseError> {
    let book = Rc::new(RefCell::new(Book::default()));
    let number = RefCell::new(0);
    let around = |inner| -> Box<dyn Replica> {
        *number.borrow_mut() += 1;
        Box::new(BookedReplica { inner, book: book.clone(), number: *number.borrow() - 1, eager: false })
    };
    let fleet = setup.fleet_of(router, lengths, 3, around);
    let eager =
        |inner| -> Box<dyn Replica> { Box::new(BookedReplica { inner, book: Rc::default(), number: 0, eager: true }) };
    let stepped = setup.fleet_of(router, lengths, 3, eager).run;
    prop_assert_eq!(&fleet.run.records, &stepped.records, "{}: step by step", router.name());
    prop_assert_eq!(&fleet.run.replicas, &stepped.replicas, "{}: step by step", router.name());
    let (mut book, n) = (book.take(), setup.workload.len());
    let what = format!("{} {lengths:?}", router.name());
    prop_assert_eq!(fleet.run.ending, Ending::Done, "{}", &what);
    book.given.sort_unstable();
    book.ended.sort_unstable();
    prop_assert_eq!(&book.given, &book.ended, "{}: what is given ends, there and once", &what);
    prop_assert_eq!(book.given.iter().map(|g| g.0).collect::<Vec<_>>(), (0..n as u32).collect::<Vec<_>>(), "{}", &what);
    let run = &fleet.run;
    prop_assert!((0..n).all(|i| run.records.outcome[i] != Outcome::InFlight), "{}", &what);
    for i in (0..n).filter(|&i| run.records.finished(i)) {
        prop_assert_eq!(run.records.emitted[i], setup.workload.output_len[i], "{}", &what);
    }
    prop_assert_eq!(run.totals.emitted, run.records.emitted.iter().map(|&e| u64::from(e)).sum::<u64>(), "{}", &what);
    if let Some(replicas) = &run.replicas {
        for (r, did) in replicas.each.iter().enumerate() {
            let sent = book.given.iter().filter(|given| given.1 == r).count() as u64;
            prop_assert_eq!((did.requests, did.finished + did.rejected), (sent, sent), "{}", &what);
        }
    }
    Ok(fleet)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_request_ends_once_and_belongs_to_one_replica(
        which in 0..RouterSpec::all().len(),
        lengths in prop::collection::vec(0..4u32, 1..5),
        n in 1..60u32,
        rate in 1.0..200.0f64,
        clients in prop::option::of(1..20u32),
        blocks in 30..400u32,
        caching in any::<bool>(),
        order in 0..3usize,
        seed in 0..1000u64,
    ) {
        let mut setup = Setup::new(requests(n, rate, 60, seed));
        let orders = [(None, None), (None, Some(false)), (Some(DraftAt::StepStart), None)];
        (setup.config.draft_at, setup.config.async_scheduling) = orders[order];
        setup.config.num_gpu_blocks = blocks;
        setup.config.max_num_seqs = 8;
        setup.config.prefix_caching = caching;
        setup.arrivals = clients.map_or(Arrivals::Open, |clients| Arrivals::Closed { clients });
        check(&setup, &RouterSpec::all()[which], &lengths)?;
    }
}

/// With every router, two runs of a fleet with the same seed are equal. With another seed, the router `random` chooses
/// other replicas.
#[test]
fn a_fleet_is_deterministic() {
    let setup = Setup::new(requests(200, 20.0, 60, 9));
    for router in RouterSpec::all() {
        let (a, b) = (setup.fleet(&router, &[2, 2, 0], 3).run, setup.fleet(&router, &[2, 2, 0], 3).run);
        assert_eq!(a.replicas, b.replicas, "{}", router.name());
        assert_eq!(a.records, b.records, "{}", router.name());
    }
    let random = RouterSpec::Random(Default::default());
    let routed = |seed| setup.fleet(&random, &[2, 2], seed).run.replicas.unwrap().routed;
    assert_ne!(routed(1), routed(2));
}
