"""The law of a clockwork device: how long passes take, and which drafts are right. It is read from a TOML file.

All times are in seconds. A target pass over b tokens, which reads c tokens of context, takes

    base_s + per_token_s * max(0, B - knee) + squared_s * B^2 + experts_s * (1 - (1 - chosen/experts)^B)
    + context_s * c + cross_s * B * c
    + verified_squared_s * v^2 + tile_s * ceil(B / tile) + saturating_s * B / (B + half)
    + above_s if the step has more than `above` requests

where B is b, padded to the next of `captured` sizes if no prompt is in the pass, and v are the tokens of decoding
requests. A draft pass over b tokens takes base_s + per_token_s * b + sqrt_s * sqrt(b) + context_s * c. Before a pass
the host works for host_s, and host_request_s for each request of the step. A random decision is a hash of the seed,
the prompt and the position, so that every draft length gets the same random draws.
"""

import hashlib
import itertools
import json
import math
import pathlib
import tomllib
from dataclasses import dataclass, field, fields


class BadLaw(Exception):
    """An error in a law file: the file, the key, and the allowed values."""


@dataclass(frozen=True)
class Target:
    """Cost of a target pass."""

    base_s: float
    per_token_s: float = 0.0
    knee: float = 0.0
    squared_s: float = 0.0
    context_s: float = 0.0
    cross_s: float = 0.0
    experts_s: float = 0.0
    experts: int = 0
    chosen: int = 0
    captured: list = field(default_factory=list)
    verified_squared_s: float = 0.0
    tile: int = 0
    tile_s: float = 0.0
    saturating_s: float = 0.0
    half: float = 0.0
    above: int = 0
    above_s: float = 0.0


@dataclass(frozen=True)
class Draft:
    """Cost of a draft pass."""

    base_s: float
    per_token_s: float = 0.0
    sqrt_s: float = 0.0
    context_s: float = 0.0


@dataclass(frozen=True)
class Acceptance:
    """Which drafts are right: a law of rates (`a`, `b`, `factors`), a law of odds (`odds_sd` and the keys after it), or
    recorded outputs (`table`).

    By the law a request has a rate of its own, drawn from Beta(a, b). The rate at depth d (from 0) is rate * factors[d];
    the last factor holds for all deeper tokens. With `second_share` there are two kinds of requests: this share of them
    draws its rate from Beta(second_a, second_b). With `table`, a file of JSON lines, each request replays the `bits` of a
    line that is drawn for it: the draft at output position i is right if character i is `1`. A longer output starts the
    line again. The path starts at the folder of the law file.
    """

    a: float = 0.0
    b: float = 0.0
    factors: list = field(default_factory=lambda: [1.0])
    second_share: float = 0.0
    second_a: float = 0.0
    second_b: float = 0.0
    table: str = ""
    # The log-odds z that a draft is right are normal, with standard deviation `odds_sd`. Their mean is normal over
    # requests: mean `odds_mean`, standard deviation `request_sd`. The draft model's confidence q in the token follows
    # from z: logit q = (z - intercept) / slope.
    odds_sd: float = 0.0
    odds_mean: float = 0.0
    request_sd: float = 0.0
    slope: float = 1.0
    intercept: float = 0.0


