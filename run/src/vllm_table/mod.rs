//! Finds the best fixed draft length at each batch size: vLLM's `num_speculative_tokens_per_batch_size`.
//!
//! A row of the table comes from closed loops, in which each of N clients sends one request after another. Every draft
//! length runs in such a loop with the same requests and the same random draws. The drafter is loaded for length 0 too,
//! as on a server with a table. The rate of a length is the output tokens of its loop per second, time for prompts
//! included. The measurement starts when each client has sent two requests. It lasts for a whole number of requests per
//! client, at least ten.
//!
//! vLLM looks up its table by the number of requests that a step *schedules*, prompts included. A loop of N clients
//! schedules N if everything fits, and fewer if requests wait for memory or for the token budget. A row therefore
//! stands for the batch size of its loop's median step at the row's length. A batch size between two rows has the
//! length of the nearer row. A row whose loop schedules no more requests than the loop before is left out of the table,
//! and the output says why.
//!
//! vLLM sets a server up for the longest length of its table. Its runner V2 then makes that number of draft passes in
//! every step, even if the drafts are shorter. If that changes the rates, the rows with shorter lengths are measured a
//! second time on a server with the table's longest length, and their lengths are chosen anew.
//!
//! A table can be slower than a fixed length, because steps of one loop may fall into the ranges of other rows. So the
//! finished table is run in the loops too, and a warning names the loops in which the table is slower than the fastest
//! fixed length.

mod choose;
mod closed;
mod loops;
mod no_draft;
mod render;
mod table;

pub use choose::Choice;
pub use no_draft::no_draft;
pub use table::{Loop, Row, Table};

#[cfg(test)]
mod tests;
