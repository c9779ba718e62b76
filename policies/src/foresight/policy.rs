//! `foresight`: drafts while the next token is expected to be worth its time, and verifies the draft tokens that are
//! worth the time of their verification. Worth is counted in tokens. A second costs the tokens that the batch could
//! make in a second without prompts.
//!
//! Our own; docs/foresight.md says why each part is there, what it gains and where the policy loses. In short:
//!
//! 1. **Price of time** (`price.rs`): tokens − λ·seconds, where λ is the most tokens a second that the decodes of this
//!    batch could make without the step's prompts. A prompt makes a step slow and its own ratio of tokens to seconds
//!    low. By that ratio drafts would look cheap, although every request waits longer.
//! 2. **Odds** (`odds.rs`): the chance that a token is accepted, from its confidence by a logistic curve that is learnt
//!    while serving. Where confidences carry no information, the curve's intercepts are the acceptance rates by depth.
//! 3. **Stopping**: after each draft pass the policy goes on with the requests whose next token is expected to pay, if
//!    the pass as a whole pays. `asking.rs` finds out whether decisions between passes are worth their own time.
//! 4. **Selection**: of all drafted tokens, the tokens most likely to survive are verified, as many as pay. For a
//!    drafter that makes all tokens in one pass, the length is planned for the tokens left after this selection.
//! 5. **Costs** (`cost.rs`): pass times measured at start-up, corrected slowly by the times of real steps.
//! 6. **The next step's prompts** (`cost.rs`): if the next step verifies the draft tokens, its prompts are not known
//!    yet. The cost of a token is then an average over the prompts that usually come.
//! 7. **A backlog of prompts** (`price.rs`): if requests wait because prompts fill the steps, a token starts no waiting
//!    prompt sooner, so a second costs more tokens.
//! 8. **Room for prompts**: while prompts wait or run, decode requests with their draft tokens may take at most a share
//!    of the token budget. One draft token a request is always allowed.
//! 9. **Probing**: a policy that drafts nothing learns nothing. From time to time it drafts one token, to notice when
//!    drafting pays again.
//! 10. **Lateness** (`lateness.rs`, off by default): while requests are about as fast as their TPOT bound, a second
//!     costs more.

use crate::definition::{BadParameter, Beliefs, Check, Definition, PolicyContext};
use crate::foresight::asking::{Asking, Asks};
use crate::foresight::cost::Costs;
use crate::foresight::lateness::Lateness;
use crate::foresight::odds::Odds;
use crate::foresight::price::{Backlog, decode_rate};
use crate::foresight::ranked::Ranked;
use crate::foresight::settings::{Foresight, PriceOfTime};
use foretoken_sim::{
    BatchView, Continue, DraftLimits, DraftPlan, Drafting, Drafts, RequestId, SpecPolicy, Speculation, StepOutcome,
    Wants,
};

impl Definition for Foresight {
    fn summary(&self) -> &'static str {
        "drafts and verifies the tokens that are worth their time, at the price that the batch could make without prompts"
    }

    fn source(&self) -> &'static str {
        "our own: docs/foresight.md"
    }

    fn sees(&self) -> &'static str {
        "confidences where the draft has them, accepted counts, pass times at start-up and of each step, batch, contexts, \
         limits, prompts of the step"
    }

    fn differences(&self) -> &'static str {
        "none"
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

