//! Times passes of a real pair of models on a device as live serving runs them: the batch is built, the model runs, and
//! the target's tokens are compared with the drafts or the draft's tokens are read.
//!
//! A server that drafts alternates between the models, so a pass finds the other model's weights and KV in the caches.
//! A pass that is repeated alone finds its own data there and is twice as fast. Each timed pass therefore follows a
//! pass of the other model over the same requests, unless the models are too large for caches. Before the target's
//! decode pass, which is a step without drafts, nothing is run. Repeated, it follows a decode pass of the target, as it
//! does in serving: after a draft's pass it takes a tenth longer if the caches hold just one model.
//!
//! A target's prefill pass takes so long that weights and KV are evicted from a cache that is shared with other cores,
//! and the next passes of both models are slower. This delay is counted as part of a prefill pass's time. A model's
//! prefill pass has the delay of that model's next passes, which are decode passes of one batch.

use foretoken_kernels::accept::{Accepted, Tree};
use foretoken_kernels::device::{Choice, Device};
use foretoken_kernels::executor::{Capacity, Pair};
use foretoken_kernels::forward::Llama;
use foretoken_kernels::paged::{BLOCK_SIZE, Batch, Logits};
use foretoken_profiler::{INTERRUPTED, Kind, Passes, Role, Room, Shape, median};
use foretoken_sim::tree::ROOT;
use foretoken_sim::{Luck, Stream};
use std::time::{Duration, Instant};

/// If a pass of one request takes longer than this, the model's pass is not run before timed passes of the other model:
/// such a model does not fit caches anyway.
const WORTH_ALTERNATING: Duration = Duration::from_millis(20);
/// Bytes of weights above which no cache holds a model. A pass of this model over one request then evicts the other
/// model from the caches, and need not run over more requests. Its own delay after a prompt is taken as 0.
const NO_CACHE_HOLDS: u64 = 1 << 30;
/// Number of draft passes in a row of which a sample is the mean, as in a round of drafts. The first finds the target's
/// weights in the caches, the others find the draft's.
const DRAFTED: u32 = 3;
/// Number of passes after a prompt that may still be slower because it evicted the caches. They are compared with the
/// same number of later passes. (On a shared cache of 32 MiB the effect was gone after five.)
const RECOVERING: usize = 8;
/// (requests, context tokens) of the passes that measure the delay after a prompt. The delay is assumed to be the same
/// for other batches.
const RECOVERING_BATCH: (u32, u32) = (4, 128);
/// Most tokens whose KV is computed before timing. The KV pool is filled with copies of it, so that attention reads
/// realistic numbers.
const COMPUTED: usize = 256;

/// The state that is needed to time a pair's passes. It does not borrow the pair, which may serve in between.
pub struct Timer {
    /// By role: true if a pass of this model runs before each timed pass of the other model.
    alternates: [bool; 2],
    tokens: Vec<u32>,
    parents: Vec<u32>,
    table: Vec<u32>,
    batch: Batch,
    choices: Vec<Choice>,
    accepted: Vec<Accepted>,
}

/// A pair on its device, ready to time passes. To be used within [`Device::session`].
pub struct PairPasses<'a, D: Device> {
    device: &'a mut D,
    /// The target, then the draft.
    models: [&'a mut Llama<D>; 2],
    timer: &'a mut Timer,
}

/// The capacity that a pair needs to run all passes within the limits `target` and `draft` of its two models.
pub fn capacity(target: &Room, draft: &Room) -> Capacity {
    let blocks = |room: &Room| {
        let blocks = room.kv_tokens.div_ceil(BLOCK_SIZE as u64) + u64::from(room.max_requests) + 1;
        u32::try_from(blocks).unwrap_or(u32::MAX)
    };
    Capacity {
        blocks: blocks(target),
        draft_blocks: blocks(draft),
        draft_scratch: 0,
        rows: target.max_batched.max(draft.max_batched) as usize,
        // A target's verify pass has logits for all tokens; a draft's pass over a gap only for the last token.
        logit_rows: target.max_batched as usize,
        draft_logit_rows: draft.max_requests as usize,
        kept_requests: 0,
        kept_len: 0,
    }
}

