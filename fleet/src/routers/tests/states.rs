//! The states in which routers decide; each is made from its index by random draws. The recorders in `tests/routers/`
//! make the same states and run the original routers' code on them, so a fixture needs to store the decisions only.

use foretoken_sim::{Luck, Stream};

/// Number of decisions in a fixture.
pub const STATES: u64 = 10_000;
/// Number of replicas in every state.
pub const REPLICAS: usize = 6;
/// Seed of a router's random draws.
pub const SEED: u64 = 7;

/// What a router knows when a request is routed: the request's prompt and the state of the replicas.
pub struct State {
    pub prompt_len: u32,
    /// Ids of the prompt's leading blocks of 16 tokens, which other prompts may share.
    pub prefix: Vec<u64>,
    /// Each replica's requests in flight.
    pub in_flight: Vec<u32>,
    /// For each replica, the load report that has arrived since the state before; `None` if none has.
    pub reports: Vec<Option<Load>>,
}

/// A replica's report of its load.
#[derive(Clone, Copy)]
pub struct Load {
    pub running: u32,
    pub waiting: u32,
    /// Uncached tokens of the waiting prompts.
    pub waiting_tokens: u64,
    /// Share of the KV blocks in use, in thousandths.
    pub kv: u32,
    pub tok_s: u32,
}

impl State {
    /// Makes the random state with the number `index`. Half of the states have few requests in flight and equal
    /// reports, so that ties are common. Replica r reports its load only from state 300 · r on.
    pub fn of(index: u64) -> State {
        let luck = Luck::new(36, Stream::Arrivals, index);
        let draw = |which: u64, below: u64| luck.bits(which) % below;
        let shared = if draw(0, 3) == 0 { 0 } else { draw(1, 12) };
        let text = draw(2, 40);
        let rest = if draw(3, 2) == 0 { draw(4, 40) } else { draw(5, 300) };
        let quiet = draw(6, 2) == 0;
        let replica = |r: u64, which: u64, below: u64| draw(100 + 10 * r + which, below);
        let report = |r: u64| Load {
            running: replica(r, 1, if quiet { 2 } else { 20 }) as u32,
            waiting: replica(r, 2, if quiet { 2 } else { 6 }) as u32,
            waiting_tokens: if quiet { 0 } else { replica(r, 3, 4000) },
            kv: if quiet { 500 } else { replica(r, 4, 1001) as u32 },
            tok_s: [0, 800, 2500][if quiet { 1 } else { replica(r, 5, 3) as usize }],
        };
        let all = 0..REPLICAS as u64;
        State {
            prompt_len: (16 * shared + 1 + rest) as u32,
            prefix: (0..shared).map(|block| 100 * (text + 1) + block).collect(),
            in_flight: all.clone().map(|r| replica(r, 6, if quiet { 3 } else { 60 }) as u32).collect(),
            reports: all.map(|r| (index >= 300 * r && replica(r, 7, 4) == 0).then(|| report(r))).collect(),
        }
    }

    /// The token ids of the prompt of state `index`. Equal prefix blocks have equal tokens; the rest of the prompt has
    /// tokens that no other prompt has.
    #[allow(dead_code, reason = "a recorder needs it")]
    pub fn tokens(&self, index: u64) -> Vec<u32> {
        let shared = self.prefix.iter().flat_map(|id| (0..16).map(move |i| (id * 16 + i) as u32));
        let alone = 16 * self.prefix.len() as u32..self.prompt_len;
        shared.chain(alone.map(|i| 1_000_000 + 512 * index as u32 + i)).collect()
    }
}

/// Workers as Dynamo's selector sees them, and the settings of its cost.
pub struct KvState {
    pub tokens: u32,
    pub workers: Vec<KvWorker>,
    pub overlap_score_credit: f64,
    pub overlap_score_credit_decay: f64,
    pub prefill_load_scale: f64,
    pub decode_active_request_weight: f64,
}

#[derive(Clone, Copy)]
pub struct KvWorker {
    pub prefill_tokens: u64,
    /// KV blocks that the worker's requests would hold if the new request were sent to the worker.
    pub blocks: u64,
    pub requests: u32,
    /// Blocks of the prompt that the worker has cached.
    pub overlap: u64,
}

impl KvState {
    /// Makes the random state with the number `index`. Half of the states have default settings and small numbers of
    /// blocks, so that ties are common.
    pub fn of(index: u64) -> KvState {
        let luck = Luck::new(37, Stream::Arrivals, index);
        let draw = |which: u64, below: u64| luck.bits(which) % below;
        let usual = draw(0, 2) == 0;
        let of = |which: u64, usually: f64, values: [f64; 4]| match usual {
            true => usually,
            false => values[draw(which, 4) as usize],
        };
        let tokens = 1 + draw(1, 600) as u32;
        let blocks = u64::from(tokens.div_ceil(16));
        let worker = |r: u64| {
            let replica = |which: u64, below: u64| draw(100 + 10 * r + which, below);
            KvWorker {
                prefill_tokens: if usual { 16 * replica(1, 4) } else { replica(1, 3000) },
                blocks: blocks + replica(2, if usual { 4 } else { 400 }),
                requests: replica(3, 20) as u32,
                overlap: replica(4, u64::from(tokens / 16) + 1) / if usual { 8 } else { 1 },
            }
        };
        KvState {
            tokens,
            workers: (0..4).map(worker).collect(),
            overlap_score_credit: of(2, 1.0, [0.0, 0.5, 1.0, 2.0]),
            overlap_score_credit_decay: of(3, 0.0, [0.0, 0.3, 1.0, 4.0]),
            prefill_load_scale: of(4, 1.0, [0.25, 1.0, 1.5, 3.0]),
            decode_active_request_weight: of(5, 0.0, [0.0, 0.5, 1.0, 7.0]),
        }
    }
}
