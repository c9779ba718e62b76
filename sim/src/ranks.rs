//! Data-parallel ranks of one server that run in lock step: each has its own scheduler, queue and KV, and all target
//! passes meet at a barrier, because the experts of a layer are spread over the GPUs of all ranks.
//!
//! A round has one target pass of every rank with work. The passes of a round begin when the last rank has planned its
//! pass, and all end with the longest. A rank without work makes a dummy pass meanwhile (vLLM 0.32,
//! `v1/engine/core.py`, `DPEngineCoreProc.run_busy_loop`).
//!
//! The ranks of a round are nested calls: a rank that has planned its pass lets the next rank plan its own, and the
//! last one knows the passes of all. So the engine's loop is the same with and without ranks.

use crate::barrier::{Barrier, Planned};
use crate::engine::{Ending, Given, Load, Reserved};
use crate::latency::{LatencyModel, PassShape};
use crate::metrics::{Outcome, RequestRecords};
use crate::prompt_balance::{PromptBalance, Runnable, Waits};
use crate::replica::{Rank, Replica};
use crate::serving::Run;
use crate::simulation::{Simulation, Speculation};
use crate::time::Time;
use crate::workload::RequestId;
use std::cell::RefCell;
use std::rc::{Rc, Weak};

/// The most ranks of a server. The calls of a round are nested, and this bounds their depth.
pub const MOST_RANKS: usize = 128;

/// vLLM captures CUDA graphs up to this number of tokens unless told otherwise (`config/vllm.py`; 1,024 on Blackwell).
const LARGEST_GRAPH: u64 = 512;

/// A round: the passes that the ranks plan.
#[derive(Debug, Default)]
struct Round {
    /// By rank: whether it takes part with work of its own.
    works: Vec<bool>,
    /// By rank: the pass that it has planned.
    planned: Vec<Option<Planned>>,
    /// When all passes end; `None` until all ranks have planned.
    end: Option<Time>,
    /// When the passes of the round before ended.
    last_end: Time,
    /// Whether a rank had work, so that ranks without work have entered the next dummy pass.
    goes_on: bool,
    /// For how long prompts have been held back.
    waits: Waits,
}

/// The ranks of a server.
struct Ranks<'a> {
    /// Empty once the run has ended.
    ranks: Vec<RefCell<Option<Box<dyn Rank<'a> + 'a>>>>,
    target: &'a dyn LatencyModel,
    /// Number of tokens of a dummy pass: one request's, with draft tokens.
    idle_tokens: u64,
    /// The most tokens of a pass that runs in a CUDA graph.
    largest_graph: u64,
    /// When prompts are held back; `None` if each rank begins them as it can.
    balance: Option<PromptBalance>,
    round: RefCell<Round>,
}

impl<'a> Ranks<'a> {
    fn with<T>(&self, rank: usize, act: impl FnOnce(&mut (dyn Rank<'a> + 'a)) -> T) -> T {
        act(&mut **self.ranks[rank].borrow_mut().as_mut().expect("the run has not ended"))
    }

    /// When the next round begins, if no further request is given; `Time::MAX` if none follows. Passes begin when the
    /// last rank with work can plan its pass.
    fn next_round(&self) -> Time {
        let ranks = 0..self.ranks.len();
        let busy = ranks.clone().filter(|&r| self.with(r, |rank| rank.has_work()));
        let last = busy.map(|r| self.with(r, |rank| rank.now())).max();
        last.unwrap_or_else(|| ranks.map(|r| self.with(r, |rank| rank.next_step())).min().unwrap_or(Time::MAX))
    }

    fn run_until(&self, until: Time, to_the_next_end: bool) {
        loop {
            let begin = self.next_round();
            if begin >= until {
                return self.look_around(until);
            }
            self.run_round(begin, until);
            let ended = |rank: &RefCell<Option<Box<dyn Rank<'a> + 'a>>>| rank.borrow().as_ref().unwrap().has_ended();
            if to_the_next_end && self.ranks.iter().any(ended) {
                return;
            }
        }
    }

