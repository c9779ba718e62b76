//! Measures two times: to draw which draft tokens of a request are right (the request's truth), and to draw the
//! confidence that a draft model reports for a token.
//!
//! `fill` reports the time to draw the truth of one request with 4,096 output positions. `confidence` reports the time
//! to draw the confidence of one token.

#![allow(missing_docs)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use foretoken_sim::acceptance::{AcceptanceSpec, Mixture, Rates};
use foretoken_sim::{AcceptanceSource, RequestTruth, TruthRow, Workload};
use std::hint::black_box;

const POSITIONS: u32 = 4096;

fn sources() -> [(&'static str, Box<dyn AcceptanceSource>); 5] {
    let rates = [
        ("constant", Rates::Constant { rate: 0.7 }),
        ("by-context", Rates::ByContext { points: vec![(0, 0.8), (4096, 0.6)] }),
        ("by-position", Rates::ByPosition { rates: vec![0.8, 0.6], span: 64 }),
        ("by-depth", Rates::ByDepth { rates: vec![0.8, 0.75, 0.7, 0.65, 0.6] }),
        ("mixture", Rates::Mixture(Mixture::default())),
    ];
    rates.map(|(name, source)| {
        let spec = AcceptanceSpec { source, ..AcceptanceSpec::default() };
        (name, spec.build(1, &Workload::default()).expect("the settings are good"))
    })
}

fn request(id: u32) -> RequestTruth {
    RequestTruth { id, prompt_len: 0, output_len: POSITIONS - 8, category: 0, recording: None }
}

fn truth(c: &mut Criterion) {
    let mut fill = c.benchmark_group("fill");
    fill.throughput(Throughput::Elements(POSITIONS.into()));
    for (name, source) in sources() {
        let mut row = TruthRow::default();
        fill.bench_function(BenchmarkId::from_parameter(name), |b| {
            b.iter(|| {
                source.start(black_box(request(7)), 8, &mut row);
                black_box(row.run(100, 8))
            });
        });
    }
    fill.finish();
    let mut confidence = c.benchmark_group("confidence");
    for (name, source) in sources() {
        let mut position = 0;
        confidence.bench_function(BenchmarkId::from_parameter(name), |b| {
            b.iter(|| {
                position = (position + 1) % POSITIONS;
                source.confidence(black_box(request(7)), position, 2, Some(position % 3 == 0), 0)
            });
        });
    }
    confidence.finish();
}

criterion_group!(benches, truth);
criterion_main!(benches);
