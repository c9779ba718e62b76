"""Writes what transformers' configuration classes say about keys that a `config.json` does not have.

    pip install transformers
    python defaults.py

`profiler/src/hardware/config/defaults.json`: the default of each key that decides a shape, by `model_type`.
`profiler/src/hardware/config/tests/removed.json`: for each preset of `profiler/models.json` and each of its keys, the value that
the class gives a file without this key, if it is not the default above (the class computes it from other keys).
"""

import dataclasses
import json
import re
import warnings
from pathlib import Path

import transformers
from transformers import CONFIG_MAPPING

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "profiler/src/hardware/config"
# These keys say what a file is, not what its family is.
LEFT_OUT = {"tie_word_embeddings", "dtype", "torch_dtype", "architectures", "model_type", "quantization_config",
            "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "num_hash_layers",
            "block_size", "version"}


# Keys without which a class has another structure; `null` is the class's own value for them.
STRUCTURE = {"num_global_key_value_heads", "moe_latent_size", "q_lora_rank"}


def names() -> list[str]:
    """The `model_type`s that the reader knows."""
    rows = (CONFIG / "families.rs").read_text().split("static FAMILIES")[1]
    return sorted({name for row in re.findall(r"names: &\[([^\]]*)\]", rows) for name in re.findall(r'"(\w+)"', row)})


def asked() -> set[str]:
    """Every text in the reader's source that may be a key."""
    files = [path for path in CONFIG.glob("*.rs") if path.name not in ("families.rs", "harmless.rs")]
    return {key for path in files for key in re.findall(r'"(\w+)"', path.read_text())}


def classes(model_type: str):
    """(name, class) of a family's decoder, and of the file if that is another one."""
    if model_type not in CONFIG_MAPPING:
        return []
    own = CONFIG_MAPPING[model_type]
    text = (getattr(own, "sub_configs", None) or {}).get("text_config")
    text = text or (getattr(own, "sub_configs_defaults", None) or {}).get("text_config")
    if text is None or not hasattr(text, "model_type") or not text.model_type:
        return [(model_type, own)]
    return [(text.model_type, text)]


def raw(cls) -> dict:
    """The defaults of a class as it states them, before it computes any."""
    given = {}
    for field in dataclasses.fields(cls):
        if field.default is not dataclasses.MISSING:
            given[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            given[field.name] = field.default_factory()
    return given


def defaults() -> dict:
    keys, table = asked() - LEFT_OUT, {}
    for name in names():
        for decoder, cls in classes(name):
            given = raw(cls)
            kept = {key: value for key, value in given.items() if key in keys and plain(value)}
            if kept:
                table[decoder if decoder == name or decoder.endswith("_text") else f"{name}_text"] = dict(sorted(kept.items()))
    return table


def plain(value) -> bool:
    return isinstance(value, (bool, int, str)) or (isinstance(value, list) and value != [])


def resolved(config: dict, key: str, table: str | None):
    """The value that the class gives a file without `key` (in its object `table`); `...` if it refuses the file."""
    config = json.loads(json.dumps(config))
    config.pop("quantization_config", None)
    (config[table] if table else config).pop(key)
    name = config.get("model_type")
    if name not in CONFIG_MAPPING:
        return ..., None
    try:
        built = CONFIG_MAPPING[name].from_dict(config)
    except Exception:
        built = None
    if built is not None and (table or "text_config" in config):
        built = getattr(built, table or "text_config", built)
    if key == "head_dim" and (built is None or "head_dim" not in {f.name for f in dataclasses.fields(type(built))}):
        # Without this key, the models divide the hidden size.
        sizes = config.get(table, config) if table else config
        return sizes["hidden_size"] // sizes["num_attention_heads"], name
    if built is None:
        return ..., None
    if key not in {field.name for field in dataclasses.fields(type(built))}:
        return ..., None
    return vars(built).get(key, ...), built.model_type


def removed(table: dict) -> dict:
    rows, keys = {}, asked() - LEFT_OUT
    for preset in json.loads((ROOT / "profiler/models.json").read_text()):
        config, found = preset["config"], {}
        places = [(None, key) for key in config] + [
            (nested, key) for nested in ("text_config",) if isinstance(config.get(nested), dict) for key in config[nested]
        ]
        for nested, key in places:
            if key not in keys or key in ("text_config",):
                continue
            value, decoder = resolved(config, key, nested)
            if value is ... or not (value is None or plain(value)):
                continue
            stated = table.get(decoder, {}).get(key)
            if stated != value if value is not None else key in STRUCTURE:
                found[f"{nested}.{key}" if nested else key] = value
        if found:
            rows[preset["name"]] = found
    return rows


def write(path: Path, table: dict, about: str) -> None:
    rows = [f'  {json.dumps(name)}: {json.dumps(row)}' for name, row in sorted(table.items())]
    path.write_text("{\n" + f'  "about": {json.dumps(about)},\n' + ",\n".join(rows) + "\n}\n")


def main() -> None:
    release = f"transformers {transformers.__version__} (Apache-2.0), by tests/models/defaults.py"
    table = defaults()
    write(CONFIG / "defaults.json", table, release)
    write(CONFIG / "tests/removed.json", removed(table), release)
    print(f"{len(table)} families with defaults, {len([n for n in names() if n not in CONFIG_MAPPING])} without a class:")
    print(", ".join(n for n in names() if n not in CONFIG_MAPPING))


if __name__ == "__main__":
    main()
