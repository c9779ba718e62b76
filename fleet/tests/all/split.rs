//! Prefill and decode on different replicas: latencies of single requests, bytes of transfers, and conservation of
//! requests and blocks.

use crate::setup::{Setup, Shared, TOKEN_BYTES, assert_same, conversations, requests};
use foretoken_fleet::{DynamoQueue, DynamoSplit, HandOff, LlmDSplit, Role, RouterSpec, SharedBy, SplitRule};
use foretoken_sim::metrics::HandOff as Record;
use foretoken_sim::{
    Arrivals, DraftAt, Ending, Given, Load, Outcome, Part, Replica, Request, RequestId, RequestRecords, Reserved, Run,
    Time, Workload,
};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Requests that arrive so far apart that at most one is in flight at any time.
fn alone_requests() -> Workload {
    let lengths = [(100, 20), (257, 1), (1, 9), (2000, 40), (16, 3)];
    lengths
        .iter()
        .enumerate()
        .map(|(i, &(prompt, output))| Request::new(Time::from_s(10.0 * i as f64), prompt, output))
        .collect()
}

fn hand_offs(run: &Run) -> &[Record] {
    &run.replicas.as_ref().unwrap().hand_offs
}

/// One request at a time and an infinitely fast link. The first token comes later than from a single replica by one
/// step of one token, because the decode replica computes the prompt's last token again. The gaps between later tokens
/// are the same.
#[test]
fn a_lone_request_waits_for_its_last_prompt_token_alone() {
    for k in [0, 3] {
        for hand_off in [HandOff::PrefillFirst, HandOff::DecodeFirst] {
            let mut setup = Setup::new(alone_requests());
            setup.config.draft_at = Some(DraftAt::StepStart);
            setup.config.draft_prefill = false;
            let single = setup.alone(k).records;
            let run = setup.split(&[k, k], &Shared { hand_off, ..Shared::two() });
            let r = &run.records;
            for i in 0..r.len() {
                let prompt = f64::from(setup.workload.prompt_len[i]);
                // The setup's cost of a target pass over the prompt's last token, with the rest of the prompt as
                // context. vLLM pads a request that has one token left to the length of a decode request: 1 + k tokens.
                let tokens = f64::from(if prompt > 1.0 { 1 + k } else { 1 });
                let again = Time::from_s(11e-3 + 55e-6 * tokens + 0.3e-6 * (prompt - 1.0));
                let late =
                    (r.first_token[i] - r.arrival[i]).0 as i64 - (single.first_token[i] - single.arrival[i]).0 as i64;
                assert!((late - again.0 as i64).abs() <= 2, "{late} {again:?} request {i}, k = {k}, {hand_off:?}");
                assert_eq!(r.finish[i] - r.first_token[i], single.finish[i] - single.first_token[i], "request {i}");
                assert_eq!((r.emitted[i], r.accepted[i]), (single.emitted[i], single.accepted[i]));
                let hand_off = hand_offs(&run)[i];
                assert_eq!((hand_off.replica, hand_off.computed), (0, single.first_token[i]));
                assert_eq!((hand_off.begun, hand_off.arrived), (hand_off.computed, hand_off.computed));
                assert_eq!(r.first_scheduled[i], single.first_scheduled[i]);
            }
        }
    }
}

/// As in vLLM, the host notices arrived KV only at the end of a step, and sleeps for 1 ms if nothing can run. For a
/// request alone in the fleet, at most three such sleeps (3 ms) delay the first token.
#[test]
fn the_host_of_vllm_naps_while_kv_comes() {
    for asynchronous in [false, true] {
        let mut setup = Setup::new(alone_requests());
        setup.config.async_scheduling = Some(asynchronous);
        let single = setup.alone(0).records;
        let r = setup.split(&[0, 0], &Shared::two()).records;
        for i in 0..r.len() {
            let prompt = f64::from(setup.workload.prompt_len[i]);
            let again = 11e-3 + 55e-6 + 0.3e-6 * (prompt - 1.0);
            let late = r.ttft_s(i) - single.ttft_s(i);
            assert!(late >= again - 1e-9 && late <= again + 3.1e-3, "{late} against {again}");
        }
    }
}

/// A transfer's time and bytes equal the values computed by hand from the prompt's whole blocks, the KV of target and
/// draft model, the latency and the bandwidth.
#[test]
fn transfers_take_their_bytes() {
    for (k, draft_kv) in [(0, true), (3, true), (3, false)] {
        let setup = Setup::new(alone_requests());
        let mut shared = Shared::two();
        (shared.link.bandwidth_gb_s, shared.link.latency_s, shared.link.draft_kv) = (0.5, 0.002, draft_kv);
        let run = setup.split(&[k, k], &shared);
        for (i, hand_off) in hand_offs(&run).iter().enumerate() {
            let tokens = u64::from(setup.workload.prompt_len[i]).div_ceil(16) * 16;
            let draft = if k > 0 && draft_kv { 4_000 } else { 0 };
            assert_eq!(hand_off.bytes, tokens * (100_000 + draft));
            let takes = (hand_off.arrived - hand_off.begun).as_s();
            assert!((takes - 0.002 - hand_off.bytes as f64 / 0.5e9).abs() < 1e-9, "{takes}");
        }
    }
}

