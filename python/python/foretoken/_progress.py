"""Progress bars for notebooks and terminals."""

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
    """Yields a function that takes the number done and the total and draws a bar; ``None`` if no bar is shown.

    If ``wanted`` is ``None``, a bar is shown in terminals and notebooks.
    """
    if wanted is None:
        wanted = sys.stderr.isatty() or _in_a_notebook()
    if not wanted:
        yield None
        return
    # The progress bar of a notebook is a widget, which needs ipywidgets.
    widget = _in_a_notebook() and importlib.util.find_spec("ipywidgets")
    bars = importlib.import_module("tqdm.notebook" if widget else "tqdm")
    with bars.tqdm(total=0, unit=f" {unit}", leave=False) as bar:

        def tell(done: int, of: int) -> None:
            if of != bar.total:
                bar.total = of
            bar.update(done - bar.n)

        yield tell
