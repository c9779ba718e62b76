//! Builds the latency model of a roofline from its settings: the times of kernels that do not depend on a pass.

use super::attention_times::AttentionTimes;
use super::experts_read::ExpertsRead;
use super::kernel_times::{ExpertTimes, KernelTimes};
use super::pass::ContextPass;
use super::pass::{BlockTimes, CommonTimes, Form, Roofline};
use super::settings::RooflineSpec;
use super::settings::peaks;
use super::settings::{ALL_REDUCE_S, BANDWIDTH, COMPUTE, LAYER_S, PARALLEL, PASS_S};
use crate::hardware::bad::BadLatency;
use crate::hardware::floors::{self, KernelFit, SMALL_KERNELS, WRITE_KERNELS, floors};
use crate::hardware::gpus::Gpu;
use crate::hardware::models::{FlopsByBits, ModelShape, Work};

impl RooflineSpec {
    /// Builds the latency model: computes all numbers of the roofline that do not depend on the pass.
    pub fn build(&self) -> Result<Roofline, BadLatency> {
        self.check()?;
        let (gpu, shape) = (self.gpu.gpu()?, self.shape()?);
        let work = shape.work();
        let form = match self.floors {
            true => Form::Kernels(self.kernel_times(&gpu, &work)?),
            false => Form::Common(self.common_times(&gpu, &work)?),
        };
        Ok(Roofline { form, context: self.context_pass(&gpu, &shape, &work)?, time_factor: self.time_factor })
    }

    /// The times of a pass that only writes keys and values. With floors, each layer has a product and the small
    /// kernels of a norm, a rotation and a write to the cache, and the joining matrix is one more product.
    fn context_pass(&self, gpu: &Gpu, shape: &ModelShape, work: &Work) -> Result<ContextPass, BadLatency> {
        let (bytes, flops) = shape.context_work();
        let n = f64::from(self.tensor_parallel);
        let alone = self.tensor_parallel == 1;
        let [fp8, fp4] = peaks(gpu, &flops)?;
        let (fixed_s, bandwidth_share, flops_share, parallel) = match self.floors {
            true => {
                let fits = floors(&self.gpu, gpu);
                let fit = fits.products.of(shape.bits.weights, shape.bits.activations);
                let layer_s = self.layer_overhead_s.unwrap_or(WRITE_KERNELS * fits.small.floor_s);
                let fixed_s = work.layers * (layer_s + fit.floor_s) + fit.floor_s;
                (fixed_s, fit.bandwidth, fit.flops, self.parallel_efficiency.unwrap_or(1.0))
            }
            false => {
                let fixed_s = work.layers * self.layer_overhead_s.unwrap_or(LAYER_S);
                (fixed_s, BANDWIDTH, COMPUTE, self.parallel_efficiency.unwrap_or(PARALLEL))
            }
        };
        let speedup = if alone { 1.0 } else { n * parallel };
        let compute = speedup * self.compute_efficiency.unwrap_or(flops_share);
        let seconds = |work: f64, peak: f64| if work == 0.0 { 0.0 } else { work / (peak * compute) };
        Ok(ContextPass {
            fixed_s,
            bytes_s: bytes / (gpu.bandwidth_bytes_s * speedup * self.bandwidth_efficiency.unwrap_or(bandwidth_share)),
            token_flops_s: seconds(flops.bf16, gpu.bf16_flops) + seconds(flops.fp8, fp8) + seconds(flops.fp4, fp4),
        })
    }

