//! The operations of a device, as commands.

use super::arena::Arena;
use super::arguments::*;
use super::backend::{Backend, Mark};
use super::batch::{SPARE_BLOCKS, STRETCH, STRETCHES, Sent, part_numbers};
use super::error::CudaError;
use super::gpu::Gpu;
use super::memory::{Buffer, Kv, Matrix, Memory, Vector, stride};
use super::passes::{self, Passes};
use super::program::{Matmul, MatmulShape, Program};
use super::tuning::Tuning;
use crate::accept::{self, Accepted, Chain, Tree};
use crate::cpu::{frequencies, number};
use crate::device::{Choice, Device};
use crate::model::LlamaShape;
use crate::paged::{BLOCK_SIZE, Batch};
use crate::weights::{Dtype, TensorData};
use half::bf16;
use rayon::prelude::*;
use std::sync::Arc;
use std::time::Duration;

/// Most rows of a pass: a grid of blocks is not higher.
const MOST_ROWS: usize = 65_535;

/// Bytes of weights that are made on the host at once.
const PIECE: usize = 64 << 20;

/// An NVIDIA GPU.
pub struct Cuda {
    backend: Arc<dyn Backend>,
    tuning: Tuning,
    arena: Arena,
    /// Commands of the pass, or of the operation at hand.
    program: Program,
    /// Is a pass being collected?
    in_pass: bool,
    /// The batch of the pass.
    sent: Option<Sent>,
    passes: Passes,
    /// Results that go to the host, and the same on the host.
    results: Memory,
    host: Vec<u8>,
}

impl Cuda {
    /// The GPU of this number, tuned as the environment says ([`Tuning::from_environment`]).
    ///
    /// # Errors
    /// A library is missing, there is no such GPU, it is too old, or the kernels do not compile for it.
    pub fn new(ordinal: usize) -> Result<Cuda, CudaError> {
        Cuda::tuned(ordinal, Tuning::from_environment())
    }

    /// The GPU of this number.
    ///
    /// # Errors
    /// As [`Cuda::new`].
    pub fn tuned(ordinal: usize, tuning: Tuning) -> Result<Cuda, CudaError> {
        Cuda::on(Arc::new(Gpu::new(ordinal, tuning.dependent_launches)?), tuning)
    }

    /// On this backend.
    ///
    /// # Errors
    /// Too little memory for what every pass needs.
    pub fn on(backend: Arc<dyn Backend>, tuning: Tuning) -> Result<Cuda, CudaError> {
        let (arena, results) = (Arena::new(&backend)?, Memory::new(&backend, 1 << 16)?);
        Ok(Cuda {
            backend,
            tuning,
            arena,
            program: Program::default(),
            in_pass: false,
            sent: None,
            passes: Passes::default(),
            results,
            host: Vec::new(),
        })
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.backend.name()
    }

    /// Its memory, (free, all), bytes.
    ///
    /// # Errors
    /// The driver's.
    pub fn memory(&self) -> Result<(u64, u64), CudaError> {
        self.backend.memory().map(|m| (m.free, m.total))
    }

