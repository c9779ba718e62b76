"""Writes the tokenizer and the generation config of the pair, so that its folders are complete checkpoints.

    pip install tokenizers==0.23.3
    python kernels/pair/tokenizer.py

A token is a byte, and its id is the byte's value. Byte-level BPE without merges does this: its alphabet has a visible
character for each of the 256 bytes. There is no special token: every id is a byte that a text may contain, so no id may
begin, end or fill up a text.
"""

import json
import pathlib

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

HERE = pathlib.Path(__file__).parent

# `tokenizer.json` has no special token, and these files must not name one either.
TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "clean_up_tokenization_spaces": False,
    "model_max_length": 2048,
}
# Null, not left out: a LlamaConfig without the key ends its texts at token 2.
GENERATION_CONFIG = {"do_sample": False, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}


def alphabet():
    """The characters of ByteLevel by byte: a visible one of Latin-1 stands for itself, the others for those from 256 on."""
    visible = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return [chr(byte if byte in visible else next(others)) for byte in range(256)]


def tokenizer():
    vocabulary = {character: byte for byte, character in enumerate(alphabet())}
    assert set(vocabulary) == set(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    # Where words begin matters only for merges.
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    return made


def check(made):
    """Checks every character of UTF-8's four lengths, and texts that tokenizers often change."""
    texts = ["", " ", "\n", " a  b \r\n\t c. ", "don 't , .", "e\u0301 \u00e9 ﬁ", "<s></s><unk>[PAD]"]
    texts += ["".join(map(chr, (*range(at, min(at + 4096, 0xD800)),))) for at in range(0, 0xD800, 4096)]
    texts += ["".join(map(chr, range(at, at + 4096))) for at in range(0xE000, 0x11_0000, 4096)]
    for text in texts:
        ids = made.encode(text).ids
        assert ids == list(text.encode()), text[:80]
        assert made.decode(ids, skip_special_tokens=False) == text, text[:80]


def main():
    made = tokenizer()
    check(made)
    for name in ("target", "draft"):
        folder = HERE / name
        made.save(str(folder / "tokenizer.json"))
        check(Tokenizer.from_file(str(folder / "tokenizer.json")))
        for file, content in (("tokenizer_config.json", TOKENIZER_CONFIG), ("generation_config.json", GENERATION_CONFIG)):
            (folder / file).write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
