"""An interrupt (Ctrl-C) ends sampling, whenever it comes, and nothing drawn is lost."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

import pymc_gibbsnn as pmg
from pymc_gibbsnn.drivers.interrupts import remembered, uninterrupted
from tests.helpers import PYTHON, in_python, pm_sample

SAMPLE = """
import sys
import numpy as np, pymc as pm
import pymc_gibbsnn as pmg

X = np.random.default_rng(0).normal(size=(8, 2))
with pmg.mlp(X, np.stack([X[:, 0], X[:, 0]], axis=1), 2, noise=1.0) as model:  # as in test_gibbs.py: compiled once
    # Long steps, since an interrupt within PyMC's own compiled function that records a draw can become another error.
    step = pmg.GibbsNN(sweeps_per_draw=200)
    step._compile()
    print("compiled", flush=True)
    for _ in sys.stdin:
        def callback(trace, draw):
            if draw.draw_idx == 10:
                print("drawing", flush=True)
        idata = pm.sample(
            1_000_000, step=step, tune=0, chains=1, cores=1, callback=callback, progressbar=False, quiet=True,
            var_names=["b2"], compute_convergence_checks=False,
        )
        b2 = idata["posterior"]["b2"].values
        print(f"returned {b2.shape[1]} {np.isfinite(b2).all()}", flush=True)
"""


@in_python()
@pytest.mark.parametrize("sweep", [0, 1, 2])
def test_an_interrupt_during_a_draw_returns_those_before_it(monkeypatch, sweep):
    draws = iter(range(50))

    @contextmanager
    def interrupted():
        is_tenth, sweeps = next(draws) == 10, iter(range(3))

        def after_a_sweep():
            if is_tenth and next(sweeps) == sweep:
                signal.raise_signal(signal.SIGINT)
            hand_over()

        with uninterrupted() as hand_over:
            yield after_a_sweep

    monkeypatch.setattr("pymc_gibbsnn.drivers.step.uninterrupted", interrupted)
    x = np.random.default_rng(0).normal(size=(8, 2))
    model = pmg.mlp(x, x[:, 0], 2, noise=0.1, prior=None)
    step = pmg.GibbsNN(model=model, sweeps_per_draw=3, compile_kwargs=PYTHON)
    assert pm_sample(model, 50, step=step, chains=1)["posterior"].sizes["draw"] == 10


@pytest.mark.slow
def test_interrupts_at_any_moment_return_the_draws():
    rng, interrupts = np.random.default_rng(15), 15
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SAMPLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "compiled\n"
        for _ in range(interrupts):
            process.stdin.write("sample\n")
            process.stdin.flush()
            assert process.stdout.readline() == "drawing\n"
            time.sleep(rng.uniform(0.05, 0.15))
            os.kill(process.pid, signal.SIGINT)
            returned, draws, is_finite = process.stdout.readline().split()
            assert returned == "returned"
            assert int(draws) > 10
            assert is_finite == "True"
        process.stdin.close()


def test_an_interrupt_waits_for_the_end_of_the_block():
    done = []
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append("block")
        done.append("after it")
    assert done == ["block"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_is_handed_over_on_request():
    done = []
    with pytest.raises(KeyboardInterrupt), uninterrupted() as hand_over:  # noqa: PT012
        hand_over()
        done.append("nothing came")
        signal.raise_signal(signal.SIGINT)
        hand_over()
        done.append("not reached")
    assert done == ["nothing came"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: None])
def test_a_handler_of_the_user_stays(handler):
    usual = signal.signal(signal.SIGINT, handler)
    try:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, usual)


def test_each_interrupt_reaches_a_handler_that_counts_them():
    came = []
    usual = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        with uninterrupted():
            for _ in range(2):
                signal.raise_signal(signal.SIGINT)
            assert came == []
        assert came == [signal.SIGINT] * 2
    finally:
        signal.signal(signal.SIGINT, usual)


def lose_interrupt():
    """Let an interrupt come in a callback of the garbage collector, as JAX has one, where its exception is lost."""
    lost = []

    def callback(phase, info):
        if phase == "stop" and not lost:
            lost.append(phase)
            signal.raise_signal(signal.SIGINT)

    gc.callbacks.append(callback)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "unraisablehook", lambda error: lost.append(error.exc_type))
        gc.collect()
    gc.callbacks.remove(callback)
    assert lost == ["stop", KeyboardInterrupt]


def test_an_interrupt_whose_exception_is_lost_comes_again():
    done = []
    with pytest.raises(KeyboardInterrupt), remembered() as interrupts:  # noqa: PT012
        lose_interrupt()
        done.append("to the end of the work")
        interrupts()
        done.append("not reached")
    with pytest.raises(KeyboardInterrupt), remembered():
        lose_interrupt()
    with pytest.raises(KeyboardInterrupt), remembered():  # noqa: PT012
        lose_interrupt()
        raise ValueError("what became of it in compiled code")
    assert done == ["to the end of the work"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_that_took_effect_does_not_come_again():
    with remembered() as interrupts:
        with pytest.raises(KeyboardInterrupt), uninterrupted():
            signal.raise_signal(signal.SIGINT)
        interrupts.came.clear()
    with pytest.raises(KeyboardInterrupt) as raised, remembered():
        signal.raise_signal(signal.SIGINT)
    assert raised.value.__context__ is None


def test_sigterm_waits_for_the_end_of_the_block_and_ends_the_process_in_order():
    done = []
    with pytest.raises(SystemExit) as end:  # noqa: PT012
        with uninterrupted(signal.SIGTERM):
            signal.raise_signal(signal.SIGTERM)
            done.append("block")
        done.append("after it")
    assert done == ["block"]
    assert end.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_other_threads_are_left_alone():
    seen = []

    def run():
        with uninterrupted() as hand_over:
            hand_over()
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
