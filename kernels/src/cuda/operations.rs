//! Implements the operations of the trait [`Device`] as commands for the GPU.

use super::arguments::*;
use super::backend::Mark;
use super::batch::{STRETCHES, part_numbers};
use super::device::{Cuda, bytes_of, word};
use super::error::CudaError;
use super::memory::{Buffer, Kv, Matrix, Memory, SPARE_BLOCKS, Vector, stride};
use super::passes;
use crate::accept::{self, Accepted, Chain, Choice, Tree};
use crate::cpu::{frequencies, number};
use crate::device::{Device, Normed};
use crate::model::LlamaShape;
use crate::paged::{BLOCK_SIZE, Batch};
use crate::weights::{Dtype, TensorData};
use std::time::Duration;

/// Returns the head width of the attention kernels for heads of width `head_dim`: 64 or 128, the smaller one that is at
/// least `head_dim`. An error if `head_dim` is above 128.
fn kernel_dim(head_dim: usize) -> Result<usize, CudaError> {
    match head_dim {
        0..=64 => Ok(64),
        65..=128 => Ok(128),
        _ => Err(CudaError::Unsupported(format!("heads of width {head_dim}; the kernels go to 128"))),
    }
}

impl Device for Cuda {
    type Matrix = Matrix;
    type Vector = Vector;
    type Buffer = Buffer;
    type Kv = Kv;
    type Error = CudaError;

    fn available_bytes(&self) -> Option<u64> {
        self.backend.memory().ok().map(|m| m.free)
    }

    fn kv_bytes(&self, _: Dtype) -> u64 {
        2
    }

