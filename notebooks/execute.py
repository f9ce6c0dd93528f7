"""Execute every notebook, in its short form by default, and fail on the first error.

The short form sets NOTEBOOK_DRAWS, which the notebooks read. ``--write`` runs them in full and keeps the outputs that
the documentation shows: printed text, tables and figures, but no warnings and no progress, which tell of a machine.
"""

from __future__ import annotations

import argparse
import base64
import io
import os
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image

COLOURS = 64  # of a stored figure: a palette takes a third of the space


def tidy(notebook: nbformat.NotebookNode) -> None:
    """Leave out what tells of a machine and not of the results, and make figures small."""
    notebook.metadata.language_info = {"name": "python"}
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type != "code":
            continue
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                figure = Image.open(io.BytesIO(base64.b64decode(output.data["image/png"]))).convert("RGB")
                small = io.BytesIO()
                figure.quantize(COLOURS).save(small, "PNG", optimize=True)
                output.data["image/png"] = base64.b64encode(small.getvalue()).decode()


def execute(path: Path, write: bool) -> None:
    """Execute a notebook in its own folder, and store it with its outputs if asked to."""
    notebook = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": path.parent}}
    NotebookClient(notebook, timeout=3600, kernel_name="python3", resources=place).execute()
    if write:
        tidy(notebook)
        nbformat.write(notebook, path)
    print(f"executed {path.name}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="run in full and save the outputs")
    parser.add_argument("--part", metavar="K/N", default="0/1", help="every N-th notebook, from number K on")
    parser.add_argument("notebooks", nargs="*", type=Path, help="by default all in this folder")
    arguments = parser.parse_args()
    if not arguments.write:
        os.environ["NOTEBOOK_DRAWS"] = "100"
    first, count = map(int, arguments.part.split("/"))
    paths = arguments.notebooks or sorted(Path(__file__).parent.glob("*.ipynb"))
    for path in paths[first % count :: count]:
        execute(path.resolve(), arguments.write)
