//! The simulated engine behind HTTP, in real time: a step ends when its simulated time has passed on the wall clock.
//!
//! A client sees a vLLM server: completions and chat, `/metrics`, a step log. The engine is the simulator's: no model
//! runs. A step begins when the wall clock has reached the step's begin, and its tokens are sent when the wall clock
//! has reached the step's end. So gateways, load generators and autoscalers can be tested without a GPU, with any
//! policy.
//!
//! There are two threads. The thread of `pace.rs` runs the engine and knows nothing of HTTP. The thread of `http.rs`
//! answers clients and knows nothing of the engine. `calls.rs` has the messages between the two threads.

mod answer;
mod ask;
mod calls;
mod clock;
mod events;
mod http;
mod late;
mod metrics;
mod pace;
mod prompt;
mod refusal;
mod settings;
mod start;
mod step_log;
mod stops;
mod tokens;

pub use ask::{Ask, Form, Limits, Sending, read};
pub use pace::Served;
pub use prompt::Reading;
pub use refusal::Refusal;
pub use settings::Settings;
pub use start::serve;