    /// Lets each rank look for requests in vain, as an engine does when its work has ended, if no rank has work.
    fn look_around(&self, until: Time) {
        let ranks = 0..self.ranks.len();
        if !ranks.clone().any(|r| self.with(r, |rank| rank.has_work())) {
            let looks = |rank: &mut (dyn Rank<'a> + 'a)| _ = rank.now() < until && rank.receive(until);
            ranks.for_each(|r| self.with(r, looks));
        }
    }

    /// Runs the round that begins at `begin`. Every request that is given later comes at `until` or later.
    ///
    /// A rank without work has entered its dummy pass as soon as the passes of the round before were planned, and waits
    /// there. A request that came to it since takes part in the next round only.
    fn run_round(&self, begin: Time, until: Time) {
        let goes_on =
            self.round.borrow().goes_on && (0..self.ranks.len()).any(|r| self.with(r, |rank| rank.has_work()));
        let mut any = false;
        for r in 0..self.ranks.len() {
            let works = self.with(r, |rank| {
                let works = rank.receive(until);
                if works || goes_on {
                    return works;
                }
                rank.wait_until(begin);
                rank.receive(until)
            });
            any |= works;
            self.round.borrow_mut().works[r] = works;
        }
        {
            let mut round = self.round.borrow_mut();
            round.last_end = round.end.take().unwrap_or(round.last_end);
            round.goes_on = any;
            round.planned.fill(None);
        }
        self.hold_prompts();
        self.plan_from(0);
        for r in 0..self.ranks.len() {
            if !self.round.borrow().works[r] {
                self.with(r, |rank| rank.wait_until(begin));
            }
        }
    }

    /// Holds the prompts of all ranks back in this round, or lets them go.
    fn hold_prompts(&self) {
        if let Some(balance) = &self.balance {
            let ranks = 0..self.ranks.len();
            let runnable: Vec<Runnable> = ranks.clone().map(|r| self.with(r, |rank| rank.runnable())).collect();
            let held = self.round.borrow_mut().waits.holds(balance, &runnable);
            ranks.for_each(|r| self.with(r, |rank| rank.hold_prompts(held)));
        }
    }

    /// Lets the ranks from `first` on plan their passes, unless all have.
    fn plan_from(&self, first: usize) {
        for r in first..self.ranks.len() {
            let round = self.round.borrow();
            if round.end.is_some() {
                return;
            }
            let works = round.works[r];
            drop(round);
            if works {
                self.with(r, |rank| rank.turn());
            }
        }
    }

    /// When the passes of the round end: after the longest one, which begins when the last rank has planned its pass.
    fn end_of_round(&self, planned: &[Option<Planned>], last_end: Time) -> Time {
        let tokens = |p: &Option<Planned>| p.map_or(self.idle_tokens, |p| p.shape.batched);
        let most = planned.iter().map(tokens).max().unwrap_or_default();
        // With CUDA graphs vLLM pads the passes of all ranks to the longest (`v1/worker/dp_utils.py`). If one rank has
        // more tokens than the largest graph, no rank runs in a graph and none is padded.
        let padded = most <= self.largest_graph;
        let all = if padded { most * planned.len() as u64 } else { planned.iter().map(tokens).sum() };
        let passes = || planned.iter().flatten();
        let longest = passes().map(|p| {
            let batched = if padded { most } else { p.shape.batched };
            let pass = self.target.pass_beside(PassShape { batched, ..p.shape }, all) + p.longer;
            Time((pass.0 as f64 * p.noise).round() as u64)
        });
        let start = passes().map(|p| p.start).fold(last_end, Time::max);
        start + longest.max().unwrap_or_default()
    }
}

impl Barrier for Ranks<'_> {
    fn meet(&self, rank: usize, planned: Planned) -> Time {
        self.round.borrow_mut().planned[rank] = Some(planned);
        self.plan_from(rank + 1);
        let mut round = self.round.borrow_mut();
        let Round { end, planned, last_end, .. } = &mut *round;
        *end.get_or_insert_with(|| self.end_of_round(planned, *last_end))
    }
}

