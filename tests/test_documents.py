"""The code of README, docs and docstrings runs as it stands, the blocks of a document one after another."""

import inspect
import re
import textwrap
from doctest import SKIP, DocTestParser
from pathlib import Path
from unittest.mock import patch

import pytest

import pymc_gibbsnn as pmg
from pymc_gibbsnn.networks.layers import KINDS
from pymc_gibbsnn.networks.likelihoods import CLASSICAL, NOISY
from pymc_gibbsnn.starts import least_squares
from tests.helpers import in_python, slow_but

ROOT = Path(__file__).parents[1]
PATHS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.rst"))]
BLOCKS = {
    ".md": re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL),
    ".rst": re.compile(r"^\.\. code-block:: python\n\n((?:   .*\n|\n)+)", re.MULTILINE),
}
SMALLER = {
    r", tune=\d+": "",
    r"pm\.sample\(\d+(, chains=\d+)?": "pm.sample(DRAWS, tune=2, chains=2, cores=1, progressbar=False",
    r"(pmg\.sample\(\d+.*), chains=\d+": r"\1",
    r"pmg\.sample\(\d+": "pmg.sample(4, tune=2, chains=2",
    r"(thermalisation\(.*)draws=\d+": r"\1draws=20, block=10",  # two blocks
    r"sample\(draws=\d+": "sample(draws=4",
    r"\bwidth=\d+": "width=16",
    r"\bsweeps_per_draw=\d+": "sweeps_per_draw=2",
    r"\bGibbsNN\(\)": "GibbsNN(interweave=False, scale_move=False)",
}


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def documents() -> dict[str, list[str]]:
    """The blocks of Python of every document that has some."""
    found = {}
    for path in PATHS:
        blocks = BLOCKS[path.suffix].findall(path.read_text())
        if blocks:
            found[name(path)] = [textwrap.dedent(block) for block in blocks]
    return found


def examples() -> dict[str, list[str]]:
    """The examples of public names that take sampling, which doctest therefore skips."""
    found = {}
    for thing in pmg.__all__:
        docstring = inspect.getdoc(getattr(pmg, thing))
        parts = DocTestParser().get_examples(docstring or "")
        if any(SKIP in part.options for part in parts):
            found[thing] = [part.source for part in parts]
    return found


SEARCH = {"MOST": 30, "FIRST": 2, "BETWEEN": 1, "LAST": 2}  # steps for a start: one round at least for 50 units
DOCUMENTS = documents()
EXAMPLES = examples()
QUICK = {"README.md", "docs/guide/models.rst", "docs/guide/beside_other_steps.rst", "GibbsNN"}


def execute(document: str, change=lambda blocks: blocks) -> None:
    session = {"__name__": "__main__"}
    # A page adds to these tables, which other tests must not see
    with patch.dict(CLASSICAL), patch.dict(NOISY), patch.dict(KINDS):
        for number, block in enumerate(change((DOCUMENTS | EXAMPLES)[document]), start=1):
            exec(compile(block, f"block {number} of {document}", "exec"), session)


def smaller(blocks: list[str]) -> list[str]:
    draws = "13" if any("az.compare" in block for block in blocks) else "4"  # it needs 25 of two chains
    for pattern, replacement in SMALLER.items():
        blocks = [re.sub(pattern, replacement.replace("DRAWS", draws), block) for block in blocks]
    return blocks


def test_no_block_is_overlooked():
    for document in ("README.md", "docs/index.rst"):
        assert DOCUMENTS[document]
    for path in PATHS:
        marks = len(re.findall(r"^(?:```python|\.\. code-block:: python)$", path.read_text(), re.MULTILINE))
        assert marks == len(DOCUMENTS.get(name(path), []))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("document", slow_but(QUICK, (*DOCUMENTS, *EXAMPLES)))
def test_code_of_documents(document, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name, steps in SEARCH.items():
        monkeypatch.setattr(least_squares, name, steps)
    with in_python():
        execute(document, smaller)


@pytest.mark.slow
@pytest.mark.parametrize("document", [*DOCUMENTS, *EXAMPLES])
def test_code_of_documents_as_written(document, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    execute(document)
