//! Passes of a real pair of models on a device, as live serving runs them: the batch is built, the model runs, and the target's
//! choice is compared or the draft's taken.
//!
//! Where a server drafts it alternates between the models, so a pass finds the other one's weights and KV in the caches. A pass measured
//! alone would find its own, and be twice as fast: each timed pass therefore follows one of the other model over the same requests,
//! as far as that can matter. Only the target's decode pass, which is a step without drafts, follows its own kind as it does in serving:
//! behind a draft's pass it takes a tenth longer, where the caches hold just what one model needs.
//!
//! The target takes so long for a chunk of a prompt that a cache which is shared with other cores has lost weights and KV by
//! its end, and the next passes of both models pay for it. That is the prompt's doing and counted as its time, of each model what
//! its own passes pay: once a chunk, as measured on one batch.

use foretoken_kernels::accept::{Accepted, Tree};
use foretoken_kernels::device::{Choice, Device};
use foretoken_kernels::forward::{Limits, Llama, LoadError};
use foretoken_kernels::model::{LlamaShape, MemoryNeeded};
use foretoken_kernels::paged::{BLOCK_SIZE, Batch, Logits};
use foretoken_kernels::weights::{Dtype, Weights};
use foretoken_profiler::{INTERRUPTED, Kind, Passes, Role, Room, Shape, median};
use foretoken_sim::tree::ROOT;
use foretoken_sim::{Luck, Stream};
use std::time::{Duration, Instant};

/// A pass of the other model longer than this is not run before each timed one: models so large do not fit caches anyway.
const WORTH_ALTERNATING: Duration = Duration::from_millis(20);
/// Weights that no cache holds: one request's pass then leaves nothing of the other model there, and more need not run.
const NO_CACHE_HOLDS: u64 = 1 << 30;
/// Draft passes that follow each other in a round; a sample is their mean. The first finds the target's weights in the
/// caches, the others their own.
const DRAFTED: u32 = 3;
/// Passes after a prompt that may still pay for what it evicted from the caches: they are compared with as many that follow. (On a
/// shared cache of 32 MiB the effect was gone after five.)
const RECOVERING: usize = 8;
/// Requests of these passes, and their context: one batch stands for all.
const RECOVERING_BATCH: (u32, u32) = (4, 128);
/// Tokens whose KV is computed; the pool is filled with copies, so that attention meets numbers of a real size.
const COMPUTED: usize = 256;

/// One model with its room.
struct Runner<D: Device> {
    model: Llama<D>,
    max_rows: usize,
    weight_bytes: u64,
}

/// A pair on a device, loaded to be timed, as often and as long as it is wanted.
pub struct TimedPair<D: Device> {
    target: Runner<D>,
    draft: Runner<D>,
    /// Is a pass of this model run before each of the other's?
    alternates: [bool; 2],
    tokens: Vec<u32>,
    parents: Vec<u32>,
    table: Vec<u32>,
    batch: Batch,
    choices: Vec<Choice>,
    accepted: Vec<Accepted>,
}

/// Its passes on the device that it was loaded on. Use it inside of [`Device::session`].
pub struct PairPasses<'a, D: Device> {
    device: &'a mut D,
    pair: &'a mut TimedPair<D>,
}

/// What a room takes of a model's device.
fn limits(role: Role, room: &Room) -> Limits {
    let blocks = room.kv_tokens.div_ceil(BLOCK_SIZE as u64) + u64::from(room.max_requests) + 1;
    let rows = room.max_batched as usize;
    Limits {
        kv_blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
        max_rows: rows,
        // A target's drafted tokens all get logits, of a draft's gap the last one.
        max_logit_rows: if role == Role::Target { rows } else { room.max_requests as usize },
    }
}

/// Memory that a model with this room takes.
fn memory_needed<D: Device>(device: &D, role: Role, shape: &LlamaShape, dtype: Dtype, room: &Room) -> MemoryNeeded {
    Llama::<D>::memory_needed(device, shape, dtype, limits(role, room))
}

