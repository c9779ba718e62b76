"""Reads a fixture of the engine core and computes, from the schedules alone, when tokens are delivered and how many.

    zstd -dc core-0.33.0.txt.zst | python reread.py

Uses no code of vLLM: it follows the README's rules. It stops at the first line that differs.
"""

import re
import sys
from collections import deque

from chance import accepted, proposed

ENTRY = re.compile(r"\((\d*):(\d+)(?:/(\d+))?(?:\+(\d+))?\)|([0-9a-z])")


class Reader:
    """A recorded workload that is checked."""

    def __init__(self, version: str, settings: dict[str, str]) -> None:
        self.version, self.settings = version, settings
        self.k, self.seed, self.accept, self.runner = (int(settings[name]) for name in ("k", "seed", "accept", "runner"))
        self.drafter, self.length = settings["drafter"], 0
        self.requests: list[tuple[int, int]] = []  # prompt, outputs
        self.arrivals: list[int] = []
        self.order: list[int] = []
        self.flying: deque = deque()
        self.now = self.free = self.skip = 0
        self.drafts = self.k
        self.computed: dict[int, int] = {}  # tokens, those of steps in flight too
        self.prefill: dict[int, int] = {}  # tokens known at the admission
        self.sampled: dict[int, int] = {}  # outputs, those of steps in flight too
        self.outputs: dict[int, int] = {}  # outputs delivered
        self.real: dict[int, int] = {}
        self.admissions: dict[int, int] = {}
        self.preempted: dict[int, int] = {}
        self.ended: set[int] = set()

    def derived(self, text: str) -> None:
        values = dict(pair.split("=") for pair in text.split())
        self.length, self.longest, self.modules = int(values["length"]), int(values["drafter_length"]), values["modules"] == "1"

    def request(self, text: str) -> None:
        gap, prompt, outputs = (int(word) for word in text.split()[:3])
        self.arrivals.append(gap + (self.arrivals[-1] if self.arrivals else 0))
        self.requests.append((prompt, outputs))

    def schedule(self, text: str) -> None:
        words = text.split(" ")
        gap = next((int(word[1:]) for word in words[1:] if word[0] == "@"), 0)
        assert gap in (0, 1000) or self.now + gap in self.arrivals, gap
        self.now += gap + 90
        for word in words[1:]:
            if word[0] in "ks":
                setattr(self, {"k": "drafts", "s": "skip"}[word[0]], int(word[1:]))
            elif word[0] == "-":
                for name in word[1:].split(","):
                    self.preempted[int(name)] = self.preempted.get(int(name), 0) + 1
        entries = self.entries(words[0])
        step = [self.sample(*entry) for entry in entries]
        self.flying.append((self.device(entries, step), step))

    def entries(self, text: str) -> list[tuple[int, int, int, int | None]]:
        """(request, tokens, drafts, cached) of each entry."""
        found, at = [], 0
        for name, tokens, drafts, cached, digit in ENTRY.findall(text):
            request = int(name) if name else self.order[at]
            count = int(digit, 36) if digit else int(drafts or 0)
            found.append((request, count + 1 if digit else int(tokens), count, int(cached) if cached else None))
            at = self.order.index(request) + 1 if request in self.order else len(self.order)
        self.order = [entry[0] for entry in found] or self.order
        return found

    def sample(self, request: int, tokens: int, drafts: int, cached: int | None) -> tuple[int, int, int, int]:
        """(request, drafts, tokens sampled, preemptions so far)."""
        if cached is not None:
            self.computed[request], self.real[request] = cached, 0
            self.prefill[request] = self.requests[request][0] + self.outputs.get(request, 0)
        self.computed[request] += tokens
        count = 0
        if self.computed[request] >= self.prefill[request]:
            at = self.sampled.get(request, 0)
            count = accepted(self.seed, self.accept, request, at, min(drafts, self.real.get(request, 0))) + 1
            self.sampled[request] = at + count
        return request, drafts, count, self.preempted.get(request, 0)

    def device(self, entries: list, step: list) -> int:
        """Runs the step and its drafts. Returns when the tokens are ready."""
        tokens, requests = sum(entry[1] for entry in entries), len(entries)
        if not tokens:
            return 0
        self.free = sampled = max(self.free, self.now) + 1000 + 7 * tokens
        if not self.k:
            return sampled
        k = 0 if self.skip else self.drafts
        longest = max(self.computed[entry[0]] for entry in entries)
        fits = self.runner == 2 or longest + self.k + (self.drafter == "dflash") <= self.longest
        if self.runner == 1 and self.settings["async"] == "1":
            self.real = {}
        for request, _, count, _ in step:
            real = proposed(self.seed, self.k, request, self.sampled[request]) if self.settings["lengths"] == "request" and count else k
            self.real[request] = min(real, k) if fits and count else 0
        if self.drafter == "ngram" and self.runner == 1:
            return sampled + 60 if fits else sampled
        if fits:
            self.free += sum(130 + 3 * size for size in self.passes(tokens, requests, k))
        return sampled if self.runner == 2 else self.free

    def passes(self, t: int, r: int, k: int) -> list[int]:
        """Tokens of each pass of the drafter, as in the README's table."""
        most, parallel = self.k, self.settings["parallel"] == "1"
        if self.runner == 1:
            if parallel:
                return [t + r * (most if self.drafter == "draft-model" else most - 1)]
            if self.drafter == "dflash":
                return [t, r * (k + 1)]
            return [t + r * (self.drafter == "draft-model")] + [r] * (k - 1)
        if self.drafter == "ngram":
            return [0]
        if self.drafter in ("dflash", "dspark"):
            query = r * (most + (self.drafter == "dflash" or self.settings["fill_in"] == "1"))
            return [t] if k == 0 and not self.version.startswith("0.32") else [t, query]
        if self.modules:
            return [t] * most
        return [t + r] + [r] * (most - 1) if self.drafter == "draft-model" else [t] + [r] * (k - 1)

    def update(self, text: str) -> None:
        words = text.split(" ")
        ready, step = self.flying.popleft()
        gap = next((int(word[1:]) for word in words[1:] if word[0] == "@"), 0)
        assert self.now + gap == max(self.now, ready), (self.now, gap, ready)
        self.now += gap + 40
        marks = []
        ended = []
        for request, drafts, count, preempted in step:
            if request in self.ended:
                marks.append("x")
                continue
            stale = self.preempted.get(request, 0) > preempted
            if drafts and count:
                self.computed[request] -= drafts - (count - 1)
            prompt, outputs = self.requests[request]
            left = min(outputs, self.length - prompt) - self.outputs.get(request, 0)
            count = min(count, left)
            self.outputs[request] = self.outputs.get(request, 0) + count
            if count == left:
                ended.append(request)
            marks.append("!" * stale + "0123456789abcdefghijklmnopqrstuvwxyz"[count])
        assert "".join(marks) == words[0], (marks, words[0])
        self.ended.update(ended)
        assert ended == [int(name) for word in words[1:] if word[0] == "." for name in word[1:].split(",")]


def main() -> None:
    version, reader, calls, workloads = "", None, 0, 0
    for number, line in enumerate(sys.stdin, 1):
        kind, text = line[0], line[1:].rstrip("\n")
        try:
            if kind == "f":
                version = line.split()[2]
            elif kind == "W":
                reader, workloads = Reader(version, dict(pair.split("=") for pair in text.split())), workloads + 1
            elif kind == "R":
                reader.request(text)
            elif kind == "D":
                reader.derived(text)
            elif kind in "SU":
                (reader.schedule if kind == "S" else reader.update)(text)
                calls += 1
            elif kind == "E":
                assert int(text.split()[1]) == reader.now
        except AssertionError as error:
            sys.exit(f"line {number}: {line.strip()}: {error}")
    print(f"{workloads} workloads, {calls} calls, all as worked out")


if __name__ == "__main__":
    main()
