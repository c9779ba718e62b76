"""Executes notebooks without changing their files. Fails on an error in a cell or on outputs in a file."""

import sys
import time

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

failed = False
for path in sys.argv[1:]:
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if any(cell.outputs or cell.execution_count is not None for cell in code):
        print(f"{path}: outputs are left in it: clear them (Jupyter: Kernel, Restart and Clear Outputs) and save", file=sys.stderr)
        failed = True
        continue
    started = time.monotonic()
    try:
        NotebookClient(notebook, timeout=120).execute()
    except CellExecutionError as error:
        print(f"{path}: {error}", file=sys.stderr)
        failed = True
        continue
    outputs = [output for cell in code for output in cell.outputs]
    figures = sum("image/png" in output.get("data", {}) for output in outputs)
    print(f"{path}: {len(code)} cells, {figures} figures, {time.monotonic() - started:.1f} s")
sys.exit(failed)