impl<D: Device> TimedPair<D> {
    /// Puts both models on the device, fills their KV and runs each once.
    ///
    /// # Errors
    /// Too little memory, said before any is taken; or the device's.
    pub fn load(
        device: &mut D,
        target: (&LlamaShape, &impl Weights, &Room),
        draft: (&LlamaShape, &impl Weights, &Room),
    ) -> Result<TimedPair<D>, LoadError<D::Error>> {
        let large = memory_needed(device, Role::Target, target.0, target.1.dtype(), target.2);
        let small = memory_needed(device, Role::Draft, draft.0, draft.1.dtype(), draft.2);
        let mut both = large;
        both.weights += small.weights;
        both.kv += small.kv;
        both.activations += small.activations;
        if let Some(available) = device.available_bytes() {
            both.fits(available)?;
        }
        let target = Runner::load(device, Role::Target, target, large.weights)?;
        let draft = Runner::load(device, Role::Draft, draft, small.weights)?;
        let longest = target.max_rows.max(draft.max_rows);
        let vocab = target.model.shape().vocab.min(draft.model.shape().vocab);
        let luck = Luck::new(0, Stream::Profile, 7);
        let mut pair = TimedPair {
            target,
            draft,
            alternates: [false; 2],
            tokens: (0..longest as u64).map(|i| (luck.bits(i) % u64::from(vocab)) as u32).collect(),
            // A drafted chain: each token follows the one before.
            parents: std::iter::once(ROOT).chain(0..longest as u32).collect(),
            table: Vec::new(),
            batch: Batch::default(),
            choices: Vec::new(),
            accepted: Vec::new(),
        };
        pair.fill_kv(device).map_err(LoadError::Device)?;
        let one = one_request();
        for role in Role::BOTH {
            pair.pass(device, role, &one).map_err(LoadError::Device)?;
            let took = pair.pass(device, role, &one).map_err(LoadError::Device)?;
            pair.alternates[role as usize] = took < WORTH_ALTERNATING;
        }
        Ok(pair)
    }

    /// Its passes on `device`, which must be the one that it was loaded on.
    pub fn on<'a>(&'a mut self, device: &'a mut D) -> PairPasses<'a, D> {
        PairPasses { device, pair: self }
    }

    /// Computes the KV of some tokens and copies it all over the pools.
    fn fill_kv(&mut self, device: &mut D) -> Result<(), D::Error> {
        for role in Role::BOTH {
            let TimedPair { target, draft, tokens, batch, .. } = self;
            let Runner { model, max_rows, .. } = if role == Role::Target { target } else { draft };
            let slots = model.limits().kv_blocks as usize * BLOCK_SIZE;
            let most = [COMPUTED, model.shape().max_positions as usize, slots].into_iter().min().unwrap_or(COMPUTED);
            let table: Vec<u32> = (0..most.div_ceil(BLOCK_SIZE) as u32).collect();
            let mut at = 0;
            while at < most {
                let n = (most - at).min(*max_rows);
                batch.clear();
                batch.push_chain(&tokens[..n], at, &table, Logits::Skip);
                batch.logit_rows.push(0);
                model.forward(device, batch)?;
                at += n;
            }
            let moves: Vec<(u32, u32)> = (most..slots).map(|slot| ((slot % most) as u32, slot as u32)).collect();
            moves.chunks(1 << 14).try_for_each(|part| model.move_kv(device, part))?;
        }
        Ok(())
    }

    /// By how many seconds longer this model's next passes take because the target has run over a prompt: of either sign, since it is
    /// measured.
    fn aftermath_s(&mut self, device: &mut D, role: Role, prompt: &Shape) -> Result<f64, D::Error> {
        let (requests, context) = RECOVERING_BATCH;
        let next = Shape { kind: Kind::Decode, requests, new: 1, context };
        let next = self.draft.room_for(&self.target.room_for(&next));
        let own = if role == Role::Target { &self.target } else { &self.draft };
        if !self.alternates[Role::Target as usize] || own.weight_bytes >= NO_CACHE_HOLDS || next.requests == 0 {
            return Ok(0.0);
        }
        // Behind the draft's part of a prompt comes the target's, which is what empties the caches.
        let its = self.target.room_for(prompt);
        if role == Role::Draft && its.requests > 0 {
            self.pass(device, Role::Target, &its)?;
        }
        let mut times = Vec::with_capacity(2 * RECOVERING);
        for _ in 0..2 * RECOVERING {
            // In a step the draft comes first.
            let took = [self.pass(device, Role::Draft, &next)?, self.pass(device, Role::Target, &next)?];
            times.push(if role == Role::Draft { took[0] } else { took[1] }.as_secs_f64());
        }
        let most = INTERRUPTED * median(times.clone());
        let (marked, plain) = times.split_at(RECOVERING);
        Ok(marked.iter().zip(plain).filter(|(m, p)| m.max(**p) <= most).map(|(m, p)| m - p).sum())
    }