/// Two transfers at the same time take twice as long on one link as on two links.
#[test]
fn one_link_is_shared_and_two_are_not() {
    let setup = Setup::new([100, 200].map(|at| Request::new(Time(at), 800, 9)).into_iter().collect());
    let mut shared = Shared { roles: vec![Role::Prefill, Role::Prefill, Role::Decode], ..Shared::two() };
    shared.link.bandwidth_gb_s = 1.0;
    let arrived = |shared_by| {
        let mut shared = shared.clone();
        shared.link.shared_by = shared_by;
        let run = setup.split(&[0, 0, 0], &shared);
        let begun = hand_offs(&run).iter().map(|h| h.begun).max().unwrap();
        [0, 1].map(|i| (hand_offs(&run)[i].arrived - begun).as_s())
    };
    let (own, one) = (arrived(SharedBy::PrefillReplica), arrived(SharedBy::Fleet));
    let bytes = 800.0 * TOKEN_BYTES[0];
    assert!(own.iter().all(|s| (s - bytes / 1e9).abs() < 0.005), "{own:?}");
    assert!(one.iter().all(|s| (s - 2.0 * bytes / 1e9).abs() < 0.005), "{one:?}");
}

/// Without the draft model's KV the first step on the decode replica drafts nothing. So the request needs at least as
/// many steps as with the draft model's KV.
#[test]
fn without_the_drafts_kv_the_first_step_drafts_nothing() {
    let setup = Setup::new([Request::new(Time::ZERO, 500, 200)].into_iter().collect());
    let rounds = |draft_kv: bool| {
        let mut shared = Shared::two();
        shared.link.draft_kv = draft_kv;
        let run = setup.split(&[3, 3], &shared);
        let each = run.replicas.unwrap().each[1];
        (each.steps, run.records.drafted[0], run.totals.draft_time)
    };
    let (with, without) = (rounds(true), rounds(false));
    assert!(without.0 >= with.0 && without.1 != with.1, "{with:?} {without:?}");
    let mut plain = Setup::new([Request::new(Time::ZERO, 500, 2)].into_iter().collect());
    plain.config.draft_at = Some(DraftAt::StepEnd);
    let drafted = |draft_kv: bool| {
        let mut shared = Shared::two();
        shared.link.draft_kv = draft_kv;
        plain.split(&[3, 3], &shared).records.drafted[0]
    };
    assert_eq!((drafted(true), drafted(false)), (3, 0), "the second token's step verifies what the first step drafted");
}

/// KV that the decode replica has cached is not transferred.
#[test]
fn what_is_cached_is_not_transferred() {
    let mut setup = Setup::new(conversations(20, 3, 40.0));
    setup.config.prefix_caching = true;
    setup.arrivals = Arrivals::Sessions;
    let run = setup.split(&[0, 0], &Shared::two());
    let whole = |i: usize| u64::from(setup.workload.prompt_len[i].div_ceil(16) * 16) * 100_000;
    let less = (0..run.records.len()).filter(|&i| hand_offs(&run)[i].bytes < whole(i)).count();
    assert!(less >= 35, "{less} of 40 later turns");
    assert!(
        run.records.cached_tokens.iter().filter(|&&tokens| tokens > 0).count() >= 35,
        "the prefill replica caches too"
    );
}

/// If the rule never splits a request, the records of a fleet with prefill replicas equal the records of a fleet that
/// has only the decode replicas.
#[test]
fn what_is_not_split_is_served_as_ever() {
    let setup = Setup::new(requests(150, 16.0, 80, 2));
    let never =
        Shared { rule: SplitRule::Never, roles: vec![Role::Decode, Role::Prefill, Role::Decode], ..Shared::two() };
    let both = setup.fleet(&crate::setup::routers()[0], &[3, 3], 3).run;
    for short in
        [never.clone(), Shared { rule: SplitRule::LlmD(LlmDSplit { non_cached_tokens: 0, prompt_tokens: 0 }), ..never }]
    {
        // The noise of pass times is off, so a replica's index has no effect on its times.
        let run = setup.split(&[3, 0, 3], &short);
        assert_eq!(run.records, both.records);
        assert!(hand_offs(&run).iter().all(|hand_off| *hand_off == Record::default()));
    }
}

