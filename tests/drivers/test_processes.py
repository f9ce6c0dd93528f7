"""A run of several processes, on the loopback interface of this machine."""

import os
import socket
import subprocess
import sys

import numpy as np
import pytest

WORKER = """
import sys
import jax
import numpy as np

address, count, index, folder, kind = sys.argv[1:]
if int(count) > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # One that is killed is missed soon; others are waited for, as long as a busy machine takes.
    soon = {"heartbeat_timeout_seconds": 10, "shutdown_timeout_seconds": 10} if kind.endswith("for ever") else {}
    jax.distributed.initialize(address, int(count), int(index), **soon)
import pymc_gibbsnn as pmg
from pymc_gibbsnn.drivers import jax_transition
from pymc_gibbsnn.samplers.transition import Transition


def upright(start):
    "The sign of an eigenvector is free. NumPy, for the start of one process, and JAX choose it in ways of their own."
    def call(*arguments):
        return {name: x * np.sign(x[:1]) if name.startswith("u_") else x for name, x in start(*arguments).items()}
    return call


Transition.start = upright(Transition.start)
jax_transition.start_on_devices = upright(jax_transition.start_on_devices)
X = np.random.default_rng(0).normal(size=(10, 2))  # rows are told by their number: none of other things is 5
devices = jax.devices()
arguments = {
    # rows over devices 0 and 2, and 1 and 3: with two processes, of both
    "rows": {"devices": [devices[i] for i in (0, 2, 1, 3)], "shards": 2},
    "chains": {"chains": 4},
}[kind.split()[0]]
if count == "1":
    arguments.setdefault("devices", devices)
# no fit where rows are spread: a process that has some of them alone could not make it
moves = {"interweave": False, "scale_move": False} | ({} if kind == "chains" else {"anneal": None})
with pmg.mlp(X, np.maximum(X[:, 0], 0), 3, noise=0.3, prior=None):
    step = pmg.GibbsNN(**moves)

    def sample(draws, **more):
        return pmg.sample(
            draws, step=step, tune=2, random_seed=1, progressbar=False, **({"chains": 2} | arguments | more)
        )

    if kind.endswith("for ever"):
        def callback(trace, draw):
            if draw.draw_idx == 20 and draw.chain == 0:
                print("drawing", flush=True)
        sample(10**7, until={"seconds": 200}, callback=callback, store=folder + "/killed.zarr", checkpoint_every=0.1)
    elif kind.startswith("rows to"):
        draws, name = kind.split()[2:]
        path = f"{folder}/{name}.zarr"
        sample(int(draws), store=path, resume=path)
    elif kind == "rows":
        path = f"{folder}/{count}.zarr"
        if count == "1":
            sample(6, store=path)
        else:
            assert (sample(3, store=path) is None) == (index != "0")
            sample(6, resume=path)
    else:
        draws = sample(6)["posterior"].data_vars
        np.savez(f"{folder}/{count} {index}.npz", **{name: x.values for name, x in draws.items()})
if kind == "rows" and count == "2":
    X = X[5 * int(index):][:5]
    with pmg.mlp(X, np.maximum(X[:, 0], 0), 3, noise=0.3, prior=None):
        step = pmg.GibbsNN(**moves)
        local = {"devices": None, "local_rows": True}
        draws = sample(6, **local, var_names=["W1", "b1", "W2", "b2"])["posterior"].data_vars
        np.savez(f"{folder}/local {index}.npz", **{name: x.values for name, x in draws.items()})
        try:
            sample(6, **local, var_names=["Z2"])
        except ValueError as error:
            assert "records no variables with a row for each row of the data" in str(error), error
        else:
            raise AssertionError
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start(count, folder, kind):
    """Start processes that have four devices together."""
    flags = os.environ["XLA_FLAGS"], f"--xla_force_host_platform_device_count={4 // count}"
    environment = os.environ | {"XLA_FLAGS": " ".join(flags)}
    address = f"127.0.0.1:{free_port()}"
    return [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", WORKER, address, str(count), str(i), str(folder), kind],
            env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for i in range(count)
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rows", "chains"])
def test_two_processes_draw_what_one_does(tmp_path, kind):
    import pymc_gibbsnn as pmg

    for process in [*start(1, tmp_path, kind), *start(2, tmp_path, kind)]:
        _, errors = process.communicate(timeout=1800)
        assert process.returncode == 0, errors[-3000:]
    if kind == "rows":
        one, *others = (pmg.open(tmp_path / f"{i}.zarr")["posterior"].data_vars for i in (1, 2))
        others += [np.load(tmp_path / f"local {i}.npz") for i in (0, 1)]  # each of its own rows
    else:
        one, *others = (np.load(tmp_path / f"{name}.npz") for name in ("1 0", "2 0", "2 1"))
    for two in others:
        for name in two:
            np.testing.assert_allclose(two[name], one[name], rtol=1e-6, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_process_ends_the_others_and_the_run_goes_on(tmp_path, killed):
    import pymc_gibbsnn as pmg

    processes = start(2, tmp_path, "rows for ever")
    try:
        assert "drawing\n" in iter(processes[0].stdout.readline, "")  # after what Gloo says
        processes[killed].kill()
        _, errors = processes[1 - killed].communicate(timeout=100)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert processes[1 - killed].returncode != 0
    assert "Another process of this run has ended" in errors or "distributed service" in errors, errors[-3000:]
    draws = pmg.open(tmp_path / "killed.zarr")["posterior"].sizes["draw"]
    assert draws > 10
    for name in ("killed", "whole"):
        for process in start(2, tmp_path, f"rows to {draws + 5} {name}"):
            _, errors = process.communicate(timeout=300)
            assert process.returncode == 0, errors[-3000:]
    found, expected = (pmg.open(tmp_path / f"{name}.zarr")["posterior"] for name in ("killed", "whole"))
    assert found.sizes["draw"] == draws + 5
    for name, x in expected.data_vars.items():
        np.testing.assert_array_equal(found[name], x, err_msg=name)
