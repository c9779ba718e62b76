//! Which fixed length is the best at each batch size: vLLM's `num_speculative_tokens_per_batch_size`.
//!
//! A row is made of whole closed loops. N clients send one request after another. Every length runs in such loops on
//! the same requests and the same luck, with the drafter loaded: length 0 too, because a server with a table has it
//! loaded. The number of a length is the output tokens of a loop over its time, and prompts are part of that time. A
//! loop is measured once each client has sent two requests, and for a whole number of requests a client, at least
//! ten.
//!
//! vLLM looks its table up by the number of requests that a step *schedules*, prompts among them. Where everything
//! fits, a loop of N clients schedules N. Where clients wait for memory or for the token budget it schedules fewer. A
//! row therefore stands for the batch size that its own loop schedules: that of the median step at the row's length.
//! A batch size between two rows has the length of the nearer one. A row whose loop schedules no more than the loop
//! before it is not in the table, and says why.
//!
//! vLLM sets a server up for the longest length of its table. Its runner v2 then makes as many passes of a draft
//! model in every step, however short the drafts. Where that makes a difference, the rows with shorter drafts are
//! measured again on a server with the table's longest length, and choose among its lengths.
//!
//! No table is right everywhere: steps of one loop may fall into ranges of other rows, and a loop may go on at
//! another batch size than the best one. So the finished table is run in the same loops. Where it is behind the
//! fastest length alone, it says so.

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
