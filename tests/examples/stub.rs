//! Runs the stub server by itself, to measure the cost of `foretoken observe`: each answer gets a token every 250 ms,
//! or at the interval in ms that the argument gives.
//!
//!     cargo run --release -p foretoken-tests --example stub -- 250
//!     time foretoken observe URL experiments/observe.toml --set 'workload.arrivals={ poisson = { rate = 25.0 } }' \
//!         --set 'workload.lengths={ fixed = { prompt = 64, output = 80 } }' --set workload.requests=1000 \
//!         --set observe.run_s=40.0
//!
//! 25 requests per second with 80 tokens each, one token every 250 ms, are 500 open streams and 2,000 events per
//! second. `observed.json` says how late requests were sent.

use foretoken_tests::stub::{Completion, Stub, aside};
use std::time::Duration;

fn main() {
    let gap = std::env::args().nth(1).and_then(|ms| ms.parse().ok()).unwrap_or(250);
    let server = Stub::start(move |request| {
        let answer = || Completion { gap: Duration::from_millis(gap), ..Completion::of(request) }.reply(request);
        aside(request, "").unwrap_or_else(answer)
    });
    println!("{}", server.url("127.0.0.1"));
    std::thread::park();
}
