"""Makes the golden models: a tiny random Llama and a tiny random Qwen3 of Hugging Face transformers, with their logits.

    pip install torch transformers safetensors
    python make.py          (made with torch 2.15.0 and transformers 5.23.0 on a CPU)

Each folder has the features of its family. Llama: grouped queries, Llama 3's rotary scaling with every branch of it in
use, a tied head. Qwen3: normalised queries and keys, heads whose widths do not sum to the model's, an output head of
its own. Both: bf16 weights, gains that are not one. Weights are stored as bf16 and computed with in f32, as Foretoken's
CPU does. `logits.safetensors` holds the prompt's `tokens` (i32), some of its `rows` (i32) and their `logits` (f32, rows
× vocabulary).
"""

import json
import pathlib

import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
KEYS = (
    "model_type hidden_size num_hidden_layers num_attention_heads num_key_value_heads head_dim intermediate_size "
    "vocab_size tie_word_embeddings rms_norm_eps max_position_embeddings hidden_act attention_bias mlp_bias "
    "rope_theta rope_scaling rope_parameters sliding_window use_sliding_window layer_types"
).split()


def make(folder, config):
    torch.manual_seed(20_240_607)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            # Larger than the usual 0.02, so that attention is far from uniform and errors show.
            weight.copy_(1 + 0.2 * torch.randn_like(weight) if "norm" in name else 0.15 * torch.randn_like(weight))
        stored = {name: weight.to(torch.bfloat16) for name, weight in model.named_parameters()}
        for name, weight in model.named_parameters():
            weight.copy_(stored[name].float())
        tokens = torch.randint(0, config.vocab_size, (70,))
        logits = model(tokens[None]).logits[0]

    folder.mkdir(exist_ok=True)
    kept = {key: value for key, value in config.to_dict().items() if key in KEYS}
    (folder / "config.json").write_text(json.dumps(kept, indent=2) + "\n")
    save_file(stored, folder / "model.safetensors")
    # Logits of every seventh token and of the last: enough to see an error at any depth of the context.
    rows = torch.tensor(sorted({*range(0, 70, 7), 69}))
    save_file(
        {"tokens": tokens.int(), "rows": rows.int(), "logits": logits[rows].float().contiguous()},
        folder / "logits.safetensors",
    )
    print(folder.name, "standard deviation of the logits", float(logits.std()))


make(
    HERE / "llama",
    transformers.LlamaConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        intermediate_size=112,
        vocab_size=160,
        tie_word_embeddings=True,
        rms_norm_eps=1e-5,
        max_position_embeddings=256,
        rope_theta=500.0,
        rope_scaling={
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
        attn_implementation="eager",
    ),
)
make(
    HERE / "qwen3",
    transformers.Qwen3Config(
        hidden_size=56,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=24,
        intermediate_size=104,
        vocab_size=150,
        tie_word_embeddings=False,
        rms_norm_eps=1e-6,
        max_position_embeddings=256,
        rope_theta=1e4,
        attn_implementation="eager",
    ),
)
