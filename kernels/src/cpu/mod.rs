//! The CPU device. It stores weights as f32 or bf16 (f16 becomes f32), and KV in the type of the weights. Activations
//! and sums are f32.
//!
//! The CPU's arithmetic is batch-invariant: a row's result has the same bits alone, in any batch and chunk split, on
//! any number of threads and on any processor. Therefore greedy speculation emits exactly the tokens of plain decoding,
//! and a preempted request rebuilds the same KV.

mod aligned;
mod angles;
mod attention;
mod buffer;
mod exp;
mod kv;
mod lanes;
mod level;
mod matmul;
mod matrix;
mod pages;
mod pairs;
mod rowwise;
pub mod speed;
mod team;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(crate) use angles::frequencies;
pub use buffer::Buffer;
pub use kv::Kv;
pub use level::Level;
pub use matrix::Matrix;
pub(crate) use matrix::number;

use crate::accept::{self, Accepted, Chain, Choice, Tree};
use crate::device::Device;
use crate::model::LlamaShape;
use crate::paged::Batch;
use crate::weights::{Dtype, TensorData};
use rayon::ThreadPoolBuildError;
use std::convert::Infallible;
use team::Team;

/// The CPU device: its threads and its vector instructions.
pub struct Cpu {
    team: Team,
    level: Level,
    tasks: attention::Tasks,
}

impl Cpu {
    /// Makes a device with the best vector instructions of this processor, on `threads` threads.
    pub fn new(threads: usize) -> Result<Cpu, ThreadPoolBuildError> {
        Cpu::at(Level::best(), threads)
    }

    /// Makes a device with the vector instructions of `level`, on `threads` threads. The level changes the time of
    /// passes but not their results.
    pub fn at(level: Level, threads: usize) -> Result<Cpu, ThreadPoolBuildError> {
        Ok(Cpu { team: Team::new(threads)?, level, tasks: attention::Tasks::default() })
    }

    /// Returns the level of vector instructions with which the device computes.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Returns the number of threads of the device.
    pub fn threads(&self) -> usize {
        self.team.threads()
    }
}

impl Device for Cpu {
    type Matrix = Matrix;
    type Vector = Vec<f32>;
    type Buffer = Buffer;
    type Kv = Kv;
    type Error = Infallible;

    fn available_bytes(&self) -> Option<u64> {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
        Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
    }

    fn kv_bytes(&self, dtype: Dtype) -> u64 {
        kv::kv_bytes(dtype)
    }

