"""What a step method must know of the call of ``pm.sample`` that runs it, and is not told: it is read off the stack."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_gibbsnn._compat import call_in_pymc, read_locals
from pymc_gibbsnn.backends.machine import memory_warning
from pymc_gibbsnn.drivers.initial_points import check_initvals

__all__ = ["CallOfSample", "blas_threads_of_fork", "call_of_sample", "check_call_of_sample"]

SECONDS = 0.7e-3 / 4000  # which PyMC's check of convergence takes on a fast core, for each number of each draw


def check_call_of_sample(model: pm.Model, sizes: dict[str, int], latents: Sequence[Variable]) -> bool:
    """Check what the user asked of the ``pm.sample`` up the stack that is about to start, if there is one.

    It warns if the draws would not fit into memory, or if latents are recorded that nobody asked for.

    Parameters
    ----------
    model : pm.Model
        The model.
    sizes : dict of str to int
        The size in bytes of each variable that a step moves, by name.
    latents : sequence of Variable
        Value variables of the step with a row for each row of the data, if the user is to be warned of them.

    Returns
    -------
    bool
        Whether it warned that latents are recorded.

    Raises
    ------
    TypeError, ValueError
        If ``initvals`` do not go with the model.
    """
    call = call_in_pymc("sample")
    asked = read_locals(call, "initvals", "chains", "draws", "tune", "var_names", "compute_convergence_checks")
    if asked is None or read_locals(call, "initial_points"):  # PyMC has already used the starts
        return False
    initvals, chains, draws, tune, names, is_checked = asked

    def warn(message: str) -> None:
        warnings.warn_explicit(message, UserWarning, call.f_back.f_code.co_filename, call.f_back.f_lineno)

    check_initvals(model, initvals, chains)
    recorded = {name: size * chains for name, size in sizes.items() if names is None or name in names}
    if message := memory_warning(recorded, draws + (tune or 0)):
        warn(message)
    if names is not None or not latents:
        return False
    others = [rv.name for rv in model.free_RVs if model.rvs_to_values[rv] not in latents]
    numbers, size = (
        sum(sizes[v.name] // np.dtype(v.dtype).itemsize for v in latents),
        sum(sizes[v.name] for v in latents),
    )
    cost = f"{numbers:,} numbers a draw, {chains * draws * size / 1e6:,.1f} MB in all"
    if is_checked and chains > 1 and (seconds := SECONDS * numbers * chains * draws) >= 1:
        cost += f", and PyMC's check of R-hat and ESS takes {seconds:,.0f} s or more for them"
    warn(
        f"The latents {', '.join(v.name for v in latents)} are recorded ({cost}), and pm.sample_posterior_predictive "
        f"may take them for those of new rows: pass var_names={others} to pm.sample, or predict with "
        f"pymc_gibbsnn.predict, which draws them anew."
    )
    return True


class CallOfSample(NamedTuple):
    """What ``pm.sample`` was asked for.

    Attributes
    ----------
    draws, chains : int
        How many draws and chains it makes.
    searches : bool
        Whether chains may look for a start of their own: they tune, and the user gave no start.
    """

    draws: int
    chains: int
    searches: bool


def call_of_sample() -> CallOfSample | None:
    """Read what the ``pm.sample`` up the stack was asked for; None where there is none."""
    asked = read_locals(call_in_pymc("sample"), "draws", "chains", "tune", "initvals")
    if asked is None:
        return None
    draws, chains, tune, initvals = asked
    return CallOfSample(draws, chains, searches=tune != 0 and initvals is None)


def blas_threads_of_fork() -> int | None:
    """Return how many threads ``pm.sample(blas_cores=)`` leaves a chain in a forked process, where PyMC sets no limit.

    None outside of forked processes.
    """
    asked = read_locals(call_in_pymc("_start_loop"), "self._mp_start_method", "self._blas_cores")
    if asked is None or asked[0] != "fork" or asked[1] is None:
        return None
    return max(1, asked[1])