    /// Runs one pass as a server does, and times it.
    fn pass(&mut self, device: &mut D, role: Role, shape: &Shape) -> Result<Duration, D::Error> {
        let TimedPair { target, draft, tokens, parents, table, batch, choices, accepted, .. } = self;
        let model = if role == Role::Target { &mut target.model } else { &mut draft.model };
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
                // Nothing to read, so nothing waits for the device.
                device.download(model.logits(), &mut Vec::new())?;
            }
            Role::Draft => device.top_k(model.logits(), 1, choices)?,
        }
        Ok(begin.elapsed())
    }
}

impl<D: Device> Runner<D> {
    fn load(
        device: &mut D,
        role: Role,
        (shape, weights, room): (&LlamaShape, &impl Weights, &Room),
        weight_bytes: u64,
    ) -> Result<Runner<D>, LoadError<D::Error>> {
        let limits = limits(role, room);
        Ok(Runner { model: Llama::load(device, shape, weights, limits)?, max_rows: limits.max_rows, weight_bytes })
    }

    /// What this model runs in a step before the other one's pass of this shape.
    fn before(&self, other: Role, shape: &Shape) -> Shape {
        if self.weight_bytes >= NO_CACHE_HOLDS {
            return one_request();
        }
        let prompts = shape.kind == Kind::Prefill && other == Role::Target;
        let (kind, new) = if prompts { (Kind::Prefill, shape.new) } else { (Kind::Decode, 1) };
        self.room_for(&Shape { kind, new, ..*shape })
    }

    /// The shape with no more requests, and no longer ones, than this model has room for; none where a single one does not fit.
    fn room_for(&self, shape: &Shape) -> Shape {
        let limits = self.model.limits();
        let Some(longest) = self.model.shape().max_positions.checked_sub(shape.new) else {
            return Shape { requests: 0, ..*shape };
        };
        let context = shape.context.min(longest);
        let blocks = (context + shape.new).div_ceil(BLOCK_SIZE as u32);
        let most =
            ((limits.kv_blocks - 1) / blocks).min(limits.max_rows as u32 / shape.new).min(limits.max_logit_rows as u32);
        Shape { requests: shape.requests.min(most), context, ..*shape }
    }
}

/// The smallest pass there is.
fn one_request() -> Shape {
    Shape { kind: Kind::Decode, requests: 1, new: 1, context: 16 }
}

impl<D: Device> Passes for PairPasses<'_, D> {
    type Error = D::Error;

    fn time(&mut self, role: Role, shape: &Shape) -> Result<Duration, D::Error> {
        let PairPasses { device, pair } = self;
        let (other, runner) = match role {
            Role::Target => (Role::Draft, &pair.draft),
            Role::Draft => (Role::Target, &pair.target),
        };
        let drafts = role == Role::Draft || shape.kind != Kind::Decode;
        if drafts && pair.alternates[other as usize] {
            let before = runner.before(role, shape);
            if before.requests > 0 {
                pair.pass(device, other, &before)?;
            }
        }
        match (role, shape.kind) {
            (_, Kind::Prefill) => {
                let own = pair.pass(device, role, shape)?.as_secs_f64();
                Ok(Duration::from_secs_f64((own + pair.aftermath_s(device, role, shape)?).max(own / 2.0)))
            }
            // A gap is the first draft pass of a round.
            (Role::Target, _) | (Role::Draft, Kind::Verify) => pair.pass(device, role, shape),
            (Role::Draft, Kind::Decode) => {
                let mut sum = Duration::ZERO;
                for _ in 0..DRAFTED {
                    sum += pair.pass(device, role, shape)?;
                }
                Ok(sum / DRAFTED)
            }
        }
    }
}
