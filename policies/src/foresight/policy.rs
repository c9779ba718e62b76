//! `foresight`: drafts while the next token is expected to be worth its time, and verifies the drafts that are worth
//! the time of their verification. Worth is counted in tokens. A second costs the tokens that the batch could make in a
//! second without prompts.
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
//! 6. **The next step's prompts** (`cost.rs`): if the next step verifies the drafts, its prompts are not known yet. The
//!    cost of a token is then an average over the prompts that usually come.
//! 7. **A backlog of prompts** (`price.rs`): if requests wait because prompts fill the steps, a token starts no waiting
//!    prompt sooner, so a second costs more tokens.
//! 8. **Room for prompts**: while prompts wait or run, decode requests with their drafts may take at most a share of
//!    the token budget. One draft token a request is always allowed.
//! 9. **Probing**: a policy that drafts nothing learns nothing. From time to time it drafts one token, to notice when
//!    drafting pays again.

use crate::definition::{BadParameter, Beliefs, Check, Definition, PolicyContext};
use crate::foresight::asking::{Asking, Asks};
use crate::foresight::cost::Costs;
use crate::foresight::odds::Odds;
use crate::foresight::price::{Backlog, decode_rate};
use crate::foresight::ranked::Ranked;
use crate::foresight::settings::{Foresight, PriceOfTime};
use foretoken_sim::{
    BatchView, Continue, DraftLimits, DraftPlan, Drafting, Drafts, SpecPolicy, Speculation, StepOutcome, Wants,
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
        check.share("correction", self.correction)?;
        check.share("budget_share", self.budget_share)?;
        check.that("probe_every", self.probe_every > 0, || "must be at least 1 step".into())
    }

    fn build(&self, context: &PolicyContext) -> Speculation {
        Speculation::Policy(Box::new(Running::new(*self, context)))
    }
}

/// The running policy: its parameters and its state between steps.
struct Running {
    params: Foresight,
    longest: u32,
    /// True if one draft pass makes all draft tokens.
    parallel: bool,
    costs: Costs,
    odds: Odds,
    asking: Asking,
    /// The first draft pass after which the policy decides whether to draft on; `u32::MAX` for none.
    asks_from: u32,
    backlog: Backlog,
    slots: u32,
    /// The price of time, in tokens per second; `None` if choices are compared by the step's own ratio.
    price: Option<f64>,
    /// Seconds of the draft passes of this step that were read so far, and the number of these passes.
    draft_s: f64,
    passes: u32,
    /// By request: the probability that all tokens drafted so far are accepted.
    reach: Vec<f64>,
    /// Tokens drafted in this step, by their survival.
    ranked: Ranked,
    /// By request and depth: the survival of each drafted token, that is, the probability that it and all before it are
    /// accepted; `longest` entries a request.
    survival: Vec<f64>,
    /// Requests that may get one more draft token, each with the expected survival of that token.
    going_on: Vec<(u32, f64)>,
    /// By depth from 1: number of requests that may draft that far.
    drafters: Vec<u32>,
    steps_without_drafts: u32,
    /// Number of steps in a row that drafted tokens and verified none.
    steps_unverified: u32,
    /// The longest draft that the token budget allows a request now, in tokens.
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

    /// The worth of a choice that makes `tokens` in `seconds`: tokens − price · seconds, or their ratio if there is no
    /// price.
    fn worth(&self, tokens: f64, seconds: f64) -> f64 {
        match self.price {
            Some(price) => tokens - price * seconds,
            None => tokens / seconds,
        }
    }

    /// Begins a step: clears the state of the last step, and sets the price of time and the longest draft that the
    /// token budget allows.
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
                Some(match self.params.weigh_backlog {
                    true => self.backlog.price(batch, decode, self.costs.request_s()),
                    false => decode,
                })
            }
        };
        self.room = self.longest;
        if batch.num_waiting > 0 || batch.prefill.tokens > 0 {
            let most = self.params.budget_share * f64::from(self.budget) / batch.len().max(1) as f64 - 1.0;
            self.room = (most as u32).clamp(1, self.longest.max(1));
        }
    }

    /// The draft length with the greatest worth, as expected before drafting. It is the same for all requests.
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

    /// The draft length with the greatest worth, for a drafter that makes all tokens in one pass. Only tokens that are
    /// worth their verification will be verified.
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

    /// Learns, by depth, the mean gain of the drafted tokens: survival minus the price of their verification. A token
    /// with a negative gain counts as 0.
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

    /// Reads the draft passes that ran since the last call: the survival of their tokens, their seconds, and the
    /// seconds of the decisions after them.
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

    /// How many of the drafted tokens to verify: the number with the greatest worth, with the likeliest tokens first.
    /// Without `trim`, all of them.
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

/// The draft length for all requests that is planned before drafting, with its worth in tokens.
#[derive(Clone, Copy, Debug)]
struct Planned {
    length: u32,
    worth: f64,
    /// Seconds of a step with this length.
    seconds: f64,
}

/// The drafted tokens to verify: their number, and the worth, tokens and seconds of the step with them.
#[derive(Clone, Copy, Debug, Default)]
struct Verified {
    count: u64,
    worth: f64,
    tokens: f64,
    seconds: f64,
    /// The least survival of a token that is verified.
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
        // A token that is not worth the time of its own verification is not drafted.
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
        // A policy that verifies nothing learns nothing either. From time to time it verifies the first tokens.
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
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
