"""Progress in a notebook and in a terminal."""

import contextlib
import sys

from tqdm.auto import tqdm


def _in_a_notebook():
    shell = sys.modules.get("IPython")
    return bool(shell and shell.get_ipython() and shell.get_ipython().__class__.__name__ == "ZMQInteractiveShell")


@contextlib.contextmanager
def shown(wanted, unit):
    """A function to call with what is done and of how much; ``None`` where nobody looks."""
    if wanted is None:
        wanted = sys.stderr.isatty() or _in_a_notebook()
    if not wanted:
        yield None
        return
    with tqdm(total=0, unit=f" {unit}", leave=False) as bar:

        def tell(done, of):
            if of != bar.total:
                bar.total = of
            bar.update(done - bar.n)

        yield tell