    fn matrix(&mut self, parts: &[(TensorData<'_>, usize)], inputs: usize, dtype: Dtype) -> Result<Matrix, Infallible> {
        Ok(self.session(|cpu| Matrix::new(&mut cpu.team, parts, inputs, dtype)))
    }

    fn vector(&mut self, gains: TensorData<'_>, width: usize) -> Result<Vec<f32>, Infallible> {
        Ok((0..width).map(|i| matrix::number(gains, i)).collect())
    }

    fn buffer(&mut self, rows: usize, width: usize) -> Result<Buffer, Infallible> {
        Ok(Buffer::new(rows, width))
    }

    fn kv(&mut self, shape: &LlamaShape, dtype: Dtype, blocks: u32) -> Result<Kv, Infallible> {
        Ok(Kv::new(shape, dtype, blocks))
    }

    fn pass<R: Send>(&mut self, run: impl FnOnce(&mut Self) -> Result<R, Infallible> + Send) -> Result<R, Infallible> {
        self.session(run)
    }

    fn embed(&mut self, table: &Matrix, batch: &Batch, out: &mut Buffer) -> Result<(), Infallible> {
        out.set_rows(batch.rows());
        for (row, &token) in batch.tokens.iter().enumerate() {
            table.row(token as usize, out.row_mut(row));
        }
        Ok(())
    }

    fn norm(
        &mut self,
        x: &mut Buffer,
        delta: Option<&Buffer>,
        gains: &Vec<f32>,
        eps: f32,
        out: &mut Buffer,
    ) -> Result<(), Infallible> {
        out.set_rows(x.rows);
        let (level, width) = (self.level, x.width);
        let (rows, work) = (x.rows, x.rows * width * rowwise::NORM);
        let (x, out) = (x.shared(), out.shared());
        self.team.share(rows, work, |row| {
            #[expect(unsafe_code, reason = "outputs are split by rows")]
            // SAFETY: each task uses its own row, so no two parts of `x` or `out` overlap.
            let (x, out) = unsafe { (x.part(row, 0, width), out.part(row, 0, width)) };
            level.run(rowwise::Norm { x, delta: delta.map(|d| d.row(row)), gains, eps, out });
        });
        Ok(())
    }

    fn matmul(&mut self, x: &Buffer, weights: &Matrix, out: &mut Buffer) -> Result<(), Infallible> {
        matmul::matmul((&mut self.team, self.level), x, weights, out);
        Ok(())
    }

    fn norm_heads(
        &mut self,
        qkv: &mut Buffer,
        kv: &Kv,
        query_gains: &Vec<f32>,
        key_gains: &Vec<f32>,
        eps: f32,
    ) -> Result<(), Infallible> {
        let queries = kv.heads * kv.head_dim;
        for row in 0..qkv.rows {
            let (queries, rest) = qkv.row_mut(row).split_at_mut(queries);
            let keys = &mut rest[..kv.kv_heads * kv.head_dim];
            for (heads, gains) in [(queries, query_gains), (keys, key_gains)] {
                for head in heads.chunks_exact_mut(kv.head_dim) {
                    self.level.run(rowwise::NormInPlace { x: head, gains, eps });
                }
            }
        }
        Ok(())
    }

    fn rope_and_store(&mut self, qkv: &mut Buffer, batch: &Batch, kv: &mut Kv, layer: usize) -> Result<(), Infallible> {
        let (dim, half) = (kv.head_dim, kv.head_dim / 2);
        for row in 0..batch.rows() {
            let slot = batch.slots[row] as usize;
            let (turned, values) = qkv.row_mut(row).split_at_mut((kv.heads + kv.kv_heads) * dim);
            for head in turned.chunks_exact_mut(dim) {
                // In Hugging Face's layout, dimension i is rotated together with dimension i + `head_dim` / 2.
                self.level
                    .run(rowwise::Turn { head: head.split_at_mut(half), angles: kv.angles.at(batch.positions[row]) });
            }
            let keys = &turned[kv.heads * dim..];
            for (head, (key, value)) in keys.chunks_exact(dim).zip(values.chunks_exact(dim)).enumerate() {
                kv.write(self.level, layer, (slot, head), key, value);
            }
        }
        Ok(())
    }

    fn attention(
        &mut self,
        qkv: &Buffer,
        batch: &Batch,
        kv: &Kv,
        layer: usize,
        out: &mut Buffer,
    ) -> Result<(), Infallible> {
        attention::attention((&mut self.team, self.level), &mut self.tasks, qkv, batch, (kv, layer), out);
        Ok(())
    }

    fn swiglu(&mut self, gate_up: &Buffer, out: &mut Buffer) -> Result<(), Infallible> {
        out.set_rows(gate_up.rows);
        let (level, width) = (self.level, out.width);
        let out = out.shared();
        self.team.share(gate_up.rows, gate_up.rows * width * rowwise::SWIGLU, |row| {
            #[expect(unsafe_code, reason = "outputs are split by rows")]
            // SAFETY: each task writes its own row, so no two parts of `out` overlap.
            let out = unsafe { out.part(row, 0, width) };
            level.run(rowwise::SwiGlu { gate_up: gate_up.row(row), out });
        });
        Ok(())
    }

    fn gather(&mut self, x: &Buffer, rows: &[u32], out: &mut Buffer) -> Result<(), Infallible> {
        out.set_rows(rows.len());
        for (to, &from) in rows.iter().enumerate() {
            out.row_mut(to).copy_from_slice(x.row(from as usize));
        }
        Ok(())
    }

    fn session<R: Send>(&mut self, run: impl FnOnce(&mut Self) -> R + Send) -> R {
        match self.team.session() {
            Some(session) => session.run(|| run(self)),
            None => run(self),
        }
    }

    fn scatter(&mut self, x: &Buffer, rows: &[u32], out: &mut Buffer) -> Result<(), Infallible> {
        out.use_all();
        for (from, &to) in rows.iter().enumerate() {
            out.row_mut(to as usize).copy_from_slice(x.row(from));
        }
        Ok(())
    }

    fn sample(&mut self, probabilities: &Buffer, uniforms: &[f64], out: &mut Vec<Choice>) -> Result<(), Infallible> {
        out.clear();
        out.extend(uniforms.iter().enumerate().map(|(row, &u)| accept::sampled(probabilities.row(row), u)));
        Ok(())
    }

    fn entropy(&mut self, probabilities: &Buffer, rows: usize, out: &mut Vec<f64>) -> Result<(), Infallible> {
        out.clear();
        out.extend((0..rows).map(|row| accept::entropy(probabilities.row(row))));
        Ok(())
    }

    fn divergence(
        &mut self,
        (target, draft): (&Buffer, &Buffer),
        _: usize,
        pairs: &[(u32, u32)],
        out: &mut Vec<f64>,
    ) -> Result<(), Infallible> {
        out.clear();
        out.extend(pairs.iter().map(|&(t, d)| accept::divergence(target.row(t as usize), draft.row(d as usize))));
        Ok(())
    }

    fn move_kv(&mut self, kv: &mut Kv, moves: &[(u32, u32)]) -> Result<(), Infallible> {
        for &(from, to) in moves {
            kv.copy(from as usize, to as usize);
        }
        Ok(())
    }

    fn download(&mut self, x: &Buffer, out: &mut Vec<f32>) -> Result<(), Infallible> {
        out.clear();
        (0..x.rows).for_each(|row| out.extend_from_slice(x.row(row)));
        Ok(())
    }

    fn softmax(&mut self, logits: &Buffer, temperature: f32, out: &mut Buffer) -> Result<(), Infallible> {
        out.set_rows(logits.rows);
        for row in 0..logits.rows {
            self.level.run(rowwise::Softmax { logits: logits.row(row), temperature, out: out.row_mut(row) });
        }
        Ok(())
    }

    fn top_k(&mut self, logits: &Buffer, k: usize, out: &mut Vec<Choice>) -> Result<(), Infallible> {
        assert!((1..=logits.width).contains(&k), "the {k} likeliest of {} tokens", logits.width);
        out.clear();
        out.resize(k * logits.rows, Choice { token: 0, probability: 0.0 });
        for (row, out) in out.chunks_exact_mut(k).enumerate() {
            let sum = self.level.run(rowwise::SumOfExponentials(logits.row(row)));
            rowwise::likeliest(logits.row(row), sum, out);
        }
        Ok(())
    }

    fn accept_greedy(
        &mut self,
        logits: &Buffer,
        trees: &[Tree<'_>],
        out: &mut Vec<Accepted>,
    ) -> Result<(), Infallible> {
        out.clear();
        out.extend(trees.iter().map(|tree| accept::greedy(tree, |row| rowwise::choice(logits.row(row)))));
        Ok(())
    }

    fn accept_sampled(
        &mut self,
        target: &Buffer,
        draft: &Buffer,
        chains: &[Chain<'_>],
        out: &mut Vec<Accepted>,
    ) -> Result<(), Infallible> {
        let kept = |c: &Chain<'_>| accept::reject(c, |i| target.row(c.target + i), |i| draft.row(c.draft + i));
        out.clear();
        out.extend(chains.iter().map(kept));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
