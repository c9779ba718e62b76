//! `foresight`: drafts while the next token is expected to be worth its time, and verifies the draft tokens that are
//! worth the time of their verification. Worth is counted in tokens. A second costs the tokens that the batch could
//! make in a second without prompts.
//!
//! Our own; docs/foresight.md says why each part is there, what it gains and where the policy loses. In short:
//!
//! 1. **Price of time** (`price.rs`): tokens − λ·seconds, where λ is the most tokens a second that the decodes of
//!    this batch could make without the step's prompts. A prompt makes a step slow and its own ratio of tokens to
//!    seconds low. By that ratio drafts would look cheap, although every request waits longer.
//! 2. **Odds** (`odds.rs`): the chance that a token is accepted, from its confidence by a logistic curve that is
//!    learnt while serving. Where confidences carry no information, the curve's intercepts are the acceptance rates
//!    by depth.
//! 3. **Stopping** (`round.rs`): after each draft pass the policy goes on with the requests whose next token pays, if
//!    the pass as a whole pays. A token that is not drafted yet may still be dropped, so it is worth the mean of what
//!    is left then (`options.rs`).
//! 4. **Selection** (`round.rs`): of all drafted tokens, the tokens most likely to survive are verified, as many as
//!    pay. Lengths are planned for the tokens left after this selection.
//! 5. **Asking** (`asking.rs`): decisions between passes and before verification take time. Now and then a step
//!    drafts all it may, and the policy computes on its confidences what each way of deciding would have earned.
//! 6. **The door** (`door.rs`): a request whose prompt costs the draft model more time than drafting can save it is
//!    never drafted for.
//! 7. **Costs** (`cost.rs`, `pass_times.rs`): pass times by requests and tokens, measured at start-up and corrected
//!    slowly by the times of real steps.
//! 8. **The next step's prompts** (`next_prompts.rs`): if the next step verifies the draft tokens, its prompts are
//!    not known yet. The cost of a token is then an average over the prompts that usually come.
//! 9. **A backlog of prompts** (`price.rs`): if requests wait because prompts fill the steps, a token starts no
//!    waiting prompt sooner, so a second costs more tokens.
//! 10. **Room for prompts**: while prompts wait or run, decode requests with their draft tokens may take at most a
//!     share of the token budget. One draft token a request is always allowed.
//! 11. **Probing**: a policy that drafts nothing learns nothing. From time to time it drafts one token, to notice
//!     when drafting pays again.
//! 12. **Lateness** (`lateness.rs`, off by default): while requests are about as fast as their TPOT bound, a second
//!     costs more.

use crate::definition::{About, BadParameter, Beliefs, Check, Definition, PolicyContext};
use crate::foresight::asking::{Asking, Asks, INTERVAL, WAYS};
use crate::foresight::cost::Costs;
use crate::foresight::door::{Door, alone_gain};
use crate::foresight::lateness::Lateness;
use crate::foresight::odds::Odds;
use crate::foresight::price::{Backlog, decode_rate};
use crate::foresight::round::{Round, Scales};
use crate::foresight::settings::{Foresight, PriceOfTime};
use foretoken_sim::{
    BatchView, Continue, DraftLimits, DraftPlan, Drafting, Drafts, NewRequest, RequestId, SpecPolicy, Speculation,
    StepOutcome, Wants,
};

impl Definition for Foresight {
    fn about(&self) -> About {
        About {
            summary: "drafts and verifies the tokens that are worth their time, at the price that the batch could \
                      make without prompts",
            source: "our own: docs/foresight.md",
            sees: "confidences where the draft has them, accepted counts, pass times at start-up and of each step, \
                   batch, contexts, limits, prompts of the step",
            differences: "none",
        }
    }

    fn beliefs(&self) -> Beliefs {
        Beliefs { cost: true, confidence: true, ..Beliefs::default() }
    }

