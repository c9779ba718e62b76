"""Records how many tokens Arctic Inference's suffix tree proposes after a repeated text, by the length of the repeat.

    pip install arctic-inference==0.3.0
    python tests/arctic/record.py > sim/src/acceptance/suffix_proposals.json

The tree holds one earlier text of distinct tokens, so that each match has one continuation of probability 1. Context n
ends in the first n tokens of that text, before which is a token that the tree does not know.
"""

import json

import numpy as np
from arctic_inference.suffix_decoding import SuffixDecodingCache

TEXT = np.arange(1000, 1200, dtype=np.int32)
UNKNOWN = np.array([7], dtype=np.int32)


def proposed(depth: int, factor: float, longest: int) -> list[int]:
    """The number of proposed tokens behind matches of 1, 2, ... `longest` tokens."""
    cache = SuffixDecodingCache(max_tree_depth=depth, max_cached_requests=10)
    cache.start_request(1, UNKNOWN)
    cache.add_active_response(1, TEXT.tolist())
    cache.stop_request(1)
    cache.start_request(2, UNKNOWN)
    lengths = []
    for matched in range(1, longest + 1):
        # vLLM gives the tree the newest tokens, at most as many as it is deep.
        pattern = np.concatenate([UNKNOWN, TEXT[:matched]])[-depth:]
        draft = cache.speculate(2, pattern, max_spec_tokens=200, max_spec_factor=factor, min_token_prob=0.1)
        lengths.append(len(draft.token_ids))
    return lengths


cases = [
    {"max_tree_depth": depth, "max_spec_factor": factor, "proposed": proposed(depth, factor, 40)}
    for depth in (24, 8, 64)
    for factor in (1.0, 0.5, 3.0)
]
lines = ",\n".join("  " + json.dumps(case) for case in cases)
print('{"engine": "arctic-inference 0.3.0", "cases": [\n' + lines + "\n]}")