/// One rank, as a router sees it. To run it is to run all.
struct InLockStep<'a> {
    ranks: Rc<Ranks<'a>>,
    rank: usize,
}

impl<'a> InLockStep<'a> {
    fn own<T>(&self, act: impl FnOnce(&mut (dyn Rank<'a> + 'a)) -> T) -> T {
        self.ranks.with(self.rank, act)
    }
}

/// The ranks of one server, for a router. Each engine is a rank; all have the target model of the first. With `balance`
/// prompts are held back until every rank has one, as TensorRT-LLM does; without it they begin as each rank's scheduler
/// has it, as vLLM's do.
///
/// # Panics
/// There is no engine, or there are more than [`MOST_RANKS`].
pub fn in_lock_step<'a>(
    engines: Vec<(Simulation<'a>, Speculation)>,
    balance: Option<PromptBalance>,
) -> Vec<Box<dyn Replica + 'a>> {
    assert!((1..=MOST_RANKS).contains(&engines.len()), "{} ranks", engines.len());
    let (target, config) = (engines[0].0.target, engines[0].0.config);
    let drafts = engines.iter().any(|(_, speculation)| !matches!(speculation, Speculation::Off));
    let idle_tokens = 1 + if drafts { u64::from(config.max_draft_len) } else { 0 };
    let n = engines.len();
    let ranks = Rc::new(Ranks {
        ranks: engines.into_iter().map(|(of, speculation)| RefCell::new(Some(of.rank(speculation)))).collect(),
        target,
        idle_tokens,
        balance,
        largest_graph: LARGEST_GRAPH.min(2 * u64::from(config.max_num_seqs) * idle_tokens),
        round: RefCell::new(Round { works: vec![false; n], planned: vec![None; n], ..Round::default() }),
    });
    let barrier: Weak<dyn Barrier + 'a> = Rc::downgrade(&(Rc::clone(&ranks) as Rc<dyn Barrier + 'a>));
    (0..n).for_each(|r| ranks.with(r, |rank| rank.join(r, Weak::clone(&barrier))));
    (0..n).map(|rank| Box::new(InLockStep { ranks: Rc::clone(&ranks), rank }) as Box<dyn Replica + 'a>).collect()
}

impl Replica for InLockStep<'_> {
    fn be_forgetful(&mut self) {
        self.own(|rank| rank.be_forgetful());
    }

    fn give(&mut self, given: Given) -> RequestId {
        self.own(|rank| rank.give(given))
    }

    fn take_reserved(&mut self, into: &mut Vec<Reserved>) {
        self.own(|rank| rank.take_reserved(into));
    }

    fn kv_arrived(&mut self, index: RequestId, at: Time, draft_kv: bool) {
        self.own(|rank| rank.kv_arrived(index, at, draft_kv));
    }

    fn computes_here(&mut self, index: RequestId, at: Time) {
        self.own(|rank| rank.computes_here(index, at));
    }

    fn release(&mut self, index: RequestId, at: Time) {
        self.own(|rank| rank.release(index, at));
    }

    fn run_until(&mut self, until: Time, to_the_next_end: bool) {
        self.ranks.run_until(until, to_the_next_end);
    }

    fn now(&self) -> Time {
        self.own(|rank| rank.now())
    }

    fn next_step(&self) -> Time {
        self.ranks.next_round()
    }

    fn quiet_until(&self) -> Time {
        self.ranks.next_round()
    }

    fn take_ended(&mut self, records: &mut RequestRecords, into: &mut Vec<(RequestId, Time)>) {
        self.own(|rank| rank.take_ended(records, into));
    }

    fn first_token(&self, index: RequestId) -> (Time, Outcome) {
        self.own(|rank| rank.first_token(index))
    }

    fn load(&self) -> Load {
        self.own(|rank| rank.load())
    }

    fn finish(self: Box<Self>, ending: Ending) -> Run {
        let rank = self.ranks.ranks[self.rank].borrow_mut().take();
        rank.expect("a rank ends once").finish(ending)
    }
}
