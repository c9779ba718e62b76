//! One run of a yardstick, for `valgrind --tool=callgrind --toggle-collect='*Yardstick*run*'`:
//! `yardstick <rate> <k> <skip: 0|1>`.
use foretoken_sim::luck::{Luck, Stream, threshold};
use foretoken_sim::*;
use std::sync::atomic::AtomicBool;
#[path = "../benches/yardstick/mod.rs"]
mod yardstick;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let y = yardstick::Yardstick::new(10_000, a[1].parse().unwrap());
    let t = std::time::Instant::now();
    let r = y.run(a[2].parse().unwrap(), a[3] == "1");
    let s = Summary::new(&r.records, &r.totals, Default::default(), &[], r.usable_blocks, 16);
    println!(
        "{} request-steps {} steps {:?}; ttft {:?} e2e {:?} peak {}",
        r.totals.request_steps,
        r.totals.steps,
        t.elapsed(),
        s.ttft,
        s.e2e,
        s.kv_use_peak
    );
}
