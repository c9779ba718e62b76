"""Progress in a notebook and in a terminal."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator


def _in_a_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return type(shell).__name__ == "ZMQInteractiveShell"


@contextlib.contextmanager
def shown(wanted: bool | None, unit: str) -> Iterator[Callable[[int, int], None] | None]:
    """A function to call with what is done and of how much; ``None`` without a display."""
    if wanted is None:
        wanted = sys.stderr.isatty() or _in_a_notebook()
    if not wanted:
        yield None
        return
    # A notebook's own bar is a widget, and widgets may not be there.
    widget = _in_a_notebook() and importlib.util.find_spec("ipywidgets")
    bars = importlib.import_module("tqdm.notebook" if widget else "tqdm")
    with bars.tqdm(total=0, unit=f" {unit}", leave=False) as bar:

        def tell(done: int, of: int) -> None:
            if of != bar.total:
                bar.total = of
            bar.update(done - bar.n)

        yield tell
