"""Progress in a notebook and in a terminal."""

import contextlib
import importlib.util
import sys


def _in_a_notebook():
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return type(shell).__name__ == "ZMQInteractiveShell"


@contextlib.contextmanager
def shown(wanted, unit):
    """A function to call with what is done and of how much; ``None`` where nobody looks."""
    if wanted is None:
        wanted = sys.stderr.isatty() or _in_a_notebook()
    if not wanted:
        yield None
        return
    # A notebook's own bar is a widget, and widgets may not be there.
    if _in_a_notebook() and importlib.util.find_spec("ipywidgets"):
        from tqdm.notebook import tqdm
    else:
        from tqdm import tqdm
    with tqdm(total=0, unit=f" {unit}", leave=False) as bar:

        def tell(done, of):
            if of != bar.total:
                bar.total = of
            bar.update(done - bar.n)

        yield tell
