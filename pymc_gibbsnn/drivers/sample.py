"""``pmg.sample``, which runs the transitions of a whole model as one JAX program."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence

import pymc as pm
from numpy.typing import ArrayLike

from pymc_gibbsnn.backends.jax_backend import keep_programs
from pymc_gibbsnn.drivers.interrupts import remembered
from pymc_gibbsnn.drivers.step import GraphStep

__all__ = ["sample"]

CHECKPOINT_EVERY = 60.0  # seconds


def sample(
    draws: int = 1000,
    *,
    step: GraphStep | Sequence[GraphStep],
    tune: int | None = None,
    chains: int = 4,
    thin: int = 1,
    var_names: Sequence[str] | None = None,
    random_seed=None,
    initvals: dict[str, ArrayLike] | Sequence[dict[str, ArrayLike] | None] | None = None,
    precision: str | None = None,
    devices: str | Sequence | None = None,
    shards: int = 1,
    local_rows: bool = False,
    store: str | os.PathLike | None = None,
    resume: str | os.PathLike | None = None,
    checkpoint_every: float = CHECKPOINT_EVERY,
    until: Mapping[str, float] | None = None,
    callback: Callable | None = None,
    progressbar: bool = True,
    model: pm.Model | None = None,
):
    """Draw from the posterior of a model in JAX, if all its variables are moved by samplers of this package.

    The transitions that ``pm.sample`` would call from Python one by one are compiled into a single program, a loop over
    draws. On a CPU it runs one chain on each core; on a GPU, or on several devices, it moves all chains side by side.
    It returns to Python about once a second. The distribution of the draws is the same as with ``pm.sample(step=...)``;
    the documentation of each step names its source.

    Parameters
    ----------
    draws : int
        How many draws of each chain to record.
    step : GibbsNN or another step of this package, or a list of them
        The samplers, which together move every free variable of the model. PyTensor does not compile them.
    tune : int, optional
        How many draws to make first and discard, while step sizes and the sweeps of a draw adapt and noise may be
        larger; by default as many as the steps need: 1,000 for :class:`GibbsNN`, and for other Metropolis steps whose
        size is tuned; 2,000 for stochastic gradients that fit or learn, and for GibbsNN if its ``anneal`` is a number;
        0 where nothing is tuned.
    chains : int
        How many chains to run.
    thin : int
        Of how many draws one is recorded. Each draw is ``sweeps_per_draw`` sweeps of the step, so that the two numbers
        multiply; tuning draws are not thinned.
    var_names : sequence of str, optional
        Free variables and deterministics to record; by default all but the latents of noisy networks, which predictions
        draw anew (:func:`without_latents`). Nothing else leaves the device.
    random_seed : int, numpy.random.Generator or sequence of int, optional
        The seed. The same seed gives the same draws on the same number and kind of devices.
    initvals : dict or sequence of dict, optional
        Starting values, as for ``pm.sample``; see :func:`initial_values`.
    precision : {"float64", "float32"}, optional
        The precision of all numbers; by default that of PyTensor's ``floatX``. GPUs are fast in single precision; keep
        the variance of the noise above about 1e-7 of the squared signal there.
    devices : str or sequence of jax.Device, optional
        "cpu", "gpu" or "tpu" for the first device of that kind, or a list of devices, over which chains are spread; by
        default JAX's first device; after ``jax.distributed.initialize``, the devices of that kind of all processes.
    shards : int
        Over how many devices the samples (rows of data and latents) of each chain are spread. Chains are then spread
        over ``len(devices) // shards`` groups of devices, and Gram matrices and products are summed across devices.
    local_rows : bool
        Whether the model of each process, after ``jax.distributed.initialize``, has only rows of its own, as many as
        that of any other process. The data are then the rows of all processes, in the order of the processes. This is
        for :class:`GibbsNN`, which then starts at weights of zero and makes one sweep a draw unless it is told
        otherwise, since no process has all rows; ``shards``
        must be a multiple of the number of processes, and ``var_names`` must not name latents.
    store : path, optional
        A new Zarr store on disk, a folder that does not exist or is empty, to which draws are written instead of being
        kept in memory. Needs ``zarr``. :func:`open` reads it at any time.
    resume : path, optional
        The store of a run that was killed, interrupted or has ended, to go on with it, in tuning too, up to ``draws``
        draws in all. They are the draws that an uninterrupted run would have made, with as many sweeps a draw as were
        chosen for the ``draws`` with which it began. All other arguments must be those with which the run began;
        ``random_seed`` and ``initvals`` may be left out. Where there is nothing yet, or an empty folder, the run
        begins. ``store`` may name the same path.
    checkpoint_every : float
        How many seconds lie between checkpoints, at which draws are written to the store, and with them all that is
        needed to go on. There is one more at the end, at an interrupt (Ctrl-C), and at SIGTERM, which schedulers send
        before they take a machine away.
    until : dict, optional
        What ends the run before ``draws`` draws are made: ``{"ess": 400}``, a bulk effective sample size of 400, over
        all chains, of the outputs of the network at up to 50 rows of the data, or of the probabilities of classes
        there, as :func:`summary` computes it; ``{"seconds": 3600}``, a time limit that begins with this call; or both,
        and the first to be reached counts. For "ess" all weights must be recorded.
    callback : callable, optional
        As for ``pm.sample``: ``callback(trace, draw)`` is called for each draw of each chain, in groups once a second.
        ``draw`` has the fields ``chain``, ``is_last``, ``draw_idx``, ``tuning``, ``stats`` and ``point``, which holds
        what is recorded; ``trace`` is None. If it raises KeyboardInterrupt, the draws made so far are returned.
    progressbar : bool
        Whether to show a progress bar.
    model : pm.Model, optional
        The model; by default that of the context.

    Returns
    -------
    InferenceData (ArviZ 0.23) or DataTree (ArviZ 1)
        The groups ``posterior``, ``sample_stats``, ``observed_data`` and ``constant_data``, as ``pm.sample`` returns
        them; those of a store are read when they are needed. After an interrupt (Ctrl-C), the draws made so far. With
        a store, None in processes other than the first. After SIGTERM nothing is returned: the process ends by
        SystemExit, unless the signal has a handler of yours.

    Raises
    ------
    ImportError
        If JAX, or for a store Zarr, is not installed.
    TypeError
        If a step is not of this package, or an argument of another type than asked for.
    ValueError
        If a free variable has no step, two steps move the same variable or have different ``sweeps_per_draw``,
        ``var_names`` names what the model lacks, a number is out of range, chains or rows cannot be spread over the
        devices, or the run in the store was begun with another model, other data, steps, seeds or arguments, or its
        files are damaged; the message names what has changed, or which file.
    NetworkError
        If ``until`` asks for "ess" and the model has no function that :func:`function_space` can compute.
    FloatingPointError
        If a chain reaches numbers that are not finite before anything is drawn. If it does later, the function warns
        and returns the draws before.
    FileExistsError
        If ``store`` exists and is no empty folder.
    FileNotFoundError
        If the store of ``resume`` has lost its checkpoint.
    OSError
        If the store cannot be written, because the disk is full, say. What was written before can be read. A folder
        that cannot be written is found before anything is compiled.
    RuntimeError
        If another process is writing the store.
    TimeoutError
        If the time limit of ``until`` is reached before anything is drawn.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_gibbsnn as pmg
    >>> X = np.random.default_rng(1).normal(size=(50, 3))
    >>> with pmg.mlp(X, X[:, 0] ** 2, hidden=5):
    ...     idata = pmg.sample(1000, step=pmg.GibbsNN(), chains=8)  # doctest: +SKIP
    """
    begun = time.perf_counter()
    try:
        import jax  # noqa: F401, and so do the modules below
    except ImportError:
        raise ImportError("pmg.sample runs in JAX, which is not installed: pip install 'pymc-gibbsnn[jax]'.") from None
    with remembered():
        from pymc_gibbsnn.drivers.plan import make_plan
        from pymc_gibbsnn.drivers.run import open_results, run, start_of_chains

        keep_programs()
        plan = make_plan(
            model,
            step,
            draws=draws,
            tune=tune,
            chains=chains,
            thin=thin,
            var_names=var_names,
            initvals=initvals,
            precision=precision,
            devices=devices,
            shards=shards,
            local_rows=local_rows,
            store=store,
            resume=resume,
            checkpoint_every=checkpoint_every,
            until=until,
            callback=callback,
            begun=begun,
        )
    with remembered() as interrupts, open_results(plan) as results:
        start = start_of_chains(plan, results, random_seed)
        return run(plan, start, results, progressbar=progressbar, interrupts=interrupts)