@dataclass(frozen=True)
class Law:
    """A device."""

    name: str
    target: Target
    draft: Draft
    acceptance: Acceptance
    host_s: float = 0.0
    host_request_s: float = 0.0
    jitter_cv: float = 0.0
    kv_tokens: int = 200_000
    seed: int = 1
    # The outputs of `acceptance.table`; empty for a law.
    recorded: tuple = ()

    def target_s(self, tokens: int, context: int, prompt_tokens: int, requests: int = 1) -> float:
        """Seconds of a target pass."""
        t = self.target
        fits = [size for size in t.captured if size >= tokens] if prompt_tokens == 0 else []
        b = min(fits, default=tokens)
        touched = 1.0 - (1.0 - t.chosen / t.experts) ** b if t.experts else 0.0
        return (
            t.base_s
            + t.per_token_s * max(0.0, b - t.knee)
            + t.squared_s * b * b
            + t.experts_s * touched
            + t.context_s * context
            + t.cross_s * b * context
            + t.verified_squared_s * (tokens - prompt_tokens) ** 2
            + (t.tile_s * math.ceil(b / t.tile) if t.tile else 0.0)
            + (t.saturating_s * b / (b + t.half) if t.saturating_s else 0.0)
            + (t.above_s if requests > t.above else 0.0)
        )

    def draft_s(self, tokens: int, context: int) -> float:
        """Seconds of a draft pass."""
        d = self.draft
        return d.base_s + d.per_token_s * tokens + d.sqrt_s * math.sqrt(tokens) + d.context_s * context

    def jitter(self, pass_number: int) -> float:
        """The factor of a pass: log-normal with mean 1."""
        if self.jitter_cv == 0.0:
            return 1.0
        variance = math.log(1.0 + self.jitter_cv**2)
        return math.exp(math.sqrt(variance) * self.normal("jitter", pass_number) - variance / 2.0)

    def accepted(self, request: bytes, position: int, drafted: int) -> int:
        """How many of `drafted` tokens are right, if the first one is at output position `position`."""
        if self.recorded:
            bits = self.recorded[int(unit(self.seed, "output", request) * len(self.recorded))]
            right = (bits[(position + depth) % len(bits)] == "1" for depth in range(drafted))
            return next((depth for depth, ok in enumerate(right) if not ok), drafted)
        if self.acceptance.odds_sd > 0:
            right = (self.right(request, position + depth) for depth in range(drafted))
            return next((depth for depth, ok in enumerate(right) if not ok), drafted)
        rate = self.rate(request)
        for depth in range(drafted):
            factor = self.acceptance.factors[min(depth, len(self.acceptance.factors) - 1)]
            if unit(self.seed, "right", request, position + depth) >= min(1.0, rate * factor):
                return depth
        return drafted

    def odds(self, request: bytes, *draw) -> float:
        """The log-odds that a draft of a request is right, by the law of odds. `draw` names the random draw."""
        a = self.acceptance
        return a.odds_mean + a.request_sd * self.normal("request odds", request) + a.odds_sd * self.normal("odds", request, *draw)

    def right(self, request: bytes, position: int) -> bool:
        """Whether the draft at an output position is right, by the law of odds."""
        return unit(self.seed, "right", request, position) < sigmoid(self.odds(request, position))

    def confidences(self, request: bytes, position: int, drafted: int) -> list[float]:
        """The draft model's confidence in each of `drafted` tokens, by the law of odds. The first token is at output
        position `position`. A token behind a wrong one follows a text that the target would not write, so that it is wrong
        too: its odds are drawn as those of wrong tokens are distributed."""
        found, on_path = [], True
        for depth in range(drafted):
            if on_path:
                z = self.odds(request, position + depth)
                on_path = self.right(request, position + depth)
            else:
                draws = ((position, depth, n) for n in itertools.count())
                z = next(z for at in draws if unit(self.seed, "off", request, *at) >= sigmoid(z := self.odds(request, "off", *at)))
            found.append(sigmoid((z - self.acceptance.intercept) / self.acceptance.slope))
        return found

    def normal(self, *key) -> float:
        """A standard normal number that depends on the key alone."""
        u, v = (unit(self.seed, *key, half) for half in range(2))
        return math.sqrt(-2.0 * math.log(max(u, 1e-300))) * math.cos(2.0 * math.pi * v)

    def rate(self, request: bytes) -> float:
        """The request's own rate: the Beta quantile of its luck."""
        a = self.acceptance
        second = a.second_share > 0 and unit(self.seed, "kind", request) < a.second_share
        shape = (a.second_a, a.second_b) if second else (a.a, a.b)
        return beta_quantile(*shape, unit(self.seed, "rate", request))


def sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