    /// Makes a matrix of weights. It is stored as bf16, whatever type the caller asks for.
    fn matrix(&mut self, parts: &[(TensorData<'_>, usize)], inputs: usize, _: Dtype) -> Result<Matrix, CudaError> {
        let outputs = parts.iter().map(|p| p.1).sum();
        let memory = Memory::new(&self.backend, 2 * (outputs * stride(inputs)) as u64)?;
        let matrix = Matrix { memory, outputs, inputs };
        let mut first = 0;
        for &(data, outputs) in parts {
            self.put(&matrix, data, first, outputs)?;
            first += outputs;
        }
        // With dependent launches, a kernel reads weights before it waits for earlier commands. The weights must
        // therefore be complete before the first pass.
        self.backend.synchronize()?;
        Ok(matrix)
    }

    fn vector(&mut self, gains: TensorData<'_>, width: usize) -> Result<Vector, CudaError> {
        let numbers: Vec<f32> = (0..width).map(|i| number(gains, i)).collect();
        let memory = Memory::new(&self.backend, 4 * width as u64)?;
        self.backend.upload(memory.address, &bytes_of(&numbers))?;
        Ok(Vector { memory, width })
    }

    fn buffer(&mut self, rows: usize, width: usize) -> Result<Buffer, CudaError> {
        self.any_buffer(rows, width, true)
    }

    fn narrow_buffer(&mut self, rows: usize, width: usize) -> Result<Buffer, CudaError> {
        self.any_buffer(rows, width, false)
    }

    /// Makes the KV blocks of all layers. They are stored as bf16, whatever type the weights have.
    fn kv(&mut self, shape: &LlamaShape, _: Dtype, blocks: u32) -> Result<Kv, CudaError> {
        let (heads, kv_heads, head_dim) = (shape.heads as usize, shape.kv_heads as usize, shape.head_dim as usize);
        let (layers, blocks, dim) = (shape.layers as usize, blocks as usize, kernel_dim(head_dim)?);
        let numbers = 2 * layers * (blocks + SPARE_BLOCKS as usize) * kv_heads * BLOCK_SIZE * dim;
        let frequencies = frequencies(shape);
        let kv = Kv {
            pools: Memory::new(&self.backend, 2 * numbers as u64)?,
            frequencies: Memory::new(&self.backend, 4 * frequencies.len() as u64)?,
            parts: Memory::new(&self.backend, 4 * (STRETCHES * kv_heads * part_numbers(dim)) as u64)?,
            done: Memory::new(&self.backend, 4 * (STRETCHES * kv_heads) as u64)?,
            heads,
            kv_heads,
            head_dim,
            dim,
            layers,
            blocks,
        };
        self.backend.upload(kv.frequencies.address, &bytes_of(&frequencies))?;
        Ok(kv)
    }

    fn start_timer(&mut self) -> Result<(), CudaError> {
        self.backend.mark(Mark::Start)
    }

    fn stop_timer(&mut self) -> Result<Option<Duration>, CudaError> {
        self.backend.mark(Mark::End)?;
        self.backend.elapsed().map(Some)
    }

    fn pass<R: Send>(&mut self, run: impl FnOnce(&mut Cuda) -> Result<R, CudaError> + Send) -> Result<R, CudaError> {
        self.begin();
        self.program.clear();
        self.in_pass = true;
        let result = run(self);
        self.in_pass = false;
        let sent = self.sent.take();
        let result = result?;
        self.arena.send(&self.backend)?;
        if sent.is_some_and(|sent| self.tuning.has_graph(sent.rows)) {
            self.passes.run(&*self.backend, &self.program)?;
        } else {
            passes::run(&*self.backend, &self.program)?;
        }
        Ok(result)
    }

    /// Of several equal passes, the first loads kernels and times cuBLASLt's algorithms. If graphs are on, the second
    /// records a CUDA graph.
    fn warm_up_passes(&self) -> u32 {
        if self.tuning.graphs { 2 } else { 1 }
    }

    fn embed(&mut self, table: &Matrix, batch: &Batch, out: &mut Buffer) -> Result<(), CudaError> {
        let sent = self.send(batch);
        out.set_rows(sent.rows);
        let arguments = EmbedArgs {
            table: In::at(table.memory.address),
            tokens: In::at(sent.tokens),
            out: Out::at(out.wide()),
            width: table.inputs as u32,
            table_stride: stride(table.inputs) as u32,
            out_stride: out.stride(),
            _even: 0,
        };
        let grid = [table.inputs.div_ceil(256), sent.padded, 1];
        self.now(|program| program.launch(&EMBED, grid, [256, 1], 0, &arguments))
    }

    fn norm(
        &mut self,
        x: &mut Buffer,
        delta: Option<&Buffer>,
        gains: &Vector,
        eps: f32,
        out: &mut Buffer,
    ) -> Result<(), CudaError> {
        assert!(delta.is_none_or(|d| d.rows == x.rows && d.width == x.width), "a sum of blocks of one size");
        assert_eq!((x.width, x.width), (out.width, gains.width), "one width");
        out.set_rows(x.rows);
        let arguments = AddNormArgs {
            x: Out::at(x.wide()),
            delta: In::at(delta.map_or(0, Buffer::narrow)),
            gains: In::at(gains.memory.address),
            out: Out::at(out.narrow()),
            width: x.width as u32,
            x_stride: x.stride(),
            delta_stride: delta.map_or(0, Buffer::stride),
            out_stride: out.stride(),
            eps,
            _even: 0,
        };
        // Each thread of the kernel handles four numbers of a row.
        let threads = (x.width / 4).next_multiple_of(32).clamp(32, 1024);
        let grid = [self.padded(x.rows), 1, 1];
        self.now(|program| program.launch(&ADD_NORM, grid, [threads, 1], 0, &arguments))
    }

    fn matmul(&mut self, x: &Buffer, weights: &Matrix, out: &mut Buffer) -> Result<(), CudaError> {
        self.multiply(x, weights, out)
    }

    fn norm_heads(
        &mut self,
        qkv: &mut Buffer,
        kv: &Kv,
        query_gains: &Vector,
        key_gains: &Vector,
        eps: f32,
    ) -> Result<(), CudaError> {
        let arguments = NormHeadsArgs {
            qkv: Out::at(qkv.narrow()),
            query_gains: In::at(query_gains.memory.address),
            key_gains: In::at(key_gains.memory.address),
            stride: qkv.stride(),
            heads: kv.heads as u32,
            kv_heads: kv.kv_heads as u32,
            head_dim: kv.head_dim as u32,
            eps,
            _even: 0,
        };
        // One warp handles each head; a thread block has four warps.
        let grid = [(kv.heads + kv.kv_heads).div_ceil(4), self.padded(qkv.rows), 1];
        self.now(|program| program.launch(&NORM_HEADS, grid, [128, 1], 0, &arguments))
    }

    fn rope_and_store(&mut self, qkv: &mut Buffer, batch: &Batch, kv: &mut Kv, layer: usize) -> Result<(), CudaError> {
        self.rotate(qkv, batch, kv, layer)
    }

    fn attention(
        &mut self,
        qkv: &Buffer,
        batch: &Batch,
        kv: &Kv,
        layer: usize,
        out: &mut Buffer,
    ) -> Result<(), CudaError> {
        self.attend(qkv, batch, kv, layer, out)
    }

    fn swiglu(&mut self, gate_up: &Buffer, out: &mut Buffer) -> Result<(), CudaError> {
        assert_eq!(gate_up.width, 2 * out.width, "gates and what they let pass");
        out.set_rows(gate_up.rows);
        let arguments = SwigluArgs {
            gate_up: In::at(gate_up.narrow()),
            out: Out::at(out.narrow()),
            width: out.width as u32,
            in_stride: gate_up.stride(),
            out_stride: out.stride(),
            _even: 0,
        };
        let threads = if out.width.is_multiple_of(8) { out.width / 8 } else { out.width };
        let grid = [threads.div_ceil(256), self.padded(out.rows), 1];
        self.now(|program| program.launch(&SWIGLU, grid, [256, 1], 0, &arguments))
    }

    fn queries_keys_values(
        &mut self,
        input: Normed<'_, Cuda>,
        weights: &Matrix,
        qkv: &mut Buffer,
        batch: &Batch,
        kv: &mut Kv,
        layer: usize,
    ) -> Result<(), CudaError> {
        if self.has_few_rows(self.padded(input.x.rows)) && kv.head_dim == kv.dim {
            return self.qkv_few(input, weights, qkv, batch, (kv, layer));
        }
        self.norm(input.x, input.delta, input.gains, input.eps, input.out)?;
        self.multiply(input.out, weights, qkv)?;
        self.rotate(qkv, batch, kv, layer)
    }

    fn gated(
        &mut self,
        input: Normed<'_, Cuda>,
        weights: &Matrix,
        gate_up: &mut Buffer,
        out: &mut Buffer,
    ) -> Result<(), CudaError> {
        if self.has_few_rows(self.padded(input.x.rows)) {
            return self.gated_few(input, weights, out);
        }
        self.norm(input.x, input.delta, input.gains, input.eps, input.out)?;
        self.multiply(input.out, weights, gate_up)?;
        self.swiglu(gate_up, out)
    }

    fn matmul_and_add(
        &mut self,
        x: &Buffer,
        weights: &Matrix,
        delta: &mut Buffer,
        sum: &mut Buffer,
    ) -> Result<bool, CudaError> {
        let few = self.has_few_rows(self.padded(x.rows));
        if few {
            assert_eq!((x.width, sum.width), (weights.inputs, weights.outputs), "inputs and outputs of a product");
            assert!(sum.wide && sum.rows == x.rows, "a sum of blocks of one size");
            self.multiply_few(x, weights, sum, form::ADD)?;
        } else {
            self.multiply(x, weights, delta)?;
        }
        Ok(few)
    }

    fn gather(&mut self, x: &Buffer, rows: &[u32], out: &mut Buffer) -> Result<(), CudaError> {
        assert_eq!((x.width, x.wide), (out.width, out.wide), "rows of one kind");
        assert!(rows.iter().all(|&row| (row as usize) < x.rows), "a row of {} that are not there", x.rows);
        self.begin();
        out.set_rows(rows.len());
        let padded = self.padded(rows.len());
        let pushed_before = self.sent.as_ref().map(|sent| sent.logit_rows).filter(|&at| self.arena.holds(at, rows));
        let at = pushed_before.unwrap_or_else(|| self.arena.push(rows.iter().copied(), padded, 0));
        let arguments = GatherArgs {
            input: In::at(x.memory.address),
            rows: In::at(at),
            out: Out::at(out.memory.address),
            quads: x.stride() * if x.wide { 4 } else { 2 } / 16,
            _even: 0,
        };
        self.now(|program| program.launch(&GATHER, [padded, 1, 1], [256, 1], 0, &arguments))
    }

    fn scatter(&mut self, x: &Buffer, rows: &[u32], out: &mut Buffer) -> Result<(), CudaError> {
        assert_eq!((x.width, x.wide), (out.width, out.wide), "rows of one kind");
        assert!(rows.len() <= x.rows, "{} rows of {}", rows.len(), x.rows);
        assert!(rows.iter().all(|&row| (row as usize) < out.most), "a row beyond the {} there are", out.most);
        self.begin();
        out.set_rows(out.most);
        let at = self.arena.push(rows.iter().copied(), 0, 0);
        let arguments = GatherArgs {
            input: In::at(x.memory.address),
            rows: In::at(at),
            out: Out::at(out.memory.address),
            quads: x.stride() * if x.wide { 4 } else { 2 } / 16,
            _even: 0,
        };
        self.now(|program| program.launch(&SCATTER, [rows.len(), 1, 1], [256, 1], 0, &arguments))
    }

    fn sample(&mut self, probabilities: &Buffer, uniforms: &[f64], out: &mut Vec<Choice>) -> Result<(), CudaError> {
        // A token is drawn by verifying a chain without drafted tokens: this draws one token from the distribution in
        // `probabilities`. The first of the chain's two uniform numbers is not used.
        let none: &[u32] = &[];
        let chains: Vec<_> = (0..uniforms.len()).map(|row| (row, 0, none)).collect();
        let units: Vec<f64> = uniforms.iter().flat_map(|&u| [0.0, u]).collect();
        self.draw_with(probabilities, probabilities, &chains, &units)?;
        let choice =
            |i| Choice { token: word(&self.host, 3 * i + 1), probability: f32::from_bits(word(&self.host, 3 * i + 2)) };
        out.clear();
        out.extend((0..uniforms.len()).map(choice));
        Ok(())
    }

    fn entropy(&mut self, probabilities: &Buffer, rows: usize, out: &mut Vec<f64>) -> Result<(), CudaError> {
        assert!(rows <= probabilities.rows, "{rows} rows of {}", probabilities.rows);
        self.divergences(probabilities, None, (0..rows as u32).map(|row| (row, row)), out)
    }

    fn divergence(
        &mut self,
        (target, draft): (&Buffer, &Buffer),
        width: usize,
        pairs: &[(u32, u32)],
        out: &mut Vec<f64>,
    ) -> Result<(), CudaError> {
        assert_eq!((target.width, draft.width), (width, width), "one vocabulary");
        let there = |&(t, d): &(u32, u32)| (t as usize) < target.rows && (d as usize) < draft.rows;
        assert!(pairs.iter().all(there), "rows of the target and of the draft");
        self.divergences(target, Some(draft), pairs.iter().copied(), out)
    }

    fn move_kv(&mut self, kv: &mut Kv, moves: &[(u32, u32)]) -> Result<(), CudaError> {
        if moves.is_empty() {
            return Ok(());
        }
        self.begin();
        let spare = SPARE_BLOCKS * BLOCK_SIZE as u32;
        let pairs = self.arena.push(moves.iter().flat_map(|&(from, to)| [from + spare, to + spare]), 0, 0);
        let arguments = MoveKvArgs {
            pools: Out::at(kv.pools.address),
            pairs: In::at(pairs),
            pool_numbers: kv.pool_numbers(),
            moves: moves.len() as u32,
            kv_heads: kv.kv_heads as u32,
            dim: kv.dim as u32,
            _even: 0,
        };
        let grid = [(kv.kv_heads * kv.dim / 8).div_ceil(256), 2 * kv.layers, 1];
        self.now(|program| program.launch(&MOVE_KV, grid, [256, 1], 0, &arguments))
    }

    fn download(&mut self, x: &Buffer, out: &mut Vec<f32>) -> Result<(), CudaError> {
        assert!(!self.in_pass, "results of a pass are there when it has ended");
        let numbers = x.rows * x.width;
        let dense = self.results(4 * numbers)?;
        let arguments = UnpackArgs {
            input: In::at(x.memory.address),
            out: Out::at(dense),
            width: x.width as u32,
            stride: x.stride(),
            wide: x.wide.into(),
            _even: 0,
        };
        self.begin();
        self.now(|program| program.launch(&UNPACK, [x.width.div_ceil(256), x.rows, 1], [256, 1], 0, &arguments))?;
        self.fetch(4 * numbers)?;
        out.clear();
        out.extend(self.host.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
        Ok(())
    }

    fn softmax(&mut self, logits: &Buffer, temperature: f32, out: &mut Buffer) -> Result<(), CudaError> {
        assert_eq!(logits.width, out.width, "one vocabulary");
        self.begin();
        out.set_rows(logits.rows);
        let arguments = SoftmaxArgs {
            logits: In::at(logits.wide()),
            out: Out::at(out.wide()),
            width: logits.width as u32,
            in_stride: logits.stride(),
            out_stride: out.stride(),
            temperature,
        };
        self.now(|program| program.launch(&SOFTMAX, [logits.rows, 1, 1], [1024, 1], 0, &arguments))
    }

    fn top_k(&mut self, logits: &Buffer, k: usize, out: &mut Vec<Choice>) -> Result<(), CudaError> {
        assert!((1..=logits.width).contains(&k), "the {k} likeliest of {} tokens", logits.width);
        self.begin();
        let count = k * logits.rows;
        let tokens = self.results(8 * count)?;
        let arguments = TopKArgs {
            logits: In::at(logits.wide()),
            tokens: Out::at(tokens),
            probabilities: Out::at(tokens + 4 * count as u64),
            width: logits.width as u32,
            stride: logits.stride(),
            k: k as u32,
            _even: 0,
        };
        self.now(|program| program.launch(&TOP_K, [logits.rows, 1, 1], [1024, 1], 0, &arguments))?;
        self.fetch(8 * count)?;
        let choice =
            |i| Choice { token: word(&self.host, i), probability: f32::from_bits(word(&self.host, count + i)) };
        out.clear();
        out.extend((0..count).map(choice));
        Ok(())
    }

    /// Finds the target's most likely token of each row on the device, and walks the trees with these tokens on the
    /// host. The host is fast enough for this, because there are few tokens and the host has to wait for the device in
    /// any case.
    fn accept_greedy(&mut self, logits: &Buffer, trees: &[Tree<'_>], out: &mut Vec<Accepted>) -> Result<(), CudaError> {
        let mut choices = Vec::new();
        self.top_k(logits, 1, &mut choices)?;
        out.clear();
        out.extend(trees.iter().map(|tree| accept::greedy(tree, |row| choices[row].token)));
        Ok(())
    }

    fn accept_sampled(
        &mut self,
        target: &Buffer,
        draft: &Buffer,
        chains: &[Chain<'_>],
        out: &mut Vec<Accepted>,
    ) -> Result<(), CudaError> {
        self.draw(target, draft, chains)?;
        let accepted =
            |i| Accepted { nodes: (0..word(&self.host, 3 * i)).collect(), next: word(&self.host, 3 * i + 1) };
        out.clear();
        out.extend((0..chains.len()).map(accepted));
        Ok(())
    }
}
