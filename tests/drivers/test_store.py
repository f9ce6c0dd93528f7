"""Draws on disk: whatever happens to a run, what it wrote is there, and it goes on as if nothing had happened."""

import errno
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_gibbsnn as pmg
from pymc_gibbsnn import _compat
from pymc_gibbsnn.drivers import checkpoints, chunks, files, store, zarr_files
from pymc_gibbsnn.drivers import program as programs
from pymc_gibbsnn.drivers.results import Draws
from tests.drivers.test_interrupts import lose_interrupt
from tests.helpers import pmg_sample, slow

X = np.random.default_rng(0).normal(size=(8, 2))
Y = X[:, 0] + 0.1 * np.random.default_rng(1).normal(size=8)


def regression(x=X, y=Y, noise=0.3):
    with pm.Model() as model:
        pm.Normal("y", pm.Data("X", x) @ pm.Normal("w", shape=2) + pm.Normal("b"), noise, observed=y)
    return model


MODEL = regression()
STEP = pmg.MALA(model=MODEL)  # it has a step size and a momentum to remember
MADE = {}


@pytest.fixture(autouse=True)
def programs_made_once(monkeypatch):
    """Trace and compile for the first run of each kind alone; the others begin with its program as it was."""
    make = programs.Program.__init__

    def begin(self, transitions, *, recorded, keys, dtype, constants, **others):
        kind = (*map(id, transitions), *recorded, len(keys), dtype, *constants.values(), programs.MOST_A_CALL)
        if kind not in MADE:
            make(self, transitions, recorded=recorded, keys=keys, dtype=dtype, constants=constants, **others)
            MADE[kind] = self.__dict__, self.state(), transitions
        self.__dict__, start, _ = MADE[kind]
        self.restore(start | {"keys": keys})

    monkeypatch.setattr(programs.Program, "__init__", begin)


@pytest.fixture
def small_steps(monkeypatch):
    """Chunks of four draws, calls of at most three."""
    monkeypatch.setattr(chunks, "CHUNK_DRAWS", 4)
    monkeypatch.setattr(programs, "MOST_A_CALL", 3)


def run(draws=20, model=MODEL, step=STEP, **arguments):
    return pmg_sample(model, draws, step=step, **({"tune": 0} | arguments))


def same(found, expected):
    for group in ("posterior", "sample_stats"):
        assert {*found[group].data_vars} == {*expected[group].data_vars}
        for name, variable in expected[group].data_vars.items():
            assert found[group][name].dims == variable.dims
            np.testing.assert_array_equal(found[group][name].values, variable.values, err_msg=name)
        np.testing.assert_array_equal(found[group]["draw"], expected[group]["draw"])


def first(idata, draws):
    return {group: _compat.dataset_of(idata, group).isel(draw=slice(draws)) for group in ("posterior", "sample_stats")}


def test_a_store_holds_what_memory_would(tmp_path):
    path = tmp_path / "new folder" / "draws.zarr"
    expected, found = run(5), run(5, store=path)
    same(found, expected)
    same(pmg.open(path), expected)
    for name, variable in expected["observed_data"].data_vars.items():
        np.testing.assert_array_equal(found["observed_data"][name], variable)
    assert found["posterior"].attrs["inference_library"] == "pymc_gibbsnn"
    assert not list(path.parent.rglob("*.part"))
    with pytest.raises(FileExistsError, match="give another path, or resume="):
        run(5, store=path)


@pytest.mark.slow
def test_a_path_is_the_name_of_a_folder_and_no_address(tmp_path):
    """With `#`, `?` or `::` in it, too, beside the folder that an address would name."""
    other, expected = run(3, store=tmp_path / "run", random_seed=8), run(3)
    for name in ("run#2", "run?a=1", "run::2"):
        same(run(3, store=tmp_path / name), expected)
        same(pmg.open(str(tmp_path / name)), expected)
    same(pmg.open(tmp_path / "run"), other)


