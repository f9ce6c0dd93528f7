"""How Sphinx builds the documentation. ``make docs`` runs it; a warning is an error."""

import base64
import json
import os
import shutil
from pathlib import Path

import pymc_gibbsnn

HERE = Path(__file__).parent
NOTEBOOKS = HERE / "notebooks"  # copies: Sphinx reads what is below its own folder alone
shutil.rmtree(NOTEBOOKS, ignore_errors=True)
NOTEBOOKS.mkdir()
for path in (HERE.parent / "notebooks").glob("*.ipynb"):
    shutil.copy(path, NOTEBOOKS)
    outputs = [o for cell in json.loads(path.read_text())["cells"] for o in cell.get("outputs", [])]
    figures = [o["data"]["image/png"] for o in outputs if "image/png" in o.get("data", {})]
    if figures:  # the gallery shows the last one
        (NOTEBOOKS / f"{path.stem}.png").write_bytes(base64.b64decode("".join(figures[-1])))

project = "pymc_gibbsnn"
author = "The pymc_gibbsnn developers"
version = release = pymc_gibbsnn.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_nb",
    "sphinx_copybutton",
    "sphinxcontrib.bibtex",
]
exclude_patterns = ["_build"]
suppress_warnings = ["ref.citation"]  # a docstring lists its sources, and need not refer to each of them

autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_validation_checks = {"PR01", "PR02"}
# The signature of a distribution is that of pm.Distribution: a name, then its parameters. Short answers of a layer say
# in one sentence what they take.
numpydoc_validation_exclude = {r"\.ArgmaxLabel$", r"\.SignLabel$", r"\.Operator\.", r"\.Weighted\."}

nb_execution_mode = "off"  # `make notebooks` executes them, and `notebooks/execute.py --write` stores their outputs
myst_enable_extensions = ["dollarmath"]
bibtex_bibfiles = ["references.bib"]
bibtex_reference_style = "author_year"
copybutton_prompt_text = "$ "

# Links to the documentation of other packages need a network, which not every machine that builds these pages has.
if os.environ.get("READTHEDOCS") or os.environ.get("GITHUB_ACTIONS"):
    intersphinx_mapping = {
        "arviz": ("https://python.arviz.org/en/stable", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "pymc": ("https://www.pymc.io/projects/docs/en/stable", None),
        "pytensor": ("https://pytensor.readthedocs.io/en/latest", None),
        "python": ("https://docs.python.org/3", None),
    }

html_theme = "pydata_sphinx_theme"
html_theme_options = {"show_toc_level": 2, "navigation_with_keys": False}
html_title = f"pymc_gibbsnn {version}"
