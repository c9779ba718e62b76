"""A policy behind a guard. Whatever goes wrong with it, the engine gets its own choice and goes on."""

from __future__ import annotations

import operator
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from foretoken.policy import Coefficients
from foretoken.seat import Observed, Seat, Setup, View
from foretoken.seated.costs import NEEDED, Costs, Learnt
from foretoken.seated.estimate import Acceptance, Gain
from foretoken.seated.log import Log
from foretoken.seated.metrics import Metrics
from foretoken.seated.settings import Settings
from foretoken.seated.step import Choice, Step

# Failures in a row after which the policy is asked no more, and outcomes that a policy with new costs sees again.
FAILURES, REPLAYED = 5, 256
# Costs that no decision uses: a policy is built with them to see that it can be.
SOME = (Coefficients(0.0, 1e-6, 1e-3), Coefficients(1e-9, 1e-5, 1e-2))


@dataclass(frozen=True, slots=True)
class Engine:
    """What an engine says of itself.

    Parameters
    ----------
    name, version : str
    max_draft_len : int
    lengths : tuple of int
        The draft lengths that a step may get, rising.
    setup : dict
        Settings of ``Setup``.
    settings : dict
        For the first line of the log.
    """

    name: str
    version: str
    max_draft_len: int
    lengths: tuple[int, ...]
    setup: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


class Nonsense(ValueError):
    """A policy's answer is no list of draft lengths."""