def test_more_draws_are_those_of_a_longer_run(tmp_path):
    path = tmp_path / "draws.zarr"
    expected = run(9, tune=5)
    run(4, tune=5, store=path)
    same(run(7, tune=5, resume=path), first(expected, 7))
    same(run(9, tune=5, resume=path, random_seed=None), expected)
    same(run(9, tune=5, resume=path), expected)
    assert len(list((path / "posterior" / "w" / "c").rglob("*"))) < 10
    with pytest.raises(ValueError, match="draws counts all draws of each chain, of which the store holds 9"):
        run(8, tune=5, resume=path)
    more = run(11, tune=5, resume=path)
    same(first(more, 9), expected)
    assert more["posterior"].sizes["draw"] == 11


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Data in X contains missing values")
def test_a_network_of_inputs_with_missing_entries_goes_on(tmp_path):
    """With components of a mixture, which are whole numbers."""
    model = pmg.mlp(np.where(np.random.default_rng(3).random(X.shape) < 0.3, np.nan, X), Y, 2)
    arguments = {"step": pmg.GibbsNN(model=model), "model": model, "tune": 4}
    arguments["var_names"] = ["component_X", "X_unobserved", "W1"]
    expected, path = run(9, **arguments), tmp_path / "draws.zarr"
    run(4, store=path, **arguments)
    same(run(9, resume=path, **arguments), expected)
    assert expected["posterior"]["component_X"].dtype == "int64"
    assert len(np.unique(expected["posterior"]["component_X"])) > 1


@pytest.mark.slow
def test_a_network_goes_on(tmp_path):
    """With latents, and with thinning."""
    model = pmg.mlp(X, Y, 3, noise=0.3, prior=None)
    arguments = {
        "step": pmg.GibbsNN(model=model, interweave=False, scale_move=False),
        "model": model,
        "tune": 4,
        "thin": 2,
    }
    path, expected = tmp_path / "draws.zarr", run(6, **arguments)
    run(2, store=path, **arguments)
    same(run(6, resume=path, **arguments), expected)


@pytest.mark.slow
def test_chains_side_by_side_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "_factors_batches", lambda program: True)
    path = tmp_path / "draws.zarr"
    run(2, store=path, chains=3)
    same(run(5, resume=path, chains=3), run(5, chains=3))
    assert all(len(made["chains"]) == 1 for made, start, _ in MADE.values() if len(start["keys"]) == 3)


def test_a_run_without_a_seed_keeps_the_one_it_found(tmp_path):
    path = tmp_path / "draws.zarr"
    run(2, store=path, random_seed=None)
    seeds = checkpoints.read_checkpoint(path).run["random_seed"]
    same(run(4, resume=path, random_seed=None), run(4, random_seed=seeds))


class Killed(BaseException):
    """What stands for the death of the process: nothing but the files is left."""


def kill_at(monkeypatch, moment: int, rng: np.random.Generator):
    """Let the run die when it writes a file for the n-th time: before, while, or after it."""
    written = []

    def write(path, fill, part=None, names=True):
        written.append(path)
        if len(written) > moment > 0:
            raise Killed
        if len(written) == moment:
            how = rng.integers(3)
            if how == 1:
                path.parent.mkdir(parents=True, exist_ok=True)
                (part or path.with_name(f".{path.name}.part")).write_bytes(b"half of i")
            elif how == 2:
                files.replace_file(path, fill, part)
            raise Killed
        return files.replace_file(path, fill, part)

    for module in (store, chunks, checkpoints, zarr_files):
        monkeypatch.setattr(module, "replace_file", write)
    return written


@pytest.mark.parametrize("times", [3, slow(20)])
def test_runs_that_die_while_they_write_go_on(times, tmp_path, monkeypatch, small_steps):
    """At random moments, tuning included, and again and again."""
    path = tmp_path / "draws.zarr"
    arguments = {"tune": 3, "checkpoint_every": 0}
    expected = run(8, tune=3)
    rng, deaths, before = np.random.default_rng(0), 0, 0
    while deaths < times:
        kill_at(monkeypatch, int(rng.integers(1, 80)), rng)
        try:
            found = run(8, store=path, resume=path, **arguments)
        except Killed:
            deaths += 1
            if path.exists():
                found = pmg.open(path)
                draws = found["posterior"].sizes["draw"]
                assert draws >= before
                before = checkpoints.read_checkpoint(path).draws
                assert draws >= before
                same(found, first(expected, draws))
        else:
            same(found, expected)
            path, before = tmp_path / f"draws {deaths}.zarr", 0
    kill_at(monkeypatch, 0, rng)  # never
    same(run(8, store=path, resume=path, **arguments), expected)


