"""The conda recipe says what pyproject.toml says."""

import re
import tomllib
from pathlib import Path

import pytest

import pymc_gibbsnn

ROOT = Path(__file__).parent.parent
RECIPE = ROOT / "conda" / "recipe.yaml"


@pytest.mark.skipif(not RECIPE.exists(), reason="needs the repository")
def test_the_conda_recipe_is_in_step_with_the_package():
    recipe = RECIPE.read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert f'version: "{pymc_gibbsnn.__version__}"' in recipe
    run = re.search(r"  run:\n((?:    - .*\n)+)", recipe)[1]
    found = {line.removeprefix("    - ").replace(" ", "") for line in run.splitlines()}
    expected = {dependency.split("#")[0].replace(" ", "") for dependency in project["project"]["dependencies"]}
    assert found == expected | {f"python{project['project']['requires-python']}"}
    assert project["project"]["description"] in recipe
