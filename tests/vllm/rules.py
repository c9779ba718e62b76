"""Counts how often each rule of the scheduler fired, by wrapping vLLM's methods from outside."""

from collections import Counter


class Rules:
    """Counters over all the schedulers watched."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    def watch(self, scheduler) -> None:
        """Wraps the methods of one scheduler."""