REAL_KILLS = """
import os, signal, sys, time, traceback
import numpy as np, jax, pymc, zarr
import pymc_gibbsnn as pmg
from pymc_gibbsnn.drivers import chunks, program

folder, kills, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
chunks.CHUNK_DRAWS, program.MOST_A_CALL = 32, 10
X = np.random.default_rng(0).normal(size=(8, 2))
with pymc.Model() as model:
    pymc.Normal("y", X @ pymc.Normal("w", shape=2) + pymc.Normal("b"), 0.3, observed=X[:, 0])
    step = pmg.MALA()


def run(path):
    def drawing(trace, draw):
        os.path.exists(f"{path}.drawing") or open(f"{path}.drawing", "w").close()

    pmg.sample(
        200, step=step, model=model, tune=50, chains=2, random_seed=7, progressbar=False, store=path, resume=path,
        checkpoint_every=0.02, callback=drawing,
    )


def attempt(path, delay=None):
    "Fork before JAX has threads; kill the child some time after its first draw, or, if delay is negative, before."
    if os.path.exists(f"{path}.drawing"):
        os.remove(f"{path}.drawing")
    process = os.fork()
    if process == 0:
        try:
            run(path)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    if delay is not None:
        ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while delay >= 0 and not os.path.exists(f"{path}.drawing") and not os.waitid(os.P_PID, process, ended):
            time.sleep(0.005)
        time.sleep(abs(delay))
        os.kill(process, signal.SIGKILL)
    return os.waitpid(process, 0)[1]


rng = np.random.default_rng(seed)
killed, moments, stores = 0, [], 1
while killed < kills:
    delay = rng.uniform(-0.2, 1.0)
    status = attempt(f"{folder}/{stores}", delay)
    if status == signal.SIGKILL:
        killed += 1
    else:
        assert status == 0, status
        stores += 1
assert attempt(f"{folder}/{stores}") == 0
run(f"{folder}/whole")
whole = pmg.open(f"{folder}/whole")
for i in range(1, stores + 1):
    found = pmg.open(f"{folder}/{i}")
    for group in ("posterior", "sample_stats"):
        for name, x in whole[group].data_vars.items():
            np.testing.assert_array_equal(found[group][name].values, x.values, err_msg=name)
print("same", killed, stores)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kills", [2, 100])
def test_killed_processes_go_on(tmp_path, kills):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", REAL_KILLS, str(tmp_path), str(kills), "1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split()[:2] == ["same", str(kills)]


def test_an_interrupt_leaves_a_run_that_goes_on(tmp_path, monkeypatch, small_steps):
    path, call, calls = tmp_path / "draws.zarr", programs.Program.run, []

    def interrupted(program, count, **arguments):
        calls.append(count)
        if len(calls) in (2, 7):
            signal.raise_signal(signal.SIGINT)  # it waits for the end of the call
        return call(program, count, **arguments)

    expected = run(20, tune=6)
    monkeypatch.setattr(programs.Program, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(20, tune=6, store=path)
    assert checkpoints.read_checkpoint(path).tuned == 4
    found = run(20, tune=6, resume=path)
    assert 0 < found["posterior"].sizes["draw"] < 20
    assert checkpoints.read_checkpoint(path).draws == found["posterior"].sizes["draw"]
    same(found, first(expected, found["posterior"].sizes["draw"]))
    same(run(20, tune=6, resume=path), expected)


def test_sigterm_leaves_a_run_that_goes_on(tmp_path, monkeypatch, small_steps):
    path, call, calls = tmp_path / "draws.zarr", programs.Program.run, []

    def terminated(program, count, **arguments):
        calls.append(count)
        if len(calls) == 4:
            signal.raise_signal(signal.SIGTERM)
        return call(program, count, **arguments)

    monkeypatch.setattr(programs.Program, "run", terminated)
    with pytest.raises(SystemExit):
        run(20, resume=path)
    assert len(calls) == 4
    draws = checkpoints.read_checkpoint(path).draws
    assert 0 < draws == pmg.open(path)["posterior"].sizes["draw"] < 20
    same(run(20, resume=path), run(20))


@pytest.mark.parametrize("phase", ["arguments", "starts", "compilation"])
def test_an_interrupt_that_is_lost_before_the_first_draw_ends_the_run(monkeypatch, phase):
    if phase == "arguments":
        monkeypatch.setattr("pymc_gibbsnn.drivers.sample.keep_programs", lose_interrupt)
        monkeypatch.setattr("pymc_gibbsnn.drivers.run.open_results", None)  # which comes next
    elif phase == "starts":
        find = "pymc_gibbsnn.drivers.run.find_starts"
        monkeypatch.setattr(find, lambda transitions, points, *others: (points, lose_interrupt() or {}))
        monkeypatch.setattr("pymc_gibbsnn.drivers.run.Program", None)
    else:
        monkeypatch.setattr(programs.Program, "compiled", property(lambda program: lose_interrupt()))
        monkeypatch.setattr(programs.Program, "run", None)
    with pytest.raises(KeyboardInterrupt):
        run(20, tune=4)


def test_a_chain_that_leaves_the_numbers_does_not_go_on_from_there(tmp_path, monkeypatch, small_steps):
    path, call, calls = tmp_path / "draws.zarr", programs.Program.run, []

    def broken(program, count, **arguments):
        drawn = call(program, count, **arguments)
        calls.append(count)
        if len(calls) == 4:
            drawn.stats["lp"][1:] = np.nan
        return drawn

    monkeypatch.setattr(programs.Program, "run", broken)
    with pytest.warns(UserWarning, match="lp is not finite"):
        found = run(20, store=path)
    draws = found["posterior"].sizes["draw"]
    assert checkpoints.read_checkpoint(path).draws == 0 < draws
    same(run(20, resume=path), run(20))


def test_draws_do_not_pile_up_in_memory(tmp_path, monkeypatch):
    """24 MB of them go through 4 MB."""
    monkeypatch.setattr(chunks, "WAITING_BYTES", 2**20)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 2**18)
    draws = Draws({"x": np.random.default_rng(0).normal(size=(8, 2, 2**13))}, {"lp": np.ones((8, 2))})
    dims = ("chain", "draw", "unit")
    groups = {
        group: xr.Dataset({name: (dims[: x.ndim], np.swapaxes(x[:0], 0, 1)) for name, x in found.items()}, {"draw": []})
        for group, found in zip(store.DRAWN, draws, strict=True)
    }
    with store.Store(tmp_path / "draws.zarr", False, 60) as results:
        results.identify({}, {})
        results.begin({}, groups, {})
        tracemalloc.start()
        for _ in range(24):
            results.append(draws)
        results.save({}, 0.0)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 2**22
    np.testing.assert_array_equal(
        pmg.open(tmp_path / "draws.zarr")["posterior"]["x"][:, -8:], draws.values["x"].swapaxes(0, 1)
    )


def store_much(path, gigabytes: float) -> tuple[float, float]:
    """Draw some gigabytes into a store; return the memory of this process in MB after a few draws, and the most."""
    seen = []

    def look(trace, draw):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        seen.append(pages * os.sysconf("SC_PAGE_SIZE") / 1e6)

    with pm.Model() as model:
        x = pm.Normal("x", shape=50_000)
        pm.Normal("y", x[0], 1, observed=0.0)
        step = pmg.PCN(beta=0.5)
    run(int(gigabytes * 1e9 / 8e5), model, step, store=path, callback=look)
    assert sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) > gigabytes * 1e9
    return seen[20], max(seen)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the memory as Linux shows it")
def test_memory_does_not_grow_with_the_store(tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "WAITING_BYTES", 2**22)
    monkeypatch.setattr(programs, "BYTES_A_CALL", 2**22)
    soon, most = store_much(tmp_path / "draws.zarr", 0.2)
    assert most - soon < 30


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the memory as Linux shows it")
def test_ten_gigabytes_go_through_one(tmp_path):
    code = "import pathlib; from tests.drivers.test_store import store_much; print(*store_much(pathlib.Path({!r}), 10))"
    path = tmp_path / "draws.zarr"
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code.format(str(path))],
            capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        assert float(done.stdout.split()[-1]) < 1000
    finally:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def whole_store(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "draws.zarr"
    return path, run(3, store=path)


# What is not the same run


def test_another_run_is_refused(tmp_path):
    path = tmp_path / "draws.zarr"
    expected = run(2, store=path)
    others = [
        ({"random_seed": 8}, r"random_seed was \[.*\] and is \[.*\] now"),
        ({"chains": 3}, r"chains was 2 and is 3 now; random_seed was .* now"),
        ({"thin": 2}, "thin was 1 and is 2 now"),
        ({"tune": 4}, "tune was 0 and is 4 now"),
        ({"var_names": ["w"]}, r"var_names was \['w', 'b'\] and is \['w'\] now"),
        ({"precision": "float32"}, "precision was 'float64' and is 'float32' now"),
        ({"initvals": {"w": np.ones(2)}}, "initvals is another one"),
        ({"step": pmg.MALA(model=MODEL, step_size=0.1)}, "the argument step_size of MALA was 'None' and is '0.1' now"),
        ({"model": regression(noise=0.4)}, "the variable 'y' is another one"),
        ({"model": regression(y=2 * Y)}, "the data 'y' is another one"),
        ({"model": regression(x=X + 1e-9)}, "the data 'X' is another one"),
    ]
    for change, message in others:
        if "model" in change:
            change["step"] = pmg.MALA(model=change["model"])
        with pytest.raises(ValueError, match=rf"have changed since it began: {message}\. Give") as refusal:
            run(4, resume=path, **change)
        assert ("random_seed" in str(refusal.value)) == ("random_seed" in message)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pymc_gibbsnn.drivers.run.__version__", "9.9")
        with pytest.raises(ValueError, match=r"the version of pymc_gibbsnn was '.*' and is '9\.9' now\. Give"):
            run(4, resume=path)
    same(pmg.open(path), expected)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jax.__version__", "9.9")
        with pytest.warns(UserWarning, match=r"goes on where JAX was '.*' and is '9\.9' now: its draws have the same"):
            run(3, resume=path)


# What can go wrong with files


def test_a_full_disk_loses_nothing_that_was_written(tmp_path, monkeypatch, small_steps):
    path, replace_file, left, wait = tmp_path / "draws.zarr", files.replace_file, [150], 0

    def write(file, fill, part=None, names=True):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        time.sleep(wait)
        replace_file(file, fill, part)

    expected = run(30)
    for module in (store, chunks, checkpoints, zarr_files):
        monkeypatch.setattr(module, "replace_file", write)
    with pytest.raises(
        OSError, match=r"The store cannot be written: No space left on device\. The [0-9]+ draws"
    ) as full:
        run(30, store=path, checkpoint_every=0)
    assert full.value.errno == errno.ENOSPC
    draws = pmg.open(path)["posterior"].sizes["draw"]
    assert f"The {draws} draws before are in it" in str(full.value)
    assert 0 < draws < 30
    same(pmg.open(path), first(expected, draws))
    left[0] = 10**6
    same(run(30, resume=path), expected)
    wait = 0.1  # other threads are still writing when there is no space for one file
    for left[0] in (3, 8, 12):
        with pytest.raises(OSError, match=r"No space left on device\. Nothing has been drawn"):
            run(30, store=tmp_path / "other.zarr")
        time.sleep(2 * wait)
        assert [p.name for p in tmp_path.iterdir()] == ["draws.zarr"]


def test_a_path_that_cannot_be_written_is_found_before_anything_is_compiled(tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise PermissionError(errno.EACCES, "Permission denied")  # the tests may run as root, who may write anywhere

    run(3, store=tmp_path / "old")
    monkeypatch.setattr("pymc_gibbsnn.drivers.run.points_of_chains", None)  # it comes before
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OSError, match=r"The store cannot be written: Not a directory\. Nothing has been drawn"):
        run(20, store=tmp_path / "file" / "draws.zarr")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", refuse)
        with pytest.raises(PermissionError, match=r"The store cannot be written: Permission denied\. Nothing"):
            run(20, store=tmp_path / "draws.zarr")
    with monkeypatch.context() as patch:
        patch.setattr(store, "Lock", refuse)
        with pytest.raises(PermissionError, match=r"The store cannot be written: Permission denied\. The 0 draws"):
            run(20, resume=tmp_path / "old")
    monkeypatch.setattr(store, "replace_file", refuse)
    with pytest.raises(PermissionError, match=r"The store cannot be written: Permission denied\. The 3 draws"):
        run(20, resume=tmp_path / "old")
    assert {x.name for x in tmp_path.iterdir()} == {"old", "file"}


@pytest.mark.parametrize("arguments", [("store",), ("resume",), ("store", "resume")])
def test_where_there_is_nothing_a_run_begins(whole_store, tmp_path, arguments):
    """Or an empty folder. A job that a scheduler starts again needs no more than ``resume=``."""
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "nothing"):
        same(run(3, **dict.fromkeys(arguments, path)), whole_store[1])
    assert {x.name for x in tmp_path.iterdir()} == {"empty", "nothing"}


def test_what_is_no_store_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no store at .*: begin one with store="):
        pmg.open(tmp_path / "nothing")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("no store")
    for call in (pmg.open, lambda path: run(20, resume=path)):
        with pytest.raises(ValueError, match=r"folder is no store that pymc_gibbsnn\.sample has written"):
            call(tmp_path / "folder")
    with pytest.raises(ValueError, match="store and resume must name the same path"):
        run(20, store=tmp_path / "a", resume=tmp_path / "b")
    with pytest.raises(ValueError, match="checkpoint_every must be a number of seconds; found -1"):
        run(20, store=tmp_path / "a", checkpoint_every=-1)


class Evil:
    """What Zarr's format 2 lets a store unpickle."""

    def __reduce__(self):
        return os.mkdir, (Evil.folder,)


