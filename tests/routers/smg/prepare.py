"""Copies the policies of SMG's crate beside the recorder, and leaves out those that it does not record.

    python prepare.py ~/.cargo/registry/src/*/smg-1.13.0
"""

import shutil
import sys
from pathlib import Path

SOURCE = Path(sys.argv[1]) / "src"
HERE = Path(__file__).parent / "source"
# Policies that the recorder does not record. Two of them are named in mod.rs, so these get empty types.
LEFT_OUT = {
    "bucket": "BucketPolicy",
    "consistent_hashing": "ConsistentHashingPolicy",
    "dp_min_token": "MinimumTokensPolicy",
    "factory": "PolicyFactory",
    "manual": "ManualPolicy, ManualConfig",
    "passthrough": "PassthroughPolicy",
    "registry": "PolicyRegistry",
}

shutil.rmtree(HERE, ignore_errors=True)
shutil.copytree(SOURCE / "policies", HERE / "policies")
for module, types in LEFT_OUT.items():
    names = (HERE / "policies" / f"{module}.rs").write_text
    names("".join(f"#[derive(Debug)] pub struct {name};\n" for name in types.split(", ")))
(HERE / "worker").mkdir()
for name in ["expected_wait", "hash_ring"]:
    shutil.copy(SOURCE / "worker" / f"{name}.rs", HERE / "worker")
