//! The event loop of a fleet with roles: prefill replicas compute prompts, and decode replicas decode them.
//!
//! The loop handles events in order of time: a request is sent, a prompt ends, blocks are allocated, KV arrives, a
//! router queries loads. Between two such events the replica whose next step is earliest runs until it causes an event.

use crate::fleet::{FleetRun, NEVER_HEARD};
use crate::link::{Link, SharedBy, Wire};
use crate::merged::merged;
use crate::pool::{NOWHERE, Pool, Replicas, asked};
use crate::prefix::{PrefixIndex, prefixes};
use crate::report_board::Signals;
use crate::router::{Asked, Needs, Router};
use crate::senders::Senders;
use crate::split_rule::{Prompt, SplitRule};
use foretoken_sim::metrics::HandOff as Record;
use foretoken_sim::{Arrivals, Ending, Given, Outcome, Part, Patience, RequestId, Reserved, Run, Time, Workload};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, Ordering};

/// The role of a replica in a fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The replica serves whole requests. It also decodes requests whose prompts prefill replicas computed.
    #[default]
    Both,
    /// The replica only computes prompts, for other replicas.
    Prefill,
    /// The replica works as with `both`. The fleet must also have prefill replicas.
    Decode,
}

/// The order in which the two replicas get a request whose prompt a prefill replica computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HandOff {
    /// The prefill replica gets the request first. When it has computed the prompt, the decode replica gets the
    /// request, allocates blocks, and pulls the KV (vLLM with llm-d, Dynamo since 2026).
    #[default]
    PrefillFirst,
    /// The decode replica gets the request first and allocates blocks. Then a prefill replica gets the prompt, and
    /// sends the KV once the prompt is computed (Dynamo of 2025, SGLang).
    DecodeFirst,
}

/// How requests are split between prefill and decode replicas.
pub struct Splitting<'s> {
    /// The role of each replica.
    pub roles: &'s [Role],
    /// Which prompts are computed on prefill replicas.
    pub rule: &'s SplitRule,
    /// Whether the prefill or the decode replica gets a request first.
    pub hand_off: HandOff,
    /// The link over which KV goes from the prefill to the decode replicas.
    pub link: &'s Link,
    /// Number of tokens in a KV block, on every replica.
    pub block_size: u32,
    /// Bytes of KV for one token: [of the target, of the draft model].
    pub token_bytes: [f64; 2],
    /// For each replica: does it have a draft model whose KV is transferred?
    pub draft_kv: &'s [bool],
    /// The smallest `max_num_batched_tokens` (token budget of a step) of the prefill replicas.
    pub token_budget: u32,
}

/// A router, the information that it needs, and how old the loads are that it sees.
pub type Routing = (Box<dyn Router>, Needs, Signals);

/// A fleet in which prefill replicas compute prompts for decode replicas, with the requests of a run.
pub struct SplitFleet<'a> {
    workload: &'a Workload,
    replicas: Replicas<'a>,
    /// The prefill replicas.
    prefill: Pool,
    /// The replicas that decode, which may also serve whole requests.
    decode: Pool,
    splitting: Splitting<'a>,
    /// One link for each prefill replica, in the order of `prefill`, or one link for all.
    wires: Vec<Wire>,
    hand_offs: Vec<Record>,
    /// For each request: number of KV blocks of its prompt to transfer to its decode replica.
    blocks: Vec<u32>,
    /// Events of requests (prompt computed, blocks allocated, request rejected) whose time is known, the earliest
    /// first.
    due: BinaryHeap<Reverse<(Time, RequestId, Due)>>,
    /// The prompt prefixes that each decode replica may have cached. Filled only if the rule for splitting uses what
    /// decode replicas have cached.
    caches: PrefixIndex,
    /// For each prefill replica, in the order of `prefill`: prompt tokens of its requests in flight.
    prompt_tokens: Vec<u64>,
    slo_tpot_s: f64,
    patience: Option<Patience>,
    /// Buffers for a replica's ended requests and allocated blocks, kept to save allocations.
    ended: Vec<(RequestId, Time)>,
    reserved: Vec<Reserved>,
}

