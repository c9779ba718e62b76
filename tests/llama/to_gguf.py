"""Writes the shipped pair as GGUF files for llama.cpp.

    pip install gguf numpy
    python tests/llama/to_gguf.py FOLDER      # FOLDER/target.gguf and FOLDER/draft.gguf

llama.cpp's own `convert_hf_to_gguf.py` (b11434) refuses the pair: it knows tokenizers by a hash, and ours is not in its
list. This script writes the same keys and tensors with llama.cpp's library `gguf`. Weights become f32, which holds
every bf16 number exactly.
"""

import json
import pathlib
import sys

import gguf
import numpy

PAIR = pathlib.Path(__file__).parents[2] / "kernels" / "pair"

# llama.cpp ends a text at a token that the file must name: without a name it is token 11 for tokenizers of this kind.
# UTF-8 never has the byte 255, and the models have not seen it.
NEVER = 255


def tensors(path):
    """The tensors of a safetensors file of bf16 numbers, as f32 arrays by name."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    for name, entry in header.items():
        assert entry["dtype"] == "BF16", f"{name} is {entry['dtype']}"
        begin, end = entry["data_offsets"]
        halves = numpy.frombuffer(data[start + begin : start + end], dtype="<u2").astype(numpy.uint32)
        yield name, (halves << 16).view(numpy.float32).reshape(entry["shape"])


def interleaved(weights, heads):
    """Rows of a query or key matrix in llama.cpp's order: it rotates neighbours, transformers rotates halves."""
    rows, columns = weights.shape
    return weights.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write(folder, path):
    config = json.loads((folder / "config.json").read_text())
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.get)
    layers, heads, kv_heads = (config[f"num_{what}"] for what in ("hidden_layers", "attention_heads", "key_value_heads"))

    out = gguf.GGUFWriter(path, "llama")
    out.add_name(f"foretoken-tiny-{folder.name}")
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_block_count(layers)
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(heads)
    out.add_head_count_kv(kv_heads)
    out.add_key_length(config["head_dim"])
    out.add_value_length(config["head_dim"])
    out.add_rope_dimension_count(config["head_dim"])
    out.add_rope_freq_base(config["rope_theta"])
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    out.add_vocab_size(len(tokens))
    out.add_file_type(gguf.LlamaFileType.ALL_F32)

    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("gpt-2")
    out.add_token_list(tokens)
    out.add_token_types([gguf.TokenType.NORMAL] * len(tokens))
    # The library writes no empty list, and llama.cpp needs one. No text has the two tokens of this merge.
    out.add_token_merges([f"{tokens[NEVER]} {tokens[NEVER]}"])
    out.add_bos_token_id(NEVER)
    out.add_eos_token_id(NEVER)
    out.add_add_bos_token(False)
    out.add_add_eos_token(False)

    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, layers)
    for name, weights in tensors(folder / "model.safetensors"):
        if name.endswith("q_proj.weight"):
            weights = interleaved(weights, heads)
        elif name.endswith("k_proj.weight"):
            weights = interleaved(weights, kv_heads)
        out.add_tensor(names.get_name(name, try_suffixes=(".weight",)), numpy.ascontiguousarray(weights))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def main():
    into = pathlib.Path(sys.argv[1])
    into.mkdir(parents=True, exist_ok=True)
    for name in ("target", "draft"):
        write(PAIR / name, into / f"{name}.gguf")


if __name__ == "__main__":
    main()
