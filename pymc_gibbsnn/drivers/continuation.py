"""``pmg.continue_from``: chains that begin where those of an earlier call of ``pm.sample`` ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
from pymc.step_methods.compound import BlockedStep

from pymc_gibbsnn import _compat
from pymc_gibbsnn._arguments import model_of, whole
from pymc_gibbsnn.drivers.given_steps import steps_of
from pymc_gibbsnn.drivers.step import GraphStep
from pymc_gibbsnn.drivers.thinning import SWEEPS
from pymc_gibbsnn.models.initial_values import initial_values
from pymc_gibbsnn.models.without_latents import without_latents
from pymc_gibbsnn.networks.forms import shapes_of
from pymc_gibbsnn.networks.reader import read_networks
from pymc_gibbsnn.prediction.draws_of import draws_of
from pymc_gibbsnn.prediction.provenance import posterior_for

__all__ = ["continue_from"]


def continue_from(
    idata, step: BlockedStep | Sequence[BlockedStep], *, tune: int = 0, random_seed=None, model: pm.Model | None = None
) -> dict[str, Any]:
    """Make the arguments with which ``pm.sample`` goes on from the last draws of an earlier call.

    Each chain begins at the last draw of the chain of the same number, with the step sizes to which that one was tuned.
    As nothing is tuned any more, all further draws are draws of the posterior if the last ones were. They are not the
    very draws that a longer run would have made, because PyMC does not keep the state of its random generators;
    ``pmg.sample(resume=)`` makes those.

    Parameters
    ----------
    idata : InferenceData or DataTree
        What ``pm.sample`` or ``pmg.sample`` returned for this model.
    step : step method or list of step methods
        The steps that are to move the chains: made in the same way as those of the earlier call, or the very same.
    tune : int
        How many tuning steps to make and discard. 0, unless ``idata`` lacks something with which chains go on, of which
        an error tells: latents were not recorded, or a step has tuned what no statistic reports. Such latents are drawn
        from the model given the weights, the data left aside, and such steps begin their tuning anew, so that the
        chains have to find the posterior again, though from near by.
    random_seed : int or numpy.random.Generator, optional
        The seed of the latents that are drawn here.
    model : pm.Model, optional
        The model; by default that of the context.

    Returns
    -------
    dict
        The arguments ``step``, ``initvals``, ``chains`` and ``tune`` of ``pm.sample`` or ``pmg.sample``. The steps are
        copies, which share what is compiled with those that were given. Give another ``random_seed`` than before.

    Raises
    ------
    TypeError
        If a step is no step method, or ``tune`` is no number.
    ValueError
        If a step or ``idata`` was made for another model, or one with another activation, likelihood, noise or prior,
        ``tune`` is negative, ``idata`` lacks draws of weights or
        ends at numbers that are not finite, or it lacks other numbers with which its chains go on and ``tune`` is 0.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_gibbsnn as pmg
    >>> X = np.random.default_rng(1).normal(size=(50, 3))
    >>> with pmg.mlp(X, X[:, 0] ** 2, hidden=5):
    ...     idata = pm.sample(1000, step=pmg.GibbsNN())  # doctest: +SKIP
    ...     more = pm.sample(draws=1000, **pmg.continue_from(idata, pmg.GibbsNN()))
    """
    model, tune = model_of(model), whole("tune", tune, least=0)
    steps = [method for one in steps_of(step, model) for method in getattr(one, "methods", [one])]
    starts, latents = _last_draws(idata, model)
    lacking = [f"the draws of {latents}"] if latents else []
    copies = []
    for i, one in enumerate(steps):
        if not isinstance(one, GraphStep):
            lacking.append(f"what {type(one).__name__} has tuned")
            copies.append(one)
            continue
        tuned = _tuned(idata, steps, i)
        known = {name: x for name, x in tuned.items() if x is not None}
        if lost := [name for name in tuned if name not in known]:
            lacking.append(f"what {type(one).__name__} has tuned ({', '.join(lost)})")
        copies.append(one.that_goes_on(known, _reported(idata, steps, i, SWEEPS)))
    moved = {v for one in steps for v in (one.transition.variables if isinstance(one, GraphStep) else one.vars)}
    if left := [rv.name for rv in model.free_RVs if model.rvs_to_values[rv] not in moved]:
        lacking.append(f"what the steps have tuned that PyMC chooses for {left}")
    if lacking and not tune:
        raise ValueError(
            f"The chains cannot go on as they were, because idata does not hold {', nor '.join(lacking)}. Pass tune=, "
            f"the number of steps in which they are to find the posterior again."
        )
    rng = np.random.default_rng(random_seed)
    starts = [start | _drawn(model, start, latents, rng) for start in starts]
    return {"step": copies if len(copies) > 1 else copies[0], "initvals": starts, "chains": len(starts), "tune": tune}


def _last_draws(idata, model: pm.Model) -> tuple[list[dict[str, np.ndarray]], list[str]]:
    """Return the values of the free variables at the last draw of each chain, and the names of latents that lack.

    Raises
    ------
    ValueError
        If other variables lack, are those of another model, or have values that are not finite.
    """
    posterior = posterior_for(model, idata)
    names, others = [rv.name for rv in model.free_RVs], without_latents(model)
    missing = [name for name in names if name not in posterior]
    if weights := [name for name in missing if name in others]:
        raise ValueError(
            f"idata holds no draws of {weights}, without which no chain can go on: record them (var_names=)."
        )
    shapes = shapes_of(model.free_RVs)
    drawn = {
        name: draws_of(posterior, model, name, shapes[name], has_rows=name not in others)[:, -1]
        for name in names
        if name not in missing
    }
    points = [{name: x[chain] for name, x in drawn.items()} for chain in range(posterior.sizes["chain"])]
    if ended := [i for i, point in enumerate(points) if not all(np.isfinite(x).all() for x in point.values())]:
        raise ValueError(
            f"The chains {ended} of idata end at numbers that are not finite: leave out these chains, or those draws."
        )
    return points, missing


def _tuned(idata, steps: Sequence[BlockedStep], i: int) -> dict[str, np.ndarray | None]:
    """Return the entries of the carry of step i that statistics of the last draws tell, (chain,); None for others."""
    entries = {}
    for name, statistic in steps[i].transition.tuned.items():
        x = None if statistic is None else _reported(idata, steps, i, statistic)
        entries[name] = None if x is None else np.log(x)
    return entries


def _reported(idata, steps: Sequence[BlockedStep], i: int, statistic: str) -> np.ndarray | None:
    """Return a statistic of step i at the last draw, (chain,); None where it was not recorded.

    Of a statistic that several steps report, ``pm.sample`` makes one array with an axis for them. ``pmg.sample`` adds
    the number of the step to the name.

    Parameters
    ----------
    idata : InferenceData or DataTree
        The draws.
    steps : sequence of step methods
        The steps that made them.
    i : int
        The number of the step.
    statistic : str
        The name of the statistic.
    """
    stats = _compat.dataset_of(idata, "sample_stats").isel(draw=-1) if "sample_stats" in idata else {}
    earlier = sum(statistic in one.stats_dtypes_shapes for one in steps[:i])
    x = stats.get(f"{statistic}_{i}" if earlier and f"{statistic}_{i}" in stats else statistic)
    if x is None:
        return None
    x = x.transpose("chain", ...).values
    return x[:, earlier] if x.ndim > 1 else x


def _drawn(
    model: pm.Model, start: dict[str, np.ndarray], latents: Sequence[str], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Draw latents that were not recorded from the model.

    Parameters
    ----------
    model : pm.Model
        The model.
    start : dict of str to array
        Where a chain starts: the values of all other variables.
    latents : sequence of str
        The names of the latents.
    rng : numpy.random.Generator
        The random generator.
    """
    if not latents:
        return {}
    of_networks = {v.name for network in read_networks(model) for v in network.variables}
    known = {rv.name for rv in model.free_RVs if model.rvs_to_values[rv].name in of_networks}
    teacher = {name: x for name, x in start.items() if name in known}
    drawn = initial_values(model, "informed", teacher=teacher, random_seed=rng)
    return {name: drawn[name] for name in latents}
