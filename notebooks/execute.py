"""Execute every notebook, in its short form by default, and fail on the first error.

The short form sets NOTEBOOK_DRAWS, which the notebooks read; ``--write`` keeps the outputs.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import nbformat
from nbclient import NotebookClient

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="run in full and save the outputs")
    write = parser.parse_args().write
    if not write:
        os.environ["NOTEBOOK_DRAWS"] = "100"
    for path in sorted(Path(__file__).parent.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        NotebookClient(
            notebook, timeout=1200, kernel_name="python3", resources={"metadata": {"path": path.parent}}
        ).execute()
        if write:
            nbformat.write(notebook, path)
        print(f"executed {path.name}")
