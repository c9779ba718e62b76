"""Trains the shipped pair: a byte-level Llama of some 4 million parameters and a draft a tenth of its size.

    cargo run --release -- traces text --seed 1 --n 360000 -o corpus.jsonl
    pip install torch safetensors
    torchrun --nproc-per-node 2 kernels/pair/train.py corpus.jsonl --minutes 45

Each core runs one process with one thread, which has its part of every batch: on a busy machine this loses far less
time than threads that wait for each other in every operation. `python kernels/pair/train.py` trains in one process.

Both models see the same batches. The seed fixes the initial weights and the order of the text, and nothing else. The
number of steps depends on the machine. The learning rate follows the share of the time that is used up, so it is small
at the end of every run. The result has the number of steps. Checkpoints are written every few minutes, and a second
call continues from them.
"""

import argparse
import json
import math
import os
import pathlib
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

HERE = pathlib.Path(__file__).parent

COMMON = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "vocab_size": 256,
    "tie_word_embeddings": True,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 2048,
    "head_dim": 64,
    "torch_dtype": "bfloat16",
    # Null, not left out: Llama's default begins texts with token 1 and ends them at token 2, which are ordinary bytes
    # here.
    "bos_token_id": None,
    "eos_token_id": None,
}
CONFIGS = {
    "target": COMMON | {
        "hidden_size": 256,
        "num_hidden_layers": 5,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 704,
    },
    "draft": COMMON | {
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 352,
    },
}
PARAMETERS = {"target": (3_600_000, 4_200_000), "draft": (300_000, 500_000)}
# Matrices of layers are trained with Muon, which learns more from few tokens; embeddings and gains with AdamW.
LEARNING_RATE = {"muon": 4e-3, "adamw": 2e-3}
# Users ask for answers; the questions before them are mostly random.
WEIGHT_OF_PROMPTS = 0.2
BATCH_TOKENS = 4096
SEQUENCE = 512
# In the later part of training every second batch has sequences of the greatest length, so that the models learn late
# positions. This must come while there is time to learn: at positions never trained the loss is ten times as high.
LONG_SEQUENCE, LONG_FROM = 2048, 0.5
WARM_UP, DECAY_FROM = 0.02, 0.4


class Norm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x.float(), self.weight.shape, self.weight, self.eps)


def rotate(x, cos, sin):
    """Hugging Face's halves: the second half of a head is the partner of the first."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads, self.dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        hidden = c["hidden_size"]
        self.q_proj = nn.Linear(hidden, self.heads * self.dim, bias=False)
        self.k_proj = nn.Linear(hidden, self.kv_heads * self.dim, bias=False)
        self.v_proj = nn.Linear(hidden, self.kv_heads * self.dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.dim, hidden, bias=False)

    def forward(self, x, cos, sin):
        split = lambda y, heads: y.view(*x.shape[:2], heads, self.dim).transpose(1, 2)
        q = rotate(split(self.q_proj(x), self.heads), cos, sin)
        k = rotate(split(self.k_proj(x), self.kv_heads), cos, sin)
        v = split(self.v_proj(x), self.kv_heads)
        group = self.heads // self.kv_heads
        k, v = (y.repeat_interleave(group, 1) for y in (k, v))
        y = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(*x.shape[:2], -1))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        hidden, inner = c["hidden_size"], c["intermediate_size"]
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])
        self.self_attn = Attention(c)
        self.post_attention_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])
        self.mlp = Mlp(c)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = Norm(c["hidden_size"], c["rms_norm_eps"])


class Llama(nn.Module):
    """What transformers' LlamaForCausalLM computes, with its names."""

    def __init__(self, c, generator=None):
        super().__init__()
        self.model = Body(c)
        frequencies = c["rope_theta"] ** (-torch.arange(0, c["head_dim"], 2) / c["head_dim"])
        angles = torch.arange(c["max_position_embeddings"])[:, None] * frequencies[None]
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        deep = 0.02 / math.sqrt(2 * c["num_hidden_layers"])
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                std = deep if "o_proj" in name or "down_proj" in name else 0.02
                nn.init.normal_(weight, std=std, generator=generator)

    def forward(self, tokens):
        cos, sin = self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]]
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)


def read(path):
    """For each family its text and a mask of answers (with the byte that ends them), as arrays of bytes."""
    parts = {}
    with open(path) as lines:
        for line in lines:
            one = json.loads(line)
            prompt, answer = one["prompt"].encode(), one["answer"].encode() + b"\n"
            texts, masks = parts.setdefault(one["family"], ([], []))
            texts.append(prompt + answer)
            masks.append(b"\0" * len(prompt) + b"\1" * len(answer))
    array = lambda pieces: np.frombuffer(b"".join(pieces), np.uint8)
    return {family: (array(texts), array(masks)) for family, (texts, masks) in parts.items()}