/// The policy `foresight` while the engine runs: its settings, and what it keeps from step to step.
struct Running {
    params: Foresight,
    longest: u32,
    /// True if the drafter makes all draft tokens in one pass.
    parallel: bool,
    costs: Costs,
    odds: Odds,
    asking: Asking,
    /// The first draft pass of this step after which the policy decides whether to draft on; `u32::MAX` if it decides
    /// after none.
    asks_from: u32,
    backlog: Backlog,
    lateness: Lateness,
    slots: u32,
    /// The price of step time, in tokens per second: a choice is worth its tokens − price · seconds. `None` if choices
    /// are compared by the step's own ratio of tokens to seconds.
    price: Option<f64>,
    /// Estimated seconds of the draft passes of this step, and the number of these passes. A pass counts once the
    /// policy has read its confidences.
    draft_s: f64,
    passes: u32,
    /// For each request: the probability that all tokens drafted for it in this step so far are accepted.
    reach: Vec<f64>,
    /// The tokens drafted in this step, sorted into buckets by survival, the probability that a token and all before it
    /// are accepted.
    ranked: Ranked,
    /// For each request and depth: the survival of each drafted token, that is, the probability that it and all before
    /// it are accepted; `longest` entries a request.
    survival: Vec<f64>,
    /// Requests that may get one more draft token in this step: (index into the batch, expected survival of that
    /// token). Survival is the probability that a token and all before it are accepted.
    going_on: Vec<(u32, f64)>,
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
            asks_from: 1,
            backlog: Backlog::default(),
            lateness: Lateness::new(&params),
            slots: context.max_num_seqs,
            price: None,
            draft_s: 0.0,
            passes: 0,
            reach: Vec::new(),
            ranked: Ranked::default(),
            survival: Vec::new(),
            going_on: Vec::new(),
            drafters: Vec::new(),
            steps_without_drafts: 0,
            steps_unverified: 0,
            room: longest,
            budget: context.max_num_batched_tokens,
        }
    }

    /// The worth of a choice that is expected to make `tokens` tokens in `seconds` seconds: tokens − price · seconds,
    /// or tokens / seconds if no price of time is set.
    fn worth(&self, tokens: f64, seconds: f64) -> f64 {
        match self.price {
            Some(price) => tokens - price * seconds,
            None => tokens / seconds,
        }
    }

    /// Begins a step: clears the state of the last step, and sets the price of time and the most draft tokens per
    /// request that the token budget allows.
    fn begin(&mut self, batch: &BatchView) {
        self.costs.begin(batch);
        self.odds.begin(batch.len());
        self.draft_s = 0.0;
        self.passes = 0;
        self.ranked.clear();
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
    /// before drafting.
    fn planned(&self, batch: &BatchView) -> Planned {
        let seconds = self.costs.idle_s() + self.costs.verify_s(0);
        let mut best = Planned { length: 0, worth: self.worth(batch.len() as f64, seconds), seconds };
        let (mut tokens, mut reach, mut drafts, mut draft_s) = (batch.len() as f64, 1.0, 0, 0.0);
        for depth in 1..=self.longest {
            let m = self.drafters[depth as usize];
            if m == 0 {
                break;
            }
            reach *= self.odds.at_depth(depth);
            tokens += reach * f64::from(m);
            drafts += u64::from(m);
            draft_s = self.costs.draft_s(batch, depth, m, drafts, draft_s, self.parallel);
            let seconds = draft_s + self.costs.verify_s(drafts);
            let worth = self.worth(tokens, seconds);
            if worth > best.worth {
                best = Planned { length: depth, worth, seconds };
            }
        }
        best
    }

    /// The draft length, common to all requests, with the greatest worth (tokens minus the price of time), for a
    /// drafter that makes all tokens in one pass. It is planned for the tokens that are worth their verification,
    /// because only they will be verified.
    fn planned_block(&self, batch: &BatchView, price: f64) -> u32 {
        let mut best = (0, -price * self.costs.idle_s());
        let (mut gain, mut drafts) = (0.0, 0);
        for depth in 1..=self.longest {
            let m = self.drafters[depth as usize];
            if m == 0 {
                break;
            }
            gain += f64::from(m) * self.odds.gain_at(depth);
            drafts += u64::from(m);
            let worth = gain - price * self.costs.draft_s(batch, depth, m, drafts, 0.0, true);
            if worth > best.1 {
                best = (depth, worth);
            }
        }
        best.0
    }

    /// Adds this step's draft tokens to the mean gain of each depth. A token's gain is its survival (probability that
    /// it and all before it are accepted) minus the price of its verification, in tokens. A negative gain counts as 0.
    fn learn_gains(&mut self, batch: &BatchView, drafts: &Drafts, price: f64) {
        let all = self.ranked.len().max(1);
        let each = price * (self.costs.verify_s(all) - self.costs.verify_s(0)) / all as f64;
        for depth in 1..=self.passes {
            let at = |i: usize| self.survival[i * self.longest as usize + depth as usize - 1];
            let drafted = (0..batch.len()).filter(|&i| drafts.draft_len[i] >= depth);
            let (sum, n) = drafted.fold((0.0, 0.0), |(sum, n), i| (sum + (at(i) - each).max(0.0), n + 1.0));
            if n > 0.0 {
                self.odds.gained(depth, sum, n);
            }
        }
    }

    /// Chooses after which draft passes of this step the policy decides whether to draft on.
    fn ask(&mut self, planned: Planned) {
        let share = f64::from(planned.length) * self.costs.decision_s() / planned.seconds;
        let asks = match self.params.weigh_asking && self.price.is_some() {
            true => self.asking.begin(planned.worth, share),
            false => Asks::Always,
        };
        self.asks_from = match asks {
            Asks::Always => 1,
            Asks::AtPlannedEnd => planned.length,
            Asks::Never => u32::MAX,
        };
        self.costs.asked_from(self.asks_from);
    }

    /// Reads the draft passes that ran since the last call. Stores the survival of their tokens (probability that a
    /// token and all before it are accepted), and adds the estimated seconds of the passes and of the decisions after
    /// them.
    fn take_in(&mut self, batch: &BatchView, drafts: &Drafts) {
        while self.passes < drafts.passes {
            self.passes += 1;
            let depth = self.passes;
            let (mut m, mut total) = (0, 0);
            for i in 0..batch.len() {
                total += u64::from(drafts.draft_len[i].min(depth));
                if drafts.draft_len[i] < depth {
                    continue;
                }
                m += 1;
                self.reach[i] *= self.odds.chance(drafts, i, depth);
                self.survival[i * self.longest as usize + depth as usize - 1] = self.reach[i];
                self.ranked.add(self.reach[i]);
            }
            if m > 0 {
                self.draft_s = self.costs.draft_s(batch, depth, m, total, self.draft_s, self.parallel);
                if (self.asks_from..self.longest).contains(&depth) {
                    self.draft_s += self.costs.decision_s();
                }
            }
        }
    }

    /// Chooses how many of the drafted tokens to verify: the number with the greatest worth (tokens minus the price of
    /// time), where the likeliest tokens come first. Without the setting `trim`, all drafted tokens are verified.
    fn verified(&self, n: usize) -> Verified {
        let draft_s = if self.passes > 0 { self.draft_s } else { self.costs.idle_s() };
        let mut best = Verified { worth: f64::NEG_INFINITY, ..Verified::default() };
        let all = self.ranked.len();
        self.ranked.prefixes(|count, survive, least| {
            if !self.params.trim && count < all {
                return;
            }
            let (tokens, seconds) = (n as f64 + survive, draft_s + self.costs.verify_s(count));
            let worth = self.worth(tokens, seconds);
            if worth > best.worth {
                best = Verified { count, worth, tokens, seconds, least };
            }
        });
        best
    }
}

