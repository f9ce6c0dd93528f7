"""Do the chains of a posterior agree? One table of quantities of which R-hat makes sense, and what to do, in words.

Single weights of a network tell nothing, since hidden units can change places. The rows of the table are functions
that do not change when they do: outputs at data points, norms of layers, the log density, and whatever else the model
learns, such as variances of noise.

Two chains are apart in a quantity if D > 1/2 and D > 3e, where D is the difference of their means in standard
deviations within chains, e the standard error of D that their effective sample sizes give, and both are root mean
squares over the numbers of which the quantity consists. Chains that can be joined by pairs that are not apart form a
group. The chains that are named are those outside the largest group, or all if it holds a single one.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import compress

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from scipy.sparse.csgraph import connected_components

from pymc_gibbsnn._arguments import model_of, posterior_of, whole
from pymc_gibbsnn._compat import dataset_of
from pymc_gibbsnn.diagnostics.function_space import function_space
from pymc_gibbsnn.networks.function import input_data
from pymc_gibbsnn.networks.network import NetworkError
from pymc_gibbsnn.networks.reader import only_network, read_networks

__all__ = ["summary"]

APART, ERRORS = 0.5, 3.0  # how many standard deviations, and standard errors, apart the means of chains must be
ENOUGH_ESS, CLOSE_RHAT = 400, 1.01  # where ArviZ calls a posterior well explored
FAR_RHAT = 1.1  # above it, draws alone may not help


def summary(idata, model: pm.Model | None = None, X_new: ArrayLike | None = None, *, points: int = 50) -> pd.DataFrame:
    r"""Say in one table, and in words, whether the chains of a posterior agree on the function of a network.

    Parameters
    ----------
    idata : InferenceData or DataTree
        What ``pm.sample`` or ``pmg.sample`` returned; its posterior must hold all weights and biases.
    model : pm.Model, optional
        The model; by default that of the context.
    X_new : array_like, shape (m, d), optional
        Inputs at which to evaluate the network; those of images have the shape (m, ...) that they have in the model's
        data. By default rows of its own inputs, evenly spaced.
    points : int
        How many of its own rows to take at most.

    Returns
    -------
    pandas.DataFrame
        The rows are ``output`` (at all points together, as :func:`function_space` computes them: without noise, and
        without what other parts of the model add to the means of its layers), ``log_noise`` (where a second network
        learns how noisy each row is: the log of the standard deviation of y at all points together),
        ``norm 1`` and so on (Σ W² + Σ b² of each layer, or Σ θ² of each variable where the network cannot be read),
        ``lp`` (the log density, if the sampler recorded it), and every other free variable that was recorded, such as
        learned variances. The columns are

        - ``numbers``: of how many numbers the row consists; the other columns then hold averages of ``mean`` and
          ``sd``, and the worst of ``ess_bulk``, ``ess_tail`` and ``r_hat``, all as ArviZ computes them [1]_, over the
          numbers that change, NaN if none does;
        - ``between``: the share of the variance that lies between the chains, from 0 to 1;
        - ``apart``: the numbers of the chains that disagree with most others, by the rule of
          :mod:`pymc_gibbsnn.diagnostics.summary`; empty if all agree.

        ``attrs["verdict"]`` says in sentences which chains disagree and what to try. It names chains that never moved,
        or hold draws that are not finite, and compares the others with each other.

    Raises
    ------
    TypeError
        If an argument is of another type than asked for.
    ValueError
        If the posterior lacks weights, is that of another model, or has fewer than 4 draws, or X_new has a wrong shape
        or other columns than the data, or is not finite.
    NetworkError
        If the model has no network that can be read and no likelihood whose mean is a function of one ``pm.Data``.

    References
    ----------
    .. [1] A. Vehtari, A. Gelman, D. Simpson, B. Carpenter, P.-C. Bürkner. Rank-normalization, folding, and
       localization: an improved R-hat. Bayesian Analysis 16 (2021), arXiv 1903.08008.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_gibbsnn as pmg
    >>> X = np.random.default_rng(1).normal(size=(50, 3))
    >>> with pmg.mlp(X, X[:, 0] ** 2, hidden=5) as model:
    ...     idata = pm.sample(1000, step=pmg.GibbsNN(), var_names=["W1", "b1", "W2", "b2"])  # doctest: +SKIP
    >>> found = pmg.summary(idata, model)  # doctest: +SKIP
    >>> print(found, found.attrs["verdict"], sep="\n")  # doctest: +SKIP
    """
    model, points = model_of(model), whole("points", points)
    posterior = posterior_of("idata", idata)
    if posterior.sizes["draw"] < 4:
        raise ValueError(f"idata must hold at least 4 draws of each chain; found {posterior.sizes['draw']}.")
    found = _quantities(idata, posterior, model, X_new, points)
    names = [str(chain) for chain in posterior["chain"].values]
    table = _table(found, names)
    finite = np.array([all(np.isfinite(x[i]).all() for x in found.values()) for i in range(len(names))])
    moves = np.ptp(found["output"], axis=1).any(axis=1) & finite
    words = []
    if not finite.all():
        words.append(
            f"{_chains(names, ~finite)} left the finite numbers: cut off the draws that are NaN or infinite before you "
            f"use the others."
        )
    if (still := finite & ~moves).any():
        words.append(
            f"{_chains(names, still)} did not move: all draws have the same outputs. A sampler that rejects proposals "
            f"may need more tuning steps, or a smaller step size."
        )
    if moves.any():
        moving = {name: x[moves] for name, x in found.items()}
        numbers = list(compress(names, moves))
        words.append(_in_words(table if moves.all() else _table(moving, numbers), numbers, moving.get("lp")))
    table.attrs["verdict"] = " ".join(words)
    return table


def _chains(names: list[str], chosen: np.ndarray) -> str:
    """Name the chosen chains at the beginning of a sentence."""
    found = list(compress(names, chosen))
    return f"{'Chain' if len(found) == 1 else 'Chains'} {', '.join(found)}"


def _table(found: dict[str, np.ndarray], names: list[str]) -> pd.DataFrame:
    """Make the table from draws (chain, draw, numbers) of its quantities, and the numbers of the chains."""
    rows = {
        name: _diagnose(x) | {"apart": ", ".join(names[c] for c in _outside(_groups(x)))} for name, x in found.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index")


def _quantities(idata, posterior: xr.Dataset, model: pm.Model, X_new, points: int) -> dict[str, np.ndarray]:
    """Compute what the rows of the table are about.

    Parameters
    ----------
    idata : InferenceData or DataTree
        The draws.
    posterior : xarray.Dataset
        Their posterior.
    model : pm.Model
        The model.
    X_new : array_like, optional
        Inputs, in place of the model's own.
    points : int
        How many of the model's own inputs to take at most.

    Returns
    -------
    dict of str to array, (chain, draw, numbers)
    """
    try:
        networks = read_networks(model, check_data=False)
        inputs = only_network(networks).data()
        known = {v.name for network in networks for v in (*network.weights, *network.latents)}
    except NetworkError:
        inputs, known = input_data(model).get_value(), set()
    if X_new is None:
        X_new = inputs[np.unique(np.linspace(0, len(inputs) - 1, points).astype(int))]
    space = function_space(idata, model, X_new)
    found = {name: space[name].values for name in ("output", "log_noise") if name in space}
    [axis] = set(space["norm"].dims) - {"chain", "draw"}
    found |= {f"norm {label}": space["norm"].sel({axis: label}).values for label in space[axis].values}
    known |= set(space["norm"][axis].values) if axis == "parameter" else set()
    with suppress(KeyError, AttributeError):  # no such group, or a sampler that does not report it
        found["lp"] = dataset_of(idata, "sample_stats")["lp"].values
    others = [rv.name for rv in model.free_RVs if rv.name not in known and rv.name in posterior]
    found |= {name: posterior[name].transpose("chain", "draw", ...).values for name in others}
    return {name: x.reshape(*x.shape[:2], -1) for name, x in found.items()}


def _diagnose(x: np.ndarray) -> dict[str, float]:
    """Compute the numbers in a row of the table from draws (chain, draw, numbers)."""
    import arviz as az

    data = xr.Dataset({"x": (("chain", "draw", "number"), x)})
    with np.errstate(all="ignore"):
        within, between = x.var(axis=1, ddof=1).mean(), x.mean(axis=1).var(axis=0, ddof=1).mean() if len(x) > 1 else 0.0
        share = between / (between + within) if between + within > 0 else 0.0
        moves = np.ptp(x, axis=1).any(axis=0)  # ArviZ takes all draws of what never changes for independent ones
        ess = [az.ess(data, method=method)["x"].values[moves] for method in ("bulk", "tail")]
        rhat = az.rhat(data)["x"].values if len(x) > 1 else np.array([np.nan])
    return {
        "numbers": x.shape[-1],
        "mean": x.mean(),
        "sd": x.reshape(-1, x.shape[-1]).std(axis=0, ddof=1).mean(),
        "ess_bulk": _worst(ess[0], min),
        "ess_tail": _worst(ess[1], min),
        "r_hat": _worst(rhat, max),
        "between": share if len(x) > 1 else np.nan,
    }


def _worst(values: np.ndarray, of) -> float:
    """Return the smallest or largest of some numbers, NaN if none is finite: ArviZ gives NaN for what is constant."""
    return float(of(values[np.isfinite(values)], default=np.nan))


def _groups(x: np.ndarray) -> np.ndarray:
    """Number the group to which each chain belongs, from draws (chain, draw, numbers)."""
    import arviz as az

    finite = np.flatnonzero(np.isfinite(x).all(axis=(1, 2)))  # the others belong with none
    joined = np.eye(len(x), dtype=bool)
    if len(finite):
        x = x[finite]
        means, variances = x.mean(axis=1), x.var(axis=1, ddof=1)
        ess = [az.ess(xr.Dataset({"x": (("chain", "draw", "number"), one[None])}), method="mean")["x"] for one in x]
        errors = variances / np.clip(np.nan_to_num(np.stack(ess), nan=x.shape[1]), 1, x.shape[1])
        scale = np.maximum(variances.mean(axis=0), np.finfo(float).tiny)
        distance = ((means[:, None] - means) ** 2 / scale).mean(axis=-1)
        error = ((errors[:, None] + errors) / scale).mean(axis=-1)
        joined[np.ix_(finite, finite)] = (distance <= APART**2) | (distance <= ERRORS**2 * error)
    return connected_components(joined, directed=False)[1]


def _outside(groups: np.ndarray) -> np.ndarray:
    """Return the numbers of the chains outside the largest group; those of all chains if no two belong together."""
    counts = np.bincount(groups)
    if len(counts) == 1:
        return np.array([], int)
    return np.flatnonzero(groups != counts.argmax()) if counts.max() > 1 else np.arange(len(groups))


def _in_words(table: pd.DataFrame, names: list[str], lp: np.ndarray | None) -> str:
    """Say which chains disagree, and what to try.

    Parameters
    ----------
    table : pandas.DataFrame
        The table.
    names : list of str
        The numbers of the chains.
    lp : array, (chain, draw, 1), optional
        Their log densities.

    Returns
    -------
    str
    """
    least, largest = table["ess_bulk"].min(), table["r_hat"].max()
    apart = {name: [row for row, text in table["apart"].items() if name in text.split(", ")] for name in names}
    apart = {name: rows for name, rows in apart.items() if rows}
    if apart:
        words = [_where(name, rows, names, lp) for name, rows in apart.items()]
        if len(apart) == len(names):
            words.append("No two chains agree.")
        return " ".join(
            [
                *words,
                "Chains that are apart have not reached one equilibrium, and the one that is alone may be the one that "
                "is right. Try twice as many tuning steps (with GibbsNN, from the start that it chooses by itself); "
                "then more draws; then a wider network or more noise. pymc_gibbsnn.thermalisation says whether a "
                "sampler reaches equilibrium on data of this kind.",
            ]
        )
    if len(names) == 1:
        return f"A single chain has none to disagree with; its smallest ESS is {least:.0f}."
    if largest > CLOSE_RHAT or least < ENOUGH_ESS:
        words = (
            f"No chain is apart from the others, but R-hat goes up to {largest:.2f} (in {table['r_hat'].idxmax()}) and "
            f"the smallest ESS is {least:.0f} (in {table['ess_bulk'].idxmin()}): draw more, until they are at most "
            f"{CLOSE_RHAT} and at least {ENOUGH_ESS}."
        )
        if largest > FAR_RHAT:
            words += (
                f" If R-hat stays above {FAR_RHAT}, chains explore different regions and only seldom meet: try twice "
                f"as many tuning steps, then a wider network or more noise."
            )
        return words
    return (
        f"All chains agree: R-hat is at most {largest:.2f} and the smallest ESS is {least:.0f}. Chains that are stuck "
        f"at the same place agree as well: pymc_gibbsnn.thermalisation tells on data of a teacher."
    )


def _where(name: str, rows: list[str], names: list[str], lp: np.ndarray | None) -> str:
    """Say in which rows of the table a chain is apart, and how its log density compares with that of the others.

    Parameters
    ----------
    name : str
        The number of the chain.
    rows : list of str
        The rows in which it is apart.
    names : list of str
        The numbers of all chains.
    lp : array, (chain, draw, 1), optional
        Their log densities.

    Returns
    -------
    str
    """
    means = None if lp is None else lp.mean(axis=(1, 2))
    words = f"Chain {name} is apart in {', '.join(rows)}"
    if means is not None and len(names) > 1:
        mine = names.index(name)
        difference = means[mine] - np.median(np.delete(means, mine))
        words += f"; its log density is {abs(difference):,.0f} {'above' if difference > 0 else 'below'} the others'"
    return words + "."
