//! GPUs with the numbers of their datasheets: dense bf16 peak, memory bandwidth, memory, and link bandwidth.

/// The datasheet of a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gpu {
    /// Preset name.
    pub name: &'static str,
    /// Dense bf16 tensor peak, FLOP/s (without sparsity).
    pub peak_flops: f64,
    /// Memory bandwidth, bytes/s.
    pub bandwidth: f64,
    /// Memory, bytes.
    pub memory: f64,
    /// Bandwidth to other GPUs in one direction, bytes/s, for all-reduces.
    pub link: f64,
    /// Source of the numbers.
    pub source: &'static str,
}

const GIB: f64 = (1u64 << 30) as f64;

/// The presets.
pub const GPUS: [Gpu; 5] = [
    Gpu {
        name: "a100-40g",
        peak_flops: 312e12,
        bandwidth: 1555e9,
        memory: 40.0 * GIB,
        link: 300e9,
        source: "NVIDIA A100 datasheet (SXM4 40 GB): 312 TFLOPS bf16, 1,555 GB/s, NVLink 600 GB/s both ways",
    },
    Gpu {
        name: "a100-80g",
        peak_flops: 312e12,
        bandwidth: 2039e9,
        memory: 80.0 * GIB,
        link: 300e9,
        source: "NVIDIA A100 datasheet (SXM4 80 GB): 312 TFLOPS bf16, 2,039 GB/s, NVLink 600 GB/s both ways",
    },
    Gpu {
        name: "l40",
        peak_flops: 181.05e12,
        bandwidth: 864e9,
        memory: 45.0 * GIB,
        link: 32e9,
        source: "NVIDIA L40 datasheet: 181.05 TFLOPS bf16 dense, 864 GB/s, PCIe 4.0 x16 64 GB/s both ways; 48 GB, of which its driver reports 45 GiB with ECC on",
    },
    Gpu {
        name: "h100",
        peak_flops: 989e12,
        bandwidth: 3350e9,
        memory: 80.0 * GIB,
        link: 450e9,
        source: "NVIDIA H100 datasheet (SXM5): 1,979 TFLOPS bf16 with sparsity, 3.35 TB/s, NVLink 900 GB/s both ways",
    },
    Gpu {
        name: "h200",
        peak_flops: 989e12,
        bandwidth: 4800e9,
        memory: 140.0 * GIB,
        link: 450e9,
        source: "NVIDIA H200 datasheet (SXM): 1,979 TFLOPS bf16 with sparsity, 4.8 TB/s, NVLink 900 GB/s both ways; 141 GB, of which its driver reports 140 GiB",
    },
];

/// The preset with this name.
pub fn gpu(name: &str) -> Option<&'static Gpu> {
    GPUS.iter().find(|g| g.name == name)
}
