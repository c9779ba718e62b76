//! A request as SGLang's scheduler sees it (`managers/schedule_batch.py`, `Req` and `ReqKvInfo`).

use super::radix_cache::{NodeId, ROOT};
use crate::workload::RequestId;

/// The longest output that admission reserves KV for, tokens (`CLIP_MAX_NEW_TOKENS`).
const CLIP_MAX_NEW_TOKENS: u32 = 4096;

/// What a client asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Number of prompt tokens.
    pub prompt: u32,
    /// The most output tokens that the client wants.
    pub max_new_tokens: u32,
    /// Whether the request never ends before `max_new_tokens`.
    pub ignore_eos: bool,
    /// Number of output tokens after which the request ends. The scheduler looks at it only when the tokens are there.
    pub output: u32,
    /// Priority of the request.
    pub priority: i32,
}

/// A request that waits or runs.
#[derive(Clone, Debug)]
pub struct Req {
    pub asked: Asked,
    /// Number of output tokens so far.
    pub outputs: u32,
    /// Number of output tokens with which the request ended; `None` while it goes on.
    pub finished_len: Option<u32>,
    /// Number of tokens before the next chunk: found in the cache, or computed by the chunks before.
    pub prefix_len: u32,
    /// Number of tokens when the request was last looked at; 0 for a new one. Preemption counts with it.
    pub seen: u32,
    /// Number of tokens that the waiting request would find in the cache, for the order of the queue.
    pub matched: u32,
    pub last_node: NodeId,
    /// The node whose path the request locks.
    pub lock: Option<NodeId>,
    /// End of the chunk that is scheduled.
    pub extend_end: u32,
    /// Number of tokens whose KV belongs to the tree.
    pub protected: u32,
    /// Number of tokens that the request has put into the tree so far.
    pub inserted: u32,
    /// Number of tokens whose KV is certain.
    pub committed: u32,
    /// Number of tokens that the request has KV slots for.
    pub allocated: u32,
    /// Number of chunks in flight that do not end the prompt.
    pub middle_chunks: u32,
    /// Whether the request lost its KV and was not scheduled since.
    pub retracted: bool,
    /// Whether the request has a row of the table of running requests.
    pub holds_row: bool,
    /// When the request joined the queue, as a count of joins.
    pub queued: u64,
    /// Number of prompt tokens that the engine had scheduled when the request joined the queue.
    pub processed_before: u64,
}

impl Req {
    pub fn new(asked: Asked) -> Req {
        Req {
            asked,
            outputs: 0,
            finished_len: None,
            prefix_len: 0,
            seen: 0,
            matched: 0,
            last_node: ROOT,
            lock: None,
            extend_end: 0,
            protected: 0,
            inserted: 0,
            committed: 0,
            allocated: 0,
            middle_chunks: 0,
            retracted: false,
            holds_row: false,
            queued: 0,
            processed_before: 0,
        }
    }

    /// Number of prompt and output tokens so far.
    pub fn tokens(&self) -> u32 {
        self.asked.prompt + self.outputs
    }

    pub fn finished(&self) -> bool {
        self.finished_len.is_some()
    }

    /// Number of tokens of the scheduled chunk.
    pub fn extend_len(&self) -> u32 {
        self.extend_end - self.prefix_len
    }

    /// The output that admission reserves KV for, as if none was there yet.
    pub fn clipped_max_new(&self) -> u32 {
        self.asked.max_new_tokens.min(CLIP_MAX_NEW_TOKENS)
    }

    /// The output that the request may still make, as admission counts it.
    pub fn clipped_left(&self) -> u32 {
        self.asked.max_new_tokens.saturating_sub(self.outputs).min(CLIP_MAX_NEW_TOKENS)
    }

    /// Whether one output token more is the last one by length, which the scheduler knows before the token is there.
    pub fn ends_next(&self) -> bool {
        self.outputs + 1 >= self.asked.max_new_tokens
    }

    /// Number of tokens whose KV the tree may keep when the request gives its row back (`owned_kv_len`).
    pub fn owned(&self) -> u32 {
        match self.finished_len {
            None => self.committed,
            Some(len) => self.committed.min(self.asked.prompt + len.min(self.outputs)),
        }
    }

    /// Appends output tokens, and ends the request if they reach its end (`update_finish_state`).
    pub fn append(&mut self, tokens: u32) {
        self.outputs += tokens;
        if self.outputs >= self.asked.output {
            self.finished_len = Some(self.asked.output);
        }
    }

    /// Forgets what the request had in KV (`reset_for_retract`).
    pub fn reset(&mut self) {
        *self = Req {
            outputs: self.outputs,
            seen: self.seen,
            retracted: true,
            queued: self.queued,
            processed_before: self.processed_before,
            ..Req::new(self.asked)
        };
    }
}

/// Finds what tokens a request has.
pub trait Contents {
    /// The first `len` prompt and output tokens of a request.
    fn tokens(&self, id: RequestId, len: u32) -> super::content::Tokens;
}