    /// The times of kernels of which all reach the same shares of bandwidth and arithmetic.
    fn common_times(&self, gpu: &Gpu, work: &Work) -> Result<CommonTimes, BadLatency> {
        let n = f64::from(self.tensor_parallel);
        let alone = self.tensor_parallel == 1;
        let speedup = if alone { 1.0 } else { n * self.parallel_efficiency.unwrap_or(PARALLEL) };
        let bandwidth = gpu.bandwidth_bytes_s * self.bandwidth_efficiency.unwrap_or(BANDWIDTH) * speedup;
        let flops = |peak: f64| peak * self.compute_efficiency.unwrap_or(COMPUTE) * speedup;
        let bf16 = flops(gpu.bf16_flops);
        let [fp8, fp4] = peaks(gpu, &work.token_flops)?.map(flops);
        let flops_s = |f: &FlopsByBits| f.bf16 / bf16 + f.fp8 / fp8 + f.fp4 / fp4;
        let (messages, token_bytes) = self.messages(work);
        let layers_s = work.layers * self.layer_overhead_s.unwrap_or(LAYER_S);
        let messages_s = messages * self.all_reduce_s.unwrap_or(ALL_REDUCE_S);
        Ok(CommonTimes {
            fixed_s: self.pass_overhead_s.unwrap_or(PASS_S) + layers_s + messages_s,
            always_bytes_s: work.always_bytes / bandwidth,
            blocks: work.blocks.iter().map(|blocks| BlockTimes::new(blocks, bandwidth)).collect(),
            token_flops_s: flops_s(&work.token_flops),
            head_bytes_s: work.head_bytes / bandwidth,
            head_flops_s: work.head_flops / bf16,
            attention: work
                .attention
                .iter()
                .map(|a| AttentionTimes::new(a, (n / a.split).max(1.0), bandwidth, bf16))
                .collect(),
            // The state of each request is read and written in a pass, hence the factor 2.
            state_bytes_s: 2.0 * work.state_bytes / bandwidth,
            link_token_s: token_bytes / gpu.link_bytes_s,
            expert_reuse: self.expert_reuse,
            experts_read: ExpertsRead::new(&self.experts_read),
        })
    }

    /// The times of kernels with their measured floors and shares.
    fn kernel_times(&self, gpu: &Gpu, work: &Work) -> Result<KernelTimes, BadLatency> {
        let (fits, kernels) = (floors(&self.gpu, gpu), &work.kernels);
        let n = f64::from(self.tensor_parallel);
        let speed = if self.tensor_parallel == 1 { 1.0 } else { self.parallel_efficiency.unwrap_or(1.0) };
        let bandwidth = |share: f64| gpu.bandwidth_bytes_s * speed * self.bandwidth_efficiency.unwrap_or(share);
        let [fp8, fp4] = peaks(gpu, &work.token_flops)?;
        let flops = |activations: f64, share: f64| {
            let peak = match activations {
                a if a <= 4.0 => fp4,
                a if a <= 8.0 => fp8,
                _ => gpu.bf16_flops,
            };
            peak * speed * self.compute_efficiency.unwrap_or(share)
        };
        let (messages, link_bytes) = self.messages(work);
        let (exchanges, exchanged_bytes) = self.exchanges(work);
        let small = bandwidth(fits.small.bandwidth);
        let layer_s = self.layer_overhead_s.unwrap_or(SMALL_KERNELS * fits.small.floor_s);
        let mut times = KernelTimes {
            fixed_s: self.pass_overhead_s.unwrap_or(floors::PASS_S)
                + work.layers * layer_s
                + (messages + exchanges) * self.all_reduce_s.unwrap_or(fits.all_reduce.floor_s)
                + kernels.attentions * fits.attention.floor_s
                + kernels.recurrences * fits.recurrent.floor_s,
            products: Vec::new(),
            experts: Vec::new(),
            attention: work
                .attention
                .iter()
                .map(|a| {
                    let copies = (n / a.split).max(1.0);
                    let flops = n * flops(16.0, fits.attention.flops);
                    AttentionTimes::new(a, copies, n * bandwidth(fits.attention.bandwidth), flops)
                })
                .collect(),
            request_s: kernels.attentions * fits.attention.request_s
                + 2.0 * work.state_bytes / n / bandwidth(fits.recurrent.bandwidth),
            token_s: kernels.attention_token_bytes / n / bandwidth(fits.attention.token_bandwidth)
                + (kernels.norm_bytes + kernels.activation_bytes / n) / small
                + link_bytes / (gpu.link_bytes_s * fits.all_reduce.bandwidth),
            ranks: f64::from(self.data_parallel),
            exchanged_s: exchanged_bytes / (gpu.link_bytes_s * fits.all_reduce.bandwidth),
            expert_reuse: self.expert_reuse,
            experts_read: ExpertsRead::new(&self.experts_read),
            by_tokens: Vec::new(),
        };
        for p in &kernels.products {
            let fit = fits.products.of(p.bits, p.activations);
            let gpus = if p.split { n } else { 1.0 };
            times.fixed_s += p.count * fit.floor_s;
            times.add_products(
                fit.join,
                p.parameters / gpus * p.bits / 8.0 / bandwidth(fit.bandwidth),
                2.0 * p.parameters / gpus / flops(p.activations, fit.flops),
            );
        }
        for e in &kernels.experts {
            let fit: &KernelFit = fits.experts.of(e.bits, e.activations);
            times.fixed_s += e.layers * fit.floor_s;
            // Each expert that a token uses reads and writes its numbers of 16 bits. Split over GPUs, each does so; if
            // experts are spread, each GPU has a part of them.
            let gpus = n * f64::from(self.data_parallel);
            let spread = if self.expert_parallel { gpus } else { 1.0 };
            let numbers = 4.0 * e.active * e.layers * work.expert_width / spread;
            // The experts of data-parallel ranks move the tokens of all ranks.
            let token_s = if self.data_parallel > 1 { &mut times.exchanged_s } else { &mut times.token_s };
            *token_s += numbers / bandwidth(fit.token_bandwidth);
            times.experts.push(ExpertTimes {
                total: e.total,
                miss: 1.0 - e.active / e.total,
                moved_s: e.parameters / gpus * e.bits / 8.0 / bandwidth(fit.bandwidth),
                computed_s: 2.0 * e.active * e.parameters / gpus / flops(e.activations, fit.flops),
                join: fit.join,
            });
        }
        Ok(times.tabulate())
    }