impl Timer {
    /// Makes a timer for a pair, which must have at least the [`capacity`] for the passes to be timed. Fills the pair's
    /// KV and runs each model, to see whether its passes are short enough to alternate.
    ///
    /// # Errors
    /// The device's error.
    ///
    /// # Panics
    /// If the pair has no draft.
    pub fn new<D: Device>(device: &mut D, pair: &mut Pair<D>) -> Result<Timer, D::Error> {
        let longest = pair.capacity().rows;
        let luck = Luck::new(0, Stream::Profile, 7);
        // If the draft is not used, its vocabulary may differ from the target's.
        let draft_vocab = pair.models().1.map_or(u32::MAX, |draft| draft.shape().vocab);
        let vocab = u64::from(pair.vocab().min(draft_vocab));
        let mut timer = Timer {
            alternates: [false; 2],
            tokens: (0..longest as u64).map(|i| (luck.bits(i) % vocab) as u32).collect(),
            // A drafted chain: each token follows the one before.
            parents: std::iter::once(ROOT).chain(0..longest as u32).collect(),
            table: Vec::new(),
            batch: Batch::default(),
            choices: Vec::new(),
            accepted: Vec::new(),
        };
        let mut passes = timer.on(device, pair);
        passes.fill_kv()?;
        for role in Role::BOTH {
            passes.pass(role, &ONE_REQUEST)?;
            let took = passes.pass(role, &ONE_REQUEST)?;
            passes.timer.alternates[role as usize] = took < WORTH_ALTERNATING;
        }
        Ok(timer)
    }

    /// Returns the timer together with `pair` and `device`, ready to time passes. The pair must be the one for which
    /// the timer was made, on the device on which it is loaded.
    ///
    /// # Panics
    /// If the pair has no draft.
    pub fn on<'a, D: Device>(&'a mut self, device: &'a mut D, pair: &'a mut Pair<D>) -> PairPasses<'a, D> {
        let (target, draft) = pair.models();
        PairPasses { device, models: [target, draft.expect("a pair that is timed has a draft")], timer: self }
    }
}

/// A decode pass of one request with little context.
const ONE_REQUEST: Shape = Shape { kind: Kind::Decode, requests: 1, new: 1, context: 16 };

