"""Executes the notebooks, each in a fresh kernel: `python notebooks/run.py --scale 0.1`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

FOLDER = Path(__file__).parent
SCALE_VARIABLE = "JAXSPLAT_NOTEBOOK_SCALE"
MOST_SECONDS_A_CELL = 1800


def main() -> int:
    """Run the notebooks that are named, or all of them.

    Returns:
      The exit status: 1 where a cell raised.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all in this folder")
    parser.add_argument("--scale", type=float, help=f"size of what is computed, 0 to 1; sets {SCALE_VARIABLE}")
    parser.add_argument("--save", action="store_true", help="write the outputs into the notebooks")
    arguments = parser.parse_args()
    if arguments.scale is not None:
        os.environ[SCALE_VARIABLE] = str(arguments.scale)
    # Windows would show no pictures here; the kernels inherit this.
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    failed = [path for path in arguments.notebooks or sorted(FOLDER.glob("*.ipynb")) if not _run(path, arguments.save)]
    return 1 if failed else 0


def _run(path: Path, save: bool) -> bool:
    """Execute one notebook and say how it went."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=MOST_SECONDS_A_CELL, resources={"metadata": {"path": str(FOLDER)}})
    start = time.perf_counter()
    try:
        client.execute()
    except CellExecutionError as error:
        print(f"{path.name}: FAILED\n{error}", file=sys.stderr)
        return False
    finally:
        if save:
            nbformat.write(notebook, path)
    print(f"{path.name}: {time.perf_counter() - start:.0f} s")
    return True


if __name__ == "__main__":
    sys.exit(main())
