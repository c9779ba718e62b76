//! What SGLang 0.5.23 takes by a GPU's memory where the line says nothing (`arg_groups/memory_hook.py`).

/// Most prompt tokens of a step (`--chunked-prefill-size`) on a GPU of `gib` GiB.
pub fn chunk(gib: f64) -> u32 {
    match gib {
        gib if gib < 20.0 => 2048,
        gib if gib < 60.0 => 4096,
        gib if gib < 160.0 => 8192,
        _ => 16_384,
    }
}

/// The largest batch whose decode step is captured as a CUDA graph.
fn largest_graph(gib: f64, tensor_parallel: u32) -> u32 {
    let (few, many) = match gib {
        gib if gib < 20.0 => (8, 8),
        gib if gib < 35.0 => (48, 160),
        gib if gib < 60.0 => (32, 160),
        gib if gib < 160.0 => (256, 512),
        _ => (512, 512),
    };
    if tensor_parallel < 4 { few } else { many }
}

/// The share of a GPU's memory for weights and KV (`--mem-fraction-static`). The rest is for activations, which grow
/// with the chunk, and for graphs of decode steps; SGLang also leaves some 0.2 GiB for graphs of prompts, which this
/// leaves out.
pub fn share(gib: f64, tensor_parallel: u32, chunk: u32) -> f64 {
    let mib = gib * 1024.0;
    let graphs = 2.0 * f64::from(largest_graph(gib, tensor_parallel));
    let reserved = 512.0 + 1.5 * f64::from(chunk.max(2048)) + 128.0 * f64::from(tensor_parallel) + graphs;
    let reserved = if gib > 60.0 { reserved.max(10.0 * 1024.0) } else { reserved };
    ((mib - reserved) / mib * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_by_memory_is_sglangs() {
        // 81,559 MiB: 512 + 12,288 + 128 + 512 are kept.
        assert_eq!((chunk(79.6), share(81_559.0 / 1024.0, 1, 8192)), (8192, 0.835));
        // 24,564 MiB: 512 + 6,144 + 128 + 96.
        assert_eq!((chunk(24.0), share(24_564.0 / 1024.0, 1, 4096)), (4096, 0.72));
        // Above 60 GiB at least 10 GiB are kept.
        assert_eq!(share(140.0, 8, 2048), 0.929);
    }
}