impl<D: Device> PairPasses<'_, D> {
    /// Computes the KV of at most [`COMPUTED`] tokens and fills the KV pools of both models with copies.
    fn fill_kv(&mut self) -> Result<(), D::Error> {
        let Timer { tokens, batch, .. } = &mut *self.timer;
        for model in &mut self.models {
            let slots = model.limits().kv_blocks as usize * BLOCK_SIZE;
            let most = [COMPUTED, model.shape().max_positions as usize, slots].into_iter().min().unwrap_or(COMPUTED);
            let table: Vec<u32> = (0..most.div_ceil(BLOCK_SIZE) as u32).collect();
            let mut at = 0;
            while at < most {
                let n = (most - at).min(model.limits().max_rows);
                batch.clear();
                batch.push_chain(&tokens[..n], at, &table, Logits::Skip);
                batch.logit_rows.push(0);
                model.forward(self.device, batch)?;
                at += n;
            }
            let moves: Vec<(u32, u32)> = (most..slots).map(|slot| ((slot % most) as u32, slot as u32)).collect();
            moves.chunks(1 << 14).try_for_each(|part| model.move_kv(self.device, part))?;
        }
        Ok(())
    }

    /// Seconds that the next passes of this model take longer, in total, because the target has just run a prompt. It
    /// is a measured difference, so it may be negative. 0, without measuring, if this model or the target is too large
    /// for caches, or if no pass fits the memory.
    fn aftermath_s(&mut self, role: Role, prompt: &Shape) -> Result<f64, D::Error> {
        let (requests, context) = RECOVERING_BATCH;
        let next = Shape { kind: Kind::Decode, requests, new: 1, context };
        let next = self.room_for(Role::Draft, &self.room_for(Role::Target, &next));
        let own = &self.models[role as usize];
        if !self.timer.alternates[Role::Target as usize] || own.weight_bytes() >= NO_CACHE_HOLDS || next.requests == 0 {
            return Ok(0.0);
        }
        // In a step, the target's pass over the prompt follows the draft's pass, and evicts the caches.
        let its = self.room_for(Role::Target, prompt);
        if role == Role::Draft && its.requests > 0 {
            self.pass(Role::Target, &its)?;
        }
        let mut times = Vec::with_capacity(2 * RECOVERING);
        for _ in 0..2 * RECOVERING {
            // In a step the draft runs first.
            let took = [self.pass(Role::Draft, &next)?, self.pass(Role::Target, &next)?];
            times.push(if role == Role::Draft { took[0] } else { took[1] }.as_secs_f64());
        }
        let most = INTERRUPTED * median(times.clone());
        let (marked, plain) = times.split_at(RECOVERING);
        Ok(marked.iter().zip(plain).filter(|(m, p)| m.max(**p) <= most).map(|(m, p)| m - p).sum())
    }

    /// Runs one pass as a server does, with the host's work before and after it. Returns the time of all three.
    fn pass(&mut self, role: Role, shape: &Shape) -> Result<Duration, D::Error> {
        let Timer { tokens, parents, table, batch, choices, accepted, .. } = &mut *self.timer;
        let (model, device) = (&mut *self.models[role as usize], &mut *self.device);
        let (new, context) = (shape.new as usize, shape.context as usize);
        let begin = Instant::now();
        batch.clear();
        let blocks = (context + new).div_ceil(BLOCK_SIZE) as u32;
        let logits = match (role, shape.kind) {
            (Role::Target, Kind::Verify) => Logits::All,
            (Role::Draft, Kind::Prefill) => Logits::Skip,
            _ => Logits::Last,
        };
        for request in 0..shape.requests {
            table.clear();
            table.extend(1 + request * blocks..1 + (request + 1) * blocks);
            batch.push_chain(&tokens[..new], context, table, logits);
        }
        model.forward(device, batch)?;
        match role {
            Role::Target => {
                let drafted = if shape.kind == Kind::Verify { new - 1 } else { 0 };
                let tree = |request: usize| Tree {
                    first: request * (drafted + 1),
                    tokens: &tokens[1..1 + drafted],
                    parents: &parents[..drafted],
                };
                let trees: Vec<Tree<'_>> = (0..shape.requests as usize).map(tree).collect();
                device.accept_greedy(model.logits(), &trees, accepted)?;
            }
            Role::Draft if logits == Logits::Skip => {
                // There are no logits to read, so this download makes the host wait for the device.
                device.download(model.logits(), &mut Vec::new())?;
            }
            Role::Draft => device.top_k(model.logits(), 1, choices)?,
        }
        Ok(begin.elapsed())
    }

    /// The shape of the other model's pass that a step runs before a pass of `shape`; 0 requests if none fits. If no
    /// cache holds the other model, a pass over one request.
    fn before(&self, role: Role, shape: &Shape) -> Shape {
        let other = role.other();
        if self.models[other as usize].weight_bytes() >= NO_CACHE_HOLDS {
            return ONE_REQUEST;
        }
        let prompts = shape.kind == Kind::Prefill && role == Role::Target;
        let (kind, new) = if prompts { (Kind::Prefill, shape.new) } else { (Kind::Decode, 1) };
        self.room_for(other, &Shape { kind, new, ..*shape })
    }

    /// The shape with its requests and context reduced to what the model of `role` has memory and positions for; 0
    /// requests if none fits.
    fn room_for(&self, role: Role, shape: &Shape) -> Shape {
        let model = &self.models[role as usize];
        let limits = model.limits();
        let Some(longest) = model.shape().max_positions.checked_sub(shape.new) else {
            return Shape { requests: 0, ..*shape };
        };
        let context = shape.context.min(longest);
        let blocks = (context + shape.new).div_ceil(BLOCK_SIZE as u32);
        let most =
            ((limits.kv_blocks - 1) / blocks).min(limits.max_rows as u32 / shape.new).min(limits.max_logit_rows as u32);
        Shape { requests: shape.requests.min(most), context, ..*shape }
    }
}

impl<D: Device> Passes for PairPasses<'_, D> {
    type Error = D::Error;

    fn time(&mut self, role: Role, shape: &Shape) -> Result<Duration, D::Error> {
        let drafts = role == Role::Draft || shape.kind != Kind::Decode;
        if drafts && self.timer.alternates[role.other() as usize] {
            let before = self.before(role, shape);
            if before.requests > 0 {
                self.pass(role.other(), &before)?;
            }
        }
        match (role, shape.kind) {
            (_, Kind::Prefill) => {
                let own = self.pass(role, shape)?.as_secs_f64();
                Ok(Duration::from_secs_f64((own + self.aftermath_s(role, shape)?).max(own / 2.0)))
            }
            // A draft gap is run over in the first draft pass of a round, so this pass is not repeated.
            (Role::Target, _) | (Role::Draft, Kind::Verify) => self.pass(role, shape),
            (Role::Draft, Kind::Decode) => {
                let mut sum = Duration::ZERO;
                for _ in 0..DRAFTED {
                    sum += self.pass(role, shape)?;
                }
                Ok(sum / DRAFTED)
            }
        }
    }
}
