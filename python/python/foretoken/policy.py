"""Policies in Python: the base class, the context they are built with, and the types that hooks return."""

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
from foretoken._native import Batch, Drafts, NewRequest, Outcome
from foretoken.errors import BadInput

__all__ = ["Beam", "Belief", "Coefficients", "Context", "Expansion", "Limit", "PassTimes", "Policy"]


@dataclass(frozen=True, slots=True)
class Coefficients:
    """A linear cost model: a pass takes ``alpha_s * context + gamma_s * batched + delta_s`` seconds.

    Attributes
    ----------
    alpha_s : float
        Seconds per token of KV that is read.
    gamma_s : float
        Seconds per token pushed through the model.
    delta_s : float
        Seconds per pass.
    """

    alpha_s: float
    gamma_s: float
    delta_s: float

    def pass_s(self, context: float, batched: float) -> float:
        """Seconds of a pass that pushes ``batched`` tokens through the model and reads ``context`` tokens of KV."""
        return self.alpha_s * context + self.gamma_s * batched + self.delta_s


@dataclass(frozen=True, slots=True)
class Belief:
    """The pass times that a policy assumes; the true times of the run may differ.

    Attributes
    ----------
    draft, target : Coefficients
        The assumed cost of a pass of each model.
    context_reads : str
        ``"once"`` or ``"per-position"``: how a verify pass reads context.
    drafting : str
        ``"autoregressive"``, one draft pass per token, or ``"parallel"``, one draft pass for all tokens.
    """

    draft: Coefficients
    target: Coefficients
    context_reads: str
    drafting: str

    def draft_s(self, batched: int, context: int = 0, pairs: int = 0) -> float:
        """Seconds of a draft pass by ``draft``. With this method a belief can stand in for a :class:`PassTimes`."""
        return self.draft.pass_s(context, batched)

    def target_s(self, batched: int, context: int = 0, pairs: int = 0) -> float:
        """Seconds of a target pass by ``target``."""
        return self.target.pass_s(context, batched)