    fn check(&self) -> Result<(), BadParameter> {
        let check = Check("foresight");
        check.that("price_factor", (0.01..=100.0).contains(&self.price_factor), || {
            format!("{} is not a factor from 0.01 to 100", self.price_factor)
        })?;
        check.that("lateness", (0.0..=100.0).contains(&self.lateness), || {
            format!("{} is not a factor from 0 to 100", self.lateness)
        })?;
        check.that("lateness", self.lateness == 0.0 || self.price == PriceOfTime::Decode, || {
            "is added to the price of time, and price = \"step\" has none".into()
        })?;
        check.share("correction", self.correction)?;
        check.share("budget_share", self.budget_share)?;
        check.that("probe_every", self.probe_every > 0, || "must be at least 1 step".into())
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(Running::new(*self, context)))
    }
}

/// After this number of probes that the engine did not let select, no more are made.
const UNASKED: u32 = 4;

/// The policy `foresight` while the engine runs: its settings, and what it keeps from step to step.
struct Running {
    params: Foresight,
    longest: u32,
    /// True if the drafter makes all draft tokens in one pass.
    parallel: bool,
    costs: Costs,
    odds: Odds,
    asking: Asking,
    /// When this step decides.
    asks: Asks,
    /// The draft length that was planned for this step if tokens are dropped before verification (`planned`), and if
    /// all are verified (`whole`).
    planned: u32,
    whole: u32,
    /// Whether this step drafts as many tokens as it may, to measure what each way of deciding earns.
    probes: bool,
    /// Number of probes after the last selection for which the engine did not ask which tokens are verified.
    unasked: u32,
    backlog: Backlog,
    lateness: Lateness,
    door: Door,
    slots: u32,
    /// The price of step time, in tokens per second: a choice is worth its tokens − price · seconds. `None` if choices
    /// are compared by the step's own ratio of tokens to seconds.
    price: Option<f64>,
    /// The draft tokens of this step so far.
    round: Round,
    /// The draft tokens that a step would have made that decides otherwise.
    replayed: Round,
    /// For each request: the probability that all tokens drafted for it in this step so far are accepted.
    reach: Vec<f64>,
    /// For each request and depth: the survival of each drafted token, that is, the probability that it and all before
    /// it are accepted; `longest` entries a request.
    survival: Vec<f64>,
    /// For each depth from 1: the number of the batch's requests whose limit allows a draft token at that depth.
    drafters: Vec<u32>,
    steps_without_drafts: u32,
    /// Number of steps in a row in which the policy drafted tokens and verified none of them.
    steps_unverified: u32,
    /// The most draft tokens per request with which the decode requests keep to their share of the token budget in this
    /// step.
    room: u32,
    budget: u32,
}

impl Running {
    fn new(params: Foresight, context: &PolicyContext) -> Running {
        let longest = context.max_draft_len;
        Running {
            params,
            longest,
            parallel: context.belief.drafting == Drafting::Parallel,
            costs: Costs::new(context, params.costs()),
            odds: Odds::new(longest, params.calibrate, params.confidences),
            asking: Asking::default(),
            asks: Asks::Never,
            planned: 0,
            whole: 0,
            probes: false,
            unasked: 0,
            backlog: Backlog::default(),
            lateness: Lateness::new(&params),
            door: Door::new(&params),
            slots: context.max_num_seqs,
            price: None,
            round: Round::default(),
            replayed: Round::with_room(context.max_num_seqs),
            reach: Vec::new(),
            survival: Vec::new(),
            drafters: Vec::new(),
            steps_without_drafts: 0,
            steps_unverified: 0,
            room: longest,
            budget: context.max_num_batched_tokens,
        }
    }

