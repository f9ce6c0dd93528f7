"""Chains and rows spread over devices."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

MESH = """
import contextlib, json, sys
import jax
import numpy as np
import pymc_gibbsnn as pmg

found = {}


def draw(n, devices, shards):
    idata = pmg.sample(
        4, step=pmg.GibbsNN(), chains=8, devices=jax.devices()[:devices], shards=shards, random_seed=1,
        progressbar=False, initvals={"W1": np.ones((3, 2)), "Z2": np.ones((n, 3))}, var_names=["Z2"],
    )
    return idata["posterior"]["Z2"].values.ravel().tolist()


X = np.random.default_rng(0).normal(size=(6, 2))
with pmg.mlp(X, np.maximum(X[:, 0], 0), 3, noise=0.3):
    for devices in (1, 8, 4):
        found[f"6 {devices} 1"] = draw(6, devices, 1)

jax.threefry_partitionable = lambda flag: contextlib.nullcontext()  # rows that are spread need other random numbers
for n in (16, 13):
    X = np.random.default_rng(0).normal(size=(n, 2))
    model = pmg.mlp(X, np.maximum(X[:, 0], 0), 3, noise=0.3)
    with model:
        for devices, shards in ((1, 1), (8, 4) if n == 16 else (8, 8)):
            found[f"{n} {devices} {shards}"] = draw(n, devices, shards)
    try:
        with model:
            pmg.sample(4, step=pmg.GibbsNN(), chains=3, devices=jax.devices())
    except ValueError as error:
        found["uneven"] = str(error)
small = pmg.mlp(X[:4], X[:4, 0], 3, noise=0.3)
try:
    with small:
        pmg.sample(4, step=pmg.GibbsNN(), devices=jax.devices(), shards=8)
except ValueError as error:
    found["shards"] = str(error)
print(json.dumps(found))
"""


@pytest.mark.slow
def test_a_mesh_of_devices_draws_the_same():
    """Eight devices on the CPU: chains over all, rows over four or eight, evenly and not."""
    flags = os.environ["XLA_FLAGS"], "--xla_force_host_platform_device_count=8"
    environment = os.environ | {"XLA_FLAGS": " ".join(flags)}
    done = subprocess.run([sys.executable, "-c", MESH], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert "3 chains cannot be spread evenly over 8 groups of devices" in found.pop("uneven")
    assert "8 shards are more than the 4 rows" in found.pop("shards")
    for name, values in found.items():
        np.testing.assert_allclose(values, found[f"{name.split()[0]} 1 1"], rtol=1e-6, err_msg=name)