class Batches:
    """Sequences of one family each, families in turn, every family read through in one direction."""

    def __init__(self, corpus):
        self.corpus, self.families = corpus, sorted(corpus)
        self.at = dict.fromkeys(self.families, 0)
        self.turn = 0

    def next(self, length):
        rows, masks = [], []
        for _ in range(BATCH_TOKENS // length):
            family = self.families[self.turn % len(self.families)]
            self.turn += 1
            text, mask = self.corpus[family]
            at = self.at[family]
            if at + length + 1 > len(text):
                at = 0
                print(f"{family}: all read, from the start again", flush=True)
            self.at[family] = at + length
            rows.append(text[at : at + length + 1])
            masks.append(mask[at + 1 : at + length + 1])
        tokens = torch.from_numpy(np.stack(rows)).long()
        return tokens[:, :-1], tokens[:, 1:], torch.from_numpy(np.stack(masks)).bool()


def rate(share):
    """Part of the full learning rate after `share` of the time: rising, constant, then falling to a hundredth."""
    if share < WARM_UP:
        return max(share / WARM_UP, 0.05)
    if share < DECAY_FROM:
        return 1.0
    rest = min((share - DECAY_FROM) / (1 - DECAY_FROM), 1.0)
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * rest))


def save(model, name):
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    stored = {n: w.detach().to(torch.bfloat16).contiguous() for n, w in model.named_parameters()}
    save_file(stored, folder / "model.safetensors.part", metadata={"format": "pt"})
    os.replace(folder / "model.safetensors.part", folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIGS[name], indent=2) + "\n")


@torch.no_grad()
def golden(models, corpus):
    """Logits of the stored (bf16) weights in f32 on the first bytes of a family, for the test of the reader."""
    family = sorted(corpus)[0]
    tokens = torch.from_numpy(corpus[family][0][:96].copy()).long()
    out = {"tokens": tokens.int()}
    for name, model in models.items():
        exact = Llama(CONFIGS[name]).eval()
        for to, of in zip(exact.parameters(), model.parameters()):
            to.copy_(of.to(torch.bfloat16).float())
        out[name] = exact(tokens[None])[0, ::19].contiguous()
    save_file(out, HERE / "logits.safetensors")


