"""Measures Hugging Face transformers with SDPA on the shapes that `gpu-check` measures.

python kernels/gpu/transformers_baseline.py > transformers.json

Needs torch with CUDA and transformers. Weights are random: timing needs shapes. Times are medians by CUDA events.
"""

import json
import statistics
import sys

import torch
import transformers
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, StaticCache

DEVICE = torch.device("cuda")
VICUNA = dict(
    hidden_size=4096, intermediate_size=11008, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=32,
    vocab_size=32000, max_position_embeddings=4096, rms_norm_eps=1e-5, tie_word_embeddings=False,
)


def median_s(run, repeats):
    for _ in range(3):
        run()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return statistics.median(times)


def copy():
    source = torch.empty(4 << 30, dtype=torch.uint8, device=DEVICE).random_(256)
    target = torch.empty_like(source)
    return {"bytes_per_s": 2 * source.numel() / median_s(lambda: target.copy_(source), 9)}


def matmul_peak():
    flops = {}
    for n in (4096, 8192, 16384):
        a = torch.randn(n, n, dtype=torch.bfloat16, device=DEVICE)
        b = torch.randn(n, n, dtype=torch.bfloat16, device=DEVICE)
        flops[n] = 2 * n**3 / median_s(lambda: a @ b.T, 15)
    return {"flops": max(flops.values()), "sizes": flops}


def vicuna():
    config = LlamaConfig(**VICUNA, attn_implementation="sdpa")
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(DEVICE):
        model = LlamaForCausalLM(config)
    return model.eval()


def matrix_numbers(model):
    return sum(p.numel() for name, p in model.named_parameters() if p.dim() == 2 and "embed_tokens" not in name)


def decode(model):
    ids = torch.randint(0, 32000, (1, 128), device=DEVICE)
    new = torch.randint(0, 32000, (1, 1), device=DEVICE)
    cache = DynamicCache()
    model(ids, past_key_values=cache, use_cache=True)

    def step():
        model(new, past_key_values=cache, use_cache=True)
        cache.crop(128)

    time = median_s(step, 40)
    return {"bytes_per_s": 2 * matrix_numbers(model) / time, "seconds": time, "context": 128}


def decode_with_graph(model):
    """One step of `decode` as a CUDA graph, with a static cache, so that the host's time does not count."""
    cache = StaticCache(config=model.config, max_cache_len=256)
    new = torch.randint(0, 32000, (1, 1), device=DEVICE)
    ids = torch.randint(0, 32000, (1, 128), device=DEVICE)
    model(ids, past_key_values=cache, cache_position=torch.arange(128, device=DEVICE))
    at = torch.tensor([128], device=DEVICE)
    step = lambda: model(new, past_key_values=cache, cache_position=at, position_ids=at[None])
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    time = median_s(graph.replay, 40)
    return {"bytes_per_s": 2 * matrix_numbers(model) / time, "seconds": time, "context": 128}


def tried(measure, model):
    """The measurement, or its error: not every version of transformers can record a graph."""
    try:
        return measure(model)
    except Exception as why:
        return {"error": f"{type(why).__name__}: {why}"[:300]}


def prefill(model):
    n = 4096
    ids = torch.randint(0, 32000, (1, n), device=DEVICE)
    time = median_s(lambda: model(ids, use_cache=True, logits_to_keep=1), 10)
    head = 32000 * 4096
    products = 2 * ((matrix_numbers(model) - head) * n + head)
    attention = 4 * n * (n + 1) / 2 * 4096 * 32
    return {"flops": (products + attention) / time, "seconds": time}


def attention():
    shapes = []
    for name, heads, kv_heads in (("vicuna-7b", 32, 32), ("llama-3.1-8b", 32, 8)):
        for requests in (1, 8):
            q = torch.randn(requests, heads, 1, 128, dtype=torch.bfloat16, device=DEVICE)
            k, v = (torch.randn(requests, kv_heads, 16384, 128, dtype=torch.bfloat16, device=DEVICE) for _ in range(2))
            run = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=heads != kv_heads)
            time = median_s(run, 15)
            shapes.append({"model": name, "requests": requests, "bytes_per_s": 2 * 2 * k.numel() / time, "seconds": time})
    return {"bytes_per_s": shapes[0]["bytes_per_s"], "shapes": shapes}


def main():
    torch.manual_seed(1)
    out = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "transformers": transformers.__version__}
    with torch.inference_mode():
        out["copy"], out["matmul-peak"], out["attention"] = copy(), matmul_peak(), attention()
        torch.cuda.empty_cache()
        model = vicuna()
        out["decode"], out["prefill"] = decode(model), prefill(model)
        out["decode-with-graph"] = tried(decode_with_graph, model)
    json.dump(out, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
