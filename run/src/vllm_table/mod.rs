//! Finds the best fixed draft length at each batch size: vLLM's `num_speculative_tokens_per_batch_size`.
//!
//! A row of the table comes from closed loops, in which N clients send one request after another. Every length runs in
//! such a loop on the same requests and the same random draws. The drafter is loaded, also for length 0, because a
//! server with a table has it loaded. The rate of a length is the output tokens of its loop over the time, prompts
//! included. The measurement starts when each client has sent two requests, and lasts for a whole number of requests
//! per client, at least ten.
//!
//! vLLM looks its table up by the number of requests that a step *schedules*, prompts among them. A loop of N clients
//! schedules N if everything fits, and fewer if clients wait for memory or for the token budget. A row therefore stands
//! for the batch size of its loop's median step at the row's length. A batch size between two rows has the length of
//! the nearer one. A row whose loop schedules no more than the loop before is left out of the table, and the output
//! says why.
//!
//! vLLM sets a server up for the longest length of its table. Its runner v2 then makes that number of draft passes in
//! every step, even if the drafts are shorter. If that changes the rates, the rows with shorter drafts are measured
//! again on a server with the table's longest length, and their lengths are chosen again.
//!
//! A table can be worse than a fixed length: steps of one loop may fall into the ranges of other rows. So the finished
//! table is run in the loops, too, and a warning names the loops in which it is slower than the fastest fixed length.

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