    /// Waits until everything is done.
    ///
    /// # Errors
    /// The driver's, of anything before.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.backend.synchronize()
    }

    /// Runs something and tells how long the device took for it, by its own clock.
    ///
    /// # Errors
    /// The driver's, or that of what is run.
    pub fn timed<R>(
        &mut self,
        run: impl FnOnce(&mut Cuda) -> Result<R, CudaError>,
    ) -> Result<(R, Duration), CudaError> {
        self.start_timer()?;
        let result = run(self)?;
        Ok((result, self.stop_timer()?.unwrap_or_default()))
    }

    /// How long the device takes to copy so many bytes within its memory: what its bandwidth is measured by (each byte is
    /// read and written).
    ///
    /// # Errors
    /// Too little memory, or the driver's.
    pub fn copy_time(&mut self, bytes: u64) -> Result<Duration, CudaError> {
        let (from, to) = (Memory::new(&self.backend, bytes)?, Memory::new(&self.backend, bytes)?);
        let copy = |cuda: &mut Cuda| cuda.backend.copy(to.address, from.address, bytes);
        copy(self)?;
        let mut times = (0..9).map(|_| Ok(self.timed(copy)?.1)).collect::<Result<Vec<_>, CudaError>>()?;
        times.sort();
        Ok(times[times.len() / 2])
    }

    /// CUDA graphs made so far.
    pub fn graphs(&self) -> usize {
        self.passes.graphs()
    }

    /// Puts rows of numbers into a buffer.
    ///
    /// # Errors
    /// The driver's.
    pub fn fill(&mut self, numbers: &[f32], out: &mut Buffer) -> Result<(), CudaError> {
        let width = out.width;
        assert!(numbers.len().is_multiple_of(width), "whole rows");
        out.set_rows(numbers.len() / width);
        let dense = Memory::new(&self.backend, 4 * numbers.len() as u64)?;
        self.backend.upload(dense.address, &bytes_of(numbers))?;
        let arguments = PackArgs {
            input: In::at(dense.address),
            out: Out::at(out.memory.address),
            width: width as u32,
            stride: out.stride(),
            wide: out.wide.into(),
            _even: 0,
        };
        let grid = [width.div_ceil(256), out.rows, 1];
        self.now(|program| program.launch(&PACK, grid, [256, 1], 0, &arguments))?;
        self.backend.synchronize()
    }

    /// Adds commands; does them at once outside of a pass.
    fn now(&mut self, add: impl FnOnce(&mut Program)) -> Result<(), CudaError> {
        if self.in_pass {
            add(&mut self.program);
            return Ok(());
        }
        self.program.clear();
        add(&mut self.program);
        self.arena.send(&self.backend)?;
        passes::run(&*self.backend, &self.program)
    }

    /// Rows that are computed for so many: padding is part of a pass.
    fn padded(&self, rows: usize) -> usize {
        if self.in_pass { self.tuning.padded(rows) } else { rows }
    }

    /// Begins what is not part of a pass: what the device was told before is of no use to it.
    fn begin(&mut self) {
        if !self.in_pass {
            self.arena.clear();
            self.sent = None;
        }
    }

    /// The batch on the device.
    fn send(&mut self, batch: &Batch) -> Sent {
        self.begin();
        if let Some(sent) = self.sent.as_ref().filter(|sent| sent.is(batch)) {
            return sent.clone();
        }
        let sent = Sent::new(batch, &self.tuning, self.in_pass, &mut self.arena);
        self.sent = Some(sent.clone());
        sent
    }

    fn any_buffer(&mut self, rows: usize, width: usize, wide: bool) -> Result<Buffer, CudaError> {
        if rows > MOST_ROWS {
            return Err(CudaError::Unsupported(format!("{rows} rows of a pass; at most {MOST_ROWS}")));
        }
        let capacity = self.tuning.padded(rows);
        let bytes = (capacity * stride(width) * if wide { 4 } else { 2 }) as u64;
        let memory = Memory::new(&self.backend, bytes)?;
        Ok(Buffer { memory, rows: 0, width, most: rows, capacity, wide })
    }

    /// Fills part of a matrix, from output `first` on.
    fn put(&mut self, matrix: &Matrix, data: TensorData<'_>, first: usize, outputs: usize) -> Result<(), CudaError> {
        let (inputs, stride) = (matrix.inputs, stride(matrix.inputs));
        let at = matrix.memory.address + 2 * (first * stride) as u64;
        match data {
            TensorData::Random { luck, scale, .. } => {
                // Drawn as f32 or bf16, they are kept as bf16: rounding once is rounding twice.
                let arguments = RandomWeightsArgs {
                    out: Out::at(at),
                    base: luck.base(),
                    scale,
                    rows: outputs as u32,
                    width: inputs as u32,
                    stride: stride as u32,
                };
                let blocks = (outputs * inputs).div_ceil(256).min(8192);
                self.now(|program| program.launch(&RANDOM_WEIGHTS, [blocks, 1, 1], [256, 1], 0, &arguments))
            }
            TensorData::Stored { dtype: Dtype::Bf16, bytes } if inputs == stride => {
                self.backend.upload(at, &bytes[..2 * outputs * inputs])
            }
            _ => {
                let rows_at_once = (PIECE / (2 * stride)).max(1);
                for from in (0..outputs).step_by(rows_at_once) {
                    let rows = rows_at_once.min(outputs - from);
                    let mut piece = vec![0u8; 2 * rows * stride];
                    piece.par_chunks_exact_mut(2 * stride).enumerate().for_each(|(row, out)| {
                        for (i, out) in out.chunks_exact_mut(2).take(inputs).enumerate() {
                            let x = bf16::from_f32(number(data, (from + row) * inputs + i));
                            out.copy_from_slice(&x.to_le_bytes());
                        }
                    });
                    self.backend.upload(at + 2 * (from * stride) as u64, &piece)?;
                }
                Ok(())
            }
        }
    }

    /// Rejection sampling; three results a chain into `self.host`: tokens kept, what follows, its probability.
    fn draw(&mut self, target: &Buffer, draft: &Buffer, chains: &[Chain<'_>]) -> Result<(), CudaError> {
        let units = |chain: &Chain<'_>| {
            let luck = chain.luck;
            (0..2 * (chain.tokens.len() as u64 + 1)).map(move |position| luck.unit(position))
        };
        let units: Vec<f64> = chains.iter().flat_map(units).collect();
        let chains: Vec<_> = chains.iter().map(|c| (c.target, c.draft, c.tokens)).collect();
        self.draw_with(target, draft, &chains, &units)
    }

    /// As [`Cuda::draw`], with the uniforms of all chains given: 2·(n + 1) for one of n tokens.
    fn draw_with(
        &mut self,
        target: &Buffer,
        draft: &Buffer,
        chains: &[(usize, usize, &[u32])],
        units: &[f64],
    ) -> Result<(), CudaError> {
        assert_eq!(target.width, draft.width, "one vocabulary");
        self.begin();
        let mut first = 0;
        let mut descriptions = Vec::with_capacity(4 * chains.len());
        for &(target_row, draft_row, tokens) in chains {
            let rows = (target_row + tokens.len() < target.rows, draft_row + tokens.len() <= draft.rows);
            assert_eq!(rows, (true, true), "rows of the target and of the draft");
            assert!(tokens.iter().all(|&t| (t as usize) < target.width), "a token beyond the vocabulary");
            descriptions.extend([target_row, draft_row, first, tokens.len()].map(|n| n as u32));
            first += tokens.len();
        }
        let units = self.arena.push(units.iter().flat_map(|u| words_of(u.to_bits())), 0, 0);
        let descriptions = self.arena.push(descriptions, 0, 0);
        let tokens = self.arena.push(chains.iter().flat_map(|chain| chain.2.iter().copied()), 0, 0);
        let results = self.results(12 * chains.len())?;
        let arguments = RejectArgs {
            target: In::at(target.wide()),
            draft: In::at(draft.wide()),
            chains: In::at(descriptions),
            tokens: In::at(tokens),
            units: In::at(units),
            out: Out::at(results),
            width: target.width as u32,
            target_stride: target.stride(),
            draft_stride: draft.stride(),
            _even: 0,
        };
        self.now(|program| program.launch(&REJECT, [chains.len(), 1, 1], [512, 1], 0, &arguments))?;
        self.fetch(12 * chains.len())
    }

    /// Relative entropies of pairs of rows; entropies of the first without a second.
    fn divergences(
        &mut self,
        target: &Buffer,
        draft: Option<&Buffer>,
        pairs: impl ExactSizeIterator<Item = (u32, u32)>,
        out: &mut Vec<f64>,
    ) -> Result<(), CudaError> {
        self.begin();
        let count = pairs.len();
        let pairs = self.arena.push(pairs.flat_map(|(t, d)| [t, d]), 0, 0);
        let results = self.results(8 * count)?;
        let arguments = DivergenceArgs {
            target: In::at(target.wide()),
            draft: In::at(draft.map_or(0, Buffer::wide)),
            pairs: In::at(pairs),
            out: Out::at(results),
            width: target.width as u32,
            target_stride: target.stride(),
            draft_stride: draft.map_or(0, Buffer::stride),
            _even: 0,
        };
        self.now(|program| program.launch(&DIVERGENCE, [count, 1, 1], [512, 1], 0, &arguments))?;
        self.fetch(8 * count)?;
        let number = |i: usize| {
            let bits = u64::from(word(&self.host, 2 * i)) | u64::from(word(&self.host, 2 * i + 1)) << 32;
            f64::from_bits(bits)
        };
        out.clear();
        out.extend((0..count).map(number));
        Ok(())
    }

    /// Room for results, and where it is.
    fn results(&mut self, bytes: usize) -> Result<u64, CudaError> {
        if (self.results.bytes as usize) < bytes {
            self.results = Memory::new(&self.backend, bytes.next_power_of_two() as u64)?;
        }
        Ok(self.results.address)
    }

    /// Downloads results into `self.host`.
    fn fetch(&mut self, bytes: usize) -> Result<(), CudaError> {
        self.host.resize(bytes, 0);
        self.backend.download(self.results.address, &mut self.host)
    }
}

