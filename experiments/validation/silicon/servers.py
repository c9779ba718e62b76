"""How the benchmarks started their servers: settings that the rows themselves do not name.

InferenceX's are in its scripts: SemiAnalysisAI/InferenceX (Apache-2.0), commit 868ed43d1 of 2026-04-20,
benchmarks/single_node; those of Llama-70B are older and were read in its README of 2025-08. The other benchmarks name
none, so their servers have the engines' defaults.
"""

HOPPER = ("h100", "h200")

# Seconds of a request's way to the scheduler and back: the delay with the least mean relative error of TTFT beside
# summed kernels, on 106, 83 and 47 rows of the half to tune. Half of these rows have 28 to 120, 30 to 187 and 298 to
# 723 ms. HTTP, tokenizer and processes are in it, and what a prompt takes beside its kernels. Most of SGLang's servers
# looked for new requests every 10 or 30 steps.
FRONTEND_S = {"vllm": 0.030, "trtllm": 0.060, "sglang": 0.300}


def settings(row, tp, gpu, clients):
    """Token budget of a step, bits of the KV cache, and slots.

    None stands for the engine's default, and for the checkpoint's bits.
    """
    found = {"budget": None, "kv": None, "slots": None, "frontend_s": FRONTEND_S[row["backend"]]}
    if "auto-gap-analysis" in str(row["silicon_data_source"]):
        return found
    of = {"vllm": vllm, "sglang": sglang, "trtllm": trtllm}[row["backend"]]
    return found | of(row["model_path"].split("/")[1], str(row["precision"]), tp, gpu, clients, row)


def unknown(row):
    """What is known without the scripts and without servers: Llama-70B has a KV cache of 8 bits."""
    kv = 8 if row["model_path"] == "meta-llama/Llama-3.1-70B" else None
    return {"budget": None, "kv": kv, "slots": None, "frontend_s": 0.0}


def vllm(model, precision, tp, gpu, clients, row):
    if model == "gpt-oss-120b":
        return {"budget": 8192, "kv": None if gpu in HOPPER else 8}
    if model == "MiniMax-M2.5" and gpu not in HOPPER:
        return {"budget": 2 * int(row["isl"]), "kv": 8}
    if model == "Llama-3.1-70B":
        return {"budget": 8192, "kv": 8}
    return {}


def sglang(model, precision, tp, gpu, clients, row):
    if model.startswith("DeepSeek"):
        if gpu in HOPPER:
            return {"budget": 32768, "slots": 512 if row["isl"] == row["osl"] == 1024 else 256}
        if precision == "fp4":
            return {"budget": 16384, "kv": 8}
        if tp == 4:
            return {"budget": 8192, "kv": 8, "slots": 32}
        return {"budget": 32768, "kv": 8, "slots": 128}
    if model.startswith("Qwen3.5"):
        if precision == "fp8" and gpu in ("h200", "b300"):
            return {"budget": 16384, "kv": 8}
        return {"budget": 32768, "kv": None if precision == "bf16" else 8, "slots": 128}
    if model == "GLM-5" and gpu not in HOPPER:
        return {"budget": 32768, "kv": 8}
    return {}


def trtllm(model, precision, tp, gpu, clients, row):
    if model == "gpt-oss-120b":
        return {"budget": 20000, "kv": None if gpu in HOPPER else 8}
    if model.startswith("DeepSeek"):
        return {"budget": max(8192, (clients + int(row["isl"]) + 127) // 64 * 64), "kv": 8}
    if model == "Llama-3.1-70B":
        return {"kv": 8}
    return {}
