"""A seat's metrics in Prometheus's text format, behind a port of the engine's process."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Counter:
    """A number that only grows, or one for each value of a label."""

    kind = "counter"

    def __init__(self, name: str, help: str, label: str = "") -> None:
        self.name, self.help, self.label = name, help, label
        self.values: dict[str, float] = {} if label else {"": 0.0}

    def add(self, amount: float = 1.0, value: str = "") -> None:
        self.values[value] = self.values.get(value, 0.0) + amount

    def lines(self) -> list[str]:
        # A copy, because the engine's thread may add a label while a scrape is answered.
        values = list(self.values.items())
        return [self.name + (f'{{{self.label}="{of}"}}' if of else "") + f" {n:.10g}" for of, n in values]


class Gauge(Counter):
    """A number that rises and falls. It is left out until it is set."""

    kind = "gauge"

    def __init__(self, name: str, help: str) -> None:
        super().__init__(name, help)
        self.values = {}

    def set(self, amount: float) -> None:
        self.values[""] = amount


class Histogram:
    """How often a value was at most each bound."""

    kind = "histogram"

    def __init__(self, name: str, help: str, bounds: Sequence[float]) -> None:
        self.name, self.help, self.bounds = name, help, list(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self) -> list[str]:
        lines, so_far = [], 0
        for bound, count in zip([*map("{:g}".format, self.bounds), "+Inf"], self.counts, strict=True):
            so_far += count
            lines.append(f'{self.name}_bucket{{le="{bound}"}} {so_far}')
        return [*lines, f"{self.name}_sum {self.sum:.10g}", f"{self.name}_count {so_far}"]


class Server(ThreadingHTTPServer):
    """Answers scrapes. One that breaks off is no line of the engine's log."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: the scraper sees it."""


class Metrics:
    """All metrics of a seat.

    Parameters
    ----------
    max_draft_len : int
    """

    def __init__(self, max_draft_len: int) -> None:
        lengths = range(max_draft_len + 1)
        times = [scale * 10.0**power for power in (-6, -5, -4, -3) for scale in (1, 2, 5)]
        self.used = Histogram("foretoken_draft_length", "Draft length of each step that decides one.", lengths)
        self.theirs = Histogram("foretoken_theirs_length", "Draft length that the engine itself would choose.", lengths)
        self.accepted = Counter("foretoken_accepted_total", "Verified draft tokens that were right.")
        self.expected = Counter("foretoken_expected_tokens_total", "Verified draft tokens expected to be right.")
        self.decisions = Histogram("foretoken_decision_seconds", "Seconds of each decision of the policy.", times)
        self.fallbacks = Counter("foretoken_fallbacks_total", "Steps with the engine's own choice, by cause.", "why")
        self.gain = Gauge(
            "foretoken_estimated_gain_ratio", "Tokens a second at the policy's lengths, as a share of the engine's own."
        )
        self._server: Server | None = None

    def text(self) -> str:
        """All metrics as Prometheus reads them."""
        lines: list[str] = []
        named = (self.used, self.theirs, self.accepted, self.expected, self.decisions, self.fallbacks, self.gain)
        for metric in named:
            lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}", *metric.lines()]
        return "\n".join(lines) + "\n"

    def serve(self, port: int, say: Callable[[str], None]) -> int:
        """Answers scrapes at a port from a thread of its own. Returns the port; 0 if it cannot be used."""
        try:
            self._server = Server(("", port), _handler(self.text))
        except (OSError, OverflowError) as error:
            say(f"no metrics: port {port} cannot be used ({error})")
            return 0
        threading.Thread(target=self._server.serve_forever, name="foretoken-metrics", daemon=True).start()
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Frees the port."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


def _handler(text: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path.split("?")[0] == "/metrics"
            body = text().encode() if known else b"metrics are at /metrics\n"
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """A scrape is no line of the engine's log."""

    return Handler