/// The draft length for all requests that is planned before drafting, with its worth in tokens (expected tokens minus
/// the price of time).
#[derive(Clone, Copy, Debug)]
struct Planned {
    length: u32,
    worth: f64,
    /// Estimated seconds of a step in which all requests draft and verify the planned length.
    seconds: f64,
}

/// The drafted tokens that the policy chose to verify: their number, and the worth, the expected tokens and the seconds
/// of a step that verifies them.
#[derive(Clone, Copy, Debug, Default)]
struct Verified {
    count: u64,
    worth: f64,
    tokens: f64,
    seconds: f64,
    /// The draft tokens are sorted into buckets by survival (the probability that a token and all before it are
    /// accepted). This is the lower edge of the lowest bucket whose tokens are verified.
    least: f64,
}

impl SpecPolicy for Running {
    fn limits(&self) -> DraftLimits<'_> {
        DraftLimits::chain(self.room.min(self.longest)).up_to(self.longest)
    }

    fn wants(&self) -> Wants {
        if self.params.confidences { Wants::CONFIDENCE } else { Wants::default() }
    }

    fn propose(&mut self, batch: &BatchView, plan: &mut DraftPlan) {
        self.begin(batch);
        let mut planned = self.planned(batch);
        if self.parallel
            && self.params.trim
            && self.params.expect_trim
            && let Some(price) = self.price
        {
            planned.length = self.planned_block(batch, price);
        }
        self.asks_from = u32::MAX;
        if planned.length == 0 {
            self.steps_without_drafts += 1;
            plan.fill(u32::from(self.steps_without_drafts.is_multiple_of(self.params.probe_every)));
            return;
        }
        if self.params.stop && !self.parallel {
            self.ask(planned);
        }
        plan.fill(if self.asks_from <= self.longest { self.longest } else { planned.length });
    }

    fn keep_drafting(&mut self, batch: &BatchView, drafts: &mut Drafts) -> Continue {
        if !(self.asks_from..self.longest).contains(&drafts.passes) {
            drafts.nothing_to_decide();
            return Continue::Yes;
        }
        self.take_in(batch, drafts);
        let (depth, now) = (self.passes, self.verified(batch.len()));
        let price = self.price.unwrap_or(now.tokens / now.seconds);
        let next = self.odds.at_depth(depth + 1);
        self.going_on.clear();
        for i in 0..batch.len() {
            if drafts.draft_len[i] >= depth && batch.limit[i].min(self.longest) > depth {
                self.going_on.push((i as u32, self.reach[i] * next));
            }
        }
        // A token is not drafted if its expected survival (the probability that it and all before it are accepted) is
        // at most the price of the time in which it is verified.
        let m = self.going_on.len() as u64;
        let each = (self.costs.verify_s(now.count + m) - self.costs.verify_s(now.count)) / m.max(1) as f64;
        self.going_on.retain(|&(_, survives)| survives > price * each);
        let m = self.going_on.len() as u64;
        if m == 0 {
            return Continue::Stop;
        }
        let gain: f64 = self.going_on.iter().map(|&(_, survives)| survives).sum();
        let decision_s = if depth + 1 < self.longest { self.costs.decision_s() } else { 0.0 };
        let more =
            self.costs.draft_pass_s(batch, depth + 1, m as u32) + decision_s + self.costs.verify_s(now.count + m)
                - self.costs.verify_s(now.count);
        if self.worth(now.tokens + gain, now.seconds + more) <= now.worth {
            return Continue::Stop;
        }
        let mut going_on = self.going_on.iter().map(|&(i, _)| i as usize).peekable();
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
        self.take_in(batch, drafts);
        let chosen = self.verified(batch.len());
        if self.price.is_some() && self.params.stop && !self.parallel && self.passes > 0 {
            self.asking.end(chosen.worth, batch.len());
        }
        if self.parallel
            && let Some(price) = self.price
        {
            self.learn_gains(batch, drafts, price);
        }
        if chosen.count == self.ranked.len() {
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
        let stride = self.longest as usize;
        for (i, verify) in drafts.verify_len.iter_mut().enumerate() {
            let row = &self.survival[i * stride..][..drafts.draft_len[i] as usize];
            *verify = match chosen.count {
                0 => 0,
                _ => row.iter().take_while(|&&survives| self.ranked.is_kept(survives, chosen.least)).count() as u32,
            };
        }
    }

    fn observe(&mut self, outcome: &StepOutcome) {
        self.costs.observe(outcome);
        self.odds.observe(outcome);
    }

    fn request_finished(&mut self, id: RequestId) {
        self.lateness.forget(id);
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
