//! Tests routers that get no load reports, because the reports arrive only after the end of the run. Every request must
//! still be served.

use crate::setup::{Setup, requests, routers};
use foretoken_fleet::Signals;

#[test]
fn a_router_without_reports_serves_every_request() {
    let mut setup = Setup::new(requests(200, 16.0, 80, 6));
    setup.signals = Signals { interval_s: 0.1, delay_s: 1e6 };
    for router in routers() {
        let run = setup.fleet(&router, &[3, 0, 2], 1).run;
        assert!((0..200).all(|i| run.records.finished(i)), "{}", router.name());
        let routed = &run.replicas.as_ref().unwrap().routed;
        assert!((0..3).all(|replica| routed.contains(&replica)), "{} leaves a replica empty", router.name());
    }
}