    fn scales(&self) -> Scales<'_> {
        Scales { costs: &self.costs, odds: &self.odds, price: self.price, trim: self.params.trim }
    }

    /// Begins a step: clears the state of the last step, and sets the price of time and the most draft tokens per
    /// request that the token budget allows.
    fn begin(&mut self, batch: &BatchView) {
        self.costs.begin(batch);
        self.odds.begin(batch.len());
        self.round.begin();
        self.reach.clear();
        self.reach.resize(batch.len(), 1.0);
        self.survival.clear();
        self.survival.resize(batch.len() * self.longest as usize, 0.0);
        self.drafters.clear();
        self.drafters.resize(self.longest as usize + 1, 0);
        for &limit in batch.limit {
            self.drafters[limit.min(self.longest) as usize] += 1;
        }
        for depth in (1..self.longest as usize).rev() {
            self.drafters[depth] += self.drafters[depth + 1];
        }
        self.backlog.begin(batch, self.slots, self.budget);
        let rate = || decode_rate(batch, &self.costs, &self.odds, &self.drafters, self.parallel);
        self.price = match self.params.price {
            PriceOfTime::Step => None,
            PriceOfTime::Decode => {
                let decode = self.params.price_factor * rate();
                let price = match self.params.weigh_backlog {
                    true => self.backlog.price(batch, decode, self.costs.request_s()),
                    false => decode,
                };
                Some(price + self.lateness.price(batch))
            }
        };
        self.room = self.longest;
        if batch.num_waiting > 0 || batch.prefill.tokens > 0 {
            let most = self.params.budget_share * f64::from(self.budget) / batch.len().max(1) as f64 - 1.0;
            self.room = (most as u32).clamp(1, self.longest.max(1));
        }
    }

    /// The draft length, common to all requests, with the greatest worth (tokens minus the price of time) as expected
    /// before drafting. With `drops`, tokens that will not pay their verification are counted as dropped.
    fn planned(&self, batch: &BatchView, drops: bool) -> u32 {
        let scales = self.scales();
        let n = batch.len() as f64;
        let plain_s = self.costs.idle_s() + self.costs.verify_s(0);
        let mut best = (0, scales.worth(n, plain_s));
        let (mut tokens, mut reach, mut drafts, mut draft_s) = (n, 1.0, 0, 0.0);
        for depth in 1..=self.longest {
            let m = self.drafters[depth as usize];
            if m == 0 {
                break;
            }
            drafts += u64::from(m);
            reach *= self.odds.at_depth(depth);
            draft_s = self.costs.draft_s(batch, depth, m, drafts, draft_s, self.parallel);
            let seconds = if drops {
                // The price of its verification is taken from each token.
                let each_s = self.costs.verify_s(drafts) - self.costs.verify_s(drafts - u64::from(m));
                let price = self.price.unwrap_or_default() * each_s / f64::from(m);
                tokens += f64::from(m) * self.odds.worth_ahead(depth, reach, price);
                draft_s + self.costs.verify_s(0)
            } else {
                tokens += f64::from(m) * reach;
                draft_s + self.costs.verify_s(drafts)
            };
            let worth = scales.worth(tokens, seconds);
            if worth > best.1 {
                best = (depth, worth);
            }
        }
        best.0
    }

    /// Whether lengths are planned for tokens that may be dropped before verification.
    fn drops(&self) -> bool {
        self.params.trim && self.params.expect_trim && self.price.is_some()
    }

    /// Which ways of deciding ([`WAYS`]) the settings and the drafter allow.
    fn open(&self) -> [bool; WAYS.len()] {
        let stops = self.params.stop && !self.parallel;
        [stops, stops, self.params.trim, true]
    }

    /// Chooses when this step decides, and whether it is a probe.
    fn ask(&mut self, batch: &BatchView) {
        let open = self.open();
        let first = WAYS[open.iter().position(|&open| open).unwrap_or(WAYS.len() - 1)];
        self.asks = first;
        if !self.params.weigh_asking || self.price.is_none() {
            return;
        }
        if !self.params.confidences {
            // All tokens of a depth look alike, so decisions after drafting are those before it.
            self.asks = Asks::Never;
            return;
        }
        // Where decisions take less time than probes would, they are made.
        let decisions = if self.parallel { 1 } else { self.planned + 1 };
        let decisions_s = f64::from(decisions) * self.costs.decision_s();
        let more = if self.parallel { 0 } else { self.longest - self.planned };
        let probe_s = f64::from(more) * self.costs.draft_pass_s(batch, self.longest, batch.len() as u32);
        if decisions_s * f64::from(INTERVAL) > probe_s && self.unasked < UNASKED {
            self.asks = self.asking.best(open);
            self.probes = self.asking.probes_now();
        }
    }

    /// The first draft pass of this step after which the policy decides whether to draft on; `u32::MAX` if it decides
    /// after none.
    fn asks_from(&self) -> u32 {
        match self.asks {
            _ if self.probes => u32::MAX,
            Asks::Always => 1,
            Asks::AtPlannedEnd => self.planned.max(1),
            Asks::Selects | Asks::Never => u32::MAX,
        }
    }

    /// Reads the draft passes that ran since the last call. Stores the survival of their tokens (probability that a
    /// token and all before it are accepted), and adds the estimated seconds of the passes and of the decisions after
    /// them.
    fn take_in(&mut self, batch: &BatchView, drafts: &Drafts) {
        let asks_from = self.asks_from();
        while self.round.passes < drafts.passes {
            self.round.passes += 1;
            let depth = self.round.passes;
            let (mut m, mut total) = (0, 0);
            for i in 0..batch.len() {
                total += u64::from(drafts.draft_len[i].min(depth));
                if drafts.draft_len[i] < depth {
                    continue;
                }
                m += 1;
                self.reach[i] *= self.odds.chance(drafts, i, depth);
                self.survival[i * self.longest as usize + depth as usize - 1] = self.reach[i];
                self.round.ranked.add(self.reach[i]);
            }
            if m > 0 {
                self.round.draft_s = self.costs.draft_s(batch, depth, m, total, self.round.draft_s, self.parallel);
                if (asks_from..self.longest).contains(&depth) {
                    self.round.draft_s += self.costs.decision_s();
                }
            }
        }
    }

    /// Computes what each way of deciding would have earned on the tokens of this step, which drafted all that it may.
    fn learn_asking(&mut self, batch: &BatchView) {
        let (longest, planned) = (self.longest, self.planned);
        let scales = Scales { costs: &self.costs, odds: &self.odds, price: self.price, trim: self.params.trim };
        // A selection costs a decision, too.
        let selects = if self.params.trim { self.price.unwrap_or(0.0) * self.costs.decision_s() } else { 0.0 };
        let whole = Scales { trim: false, ..scales };
        let ways = [
            (1, longest, &scales, selects),
            (planned.max(1), longest, &scales, selects),
            (u32::MAX, planned, &scales, selects),
            (u32::MAX, self.whole, &whole, 0.0),
        ];
        let mut earned = [f64::NEG_INFINITY; WAYS.len()];
        let open = self.open();
        for way in (0..WAYS.len()).filter(|&way| open[way]) {
            let (from, until, scales, selects) = ways[way];
            let lengths = (longest, from, until);
            let found = self.replayed.replay(batch, &self.survival, lengths, self.parallel, scales);
            earned[way] = found.worth - selects;
        }
        self.asking.learn(earned, batch.len());
    }
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.room.min(self.longest)).up_to(self.longest)
    }

    fn wants(&self) -> Wants {
        if self.params.confidences { Wants::CONFIDENCE } else { Wants::default() }
    }

    fn drafts_for_next(&mut self, request: &NewRequest) -> bool {
        self.door.lets_in(request, &self.costs)
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        self.begin(batch);
        self.planned = self.planned(batch, self.drops());
        self.whole = if self.drops() { self.planned(batch, false) } else { self.planned };
        if let Some(price) = self.price {
            self.door.begin(price, alone_gain(&self.costs, &self.odds, self.longest));
        }
        // Where all requests must draft as many tokens, engines do not ask which of them are verified.
        self.unasked += u32::from(std::mem::take(&mut self.probes));
        self.asks = Asks::Never;
        if self.planned.max(self.whole) > 0 {
            self.ask(batch);
        }
        let asks_from = self.asks_from();
        self.costs.asked_from(asks_from);
        let length = match self.asks {
            _ if self.probes && self.parallel => self.planned.max(self.whole),
            _ if self.probes || asks_from <= self.longest => self.longest,
            Asks::Never => self.whole,
            _ => self.planned,
        };
        plan.fill(length);
        self.costs.planned(length);
        if length == 0 {
            self.steps_without_drafts += 1;
            plan.fill(u32::from(self.steps_without_drafts.is_multiple_of(self.params.probe_every)));
        }
    }

    fn keep_drafting(&mut self, batch: &BatchView, drafts: &mut Drafts) -> Continue {
        if !(self.asks_from()..self.longest).contains(&drafts.passes) {
            drafts.nothing_to_decide();
            return Continue::Yes;
        }
        self.take_in(batch, drafts);
        let depth = self.round.passes;
        self.round.going_on.clear();
        for i in 0..batch.len() {
            if drafts.draft_len[i] >= depth && batch.limit[i].min(self.longest) > depth {
                self.round.going_on.push((i as u32, self.reach[i]));
            }
        }
        let scales = Scales { costs: &self.costs, odds: &self.odds, price: self.price, trim: self.params.trim };
        if !self.round.goes_on(batch, self.longest, &scales) {
            return Continue::Stop;
        }
        let mut going_on = self.round.going_on.iter().map(|&(i, _)| i as usize).peekable();
        for i in 0..batch.len() {
            if going_on.peek() == Some(&i) {
                going_on.next();
            } else if !drafts.is_stopped(i) {
                drafts.stop(i);
            }
        }
        Continue::Yes
    }

    fn select(&mut self, batch: &BatchView, drafts: &mut Drafts) {
        let selects = self.params.trim && (self.asks != Asks::Never || self.probes);
        if selects || self.probes {
            self.take_in(batch, drafts);
        }
        self.unasked = 0;
        if std::mem::take(&mut self.probes) {
            self.learn_asking(batch);
        }
        if !selects {
            drafts.nothing_to_decide();
            self.steps_unverified = 0;
            return;
        }
        self.costs.selected();
        let chosen = self.round.verified(batch.len(), &self.scales());
        if chosen.count == self.round.ranked.len() {
            self.steps_unverified = 0;
            return;
        }
        // A policy that verifies no draft tokens does not learn whether they would be accepted. So after `probe_every`
        // such steps in a row it verifies the first draft token of each request.
        self.steps_unverified = if chosen.count == 0 { self.steps_unverified + 1 } else { 0 };
        if self.steps_unverified == self.params.probe_every {
            self.steps_unverified = 0;
            let drafted = drafts.draft_len.iter();
            drafts.verify_len.iter_mut().zip(drafted).for_each(|(verify, &drafted)| *verify = drafted.min(1));
            return;
        }
        let (stride, ranked) = (self.longest as usize, &self.round.ranked);
        for (i, verify) in drafts.verify_len.iter_mut().enumerate() {
            let row = &self.survival[i * stride..][..drafts.draft_len[i] as usize];
            *verify = match chosen.count {
                0 => 0,
                _ => row.iter().take_while(|&&survives| ranked.is_kept(survives, chosen.least)).count() as u32,
            };
        }
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        self.costs.observe(outcome);
        self.odds.observe(outcome);
        self.door.observe(outcome);
    }

    fn request_finished(&mut self, id: RequestId) {
        self.lateness.forget(id);
        self.door.finished();
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