def test_a_store_from_a_stranger_runs_nothing(tmp_path, monkeypatch):
    import numcodecs

    monkeypatch.setattr(numcodecs.pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)  # as before 0.16.6
    Evil.folder, path = str(tmp_path / "made by the stranger"), tmp_path / "draws.zarr"
    array = {
        "zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|O", "fill_value": None, "order": "C",
        "filters": [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 5}], "compressor": None,
    }  # fmt: skip
    attributes = {"pymc_gibbsnn": 1, "draws": 1, "groups": ["posterior", "sample_stats", "data"]}
    files = {
        ".zattrs": json.dumps(attributes),
        "data/x/.zarray": json.dumps(array),
        "data/x/.zattrs": '{"_ARRAY_DIMENSIONS": ["unit"]}',
    } | {f"{group}.zgroup": '{"zarr_format": 2}' for group in ("", "posterior/", "sample_stats/", "data/")}
    for name, text in files.items():
        (path / name).parent.mkdir(exist_ok=True, parents=True)
        (path / name).write_text(text)
    (path / "data" / "x" / "0").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ValueError, match="is no store that"):
        pmg.open(path)["data"]["x"].values  # noqa: B018
    assert not Path(Evil.folder).exists()


def test_a_damaged_checkpoint_is_refused_and_draws_stay(tmp_path):
    path = tmp_path / "draws.zarr"
    expected, file = run(3, store=path), path / "checkpoint.npz"
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    evil = tmp_path / "evil.npz"
    np.savez(evil, about=np.array({"a": 1}, dtype=object))  # pickled, and so refused
    for damaged in (whole[: len(whole) // 2], bytes(flipped), b"", evil.read_bytes()):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"checkpoint.npz is damaged, .* \(.*\).*Its draws are there"):
            run(5, resume=path)
        same(pmg.open(path), expected)
    file.unlink()
    with pytest.raises(FileNotFoundError, match="holds no checkpoint"):
        run(5, resume=path)
    file.write_bytes(whole)
    run(5, resume=path)


@pytest.mark.parametrize("damage", ["truncated", "gone"])
def test_a_damaged_chunk_is_named_and_the_draws_before_it_are_read(tmp_path, small_steps, damage):
    path = tmp_path / "draws.zarr"
    expected = run(11, store=path)
    chunk = path / "posterior" / "b" / "c" / "0" / "1"
    assert chunk.exists()
    if damage == "truncated":
        chunk.write_bytes(chunk.read_bytes()[:-8])
    else:
        chunk.unlink()
    with pytest.warns(UserWarning, match=r"b/c/0/1 (is missing|is damaged: it has 60 bytes in place of 68)\. Only"):
        found = pmg.open(path)
    same(found, first(expected, 4))
    with pytest.raises(ValueError, match=r"b/c/0/1 is .* The run cannot go on; pymc_gibbsnn\.open.* reads the 4 draws"):
        run(20, resume=path)


def test_a_flipped_bit_is_seen_when_it_is_read(tmp_path, small_steps):
    path = tmp_path / "draws.zarr"
    expected = run(11)
    run(11, store=path)
    flip(path / "posterior" / "b" / "c" / "0" / "1")
    found = pmg.open(path)
    with pytest.raises(ValueError, match=r"b/c/0/1 is damaged: its bytes .* are whole: isel\(draw=slice\(4"):
        found["posterior"]["b"].values  # noqa: B018
    same(first(found, 4), first(expected, 4))
    np.testing.assert_array_equal(found["posterior"]["w"], expected["posterior"]["w"])
    with pytest.raises(ValueError, match=r"b/c/0/1 is damaged.* The run cannot go on; .* reads the 4 draws"):
        run(20, resume=path)


def flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 4
    file.write_bytes(content)


def with_no_text(file):
    file.write_bytes(b"\xff" * len(file.read_bytes()))


@pytest.mark.parametrize(
    ("file", "damage", "message", "lost"),
    [
        ("posterior/w/zarr.json", Path.unlink, "w/zarr.json is missing. So w of posterior is left out", "w"),
        ("posterior/w/zarr.json", lambda file: file.write_text("{"), "w/zarr.json is damaged", "w"),
        ("posterior/w", shutil.rmtree, "w/zarr.json is missing. So w of posterior is left out", "w"),
        ("posterior/zarr.json", Path.unlink, "posterior/zarr.json is missing. So the attributes of posterior", None),
        (
            "posterior/zarr.json",
            with_no_text,
            r"is damaged \(UnicodeDecodeError: .{,99}\). So the",
            None,
        ),
        ("sample_stats/lp/zarr.json", with_no_text, r"is damaged \(UnicodeDecodeError: .{,99}\). So lp", "lp"),
        ("posterior/draw/zarr.json", Path.unlink, "draw/zarr.json is missing", None),
        ("posterior/draw/c/0", flip, "draw/c/0 is damaged: its bytes do not have the checksum", None),
        ("posterior/draw/c/0", Path.unlink, "draw/c/0 is missing. Draws are counted without it", None),
        ("posterior/chain/c/0", flip, "chain/c/0 is damaged: .* So chain of posterior is left out", None),
        ("sample_stats/lp/zarr.json", Path.unlink, "lp/zarr.json is missing", "lp"),
        ("observed_data/y/c/0", flip, "y/c/0 is damaged: .* So y of observed_data is left out", "y"),
        ("constant_data/X/c/0/0", Path.unlink, "X/c/0/0 is missing. So X of constant_data is left out", "X"),
    ],
)
def test_what_is_damaged_is_named_and_the_rest_is_read(whole_store, tmp_path, file, damage, message, lost):
    original, expected = whole_store
    path = shutil.copytree(original, tmp_path / "draws.zarr")
    damage(path / file)
    with pytest.warns(UserWarning, match=message) as warned:
        found = pmg.open(path)
    assert len([one for one in warned if str(path) in str(one.message)]) == 1
    left = {group: _compat.dataset_of(expected, group) for group in ("posterior", "sample_stats")}
    same(found, {group: data.drop_vars(lost or [], errors="ignore") for group, data in left.items()})
    for group in ("observed_data", "constant_data"):
        data = _compat.dataset_of(expected, group).drop_vars(lost or [], errors="ignore").data_vars
        assert {*data} == ({*found[group].data_vars} if group in found else set())
        for name, x in data.items():
            np.testing.assert_array_equal(found[group][name], x)
    if "_data" not in file:
        with pytest.raises(ValueError, match=rf"{message}.* The run cannot go on"):
            run(20, resume=path)


def test_metadata_of_the_whole_that_are_damaged_are_named(whole_store, tmp_path):
    path = shutil.copytree(whole_store[0], tmp_path / "draws.zarr")
    for damage in (lambda file: file.write_text("{}"), lambda file: file.write_bytes(b"\xff"), Path.unlink):
        damage(path / "zarr.json")
        for call in (pmg.open, lambda path: run(20, resume=path)):
            with pytest.raises(ValueError, match=r"or its file zarr\.json is damaged"):
                call(path)


def test_two_runs_do_not_write_one_store(tmp_path, monkeypatch, small_steps):
    """Nor does the second one harm the first, whose draws can be read meanwhile."""
    path, call, seen = tmp_path / "draws.zarr", programs.Program.run, []

    def look(program, count, **arguments):
        drawn = call(program, count, **arguments)
        if not seen and path.exists() and pmg.open(path)["posterior"].sizes["draw"] > 4:
            seen.append(pmg.open(path))
            with pytest.raises(RuntimeError, match=f"is being written by process {os.getpid()}"):
                run(20, resume=path)
        return drawn

    monkeypatch.setattr(programs.Program, "run", look)
    found = run(20, tune=2, store=path, checkpoint_every=0)
    same(seen[0], first(found, seen[0]["posterior"].sizes["draw"]))
    same(found, run(20, tune=2))


def test_zarr_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zarr", None)
    for call in (pmg.open, lambda path: run(20, store=path)):
        with pytest.raises(ImportError, match=r"pip install 'pymc-gibbsnn\[store\]'"):
            call(tmp_path / "draws.zarr")