/// An event of a request, due at a known time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// The request's prefill replica has computed the prompt, or rejected the request.
    Prefilled,
    /// The request's decode replica has allocated blocks for the prompt.
    Reserved,
    /// The request's decode replica has rejected the request.
    Rejected,
}

impl<'a> SplitFleet<'a> {
    /// A fleet to which no request was sent yet. `routing`: the router of the prefill replicas, and the router of all
    /// others. `slo_tpot_s`: the run's bound on time per output token, seconds; infinity for none.
    ///
    /// # Panics
    /// The fleet has no prefill replica, or only prefill replicas.
    pub fn new(
        workload: &'a Workload,
        replicas: Replicas<'a>,
        splitting: Splitting<'a>,
        routing: [Routing; 2],
        slo_tpot_s: f64,
    ) -> SplitFleet<'a> {
        let (prefill, decode): (Vec<usize>, Vec<usize>) =
            (0..replicas.len()).partition(|&r| splitting.roles[r] == Role::Prefill);
        assert!(!prefill.is_empty() && !decode.is_empty(), "both pools have a replica");
        let wires = match splitting.link.shared_by {
            SharedBy::Fleet => 1,
            SharedBy::PrefillReplica => prefill.len(),
        };
        let [(of_prefill, needs_of_prefill, heard_by_prefill), (of_decode, needs_of_decode, heard_by_decode)] = routing;
        SplitFleet {
            wires: (0..wires).map(|_| Wire::new(splitting.link)).collect(),
            caches: PrefixIndex::new(decode.len()),
            prompt_tokens: vec![0; prefill.len()],
            prefill: Pool::new(prefill, (of_prefill, needs_of_prefill), heard_by_prefill, workload.len()),
            decode: Pool::new(decode, (of_decode, needs_of_decode), heard_by_decode, workload.len()),
            hand_offs: vec![Record::default(); workload.len()],
            blocks: vec![0; workload.len()],
            due: BinaryHeap::new(),
            workload,
            replicas,
            splitting,
            slo_tpot_s,
            patience: None,
            ended: Vec::new(),
            reserved: Vec::new(),
        }
    }

    /// Makes the run end as soon as it is certain whether enough requests meet their latency bounds. `patience` has the
    /// bounds and the requests that count.
    pub fn be_patient(&mut self, patience: Patience) {
        self.patience = Some(patience);
    }

    /// Runs until every request has ended. Ends earlier if `interrupt` is set, if it is certain whether enough requests
    /// meet their latency bounds ([`be_patient`](SplitFleet::be_patient)), or if the simulated clock reaches its
    /// greatest time.
    pub fn run(mut self, arrivals: Arrivals, interrupt: &AtomicBool) -> FleetRun {
        let stopped = self.go_through(Senders::of(self.workload, arrivals), interrupt);
        self.tell(Time::MAX);
        let ending = stopped.unwrap_or_else(|| match self.decode.all_ended() {
            true => Ending::Done,
            false => Ending::OutOfTime,
        });
        let never_heard = self.prefill.never_heard() || self.decode.never_heard();
        let runs: Vec<Run> = self.replicas.into_iter().map(|replica| replica.finish(ending)).collect();
        let mut run = merged(runs, self.decode, Some((self.prefill, self.hand_offs)), self.workload);
        if never_heard {
            run.warnings.push(NEVER_HEARD.to_owned());
        }
        FleetRun { run, patience: self.patience }
    }

    /// Handles the fleet's events (requests sent, prompts ended, blocks allocated, KV arrived, loads queried) until no
    /// event is left. If the run ends earlier, returns the reason, else `None`.
    fn go_through(&mut self, mut senders: Senders<'a>, interrupt: &AtomicBool) -> Option<Ending> {
        let mut unsent = self.workload.len();
        loop {
            if interrupt.load(Ordering::Relaxed) {
                return Some(Ending::Interrupted);
            }
            let step = self.first();
            let stepped = step.map_or(Time::MAX, |(_, at)| at);
            let sent = if unsent > 0 { senders.next_at() } else { Time::MAX };
            let due = self.due.peek().map_or(Time::MAX, |due| due.0.0);
            let (wire, arrives) = self.first_wire();
            let event = sent.min(due).min(arrives);
            let now = event.min(stepped);
            if now == Time::MAX {
                return None;
            }
            self.tell_verdict(now);
            if self.patience.as_ref().is_some_and(Patience::certain) {
                return Some(Ending::Certain);
            }
            if self.asks(now, step.is_none()) {
                continue;
            }
            match now {
                _ if arrives == now => self.wire_goes_on(wire, now),
                _ if due == now => self.happens(now),
                _ if sent == now => {
                    let id = senders.pop().expect("one is sent now");
                    unsent -= 1;
                    self.send(id, now);
                }
                _ => {
                    let (replica, _) = step?;
                    let others = self.clocks().filter(|&(r, _)| r != replica).map(|(_, at)| at).min();
                    let queried = [&self.prefill, &self.decode].map(|pool| pool.next_query());
                    let until = event.min(others.unwrap_or(Time::MAX)).min(queried[0]).min(queried[1]);
                    self.replicas[replica].run_until(until.max(now + Time(1)), true);
                    self.collect(replica, &mut senders);
                }
            }
        }
    }

    /// For each replica (index, time of its next step); `Time::MAX` for an idle replica.
    fn clocks(&self) -> impl Iterator<Item = (usize, Time)> + '_ {
        self.replicas.iter().enumerate().map(|(r, replica)| (r, replica.next_step()))
    }

    /// The replica whose next step is earliest, as (index, time of the step); `None` if all replicas are idle.
    fn first(&self) -> Option<(usize, Time)> {
        self.clocks().filter(|(_, at)| *at < Time::MAX).min_by_key(|(_, at)| *at)
    }

    /// The link whose next event is earliest, as (index, time of the event).
    fn first_wire(&self) -> (usize, Time) {
        let wires = self.wires.iter().enumerate().map(|(w, wire)| (w, wire.next_at()));
        wires.min_by_key(|(_, at)| *at).expect("there is a link")
    }

    /// If a router's query of the loads is due at `now`, makes the query and returns true. `idle` says that no replica
    /// runs until `now`. Then the loads do not change, and only the last of the due queries is made.
    fn asks(&mut self, now: Time, idle: bool) -> bool {
        let SplitFleet { prefill, decode, replicas, .. } = self;
        for pool in [prefill, decode] {
            if pool.next_query() <= now {
                if idle {
                    pool.board.skip_to(now);
                }
                pool.ask(replicas);
                return true;
            }
        }
        false
    }

    /// Sends a request at `now`. A request that is not split goes to a replica that serves all of it. A split request
    /// goes to its prefill or to its decode replica, whichever the hand-off names first.
    fn send(&mut self, id: RequestId, now: Time) {
        self.tell(now);
        let asked = asked(self.workload, id, now, self.slo_tpot_s);
        if self.splitting.rule.reads_cache() {
            self.decode.route(&asked);
        }
        let part = match (self.splits(&asked), self.splitting.hand_off) {
            (false, _) => Part::Whole,
            (true, HandOff::PrefillFirst) => return self.send_prompt(&asked),
            (true, HandOff::DecodeFirst) => Part::Output,
        };
        self.send_to_decode(&asked, part, now);
    }

    /// Does the rule for splitting let a prefill replica compute the prompt? If the rule reads caches, the caller must
    /// have chosen the decode replica before.
    fn splits(&self, asked: &Asked) -> bool {
        let cached = self.decode.replica_of(asked.id).map_or(0, |replica| self.cached(asked, replica));
        let working = self.prefill.members().len() as u32;
        let least = self.prompt_tokens.iter().min().copied().unwrap_or_default();
        self.splitting.rule.splits(Prompt {
            tokens: asked.prompt_len,
            cached,
            queue: self.prefill.in_flight().saturating_sub(working),
            least_load: least as f64 / f64::from(self.splitting.token_budget),
        })
    }

    /// Number of the prompt's tokens that `replica` may have cached, because a prompt with the same prefix was sent to
    /// the replica.
    fn cached(&self, asked: &Asked, replica: usize) -> u32 {
        let mut matched = Vec::new();
        self.caches.matched(prefixes(asked), &mut matched);
        matched[self.decode.member(replica)] * asked.prefix_block
    }

    /// Gives a request, or only its output part, to its decode replica. Lets the router choose the replica if it was
    /// not chosen before. `since`: when the client sent the request.
    fn send_to_decode(&mut self, asked: &Asked, part: Part, since: Time) {
        let to = self.decode.replica_of(asked.id).unwrap_or_else(|| self.decode.route(asked));
        if self.splitting.rule.reads_cache() {
            let member = self.decode.member(to);
            let block = u64::from(asked.prefix_block);
            let rest = u64::from(asked.prompt_len) - prefixes(asked).count() as u64 * block;
            self.caches.add(member, prefixes(asked), block, rest);
            let blocks = self.replicas[to].load().usable_blocks;
            self.caches.cut(member, u64::from(blocks) * u64::from(self.splitting.block_size));
        }
        self.decode.give(&mut self.replicas, to, Given { id: asked.id, sent: asked.now, since, part });
    }

    /// Sends the prompt of a request to a prefill replica.
    fn send_prompt(&mut self, asked: &Asked) {
        let to = self.prefill.route(asked);
        self.prompt_tokens[self.prefill.member(to)] += u64::from(asked.prompt_len);
        self.hand_offs[asked.id as usize].replica = to as u16;
        let given = Given { part: Part::Prompt, ..Given::whole(asked.id, asked.now) };
        self.prefill.give(&mut self.replicas, to, given);
    }

    /// Takes a replica's ended requests and its allocated blocks for KV from prefill replicas, and turns them into
    /// events.
    fn collect(&mut self, replica: usize, senders: &mut Senders) {
        let prefills = self.splitting.roles[replica] == Role::Prefill;
        let pool = if prefills { &mut self.prefill } else { &mut self.decode };
        pool.collect(&mut *self.replicas[replica], &mut self.ended);
        self.reserved.clear();
        self.replicas[replica].take_reserved(&mut self.reserved);
        for reserved in &self.reserved {
            self.blocks[reserved.id as usize] = reserved.blocks;
            self.due.push(Reverse((reserved.at, reserved.id, Due::Reserved)));
        }
        for &(id, at) in &self.ended {
            if prefills {
                self.prefill.note_end(id, at);
                self.due.push(Reverse((at, id, Due::Prefilled)));
                continue;
            }
            self.decode.note_end(id, at);
            senders.ended(id, at);
            if self.decode.records.outcome[id as usize] == Outcome::Rejected {
                self.due.push(Reverse((at, id, Due::Rejected)));
            }
        }
    }

    /// Handles the next event of a request (prompt computed, blocks allocated, or request rejected), which is due at
    /// `now`.
    fn happens(&mut self, now: Time) {
        let Some(Reverse((_, id, due))) = self.due.pop() else { return };
        self.tell(now);
        let asked = asked(self.workload, id, now, self.slo_tpot_s);
        let first = self.splitting.hand_off;
        match (due, first) {
            (Due::Prefilled, _) => self.prompt_ended(&asked),
            (Due::Reserved, HandOff::PrefillFirst) => self.transfer(id, now),
            (Due::Reserved, HandOff::DecodeFirst) => self.send_prompt(&asked),
            (Due::Rejected, _) => {
                let hand_off = self.hand_offs[id as usize];
                if hand_off.replica != NOWHERE && hand_off.begun == Time::MAX {
                    self.replicas[hand_off.replica as usize].release(self.prefill.index(id), now);
                }
            }
        }
    }

    /// Handles the end of a prompt on its prefill replica. If the prefill replica rejected the request, the decode
    /// replica computes the prompt.
    fn prompt_ended(&mut self, asked: &Asked) {
        let (id, now) = (asked.id, asked.now);
        let from = self.hand_offs[id as usize].replica as usize;
        self.prompt_tokens[self.prefill.member(from)] -= u64::from(asked.prompt_len);
        let records = &self.prefill.records;
        let (since, rejected) = (records.arrival[id as usize], records.outcome[id as usize] == Outcome::Rejected);
        if rejected {
            self.hand_offs[id as usize].replica = NOWHERE;
        } else {
            self.hand_offs[id as usize].computed = now;
        }
        match (self.splitting.hand_off, rejected) {
            (HandOff::PrefillFirst, true) => self.send_to_decode(asked, Part::Whole, since),
            (HandOff::PrefillFirst, false) => self.send_to_decode(asked, Part::Output, since),
            (HandOff::DecodeFirst, false) => self.transfer(id, now),
            (HandOff::DecodeFirst, true) => {
                let to = self.decode.replica_of(id).expect("it has blocks there");
                self.replicas[to].computes_here(self.decode.index(id), now);
            }
        }
    }

    /// Begins the transfer of a prompt's KV at `now`.
    fn transfer(&mut self, id: RequestId, now: Time) {
        let from = self.hand_offs[id as usize].replica as usize;
        let to = self.decode.replica_of(id).expect("it has blocks there");
        let [target, draft] = self.splitting.token_bytes;
        let drafts = self.splitting.draft_kv[from] && self.splitting.draft_kv[to];
        let token = target + if drafts { draft } else { 0.0 };
        // Only whole KV blocks are transferred.
        let tokens = self.blocks[id as usize] * self.splitting.block_size;
        let bytes = (f64::from(tokens) * token).round() as u64;
        (self.hand_offs[id as usize].begun, self.hand_offs[id as usize].bytes) = (now, bytes);
        let wire = if self.wires.len() == 1 { 0 } else { self.prefill.member(from) };
        self.wires[wire].begin(id, now, bytes);
    }

    /// Handles the next event of link number `wire` at `now`. If a transfer ends, the decode replica gets the KV, and
    /// the prefill replica releases its blocks.
    fn wire_goes_on(&mut self, wire: usize, now: Time) {
        let Some(id) = self.wires[wire].go_on() else { return };
        let from = self.hand_offs[id as usize].replica as usize;
        let to = self.decode.replica_of(id).expect("it has blocks there");
        self.hand_offs[id as usize].arrived = now;
        self.replicas[to].kv_arrived(self.decode.index(id), now, self.splitting.draft_kv[from]);
        self.replicas[from].release(self.prefill.index(id), now);
    }

    /// Reports the requests' first tokens and ends up to `now` to the routers that need them.
    fn tell(&mut self, now: Time) {
        self.tell_verdict(now);
        let SplitFleet { prefill, decode, replicas, .. } = self;
        prefill.tell_ends(now, |_, _, _| ());
        for pool in [prefill, decode] {
            if pool.needs.first_tokens {
                pool.tell_first_tokens(now, replicas);
            }
        }
    }

    /// Reports the requests that ended up to `now` to the router of the decode replicas, and to `patience`, which
    /// checks whether enough requests meet their latency bounds.
    fn tell_verdict(&mut self, now: Time) {
        let SplitFleet { decode, patience, .. } = self;
        decode.tell_ends(now, |records, id, _| {
            if let Some(patience) = patience {
                patience.ended(records, id);
            }
        });
    }
}