fn bytes_of(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn words_of(bits: u64) -> [u32; 2] {
    [bits as u32, (bits >> 32) as u32]
}

fn word(bytes: &[u8], i: usize) -> u32 {
    u32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().expect("four bytes"))
}

/// The width of head that there are kernels for.
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

    fn kv_bytes(&self) -> u64 {
        2
    }

    /// Kept as bf16, whatever `dtype` is.
    fn matrix(&mut self, parts: &[(TensorData<'_>, usize)], inputs: usize, _: Dtype) -> Result<Matrix, CudaError> {
        let outputs = parts.iter().map(|p| p.1).sum();
        let memory = Memory::new(&self.backend, 2 * (outputs * stride(inputs)) as u64)?;
        let matrix = Matrix { memory, outputs, inputs };
        let mut first = 0;
        for &(data, outputs) in parts {
            self.put(&matrix, data, first, outputs)?;
            first += outputs;
        }
        // Kernels read weights before they wait for others: these must be there.
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

    fn kv(&mut self, shape: &LlamaShape, blocks: u32) -> Result<Kv, CudaError> {
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
        // Four numbers a thread.
        let threads = (x.width / 4).next_multiple_of(32).clamp(32, 1024);
        let grid = [self.padded(x.rows), 1, 1];
        self.now(|program| program.launch(&ADD_NORM, grid, [threads, 1], 0, &arguments))
    }

    fn matmul(&mut self, x: &Buffer, weights: &Matrix, out: &mut Buffer) -> Result<(), CudaError> {
        assert_eq!((x.width, out.width), (weights.inputs, weights.outputs), "inputs and outputs of a product");
        out.set_rows(x.rows);
        let rows = self.padded(x.rows);
        if rows == 0 {
            return Ok(());
        }
        let shape = MatmulShape {
            rows: rows as u32,
            inputs: weights.inputs as u32,
            outputs: weights.outputs as u32,
            x_stride: x.stride(),
            weight_stride: stride(weights.inputs) as u32,
            out_stride: out.stride(),
            wide: out.wide,
        };
        if rows > self.tuning.few_rows.min(32) {
            let product = Matmul { x: x.narrow(), weights: weights.memory.address, out: out.memory.address, shape };
            return self.now(|program| program.matmul(&product));
        }
        let arguments = FewArgs {
            x: In::at(x.narrow()),
            weights: In::at(weights.memory.address),
            out: Out::at(out.memory.address),
            rows: shape.rows,
            inputs: shape.inputs,
            outputs: shape.outputs,
            x_stride: shape.x_stride,
            weight_stride: shape.weight_stride,
            out_stride: shape.out_stride,
            wide: shape.wide.into(),
            _even: 0,
        };
        let kernel = match rows {
            ..=8 => &MATMUL_8,
            9..=16 => &MATMUL_16,
            _ => &MATMUL_32,
        };
        let grid = [weights.outputs.div_ceil(16), 1, 1];
        self.now(|program| program.launch(kernel, grid, [256, 1], 0, &arguments))
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
        // A warp a head.
        let grid = [(kv.heads + kv.kv_heads).div_ceil(4), self.padded(qkv.rows), 1];
        self.now(|program| program.launch(&NORM_HEADS, grid, [128, 1], 0, &arguments))
    }

    fn rope_and_store(&mut self, qkv: &mut Buffer, batch: &Batch, kv: &mut Kv, layer: usize) -> Result<(), CudaError> {
        assert_eq!(qkv.rows, batch.rows(), "rows of the batch");
        let sent = self.send(batch);
        let (keys, values) = kv.layer(layer);
        let arguments = RopeStoreArgs {
            qkv: Out::at(qkv.narrow()),
            keys: Out::at(keys),
            values: Out::at(values),
            slots: In::at(sent.slots),
            positions: In::at(sent.positions),
            frequencies: In::at(kv.frequencies.address),
            stride: qkv.stride(),
            heads: kv.heads as u32,
            kv_heads: kv.kv_heads as u32,
            head_dim: kv.head_dim as u32,
            dim: kv.dim as u32,
            _even: 0,
        };
        let half = kv.head_dim / 2;
        let heads_at_once = (256 / half).max(1);
        let grid = [(kv.heads + 2 * kv.kv_heads).div_ceil(heads_at_once), sent.padded, 1];
        self.now(|program| program.launch(&ROPE_STORE, grid, [half, heads_at_once], 0, &arguments))
    }

    fn attention(
        &mut self,
        qkv: &Buffer,
        batch: &Batch,
        kv: &Kv,
        layer: usize,
        out: &mut Buffer,
    ) -> Result<(), CudaError> {
        assert_eq!((qkv.rows, out.width), (batch.rows(), kv.heads * kv.head_dim), "rows and width of the batch");
        out.set_rows(qkv.rows);
        let mut sent = self.send(batch);
        let tiles = sent.tiles(batch, kv, &self.tuning, self.in_pass, &mut self.arena);
        let (keys, values) = kv.layer(layer);
        let arguments = |tiles_at: u64| AttendArgs {
            qkv: In::at(qkv.narrow()),
            keys: In::at(keys),
            values: In::at(values),
            out: Out::at(out.narrow()),
            tiles: In::at(tiles_at),
            prefixes: In::at(sent.prefixes),
            bits_at: In::at(sent.bits_at),
            bits: In::at(sent.bits),
            words: In::at(tiles.words),
            parts: Out::at(kv.parts.address),
            done: Out::at(kv.done.address),
            qkv_stride: qkv.stride(),
            out_stride: out.stride(),
            kv_heads: kv.kv_heads as u32,
            group: kv.group() as u32,
            head_dim: kv.head_dim as u32,
            stretch: STRETCH as u32,
            // Exponentials are of base 2.
            scale: std::f32::consts::LOG2_E / (kv.head_dim as f32).sqrt(),
            _even: 0,
        };
        let (few, many) = (arguments(tiles.few), arguments(tiles.many));
        let (split, tile) = match kv.dim {
            64 => (&ATTEND_SPLIT_64, &ATTEND_TILE_64),
            _ => (&ATTEND_SPLIT_128, &ATTEND_TILE_128),
        };
        self.sent = Some(sent);
        self.now(|program| {
            let heads = kv.kv_heads;
            program.launch(split, [tiles.few_count, heads, tiles.stretches], [128, 1], 0, &few);
            program.launch(tile, [tiles.many_count, heads, 1], [128, 1], tile_memory(kv.dim), &many);
        })
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

    fn gather(&mut self, x: &Buffer, rows: &[u32], out: &mut Buffer) -> Result<(), CudaError> {
        assert_eq!((x.width, x.wide), (out.width, out.wide), "rows of one kind");
        assert!(rows.iter().all(|&row| (row as usize) < x.rows), "a row of {} that are not there", x.rows);
        self.begin();
        out.set_rows(rows.len());
        let padded = self.padded(rows.len());
        let known = self.sent.as_ref().map(|sent| sent.logit_rows).filter(|&at| self.arena.holds(at, rows));
        let at = known.unwrap_or_else(|| self.arena.push(rows.iter().copied(), padded, 0));
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
        // A chain without tokens is a draw from the target; the first of its two uniforms is not used.
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

    /// The choices are made on the device, one a row, and walked along on the host: a few numbers, which the host waits
    /// for in any case.
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
