//! The third clock: the simulated engine behind HTTP, at its own pace in real time.
//!
//! A client sees a vLLM server: completions and chat, `/metrics`, a step log. The engine is the one that simulates. A
//! step begins once its time has come on the wall's clock, and its tokens leave when the step has ended. So gateways,
//! load generators and autoscalers can be tested without a GPU, with any policy.
//!
//! There are two threads. `pace.rs` runs the engine and knows no HTTP; `http.rs` answers clients and knows no engine.
//! `calls.rs` has what they send each other.

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
mod serve;
mod settings;
mod step_log;
mod stops;

pub use ask::{Ask, Form, Limits, Sending, read};
pub use pace::Served;
pub use prompt::Reading;
pub use refusal::Refusal;
pub use serve::serve;
pub use settings::Settings;