/// 40 prompts come at nearly the same time, with 3000 and 50 tokens in turn. The test states for each rule which
/// prompts must be computed on the prefill replica.
#[test]
fn rules_choose_by_length_and_queue() {
    let mut setup = Setup::new((0..40).map(|i| Request::new(Time(i), if i % 2 == 0 { 3000 } else { 50 }, 4)).collect());
    setup.config.max_num_seqs = 64;
    let sent = |rule: SplitRule| {
        let run = setup.split(&[0, 0], &Shared { rule, ..Shared::two() });
        (0..40).filter(|&i| hand_offs(&run)[i].replica != u16::MAX).collect::<Vec<_>>()
    };
    let long: Vec<usize> = (0..40).step_by(2).collect();
    assert_eq!(sent(SplitRule::LlmD(LlmDSplit { non_cached_tokens: 51, prompt_tokens: 0 })), long);
    assert_eq!(sent(SplitRule::Dynamo(DynamoSplit { eff_isl_ratio_threshold: 1.1, ..DynamoSplit::default() })), long);
    assert_eq!(sent(SplitRule::Dynamo(DynamoSplit::default())), (0..40).collect::<Vec<_>>(), "nothing is cached");
    // By default the rule lets one prompt run on the prefill replica and two more wait. So only the first three long
    // prompts are sent to it.
    assert_eq!(sent(SplitRule::DynamoQueue(DynamoQueue::default())), [0, 2, 4]);
    let busy =
        DynamoSplit { prefill_busy_threshold: Some(1.0), eff_isl_ratio_threshold: 1.1, ..DynamoSplit::default() };
    let tokens = setup.config.max_num_batched_tokens;
    assert_eq!(sent(SplitRule::Dynamo(busy)).len() as u32, tokens / 3000 + 1);
}

/// The log of a test fleet: which replica got and ended each part of a request, when its KV arrived, and when its
/// blocks were released. In a key (request, flag) the flag is true for the request's prompt on a prefill replica, and
/// false for its output on a decode replica.
#[derive(Default)]
struct Book {
    given: BTreeMap<(RequestId, bool), usize>,
    ended: BTreeMap<(RequestId, bool), usize>,
    arrived: BTreeMap<RequestId, Time>,
    released: BTreeMap<RequestId, Time>,
}

/// A replica that logs its requests in a [`Book`].
struct BookedReplica<'a> {
    inner: Box<dyn Replica + 'a>,
    book: Rc<RefCell<Book>>,
    prefill: bool,
    /// The id of each request that was given, by its index.
    ids: BTreeMap<RequestId, RequestId>,
}

impl Replica for BookedReplica<'_> {
    fn be_forgetful(&mut self) {
        self.inner.be_forgetful();
    }

    fn give(&mut self, given: Given) -> RequestId {
        assert_eq!(given.part == Part::Prompt, self.prefill);
        *self.book.borrow_mut().given.entry((given.id, self.prefill)).or_default() += 1;
        let index = self.inner.give(given);
        assert!(self.ids.insert(index, given.id).is_none(), "no request is forgotten");
        index
    }

    fn take_reserved(&mut self, into: &mut Vec<Reserved>) {
        self.inner.take_reserved(into);
    }

    fn kv_arrived(&mut self, index: RequestId, at: Time, draft_kv: bool) {
        assert!(self.book.borrow_mut().arrived.insert(self.ids[&index], at).is_none(), "KV arrives once");
        self.inner.kv_arrived(index, at, draft_kv);
    }

    fn computes_here(&mut self, id: RequestId, at: Time) {
        self.inner.computes_here(id, at);
    }

    fn release(&mut self, index: RequestId, at: Time) {
        assert!(self.book.borrow_mut().released.insert(self.ids[&index], at).is_none(), "blocks are released once");
        self.inner.release(index, at);
    }

    fn run_until(&mut self, until: Time, to_the_next_end: bool) {
        self.inner.run_until(until, to_the_next_end);
        let load = self.inner.load();
        assert!(load.used_blocks <= load.usable_blocks);
    }

    fn now(&self) -> Time {
        self.inner.now()
    }

    fn next_step(&self) -> Time {
        self.inner.next_step()
    }

    fn quiet_until(&self) -> Time {
        self.inner.quiet_until()
    }

    fn take_ended(&mut self, records: &mut RequestRecords, into: &mut Vec<(RequestId, Time)>) {
        let before = into.len();
        self.inner.take_ended(records, into);
        for &(id, _) in &into[before..] {
            *self.book.borrow_mut().ended.entry((id, self.prefill)).or_default() += 1;
        }
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
        self.inner.finish(ending)
    }
}

