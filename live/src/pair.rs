//! Times passes of a real target and draft, as live serving runs them. The timed work is: the batch is built, the model
//! runs, and then either the target's tokens are compared with the draft tokens, or the draft model's tokens are read.
//!
//! A server that drafts alternates between the two models, so a pass finds the other model's weights and KV in the
//! caches. If a pass were repeated alone, it would find its own data there and be twice as fast. Each timed pass
//! therefore follows a pass of the other model over the same requests, unless the models are too large for caches. The
//! exception is the target's decode pass, which is a step without draft tokens: no draft pass runs before it. When it
//! is repeated, it follows a decode pass of the target, as in serving. (After a draft pass, the target's decode pass
//! would take a tenth longer if the caches hold just one model.)
//!
//! A prefill pass of the target takes so long that the models' weights and KV are evicted from a cache that other cores
//! share. The next passes of both models are then slower. This delay counts as a part of a prefill pass's time: the
//! prefill pass of each model gets the delay of that model's next passes, measured with decode passes of one batch. The
//! time of a prefill pass with its delay (which may be negative) is at least half of its time without the delay.

use foretoken_kernels::accept::{Accepted, Tree};
use foretoken_kernels::device::{Choice, Device};
use foretoken_kernels::executor::{Capacity, Pair};
use foretoken_kernels::forward::Llama;
use foretoken_kernels::paged::{BLOCK_SIZE, Batch, Logits};
use foretoken_profiler::{INTERRUPTED, Kind, Passes, Role, Room, Shape, median};
use foretoken_sim::tree::ROOT;
use foretoken_sim::{Luck, Stream};
use std::time::{Duration, Instant};

/// If a pass over one request takes longer than this, the model does not fit into caches. It is then not run before
/// timed passes of the other model.
const WORTH_ALTERNATING: Duration = Duration::from_millis(20);
/// A model with more bytes of weights than this fits into no cache. One pass over one request of such a model evicts
/// the other model from the caches, so the pass before a timed pass has only one request. The delay of such a model's
/// passes after a prompt counts as 0.
const NO_CACHE_HOLDS: u64 = 1 << 30;
/// In a step, the draft model makes several passes in a row, one for each draft token. A measured time of a draft pass
/// is therefore the mean over this number of passes in a row. The first of these passes finds the target's weights in
/// the caches, the later passes find the draft model's.
const DRAFTED: u32 = 3;
/// Number of passes after a prompt that may be slower, because the prompt's pass evicted the caches. The times of
/// these passes are compared with the times of the same number of later passes. (On a shared cache of 32 MiB the
/// effect was gone after five passes.)
const RECOVERING: usize = 8;
/// (requests, context tokens per request) of the decode passes that measure the delay after a prompt. The delay is how
/// much longer passes take because the prompt's pass has evicted the caches. It is assumed to be the same for other
/// batches.
const RECOVERING_BATCH: (u32, u32) = (4, 128);
/// Most tokens whose KV is really computed before timing. Copies of this KV fill the rest of the pool, so that
/// attention reads realistic numbers.
const COMPUTED: usize = 256;

/// The state that is needed to time the passes of a target and a draft. It does not borrow the models, so they may
/// serve between measurements.
pub struct Timer {
    /// For the target and the draft model: true if a pass of this model runs before each timed pass of the other model.
    alternates: [bool; 2],
    tokens: Vec<u32>,
    parents: Vec<u32>,
    table: Vec<u32>,
    batch: Batch,
    choices: Vec<Choice>,
    accepted: Vec<Accepted>,
}

/// A target and a draft model on their device, and what is needed to time their passes. It must be used within
/// [`Device::session`].
pub struct PairPasses<'a, D: Device> {
    device: &'a mut D,
    /// The target and the draft, in this order, loaded onto the device.
    models: [&'a mut Llama<D>; 2],
    timer: &'a mut Timer,
}

/// The memory sizes with which a pair (target and draft) must be loaded to run all passes whose shapes are within the
/// limits `target` and `draft` of its two models.
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
        // The target's verification pass computes logits for all tokens. The draft model's pass over tokens that it has
        // skipped (a draft gap) computes them only for each request's last token.
        logit_rows: target.max_batched as usize,
        draft_logit_rows: draft.max_requests as usize,
        kept_requests: 0,
        kept_len: 0,
    }
}

