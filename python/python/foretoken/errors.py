"""What goes wrong, with its place and what to do about it."""

from __future__ import annotations

__all__ = ["BadInput", "Error"]


class Error(Exception):
    """Something failed. ``str`` of it is what the program prints.

    Attributes
    ----------
    message : str
        What went wrong.
    hint : str
        What to do about it; empty where nobody knows.
    place : str or None
        Where it is, as ``file:line:column``.
    exit_code : int
        What the program would end with.
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
