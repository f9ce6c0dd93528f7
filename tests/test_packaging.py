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

    def listed(section):
        lines = re.search(rf"  {section}:\n((?:    - .*\n)+)", recipe)[1]
        return {line.removeprefix("    - ").replace(" ", "") for line in lines.splitlines()}

    expected = {dependency.replace(" ", "") for dependency in project["project"]["dependencies"]}
    assert listed("run") == expected | {f"python{project['project']['requires-python']}"}
    extras = project["project"]["optional-dependencies"]  # which conda lets a user install beside the package
    assert listed("run_constraints") == {*extras["jax"], *extras["store"]}
    assert "numcodecs>=0.16.6" in extras["store"]  # before, a store in Zarr's format 2 could run code
    assert project["project"]["description"] in recipe