class Chooser:
    """A policy in an engine's scheduler: asked for a length before each step, told the outcome after it.

    No method raises. After five failures in a row, or one in the engine's own bookkeeping (``guard``), the policy is asked
    no more; log and metrics go on.

    Parameters
    ----------
    settings : Settings
    engine : Engine
    say : callable
        Takes one line for the engine's own log.
    unfit : str, optional
        Why no policy can be asked in this engine.
    build : callable
        Makes a policy's seat.
    """

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        say: Callable[[str], None],
        unfit: str | None = None,
        build: Callable[[dict[str, Any], Setup], Any] = Seat,
    ) -> None:
        self.settings, self.engine, self.say = settings, engine, say
        self.off: str | None = None
        self.begun = time.monotonic()
        self.metrics = Metrics(engine.max_draft_len)
        if settings.metrics_port is not None:
            self.metrics.serve(settings.metrics_port, say)
        self.log = Log(settings.log, self._header(), say) if settings.log else None
        self._build = build
        self._seat: Any = None
        self._costs: Costs | None = None
        self._learnt: Learnt | None = None
        self._fresh: tuple[Costs, Any] | Exception | None = None
        self._walked = self._seen = self._fits = 0
        self._failures: dict[str, int] = {}
        self._said: set[str] = set()
        # 0, 01, 02, 1, 12, 2: a de Bruijn sequence.
        n = len(engine.lengths)
        self._order = [engine.lengths[i] for a in range(n) for b in range(a, n) for i in ((a, b) if b > a else (a,))]
        self._live: set[int] = set()
        self._history: deque[Observed] = deque(maxlen=REPLAYED)
        self._acceptance = Acceptance(engine.max_draft_len)
        self._gain = Gain(self._acceptance)
        if unfit:
            self.stop(unfit)
        else:
            with self.guard("start"):
                self._start()

    def now(self) -> float:
        """Seconds since the seat was taken."""
        return time.monotonic() - self.begun

    def choose(self, view: Callable[[], View], theirs: int) -> Choice:
        """The draft length of the requests in a view, for the passes behind a step or at its start.

        Parameters
        ----------
        view : callable
            Makes the view, if a policy is asked.
        theirs : int
            The engine's own choice.
        """
        choice = Choice(theirs, theirs)
        if self.off is not None:
            return choice
        begun = time.perf_counter()
        try:
            self._renew()
            if self._seat is None:
                choice.used = theirs if self.off else self._walk(theirs)
                return choice
            seen = view()
            would = self._allowed(max(self._checked(self._seat.choose(seen), seen), default=0))
        except BaseException as error:
            self._failed("choose", "nonsense" if isinstance(error, Nonsense) else "error", error)
            return choice
        choice.seconds = time.perf_counter() - begun
        self.metrics.decisions.observe(choice.seconds)
        if choice.seconds > self.settings.slow_s:
            self._failed("choose", "slow", f"a decision took {1e3 * choice.seconds:.2f} ms")
            return choice
        self._failures["choose"] = 0
        choice.would, choice.used = would, would if self.settings.act else theirs
        with self.guard("gain"):
            if self._costs and len(seen.ids):
                context = sum(seen.context)
                self.metrics.gain.set(self._gain.saw(self._costs, len(seen.ids), context, would, theirs))
        return choice

    def ran(self, step: Step, length: int) -> None:
        """A step has ended. ``length`` is the draft length of the passes that lie within its time."""
        with self.guard("bookkeeping"):
            if self.log:
                self.log.put(step.line())
            if step.choice.requests:
                self.metrics.used.observe(step.choice.used)
                self.metrics.theirs.observe(step.choice.theirs)
            self.metrics.expected.add(self._acceptance.saw(step))
            self.metrics.accepted.add(sum(step.accepted))
            if self._learnt and self.off is None:
                self._learn(step, length)
        if self.off is None:
            self._observe(step)

    def began(self, id: int, prompt: int, max_tokens: int) -> None:
        """The engine got a request."""
        self._live.add(id)
        if self.log:
            at = round(self.now(), 6)
            self.log.put({"is": "request", "id": id, "at": at, "prompt": prompt, "max_tokens": max_tokens})

    def ended(self, id: int, tokens: int, cached: int | None, why: str) -> None:
        """A request has ended."""
        self._live.discard(id)
        if self.log:
            at = round(self.now(), 6)
            self.log.put({"is": "end", "id": id, "at": at, "tokens": tokens, "cached": cached, "why": why})
        if self._seat is not None and self.off is None:
            self._tell("finished", [id])

    @contextmanager
    def guard(self, what: str) -> Iterator[None]:
        """Whatever is raised inside ends the policy's part, and nothing else."""
        try:
            yield
        except BaseException as error:
            self._leave(error)
            self.stop(f"{what}: {_said(error)}")

    def stop(self, why: str) -> None:
        """Asks the policy no more."""
        if self.off is None:
            self.off = why
            self._seat = self._learnt = None
            self._note("off", why)
            self.say(f"{self.engine.name} chooses its own draft lengths from now on: {why}")

    def close(self) -> None:
        """Ends log and metrics."""
        if self.log:
            self.log.close()
        self.metrics.close()

    def _header(self) -> dict[str, Any]:
        engine, settings = self.engine, self.settings
        return {
            "format": "foretoken-seat 1", "engine": engine.name, "version": engine.version,
            "started_unix_s": round(time.time() - self.now(), 6), "policy": settings.policy,
            "mode": "act" if settings.act else "shadow", "settings": engine.settings,
        }  # fmt: skip

    def _start(self) -> None:
        policy, most, others = self.settings.policy, self.engine.max_draft_len, self.engine.setup
        if self.settings.costs is None:
            self._build(policy, Setup(most, *SOME, **others))
            self._learnt = Learnt(most, **others)
        else:
            self._costs = Costs.of_profile(self.settings.costs, most, **others)
            self._seat = self._build(policy, self._costs.setup)

    def _allowed(self, wish: int) -> int:
        """The shortest draft length that serves a wish; the longest, if none does."""
        lengths = self.engine.lengths
        length = nearest(wish, lengths)
        if length != wish and "lengths" not in self._said:
            self._said.add("lengths")
            self.say(f"{self.engine.name} has no draft length {wish}, of {list(lengths)} the next one is used")
        return length

    def _walk(self, theirs: int) -> int:
        """The length of a step from which costs are learnt: the lengths in an order in which each follows each other one
        equally often, so that draft tokens can be told from tokens that are verified a step later."""
        if not self.settings.act:
            return theirs
        self._walked += 1
        return self._order[(self._walked - 1) % len(self._order)]

    @staticmethod
    def _checked(lengths: Any, view: View) -> list[int]:
        if not isinstance(lengths, list) or len(lengths) != len(view.ids):
            raise Nonsense(f"the policy gave {lengths!r:.60} for {len(view.ids)} requests")
        try:
            checked = [operator.index(length) for length in lengths]
        except TypeError as error:
            raise Nonsense(f"the policy gave {lengths!r:.60}, which are no draft lengths") from error
        limits = view.limit if view.limit is not None else checked
        if any(not 0 <= length <= limit for length, limit in zip(checked, limits, strict=True)):
            raise Nonsense(f"the policy gave {lengths!r:.60} where the limits are {limits!r:.60}")
        return checked

    def _learn(self, step: Step, length: int) -> None:
        """Fits costs in a thread of its own, after 16 steps of each length and each time that the steps are four times
        as many."""
        if not step.ids:
            return
        learnt = self._learnt
        assert learnt is not None
        learnt.saw(step, length)
        self._seen += 1
        wanted = len(self.engine.lengths) if self.settings.act else 2
        if self._fits == 0 and learnt.lengths < max(wanted, 2):
            if self._seen == 8 * NEEDED * max(wanted, 2) and learnt.lengths < 2:
                self._note("costs", "one draft length alone")
                self.say(
                    "all steps have one draft length, from which the costs of draft passes cannot be learnt: "
                    "name a profile of `foretoken calibrate` in FORETOKEN_COSTS"
                )
            return
        if self._seen >= self._fits:
            self._fits = 4 * self._seen
            data, history = learnt.data(), list(self._history)
            threading.Thread(target=self._refit, args=(learnt, data, history), name="foretoken-fit", daemon=True).start()

    def _refit(self, learnt: Learnt, data: tuple[list[Any], list[float]], history: list[Observed]) -> None:
        try:
            costs = learnt.fit(*data)
            seat = self._build(self.settings.policy, costs.setup)
            for outcome in history:
                seat.observe(outcome)
            if self._costs is None:
                draft, target = costs.setup.draft, costs.setup.target
                self.say(
                    f"costs are learnt: a target pass {1e3 * target.delta_s:.3f} ms and {1e6 * target.gamma_s:.2f} µs a "
                    f"token, a draft pass {1e3 * draft.delta_s:.3f} ms and {1e6 * draft.gamma_s:.2f} µs a token"
                )
            self._fresh = (costs, seat)
        except Exception as error:
            self._fresh = error

    def _renew(self) -> None:
        """Takes the policy with new costs, once it is there."""
        fresh, self._fresh = self._fresh, None
        if fresh is None:
            return
        if isinstance(fresh, Exception):
            self.stop(f"no costs could be learnt: {_said(fresh)}")
            return
        self._costs, self._seat = fresh
        self._seat.finished({id for outcome in self._history for id in outcome.ids} - self._live)

    def _observe(self, step: Step) -> None:
        with self.guard("bookkeeping"):
            draft_s, verify_s = self._costs.split(step) if self._costs else (0.0, step.took)
            # A request that ended while the step was in flight is forgotten, and must not be met again.
            live = [at for at, id in enumerate(step.ids) if id in self._live]
            columns = (step.ids, step.drafted, step.accepted, step.verified)
            ids, drafted, accepted, verified = ([column[at] for at in live] for column in columns)
            outcome = Observed(ids, drafted, accepted, verified, draft_s, verify_s, step.passes)
            self._history.append(outcome)
            if self._seat is not None:
                self._tell("observe", outcome)

    def _tell(self, hook: str, what: Any) -> None:
        """Calls a hook of the policy that answers nothing."""
        begun = time.perf_counter()
        try:
            getattr(self._seat, hook)(what)
        except BaseException as error:
            self._failed(hook, "error", error)
            return
        seconds = time.perf_counter() - begun
        if seconds > self.settings.slow_s:
            self._failed(hook, "slow", f"{hook} took {1e3 * seconds:.2f} ms")
        else:
            self._failures[hook] = 0

    def _failed(self, hook: str, why: str, error: BaseException | str) -> None:
        """Counts a failure of a hook of the policy."""
        if isinstance(error, BaseException):
            self._leave(error)
        self._failures[hook] = self._failures.get(hook, 0) + 1
        said = _said(error)
        self._note(why, said)
        if why not in self._said:
            self._said.add(why)
            self.say(f"the policy failed ({why}: {said}), {self.engine.name}'s own draft length is used")
        if self._failures[hook] >= FAILURES:
            self.stop(f"{FAILURES} failures in a row, the last one {why}: {said}")

    def _note(self, why: str, said: str) -> None:
        self.metrics.fallbacks.add(1.0, why)
        if self.log:
            self.log.put({"is": "fallback", "at": round(self.now(), 6), "why": why, "said": said})

    @staticmethod
    def _leave(error: BaseException) -> None:
        """Ends of the process go on; panics of compiled code, which are no ``Exception``, are failures."""
        if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
            raise error


def nearest(wish: int, lengths: Sequence[int]) -> int:
    """The shortest of some rising lengths that serves a wish; the longest, if none does."""
    return next((length for length in lengths if length >= wish), lengths[-1])


def _said(error: BaseException | str) -> str:
    text = error if isinstance(error, str) else str(error) or type(error).__name__
    return text.splitlines()[0] if text else ""
