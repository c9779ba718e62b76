//! Finds the best fixed draft length at each batch size: vLLM's `num_speculative_tokens_per_batch_size`.
//!
//! A row of the table comes from closed loops, in which each of N clients sends one request after another. Every draft
//! length runs in such a loop, with the same requests and the same random draws. The drafter is loaded also for length
//! 0, as on a server with a table. The rate of a length is its output tokens per second; the time for prompts counts.
//! The measurement starts when each client has sent two requests. It lasts for a whole number of requests per client,
//! at least ten.
//!
//! vLLM looks up its table by the number of requests that a step *schedules*, prompts included. A loop of N clients
//! schedules N requests if all fit, and fewer if requests wait for memory or for the token budget. So a row stands for
//! the batch size of the median step of its loop, at the row's length. A batch size between two rows gets the length of
//! the nearer row. If a loop schedules no more requests than a loop with fewer clients, its row is left out of the
//! table, and the output says why.
//!
//! vLLM sets a server up for the longest length of its table. Its runner V2 then makes this number of draft passes in
//! every step, also for shorter drafts. If this changes the rates, the rows with shorter lengths are measured again on
//! such a server, and their lengths are chosen again.
//!
//! A table can be slower than a fixed length, because some steps of a loop may schedule a number of requests that
//! belongs to another row. So the finished table also runs in the loops. A warning names the loops in which the table
//! is slower than the fastest fixed length.

mod by_context;
mod choose;
mod closed;
mod loops;
mod no_draft;
mod render;
mod table;
mod tie;

pub use by_context::{Cell, ContextTable};
pub use choose::Choice;
pub use no_draft::{WITHOUT_MODEL, no_draft, stated_method};
pub use table::{Loop, Row, Table};
pub use tie::Tie;

#[cfg(test)]
mod tests;
