"""The benchmark of GPUs, in its small form, on whatever device JAX finds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")
ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="its chains on two cores are forked")
def test_the_benchmark_of_gpus(tmp_path):
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--quick", "--output", str(tmp_path / "gpu.json")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "gpu.json").read_text())
    assert [row["quantities"] for row in results["law"]] == [9, 40]
    assert [row["chains"] for row in results["mixing"]] == [4, 4]
    assert all(row["sweeps/s"] > 0 for row in results["mixing"] + results["speed"])