    /// For data-parallel ranks: (number of collective operations of a pass between ranks, bytes that a pass moves over
    /// each link for one token of any rank). (0, 0) for one rank.
    ///
    /// In a layer with experts the tokens of all ranks are gathered on all GPUs, and the experts' outputs are summed
    /// and scattered back (vLLM's default, `allgather_reducescatter`). Both together move what an all-reduce of the
    /// tokens of all ranks moves, and replace the layer's second all-reduce.
    fn exchanges(&self, work: &Work) -> (f64, f64) {
        let gpus = f64::from(self.tensor_parallel * self.data_parallel);
        match self.data_parallel {
            1 => (0.0, 0.0),
            _ => {
                let bytes = 2.0 * (gpus - 1.0) / gpus * work.expert_width * 2.0;
                (2.0 * work.sparse_layers, work.sparse_layers * bytes)
            }
        }
    }

    /// For a tensor-parallel group of GPUs: (number of collective operations of a pass, bytes that a pass moves over
    /// each link for one token). (0, 0) for one GPU.
    ///
    /// A ring all-reduce moves 2(n − 1)/n of the activations over each link. A layer has two all-reduces. With expert
    /// parallelism, the second all-reduce of a layer with experts is replaced by two exchanges, which send tokens to
    /// their experts and back. Each GPU sends 1/n of the tokens, each token goes to its active experts, and (n − 1)/n
    /// of the experts are on other GPUs.
    fn messages(&self, work: &Work) -> (f64, f64) {
        if self.tensor_parallel == 1 {
            return (0.0, 0.0);
        }
        let n = f64::from(self.tensor_parallel);
        if self.data_parallel > 1 {
            let reduces = 2.0 * work.layers - work.sparse_layers;
            return (reduces, reduces * 2.0 * (n - 1.0) / n * work.hidden * 2.0);
        }
        let reduce_bytes = 2.0 * (n - 1.0) / n * work.hidden * 2.0;
        let sparse = if self.expert_parallel { work.sparse_layers } else { 0.0 };
        let exchange_bytes = 2.0 * (n - 1.0) / n * work.expert_width * 2.0 * work.active_experts / n;
        let (reduces, exchanges) = (2.0 * work.layers - sparse, 2.0 * sparse);
        (reduces + exchanges, reduces * reduce_bytes + sparse * exchange_bytes)
    }
}
