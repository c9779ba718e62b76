"""Exceptions with the place of the error and a hint on what to do."""

from __future__ import annotations

__all__ = ["BadInput", "Error"]


class Error(Exception):
    """A command failed. ``str(error)`` is the text that the command line would print.

    Attributes
    ----------
    message : str
        What went wrong.
    hint : str
        What the user can do; empty if no hint is known.
    place : str or None
        Place of the error as ``file:line:column``; ``None`` if it has no place in a file.
    exit_code : int
        The exit code with which the command line would end.
    """

    def __init__(
        self, words: str, message: str | None = None, hint: str = "", place: str | None = None, exit_code: int = 1
    ) -> None:
        super().__init__(words)
        self.message = words if message is None else message
        self.hint = hint
        self.place = place
        self.exit_code = exit_code

    def __reduce__(self) -> tuple[type[Error], tuple[str, str, str, str | None, int]]:
        return type(self), (str(self), self.message, self.hint, self.place, self.exit_code)


class BadInput(Error, ValueError):
    """The experiment, a file or a policy is wrong."""

    def __init__(
        self, words: str, message: str | None = None, hint: str = "", place: str | None = None, exit_code: int = 2
    ) -> None:
        super().__init__(words, message, hint, place, exit_code)
