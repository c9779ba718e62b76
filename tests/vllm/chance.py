"""Pure functions that Python and Rust compute alike: which drafts are accepted, and how many are proposed.

All arithmetic is modulo 2**64. The README states them with test vectors.
"""

MASK = (1 << 64) - 1
ACCEPT, LENGTH = 1, 2


def mix(value: int) -> int:
    """SplitMix64: the output that follows the state `value`."""
    z = (value + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def draw(seed: int, kind: int, request: int, position: int) -> int:
    """A 64-bit number for one decision about one request at one output position."""
    return mix(mix(mix(mix(seed) ^ kind) ^ request) ^ position)


def accepted(seed: int, permille: int, request: int, position: int, drafts: int) -> int:
    """How many of `drafts` drafts are accepted, if the first is at output position `position`."""
    for count in range(drafts):
        if draw(seed, ACCEPT, request, position + count) % 1000 >= permille:
            return count
    return drafts


def proposed(seed: int, k: int, request: int, position: int) -> int:
    """Number of drafts of a request in the mode `request`: 0 to `k`, drawn by its number of outputs."""
    return draw(seed, LENGTH, request, position) % (k + 1)