def unit(*key) -> float:
    """A number in [0, 1) that depends on the key alone."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") / 2.0**64


_quantiles: dict = {}


def beta_quantile(a: float, b: float, u: float) -> float:
    """The quantile of a Beta law by its tabulated density, to 1/2000."""
    table = _quantiles.get((a, b))
    if table is None:
        points = [(i + 0.5) / 2000 for i in range(2000)]
        density = [math.exp((a - 1) * math.log(x) + (b - 1) * math.log(1 - x)) for x in points]
        total, table, run = sum(density), [], 0.0
        for mass in density:
            run += mass / total
            table.append(run)
        _quantiles[(a, b)] = table
    low, high = 0, len(table) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if table[middle] < u else (low, middle)
    return (low + 0.5) / 2000


def read(path) -> Law:
    """Reads a law file. Raises `BadLaw`."""
    path = pathlib.Path(path)
    try:
        text = tomllib.loads(path.read_text())
    except OSError as error:
        raise BadLaw(f"{path}: {error.strerror}: name a law file, such as laws/memory-bound.toml") from error
    except tomllib.TOMLDecodeError as error:
        raise BadLaw(f"{path}: {error}") from error
    parts = {}
    for name, kind in (("target", Target), ("draft", Draft), ("acceptance", Acceptance)):
        if not isinstance(text.get(name), dict):
            raise BadLaw(f"{path}: [{name}] is missing: it states {', '.join(f.name for f in fields(kind))}")
        parts[name] = made(path, f"{name}.", kind, text.pop(name))
    if "recorded" in text:
        raise BadLaw(f"{path}: recorded: there is no such key; acceptance.table names a file of recorded outputs")
    table = parts["acceptance"].table
    recorded = outputs(path, path.parent / table) if table else ()
    law = made(path, "", Law, {"name": path.stem, **text, **parts, "recorded": recorded})
    check(path, law)
    return law


def outputs(path, table: pathlib.Path) -> tuple:
    """The recorded outputs of a file of JSON lines, as texts of `1` (right), `0` (wrong) and `?` (nothing drafted)."""
    try:
        lines = table.read_text().splitlines()
    except OSError as error:
        raise BadLaw(f"{path}: acceptance.table: {table}: {error.strerror}") from error
    found = []
    for number, line in enumerate(lines, 1):
        try:
            bits = json.loads(line)["bits"]
        except (ValueError, KeyError, TypeError) as error:
            raise BadLaw(f"{table}, line {number}: an object with the key bits is wanted") from error
        if not isinstance(bits, str) or not bits or set(bits) - set("01?"):
            raise BadLaw(f"{table}, line {number}: bits: one or more of the characters 0, 1 and ? are wanted")
        found.append(bits)
    if not found:
        raise BadLaw(f"{path}: acceptance.table: {table} has no outputs")
    return tuple(found)


def made(path, prefix: str, kind, values: dict):
    """A part of a law from its table."""
    known = {f.name: f for f in fields(kind)}
    for key, value in values.items():
        if key not in known:
            raise BadLaw(f"{path}: {prefix}{key}: there is no such key; there are {', '.join(known)}")
        if known[key].type in (float, int, "float", "int") and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise BadLaw(f"{path}: {prefix}{key}: {value!r} is not a number")
        if isinstance(value, list) and not all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in value):
            raise BadLaw(f"{path}: {prefix}{key}: a list of numbers is wanted")
    try:
        return kind(**values)
    except TypeError as error:
        raise BadLaw(f"{path}: {prefix or 'the law'}: {error}") from error


def check(path, law: Law) -> None:
    """Refuses numbers that no device can have."""

    def wants(key: str, value, right: bool, what: str) -> None:
        if not right:
            raise BadLaw(f"{path}: {key} = {value!r}: {what}")

    for part in ("target", "draft"):
        for f in fields(getattr(law, part)):
            value = getattr(getattr(law, part), f.name)
            if isinstance(value, (int, float)):
                wants(f"{part}.{f.name}", value, math.isfinite(value) and value >= 0, "a number of at least 0 is wanted")
    t, a = law.target, law.acceptance
    wants("target.base_s", t.base_s, 0 < t.base_s <= 10, "seconds of a pass, above 0 and at most 10, are wanted")
    wants("target.captured", t.captured, t.captured == sorted(set(t.captured)) and all(x >= 1 for x in t.captured), "rising sizes from 1 are wanted")
    wants("target.half", t.half, t.saturating_s == 0 or t.half > 0, "tokens above 0, at which half of saturating_s is reached, are wanted")
    wants("target.tile", t.tile, t.tile_s == 0 or t.tile >= 1, "tokens of a tile, at least 1, are wanted")
    wants("target.chosen", t.chosen, t.chosen <= t.experts, "there are not as many experts")
    law_given = (a.a, a.b, a.factors, a.second_share) != (0.0, 0.0, [1.0], 0.0)
    by_odds = a.odds_sd != 0
    wants("acceptance.table", a.table, isinstance(a.table, str), "the path of a file is wanted")
    wants("acceptance.table", a.table, not (a.table and law_given), "a, b and factors do nothing with a table; leave them out")
    wants("acceptance.odds_sd", a.odds_sd, not (by_odds and (law_given or a.table)), "a, b, factors and table do nothing with odds; leave them out")
    for key, value in (("odds_sd", a.odds_sd), ("request_sd", a.request_sd)):
        wants(f"acceptance.{key}", value, 0 <= value <= 100, "a standard deviation from 0 to 100 is wanted")
    for key, value in (("odds_mean", a.odds_mean), ("intercept", a.intercept)):
        wants(f"acceptance.{key}", value, -100 <= value <= 100, "log-odds from -100 to 100 are wanted")
    wants("acceptance.slope", a.slope, 0.01 <= a.slope <= 100, "a factor from 0.01 to 100 is wanted")
    for key, value in (("a", a.a), ("b", a.b)):
        right = a.table != "" or by_odds or (value > 0 and math.isfinite(value))
        wants(f"acceptance.{key}", value, right, "a number above 0 is wanted")
    wants("acceptance.second_share", a.second_share, 0 <= a.second_share < 1, "a share of the requests below 1 is wanted")
    for key, value in (("second_a", a.second_a), ("second_b", a.second_b)):
        right = value > 0 if a.second_share > 0 else value == 0
        wants(f"acceptance.{key}", value, right, "a number above 0 with second_share, and none without it, is wanted")
    wants("acceptance.factors", a.factors, bool(a.factors) and all(x >= 0 for x in a.factors), "one or more factors of at least 0 are wanted")
    for key, value in (("host_s", law.host_s), ("host_request_s", law.host_request_s)):
        wants(key, value, 0 <= value <= 1, "seconds from 0 to 1 are wanted")
    wants("jitter_cv", law.jitter_cv, 0 <= law.jitter_cv <= 1, "a coefficient of variation from 0 to 1 is wanted")
    wants("kv_tokens", law.kv_tokens, law.kv_tokens >= 1024, "at least 1024 tokens are wanted")