impl Timer {
    /// Makes a timer for `pair`. The pair must be loaded with at least the memory sizes that [`capacity`] gives for the
    /// passes to time. Fills the pair's KV. Runs each model, to measure whether its passes are short enough to run
    /// before the other model's passes.
    ///
    pub fn new<D: Device>(device: &mut D, pair: &mut Pair<D>) -> Result<Timer, D::Error> {
        let longest = pair.capacity().rows;
        let luck = Luck::new(0, Stream::Profile, 7);
        // A draft model that is not used may have another vocabulary than the target.
        let draft_vocab = pair.models().1.map_or(u32::MAX, |draft| draft.shape().vocab);
        let vocab = u64::from(pair.vocab().min(draft_vocab));
        let mut timer = Timer {
            alternates: [false; 2],
            tokens: (0..longest as u64).map(|i| (luck.bits(i) % vocab) as u32).collect(),
            // The draft tokens form a chain: each token follows the one before.
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

    /// Returns this timer with the target and draft `pair` and the device `device`, ready to time passes. The timer
    /// must have been made for `pair`, and `pair` must be loaded on `device`.
    pub fn on<'a, D: Device>(&'a mut self, device: &'a mut D, pair: &'a mut Pair<D>) -> PairPasses<'a, D> {
        let (target, draft) = pair.models();
        PairPasses { device, models: [target, draft.expect("a pair that is timed has a draft")], timer: self }
    }
}

/// A decode pass of one request with 16 tokens of context.
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

    /// How many seconds longer the next [`RECOVERING`] decode passes of the model `role` take in total because the
    /// target has just run the prompt `prompt`. The number is a measured difference, so it may be negative. It is 0,
    /// without a measurement, if this model or the target is too large for caches, or if no pass fits into the
    /// memory.
    fn aftermath_s(&mut self, role: Role, prompt: &Shape) -> Result<f64, D::Error> {
        let (requests, context) = RECOVERING_BATCH;
        let next = Shape { kind: Kind::Decode, requests, new: 1, context };
        let next = self.room_for(Role::Draft, &self.room_for(Role::Target, &next));
        let own = &self.models[role as usize];
        if !self.timer.alternates[Role::Target as usize] || own.weight_bytes() >= NO_CACHE_HOLDS || next.requests == 0 {
            return Ok(0.0);
        }
        // In a real step, the target's pass over the prompt follows the draft model's prefill pass and evicts the
        // caches. If the delay of the draft model's next passes is measured, the target's pass therefore runs here too.
        let its = self.room_for(Role::Target, prompt);
        if role == Role::Draft && its.requests > 0 {
            self.pass(Role::Target, &its)?;
        }
        let mut times = Vec::with_capacity(2 * RECOVERING);
        for _ in 0..2 * RECOVERING {
            // In a step, the draft model runs before the target.
            let took = [self.pass(Role::Draft, &next)?, self.pass(Role::Target, &next)?];
            times.push(if role == Role::Draft { took[0] } else { took[1] }.as_secs_f64());
        }
        let most = INTERRUPTED * median(times.clone());
        let (marked, plain) = times.split_at(RECOVERING);
        Ok(marked.iter().zip(plain).filter(|(m, p)| m.max(**p) <= most).map(|(m, p)| m - p).sum())
    }

    /// Runs one pass as a server does: the host builds the batch, the model runs, and the host reads the result.
    /// Returns the time of all three.
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
                // A prefill pass of the draft model has no logits to read. The download only makes the host wait for
                // the device.
                device.download(model.logits(), &mut Vec::new())?;
            }
            Role::Draft => device.top_k(model.logits(), 1, choices)?,
        }
        Ok(begin.elapsed())
    }

    /// The pass of the other model that a step runs before a pass of `shape` by the model `role`. If the other model
    /// fits into no cache, the result is a pass over one request. The result has 0 requests if no pass fits into the
    /// memory.
    fn before(&self, role: Role, shape: &Shape) -> Shape {
        let other = role.other();
        if self.models[other as usize].weight_bytes() >= NO_CACHE_HOLDS {
            return ONE_REQUEST;
        }
        let prompts = shape.kind == Kind::Prefill && role == Role::Target;
        let (kind, new) = if prompts { (Kind::Prefill, shape.new) } else { (Kind::Decode, 1) };
        self.room_for(other, &Shape { kind, new, ..*shape })
    }

    /// `shape` with fewer requests and less context, so that it fits into the memory and positions of the model `role`.
    /// The result has 0 requests if no request fits.
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

    fn warm_up_passes(&self) -> u32 {
        self.device.warm_up_passes()
    }

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
            // Of a step's draft passes, only the first runs over tokens that the draft model has skipped (a draft gap).
            // Such a pass is therefore timed once. Other draft passes are timed [`DRAFTED`] times in a row.
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
