"""Policies in Python: what one is, what it is built with, what its hooks return."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from foretoken import _native
from foretoken._native import Batch, Drafts, Outcome
from foretoken.errors import BadInput

__all__ = ["Beam", "Belief", "Coefficients", "Context", "Expansion", "Limit", "PassTimes", "Policy"]


@dataclass(frozen=True, slots=True)
class Coefficients:
    """A pass takes ``alpha_s * context + gamma_s * batched + delta_s`` seconds.

    Attributes
    ----------
    alpha_s : float
        Seconds a token of KV read.
    gamma_s : float
        Seconds a token pushed through the model.
    delta_s : float
        Seconds a pass.
    """

    alpha_s: float
    gamma_s: float
    delta_s: float

    def pass_s(self, context: float, batched: float) -> float:
        """Seconds of a pass."""
        return self.alpha_s * context + self.gamma_s * batched + self.delta_s


@dataclass(frozen=True, slots=True)
class Belief:
    """What the policy is told that passes cost; the truth may differ.

    Attributes
    ----------
    draft, target : Coefficients
        Of a pass of each model.
    context_reads : str
        ``"once"`` or ``"per-position"``: how a verify pass reads context.
    drafting : str
        ``"autoregressive"``, one pass a token, or ``"parallel"``, one for all.
    """

    draft: Coefficients
    target: Coefficients
    context_reads: str
    drafting: str

    def draft_s(self, batched: int, context: int = 0, pairs: int = 0) -> float:
        """Seconds of a draft pass: a belief is a :class:`PassTimes` of its own lines."""
        return self.draft.pass_s(context, batched)

    def target_s(self, batched: int, context: int = 0, pairs: int = 0) -> float:
        """Seconds of a target pass."""
        return self.target.pass_s(context, batched)


class PassTimes(Protocol):
    """What passes take, as an engine times them when it starts. Presets with a cost table fill it from this; so can
    yours.

    It answers while the policy is made, in ``__init__``; afterwards it raises ``ValueError``, since a server that runs
    cannot time passes at will. Keep the numbers.
    """

    @property
    def context_reads(self) -> str:
        """How the context of a target pass is counted that is asked for: ``"once"`` or ``"per-position"``."""
        ...

    def draft_s(self, batched: int, context: int = 0, pairs: int = 0) -> float:
        """Seconds of a draft pass.

        Parameters
        ----------
        batched : int
            New tokens of the pass, over all of its requests.
        context : int
            Tokens of KV that it reads, over all requests.
        pairs : int
            Query-key pairs of attention, over all requests: for each new token the tokens that it attends to.
        """
        ...

    def target_s(self, batched: int, context: int = 0, pairs: int = 0) -> float:
        """Seconds of a target pass, likewise; ``context`` is counted as ``context_reads`` says."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """What a policy is built with, for each cell.

    Attributes
    ----------
    belief : Belief
        What passes are believed to cost.
    max_draft_len : int
        Most draft tokens of a request in a step (``engine.max_draft_len``).
    max_num_seqs : int
        Most requests in the running list.
    max_num_batched_tokens : int
        Token budget of a step.
    seed : int
        The run's seed, for policies that draw.
    staleness_steps : int
        Steps after which ``observe`` is called; 0 is at the step's end.
    profile : PassTimes
        What passes take, to be asked in ``__init__``. Passes are timed where ``belief.tables = "profiled"`` (the
        default), with the errors of ``belief``. A policy of your own tests can be given ``profile=belief``.
    """

    belief: Belief
    max_draft_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    seed: int
    staleness_steps: int
    profile: PassTimes


@dataclass(frozen=True, slots=True)
class Limit:
    """The most a policy drafts for any request, now and ever: what ``limit`` returns where one number does not say it.

    Parameters
    ----------
    depth : int
        The longest draft now, of a tree its depth.
    tree_tokens : int
        The most nodes of a tree that are verified now; 0 for chains.
    max_depth, max_tree_tokens : int, optional
        The most that both will ever be; what they are now where left out.
    """

    depth: int
    tree_tokens: int = 0
    max_depth: int | None = None
    max_tree_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.max_depth is None:
            object.__setattr__(self, "max_depth", self.depth)
        if self.max_tree_tokens is None:
            object.__setattr__(self, "max_tree_tokens", self.tree_tokens)


@dataclass(frozen=True, slots=True)
class Beam:
    """Trees whose ``topk`` best nodes of a level get ``topk`` children each (EAGLE-2): what ``propose`` returns instead of lengths.

    Parameters
    ----------
    topk : int
        Width.
    depth : int or sequence of int
        Levels, for all requests or for each.
    """

    topk: int
    depth: int | Sequence[int]


@dataclass(frozen=True, slots=True)
class Expansion:
    """Trees whose nodes of level l get ``children[l]`` children each (SpecInfer): what ``propose`` returns instead of lengths.

    Parameters
    ----------
    children : sequence of int
        Children of a node by its level, the newest token first; the last entry repeats.
    depth : int or sequence of int
        Levels, for all requests or for each.
    """

    children: Sequence[int]
    depth: int | Sequence[int]


class Policy:
    """What a policy can have. Inheriting is a matter of taste: whatever has ``limit`` and ``propose`` is one.

    A policy is made afresh for each cell, by calling its class (or any other factory) with a :class:`Context` and its
    settings: ``factory(context, **settings)``. It sees what a server sees. Within a step hooks are called in the order of
    this class's methods, and not all of them in every step: ``propose``, ``keep_drafting`` and ``select`` only where
    requests can be drafted for, ``observe`` after every step. Arrays that it is given are read-only, and are good for the
    call: keep copies.

    Attributes
    ----------
    wants : tuple of str
        What it looks at: any of ``"confidence"``, ``"entropy"``, ``"divergence"``. What nobody wants is not made.
    """

    wants: Sequence[str] = ()

    def limit(self) -> int | Limit:
        """The most it may draft for any request, asked before every step is scheduled.

        Returns
        -------
        int or Limit
            A number is for ever: return a :class:`Limit` where it changes, or where trees are drafted.
        """
        raise NotImplementedError

    def drafts_for_next(self) -> bool:
        """Is the request that is admitted now to be drafted for, ever? ``True`` unless defined.

        Returns
        -------
        bool
        """
        return True

    def max_batch(self, batch: Batch) -> int | None:
        """How many requests, from the first, take part in this step; all unless defined.

        Parameters
        ----------
        batch : Batch

        Returns
        -------
        int or None
            At least 1; ``None`` is all.
        """
        return None

    def propose(self, batch: Batch) -> int | Sequence[int] | Beam | Expansion:
        """How many tokens are drafted, before drafting.

        Not called in a step without a request to draft for: where prompts run alone, or where every request is sure to
        end.

        Parameters
        ----------
        batch : Batch
            Who decodes in this step: ``ids``, ``context``, ``emitted``, ``limit``, ``draft_gap``, ``slo_tpot_s`` are arrays
            of ``len(batch)``; ``now``, ``step``, ``context_sum``, ``prefill``, ``draft_prefill``, ``always_extend``,
            ``num_running`` and ``num_waiting`` are numbers.

        Returns
        -------
        int, sequence of int, Beam or Expansion
            For all requests, or for each; at most what ``limit`` said. The engine cuts it to each request's ``limit``.
        """
        raise NotImplementedError

    def keep_drafting(self, batch: Batch, drafts: Drafts) -> bool | Sequence[bool]:
        """Does drafting go on? Asked after each draft pass; ``True`` unless defined.

        Parameters
        ----------
        batch : Batch
        drafts : Drafts
            ``draft_len`` (an array), ``passes``, and what the policy wants: ``confidence``, ``entropy``, of shape
            (requests, longest draft), NaN where nothing was drafted. ``trees`` where trees are drafted.

        Returns
        -------
        bool or sequence of bool
            For all, or for each request; who leaves keeps the tokens it has.
        """
        return True

    def select(self, batch: Batch, drafts: Drafts) -> int | Sequence[int] | Sequence[Sequence[bool]] | None:
        """What is verified; all of it unless defined.

        Parameters
        ----------
        batch : Batch
        drafts : Drafts

        Returns
        -------
        None, int, or sequence
            ``None`` is all. Of chains: lengths, for all requests or for each, at most what was drafted. Of trees: for each
            request how many of its best nodes, or a bool a node (a node's parent is kept with it).
        """
        return None

    def observe(self, outcome: Outcome) -> None:
        """What a step brought. Called after every step.

        A step of prompts alone has an outcome of no requests (``len(outcome)`` is 0), and ``propose`` was not called for
        it. An engine that drafts at the end of a step proposes for the next step first: what is observed may have been
        proposed one or two steps ago, or, with ``belief.staleness_steps``, earlier. Do not rely on what was remembered
        in ``propose``.

        Parameters
        ----------
        outcome : Outcome
            ``ids``, ``drafted``, ``verified`` and ``accepted`` are arrays of ``len(outcome)``; ``draft_time`` and
            ``verify_time`` are seconds; ``drafts`` as before, with ``divergence`` where it is wanted.
        """

    def request_finished(self, id: int) -> None:
        """A request has ended: what is remembered of it can go.

        Parameters
        ----------
        id : int
        """

    def warnings(self) -> list[str]:
        """What a user should be told at the end of a run.

        Returns
        -------
        list of str
        """
        return []


@dataclass(frozen=True)
class Registered:
    """A policy that experiments can name: what another process needs to know of it, too.

    Attributes
    ----------
    name : str
        In experiments and tables.
    code : str
        Digest of its source.
    defaults, settings : dict
        The factory's own, and those that were given.
    factory : callable
        Makes one for a cell.
    """

    name: str
    code: str
    defaults: dict[str, Any]
    settings: dict[str, Any]
    summary: str
    source: str
    factory: Callable[..., Any]

    def register(self) -> None:
        """Makes it known in this process."""
        try:
            _native.register(self.name, self.code, json.dumps(self.defaults), self.summary, self.source, self.factory)
        except ValueError as error:
            raise BadInput(
                f"{self.source}: {error}", hint="give the class another name, or one of its own: `name = \"my-policy\"`"
            ) from None

    @property
    def entry(self) -> dict[str, dict[str, Any]]:
        """As an experiment has it."""
        return {self.name: self.settings}


def registered(policy: Any) -> Registered:
    """A class or factory, or a ``functools.partial`` of one, as a :class:`Registered`."""
    given: dict[str, Any] = {}
    factory = policy
    while isinstance(factory, functools.partial):
        if factory.args:
            raise BadInput(f"{_called(factory.func)}: settings are given by name: functools.partial(factory, k=3)")
        given = {**factory.keywords, **given}
        factory = factory.func
    if not callable(factory):
        raise BadInput(
            f"{policy!r} is no policy: give a name, a table of settings under a name, a class, or a factory of policies"
        )
    where = _called(factory)
    if inspect.isclass(factory) and factory.__init__ is object.__init__ and factory.__new__ is object.__new__:
        raise BadInput(
            f"{where} has no __init__: a policy is made with a context and its settings by name",
            hint="write `def __init__(self, context)`, and settings behind it: `def __init__(self, context, k=3)`",
        )
    parameters = list(inspect.signature(factory).parameters.values())
    usual = parameters[1:]
    try:
        inspect.signature(factory).bind(None, **given)
    except TypeError as error:
        raise BadInput(f"{where}: {error}: it is called with a context and its settings by name") from None
    defaults = {p.name: p.default for p in usual if p.default is not p.empty and p.default is not None}
    settings = {key: value for key, value in given.items() if value is not None}
    if "code" in {*defaults, *settings}:
        raise BadInput(f"{where}: a setting cannot be named `code`: results keep the digest of the source under that name")
    name = getattr(factory, "name", None)
    name = name if isinstance(name, str) else _kebab_case(getattr(factory, "__name__", type(factory).__name__))
    summary = (inspect.getdoc(factory) or "a policy in Python").strip().splitlines()[0].rstrip(".")
    return Registered(name, _code(factory), _plain(where, defaults), _plain(where, settings), summary, where, factory)


def _called(factory: Any) -> str:
    module = getattr(factory, "__module__", None) or "?"
    return f"{module}.{getattr(factory, '__qualname__', type(factory).__qualname__)}"


def _kebab_case(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name)
    return words.replace("_", "-").strip("-").lower()


def _plain(where: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings that results can keep."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(settings, default=_number, allow_nan=False))
        return plain
    except (TypeError, ValueError) as error:
        raise BadInput(f"{where}: settings are numbers, texts, lists and tables, and results keep them: {error}") from None


def _number(value: Any) -> Any:
    """numpy's numbers and arrays as Python's."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is none of these")


def _code(factory: Any) -> str:
    """Digest of what a policy does, as far as its source tells: its module, or the class itself in a notebook."""
    module = sys.modules.get(getattr(factory, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    if file and Path(file).suffix == ".py" and Path(file).is_file():
        source = Path(file).read_bytes()
    else:
        kinds = [k for k in getattr(factory, "__mro__", [factory]) if k is not object and k is not Policy]
        source = "\n".join(_source(kind) for kind in kinds).encode()
    return hashlib.blake2b(_called(factory).encode() + b"\0" + source, digest_size=8).hexdigest()


def _source(of: Any) -> str:
    try:
        return inspect.getsource(of)
    except (OSError, TypeError):
        # Typed at a prompt: what it was compiled to.
        members = vars(of).values() if inspect.isclass(of) else [of]
        codes = [m.__code__ for m in members if hasattr(m, "__code__")]
        return "".join(f"{c.co_code.hex()}{c.co_consts!r}{c.co_names!r}" for c in codes)