class PassTimes(Protocol):
    """Times of forward passes, as an engine measures them at start-up. A policy can fill a cost table from them.

    The methods answer only in the policy's ``__init__``, so keep the numbers. Later calls raise ``ValueError``, since a
    running server cannot time passes at will.
    """

    @property
    def context_reads(self) -> str:
        """How to count the ``context`` of a target pass in :meth:`target_s`: ``"once"`` or ``"per-position"``."""
        ...

    def draft_s(self, batched: int, context: int = 0, pairs: int = 0) -> float:
        """Seconds of a draft pass.

        Parameters
        ----------
        batched : int
            New tokens of the pass, over all of its requests.
        context : int
            Tokens of KV that the pass reads, over all requests.
        pairs : int
            Query-key pairs of attention: the sum over new tokens of the tokens that each attends to.
        """
        ...

    def target_s(self, batched: int, context: int = 0, pairs: int = 0) -> float:
        """Seconds of a target pass, with ``context`` counted as ``context_reads`` says."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """The first argument with which a policy is built. Each cell (one run of a policy) builds its own policy.

    Attributes
    ----------
    belief : Belief
        The pass times that the policy assumes.
    max_draft_len : int
        Most draft tokens of a request in a step (``engine.max_draft_len``).
    max_num_seqs : int
        Most requests in the running list.
    max_num_batched_tokens : int
        Token budget of a step.
    seed : int
        The run's seed, for policies that draw.
    staleness_steps : int
        Number of steps by which ``observe`` is delayed; 0 calls it at the step's end.
    categories : tuple of str
        Names of the requests' categories, to which ``batch.category`` refers; empty if requests have none.
    profile : PassTimes
        Times of passes, available in ``__init__`` only. With the experiment's ``belief.tables = "profiled"`` (the
        default) these are measured times with the errors of ``belief``. In tests of a policy, pass ``profile=belief``.
    """

    belief: Belief
    max_draft_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    seed: int
    staleness_steps: int
    profile: PassTimes
    categories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that a policy drafts for any request, now and in the whole run; a return value of ``limit``.

    Parameters
    ----------
    depth : int
        The longest draft now; for trees, the greatest depth.
    tree_tokens : int
        The most nodes of a tree that may be verified now; 0 for chains.
    max_depth, max_tree_tokens : int, optional
        The largest values of ``depth`` and ``tree_tokens`` in the whole run; the default is their present values.
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
    """Trees in which the ``topk`` best nodes of a level get ``topk`` children each (EAGLE-2), for ``propose``.

    Parameters
    ----------
    topk : int
        Number of nodes that are expanded per level, and of children of each.
    depth : int or sequence of int
        Number of levels, one number for all requests or one per request.
    """

    topk: int
    depth: int | Sequence[int]


@dataclass(frozen=True, slots=True)
class Expansion:
    """Trees in which nodes of level l get ``children[l]`` children each (SpecInfer), for ``propose``.

    Parameters
    ----------
    children : sequence of int
        Number of children by level. Level 0 is the newest token; the last entry repeats for deeper levels.
    depth : int or sequence of int
        Number of levels, one number for all requests or one per request.
    """

    children: Sequence[int]
    depth: int | Sequence[int]


class Policy:
    """The hooks of a policy. Any object with ``limit`` and ``propose`` is a policy; inheriting this class is optional.

    Each cell (one run of a policy) makes a new object: ``factory(context, **settings)``, where the factory is usually
    the class and ``context`` a :class:`Context`. A policy sees only what a server sees. Within a step hooks are called
    in the order of this class's methods: ``propose``, ``keep_drafting`` and ``select`` only if requests can be drafted
    for, ``observe`` after every step. Arrays in arguments are read-only and valid only during the call: keep copies.

    Attributes
    ----------
    wants : tuple of str
        The signals that it reads: ``"confidence"``, ``"entropy"``, ``"divergence"``. Others are not computed.
    """

    wants: Sequence[str] = ()

    def limit(self) -> int | Limit:
        """Returns the most that the policy drafts for any request. Called before every step is scheduled.

        Returns
        -------
        int or Limit
            A number holds for the whole run. Return a :class:`Limit` if it changes, or to draft trees.
        """
        raise NotImplementedError

    def drafts_for_next(self, request: NewRequest) -> bool:
        """Returns whether a request that is being admitted may ever be drafted for. Default: ``True``.

        Parameters
        ----------
        request : NewRequest

        Returns
        -------
        bool
        """
        return True

    def max_batch(self, batch: Batch) -> int | None:
        """Returns how many requests, from the first, take part in this step. Default: all.

        Parameters
        ----------
        batch : Batch

        Returns
        -------
        int or None
            At least 1; ``None`` stands for all.
        """
        return None

    def propose(self, batch: Batch) -> int | Sequence[int] | Beam | Expansion:
        """Returns how many tokens to draft. Called before drafting.

        Not called in a step in which no request can be drafted for: only prompts run, or every request is about to end.

        Parameters
        ----------
        batch : Batch
            The requests that decode in this step. ``ids``, ``context``, ``emitted``, ``limit``, ``draft_gap``,
            ``slo_tpot_s``, ``category`` are arrays of ``len(batch)``; ``now``, ``step``, ``context_sum``, ``prefill``,
            ``draft_prefill``, ``always_extend``, ``num_running`` and ``num_waiting`` are numbers.

        Returns
        -------
        int, sequence of int, Beam or Expansion
            One value for all requests or one per request, at most ``limit()``. The engine cuts each to ``batch.limit``.
        """
        raise NotImplementedError

    def keep_drafting(self, batch: Batch, drafts: Drafts) -> bool | Sequence[bool]:
        """Returns whether to draft another token. Called after each draft pass. Default: ``True``.

        Parameters
        ----------
        batch : Batch
        drafts : Drafts
            ``draft_len`` (an array), ``passes``, and the signals in ``wants``: ``confidence``, ``entropy``, of shape
            (requests, longest draft), NaN where nothing was drafted. ``trees`` if trees are drafted.

        Returns
        -------
        bool or sequence of bool
            One value for all requests or one per request. A request that stops keeps the tokens drafted so far.
        """
        return True

    def select(self, batch: Batch, drafts: Drafts) -> int | Sequence[int] | Sequence[Sequence[bool]] | None:
        """Returns which drafts are verified. Default: all.

        Parameters
        ----------
        batch : Batch
        drafts : Drafts

        Returns
        -------
        None, int, or sequence
            ``None`` verifies all drafts. For chains: the length to verify, for all requests or for each. For trees: for
            each request the number of best nodes, or a bool per node (a kept node needs its parent kept).
        """
        return None

    def observe(self, outcome: Outcome) -> None:
        """Takes the outcome of a step. Called after every step.

        The outcome of a step with prompts only has no requests (``len(outcome)`` is 0), and ``propose`` was not called
        for this step. An engine that drafts at the end of a step proposes for the next step first. The outcome may
        therefore belong to a proposal of one or two steps ago, or, with ``belief.staleness_steps``, an earlier one. Do
        not rely on values that ``propose`` remembered.

        Parameters
        ----------
        outcome : Outcome
            ``ids``, ``drafted``, ``verified`` and ``accepted`` are arrays of ``len(outcome)``; ``draft_time`` and
            ``verify_time`` are seconds; ``drafts`` has the step's drafts, with ``divergence`` if ``wants`` names it.
        """

    def request_finished(self, id: int) -> None:
        """Called when a request has ended (finished or rejected), so that the policy can forget it.

        Called once for each request that ran, after the last outcome of the request was observed. No later call names
        the request.

        Parameters
        ----------
        id : int
        """

    def warnings(self) -> list[str]:
        """Returns warnings for the user at the end of a run.

        Returns
        -------
        list of str
        """
        return []


@dataclass(frozen=True)
class Registered:
    """A Python policy that experiments can name, in a form that can be sent to other processes.

    Attributes
    ----------
    name : str
        Name in experiments and tables.
    code : str
        Digest of the policy's source.
    defaults, settings : dict
        The factory's default settings, and the settings that were given.
    factory : callable
        Called with a context and settings; makes the policy of a cell.
    """

    name: str
    code: str
    defaults: dict[str, Any]
    settings: dict[str, Any]
    summary: str
    source: str
    factory: Callable[..., Any]

    def register(self) -> None:
        """Registers the policy in this process."""
        try:
            _native.register(self.name, self.code, json.dumps(self.defaults), self.summary, self.source, self.factory)
        except ValueError as error:
            raise BadInput(
                f"{self.source}: {error}", hint="give the class another name, or one of its own: `name = \"my-policy\"`"
            ) from None

    @property
    def entry(self) -> dict[str, dict[str, Any]]:
        """The policy's entry in an experiment's ``policies``."""
        return {self.name: self.settings}


def registered(policy: Any) -> Registered:
    """Makes a :class:`Registered` of a class, a factory, or a ``functools.partial`` of either."""
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
    code, (defaults, settings) = _code(factory, name), (_plain(where, defaults), _plain(where, settings))
    return Registered(name, code, defaults, settings, summary, where, factory)


def _called(factory: Any) -> str:
    module = getattr(factory, "__module__", None) or "?"
    return f"{module}.{getattr(factory, '__qualname__', type(factory).__qualname__)}"


def _kebab_case(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name)
    return words.replace("_", "-").strip("-").lower()


def _plain(where: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as plain JSON values, which results can store."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(settings, default=_number, allow_nan=False))
        return plain
    except (TypeError, ValueError) as error:
        raise BadInput(f"{where}: settings must be numbers, texts, lists or tables: {error}") from None


def _number(value: Any) -> Any:
    """Converts numpy's numbers and arrays to Python's."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is none of these")


def _code(factory: Any, name: str) -> str:
    """Digest of a policy's names and source: its module's file, or in a notebook the class and its bases.

    Classes that one function makes differ by the policy's name alone.
    """
    module = sys.modules.get(getattr(factory, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    if file and Path(file).suffix == ".py" and Path(file).is_file():
        source = Path(file).read_bytes()
    else:
        kinds = [k for k in getattr(factory, "__mro__", [factory]) if k is not object and k is not Policy]
        source = "\n".join(_source(kind) for kind in kinds).encode()
    return hashlib.blake2b(f"{name}\0{_called(factory)}\0".encode() + source, digest_size=8).hexdigest()


def _source(of: Any) -> str:
    try:
        return inspect.getsource(of)
    except (OSError, TypeError):
        # A class that was typed at a prompt has no source file. Its compiled code takes the place of its source.
        members = vars(of).values() if inspect.isclass(of) else [of]
        codes = [m.__code__ for m in members if hasattr(m, "__code__")]
        return "".join(f"{c.co_code.hex()}{c.co_consts!r}{c.co_names!r}" for c in codes)