@torch.no_grad()
def sample(model, corpus, length=120):
    """Greedy continuations of the first question of each family, for a person to look at."""
    for family, (text, mask) in sorted(corpus.items()):
        ask = len(text) // 2
        start = ask + int(np.argmax(mask[ask:] < mask[ask - 1 : -1])) if mask[ask] else ask
        open_at = start + int(np.argmax(mask[start:]))
        tokens = torch.from_numpy(text[max(start - 200, 0) : open_at].copy()).long()[None]
        asked = tokens.shape[1]
        for _ in range(length):
            with torch.autocast("cpu", torch.bfloat16):
                token = model(tokens)[0, -1].argmax()
            tokens = torch.cat((tokens, token.view(1, 1)), 1)
            if token == 10:
                break
        truth = bytes(text[open_at : open_at + length]).split(b"\n")[0].decode()
        said = bytes(tokens[0, asked:].tolist()).decode(errors="replace").strip()
        question = bytes(text[start:open_at]).decode().strip().replace("\n", " | ")
        print(f"  {family}: {question}\n    says  {said}\n    truth {truth}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=pathlib.Path, help="what `foretoken traces text` wrote")
    parser.add_argument("--minutes", type=float, default=45.0, help="length of the run")
    parser.add_argument("--seed", type=int, default=1, help="fixes the initial weights")
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--no-compile", action="store_true", help="where torch.compile finds no C++ compiler")
    parser.add_argument("--checkpoint", type=pathlib.Path, default=pathlib.Path("pair-checkpoint.pt"))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("gloo")
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    say = print if rank == 0 else lambda *_, **__: None
    args.checkpoint = args.checkpoint.with_suffix(f".{rank}")
    corpus = read(args.corpus)
    say({family: len(text) for family, (text, _) in corpus.items()}, flush=True)

    models, optimisers = {}, {}
    for name, config in CONFIGS.items():
        generator = torch.Generator().manual_seed(args.seed)
        model = models[name] = Llama(config, generator)
        count = sum(w.numel() for w in model.parameters())
        least, most = PARAMETERS[name]
        assert least <= count <= most, f"{name} has {count} parameters, not {least} to {most}"
        say(f"{name}: {count} parameters", flush=True)
        matrices = [w for n, w in model.named_parameters() if w.dim() == 2 and "embed" not in n]
        others = [w for n, w in model.named_parameters() if w.dim() == 1 or "embed" in n]
        optimisers[f"{name}-muon"] = torch.optim.Muon(matrices, weight_decay=0.05, adjust_lr_fn="match_rms_adamw")
        optimisers[f"{name}-adamw"] = torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0)
    batches = Batches(corpus)
    state = {"step": 0, "tokens": 0, "seconds": 0.0, "curve": []}
    if args.checkpoint.exists():
        kept = torch.load(args.checkpoint, weights_only=True)
        for name in models:
            models[name].load_state_dict(kept["models"][name])
        for name, optimiser in optimisers.items():
            optimiser.load_state_dict(kept["optimisers"][name])
        state, batches.at, batches.turn = kept["state"], kept["at"], kept["turn"]
        say(f"goes on at step {state['step']}", flush=True)

    def keep():
        part = args.checkpoint.with_name(args.checkpoint.name + ".part")
        torch.save({
            "models": {n: m.state_dict() for n, m in models.items()},
            "optimisers": {n: o.state_dict() for n, o in optimisers.items()},
            "state": state, "at": batches.at, "turn": batches.turn,
        }, part)
        os.replace(part, args.checkpoint)
        if rank > 0:
            return
        lines = ["step,tokens,minutes,target_answer_loss,draft_answer_loss"]
        lines += [",".join(str(v) for v in row) for row in state["curve"]]
        (HERE / "loss.csv").write_text("\n".join(lines) + "\n")

    fast = {name: model if args.no_compile else torch.compile(model, dynamic=False) for name, model in models.items()}
    total = args.minutes * 60
    before, last_kept, sums, count = time.monotonic(), state["seconds"], dict.fromkeys(models, 0.0), 0
    while state["seconds"] < total:
        share = state["seconds"] / total
        parts = batches.next(LONG_SEQUENCE if share > LONG_FROM and state["step"] % 2 else SEQUENCE)
        tokens, following, answer = (part[rank::world].contiguous() for part in parts)
        weight = torch.where(answer, 1.0, WEIGHT_OF_PROMPTS).flatten()
        total_weight = torch.where(parts[2], 1.0, WEIGHT_OF_PROMPTS).sum()
        losses_of = []
        for name, model in models.items():
            with torch.autocast("cpu", torch.bfloat16):
                logits = fast[name](tokens)
            losses = F.cross_entropy(logits.float().flatten(0, 1), following.flatten(), reduction="none")
            ((losses * weight).sum() / total_weight).backward()
            losses_of.append(losses.detach()[answer.flatten()].mean())
        weights = [w for model in models.values() for w in model.parameters()]
        if world > 1:
            flat = torch.cat([w.grad.flatten() for w in weights] + [torch.stack(losses_of) / world])
            dist.all_reduce(flat)
            losses_of = flat[-len(models) :]
            flat = flat[: -len(models)]
            for w, grad in zip(weights, flat.split([w.numel() for w in weights])):
                w.grad.copy_(grad.view_as(w))
        for name, loss in zip(models, losses_of):
            sums[name] += float(loss)
        for model in models.values():
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        # Each process updates its share of the weights, because Muon's arithmetic is expensive, and broadcasts the
        # result.
        for i, w in enumerate(weights):
            if i % world != rank:
                w.grad = None
        for name, optimiser in optimisers.items():
            for group in optimiser.param_groups:
                group["lr"] = LEARNING_RATE[name.split("-")[1]] * rate(share)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        if world > 1:
            for owner in range(world):
                mine = weights[owner::world]
                flat = torch.cat([w.detach().flatten() for w in mine])
                dist.broadcast(flat, owner)
                with torch.no_grad():
                    for w, value in zip(mine, flat.split([w.numel() for w in mine])):
                        w.copy_(value.view_as(w))
        count += 1
        state["step"] += 1
        state["tokens"] += BATCH_TOKENS
        now = time.monotonic()
        state["seconds"] += now - before
        before = now
        if world > 1:
            clock = torch.tensor([state["seconds"]], dtype=torch.float64)
            dist.broadcast(clock, 0)
            state["seconds"] = float(clock)
        if state["step"] % 50 == 0 or state["seconds"] >= total:
            row = [state["step"], state["tokens"], round(state["seconds"] / 60, 2)]
            row += [round(sums[name] / count, 4) for name in models]
            state["curve"].append(row)
            say(*row, flush=True)
            sums, count = dict.fromkeys(models, 0.0), 0
        if state["seconds"] - last_kept > 240 or state["seconds"] >= total:
            last_kept = state["seconds"]
            keep()
            if rank > 0:
                continue
            sample(models["target"], corpus)
            for name, model in models.items():
                save(model, name)
            golden(models, corpus)


if __name__ == "__main__":
    main()
