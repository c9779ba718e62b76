//! How fast the row kernels read weights: GB/s of weights for 1, 4, 8 and 32 rows, on one thread and on all. The matrix
//! is Llama-2-7B's `down_proj`, in bf16 (90 MB) and f32 (180 MB): more than a cache holds.

#![allow(missing_docs)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use foretoken_kernels::cpu::{Cpu, Matrix};
use foretoken_kernels::device::Device;
use foretoken_kernels::weights::{Dtype, RandomWeights, Weights};
use std::time::Duration;

const INPUTS: usize = 11_008;
const OUTPUTS: usize = 4096;

fn random(cpu: &mut Cpu, dtype: Dtype) -> Matrix {
    let weights = RandomWeights { seed: 1, dtype };
    let Ok(matrix) = cpu.matrix(&[(weights.tensor("down_proj.weight"), OUTPUTS)], INPUTS, dtype);
    matrix
}

fn rows(c: &mut Criterion) {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    for dtype in [Dtype::Bf16, Dtype::F32] {
        for threads in [1, all] {
            let mut cpu = Cpu::new(threads).expect("threads start");
            let matrix = random(&mut cpu, dtype);
            let mut group = c.benchmark_group(format!("rows/{dtype:?}/{threads} threads"));
            group.throughput(Throughput::BytesDecimal(matrix.bytes() as u64));
            group.sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
            for rows in [1, 4, 8, 32] {
                let (Ok(mut x), Ok(mut out)) = (cpu.buffer(rows, INPUTS), cpu.buffer(rows, OUTPUTS));
                x.set_rows(rows);
                for row in 0..rows {
                    x.row_mut(row).iter_mut().enumerate().for_each(|(i, x)| *x = (i % 7) as f32 - row as f32);
                }
                group.bench_function(BenchmarkId::from_parameter(rows), |b| {
                    b.iter(|| cpu.pass(|cpu| cpu.matmul(&x, &matrix, &mut out)));
                });
            }
        }
    }
}

criterion_group!(benches, rows);
criterion_main!(benches);
