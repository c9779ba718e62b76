"""How the benchmarks started their servers: settings that the rows themselves do not name.

InferenceX's are in its scripts: SemiAnalysisAI/InferenceX (Apache-2.0), commit 868ed43d1 of 2026-04-20,
benchmarks/single_node; those of Llama-70B are older and were read in its README of 2025-08, and GLM-5's in fp4 are of
commit 800f57aaf, as its rows are. The other benchmarks name none, so their servers have the engines' defaults.
"""

HOPPER = ("h100", "h200")

# Seconds of a request's way to the scheduler and back: the delay with the least mean relative error of TTFT beside
# summed kernels, on 106, 83 and 350 rows of the half to tune. Half of these rows have 28 to 120, 30 to 187 and 135 to
# 422 ms. HTTP, tokenizer and processes are in it, and what a prompt takes beside its kernels.
FRONTEND_S = {"vllm": 0.030, "trtllm": 0.060, "sglang": 0.170}


def settings(row, tp, gpu, clients):
    """Token budget of a step, bits of the KV cache, slots, and after how many steps SGLang looks for new requests.

    None stands for the engine's default, and for the checkpoint's bits.
    """
    found = {"budget": None, "kv": None, "slots": None, "prompts": None, "looks": 1, "frontend_s": FRONTEND_S[row["backend"]]}
    if "auto-gap-analysis" in str(row["silicon_data_source"]):
        return found
    of = {"vllm": vllm, "sglang": sglang, "trtllm": trtllm}[row["backend"]]
    return found | of(row["model_path"].split("/")[1], str(row["precision"]), tp, gpu, clients, row)


def measured(row):
    """The day on which a row was measured, such as 2026-01-20."""
    return str(row["silicon_data_source"]).partition("measured=")[2][:10]


def unknown(row):
    """What is known without the scripts and without servers: Llama-70B has a KV cache of 8 bits."""
    kv = 8 if row["model_path"] == "meta-llama/Llama-3.1-70B" else None
    return {"budget": None, "kv": kv, "slots": None, "prompts": None, "looks": 1, "frontend_s": 0.0}


def fleet(row, ranks):
    """How the ranks of data-parallel attention share requests: TensorRT-LLM's `attention_dp_config` in the scripts."""
    found = {"replicas": ranks, "router": "vllm-dp", "lock_step": True}
    if row["backend"] != "trtllm":
        return found
    balance = {} if row["model_path"] == "openai/gpt-oss-120b" else {"timeout_iters": 60, "batching_wait_iters": 0}
    return found | {"router": "least-requests", "prompt_balance": balance}


def vllm(model, precision, tp, gpu, clients, row):
    if model == "gpt-oss-120b":
        return {"budget": 8192, "kv": None if gpu in HOPPER else 8}
    if model == "MiniMax-M2.5" and gpu not in HOPPER:
        return {"budget": 2 * int(row["isl"]), "kv": 8}
    if model == "Llama-3.1-70B":
        return {"budget": 8192, "kv": 8}
    return {}


def sglang(model, precision, tp, gpu, clients, row):
    looks = 30 if clients >= 16 else 10
    if model.startswith("DeepSeek"):
        if gpu in HOPPER:
            return {"budget": 32768, "slots": 512 if row["isl"] == row["osl"] == 1024 else 256}
        if precision == "fp4":
            return {"budget": 16384, "kv": 8, "slots": 256, "looks": looks}
        if tp == 4:
            return {"budget": 8192, "kv": 8, "slots": 32, "looks": 10}
        return {"budget": 32768, "kv": 8, "slots": 128, "looks": looks}
    if model.startswith("Qwen3.5"):
        if precision == "fp8" and gpu == "h200":
            return {"budget": 16384, "kv": 8, "slots": 128}
        if precision == "fp8" and gpu == "b300":
            return {"budget": 16384, "kv": 8, "looks": 10}
        return {"budget": 32768, "kv": None if precision == "bf16" else 8, "slots": 128, "looks": looks}
    if model == "GLM-5" and precision == "fp4":
        return {"budget": 131072, "prompts": 16384}
    if model == "GLM-5" and gpu not in HOPPER:
        return {"budget": 32768, "kv": 8}
    return {}


def trtllm(model, precision, tp, gpu, clients, row):
    if model == "gpt-oss-120b":
        return {"budget": 20000, "kv": None if gpu in HOPPER else 8}
    if model.startswith("DeepSeek"):
        # Since commit 64af5a771 of 2026-01-21 at least 8192.
        least = 8192 if measured(row) > "2026-01-21" else 0
        return {"budget": max(least, (clients + int(row["isl"]) + 127) // 64 * 64), "kv": 8}
    if model == "Llama-3.1-70B":
        return {"kv": 8}
    return {}