fn rules() -> [SplitRule; 5] {
    [
        SplitRule::Always,
        SplitRule::Never,
        SplitRule::LlmD(LlmDSplit { non_cached_tokens: 60, prompt_tokens: 0 }),
        SplitRule::Dynamo(DynamoSplit {
            eff_isl_threshold: 80,
            eff_isl_ratio_threshold: 1.1,
            prefill_busy_threshold: Some(0.1),
        }),
        SplitRule::DynamoQueue(DynamoQueue { max_local_prefill_length: 30, max_prefill_queue_size: 3 }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Every request ends once on a decode replica. Its prompt ends at most once on a prefill replica, its KV arrives
    /// at most once, and all blocks are freed. This holds for every splitting rule, hand-off and router, for drafting
    /// at the start and at the end of a step, and for every number of KV blocks.
    #[test]
    fn every_split_request_ends_once_and_blocks_come_back(
        (which, rule, decode_first, draft_kv) in (0..RouterSpec::all().len(), 0..5usize, any::<bool>(), any::<bool>()),
        (prefills, lengths) in (prop::collection::vec(0..4u32, 1..3), prop::collection::vec(0..4u32, 1..4)),
        n in 1..50u32,
        rate in 1.0..200.0f64,
        clients in prop::option::of(1..20u32),
        blocks in 30..200u32,
        (caching, order, sessions) in (any::<bool>(), 0..3usize, any::<bool>()),
        bandwidth_gb_s in prop::sample::select(vec![f64::INFINITY, 10.0, 0.1]),
        by_fleet in any::<bool>(),
        seed in 0..1000u64,
    ) {
        let workload = if sessions { conversations(n.min(20), 2, 1.0) } else { requests(n, rate, 60, seed) };
        let mut setup = Setup::new(workload);
        setup.config.num_gpu_blocks = blocks;
        setup.config.max_num_seqs = 8;
        setup.config.prefix_caching = caching;
        setup.config.draft_at = [Some(DraftAt::StepStart), Some(DraftAt::StepEnd), None][order];
        setup.arrivals = match (sessions, clients) {
            (true, _) => Arrivals::Sessions,
            (false, clients) => clients.map_or(Arrivals::Open, |clients| Arrivals::Closed { clients }),
        };
        let mut shared = Shared { rule: rules()[rule].clone(), ..Shared::two() };
        shared.roles = [vec![Role::Prefill; prefills.len()], vec![Role::Decode; lengths.len()]].concat();
        shared.hand_off = if decode_first { HandOff::DecodeFirst } else { HandOff::PrefillFirst };
        shared.link.shared_by = if by_fleet { SharedBy::Fleet } else { SharedBy::PrefillReplica };
        (shared.link.bandwidth_gb_s, shared.link.latency_s, shared.link.draft_kv) = (bandwidth_gb_s, 0.003, draft_kv);
        let all = [prefills.as_slice(), &lengths].concat();
        let book = Rc::new(RefCell::new(Book::default()));
        let around = |r: usize, inner| -> Box<dyn Replica> {
            Box::new(BookedReplica { inner, ids: BTreeMap::new(), book: book.clone(), prefill: r < prefills.len() })
        };
        let run = setup.split_of(&RouterSpec::all()[which], &all, &shared, around).run;
        let again = setup.split_of(&RouterSpec::all()[which], &all, &shared, |_, replica| replica).run;
        assert_same(&run, &again, "a second run");
        let book = book.take();
        prop_assert_eq!(run.ending, Ending::Done);
        prop_assert_eq!(&book.given, &book.ended, "what is given ends, there and once");
        prop_assert!(book.given.values().all(|&times| times == 1));
        prop_assert_eq!(book.given.keys().filter(|key| !key.1).count(), setup.workload.len(), "each request decodes");
        prop_assert_eq!(&book.arrived, &book.released, "blocks are released when the KV has arrived");
        let r = &run.records;
        for i in 0..r.len() {
            let hand_off = hand_offs(&run)[i];
            prop_assert!(r.outcome[i] != Outcome::InFlight);
            if r.finished(i) {
                prop_assert_eq!(r.emitted[i], setup.workload.output_len[i]);
                prop_assert!(r.arrival[i] <= r.first_scheduled[i] && r.first_token[i] <= r.finish[i]);
            }
            let asked = book.given.contains_key(&(i as RequestId, true));
            prop_assert_eq!(hand_off.replica != u16::MAX, asked);
            if asked && r.finished(i) {
                prop_assert!(hand_off.computed <= hand_off.begun && hand_off.begun < hand_off.arrived);
                prop_assert!(hand_off.arrived < r.first_token[i] && r.first_scheduled[i] < hand_off.computed);
            }
        }
        prop_assert_eq!(run.totals.emitted, r.emitted.iter().map(|&e| u64::from(e)).sum::<u64>());
    }
}
