"""Do the chains of a posterior agree? One table of quantities of which R-hat makes sense, and what to do, in words.

Single weights of a network tell nothing, since hidden units can change places (label switching). The rows of the table
are functions that do not change when they do: outputs at data points, norms of layers, the log density, and whatever
else the model learns, such as variances of noise.

Two chains are apart in a quantity if D > 1/2 and D > 3e, where D is the difference of their means in standard
deviations within chains, e the standard error of D that their effective sample sizes give, and both are root mean
squares over the numbers of which the quantity consists. Chains that can be joined by pairs that are not apart form a
group. The chains that are named are those outside the largest group, or all if none is the largest.

The verdict is in the words of :mod:`pymc_gibbsnn.diagnostics.agreement`, about what :mod:`pymc_gibbsnn.drivers.mixing`
chooses, whose ESS ends a run of ``pymc_gibbsnn.sample(until=)`` as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from html import escape
from itertools import compress

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from scipy.sparse.csgraph import connected_components

from pymc_gibbsnn._arguments import model_of, whole
from pymc_gibbsnn._compat import dataset_of
from pymc_gibbsnn.diagnostics.agreement import agree, at_least, at_most, in_words
from pymc_gibbsnn.diagnostics.fixed_noise import noise_in_words
from pymc_gibbsnn.drivers.mixing import POINTS, ess_of, judged, networks_to_judge, that_matter
from pymc_gibbsnn.networks.network import NetworkError
from pymc_gibbsnn.networks.reader import read_networks
from pymc_gibbsnn.prediction.chain_weights import weights_of_chains
from pymc_gibbsnn.prediction.function import function_evaluator
from pymc_gibbsnn.prediction.observed_shapes import check_observed_shapes
from pymc_gibbsnn.prediction.provenance import posterior_for

__all__ = ["LEAST_DRAWS", "Summary", "summary"]

LEAST_DRAWS = 4  # of each chain, as many as R-hat of halves of chains needs
APART, ERRORS = 0.5, 3.0  # how many standard deviations, and standard errors, apart the means of chains must be
DIGITS = {"mean": "{:.4g}", "sd": "{:.4g}", "between": "{:.3f}"}
SHOWN = {name: how.format for name, how in DIGITS.items()} | {
    "ess_bulk": at_least,
    "ess_tail": at_least,
    "r_hat": at_most,
}


class Summary(pd.DataFrame):
    """A table that is shown with its verdict above it, and with as many digits as tell something.

    It is a data frame in all else, and what is computed of it or chosen from it is a plain one.
    """

    @property
    def _constructor(self):
        """The class of what pandas makes of it."""
        return pd.DataFrame

    @property
    def verdict(self) -> str:
        """What the table says in words, one sentence a line."""
        return self.attrs["verdict"]

    @property
    def chains_agree(self) -> bool:
        """Whether no chain is apart and R-hat is at most 1.05 in what is judged, however many draws there are.

        It is False if a chain never moved or is not finite, and True for a single chain that moves.
        """
        return self.attrs["chains_agree"]

    def _rounded(self) -> pd.DataFrame:
        """Return the table as text."""
        return pd.DataFrame({name: x.map(SHOWN.get(name, str)) for name, x in self.items()}, self.index)

    def __repr__(self) -> str:
        """Return the verdict, and the table below it."""
        return f"{self.verdict}\n\n{self._rounded().to_string()}"

    def _repr_html_(self) -> str | None:
        """Return the same for notebooks."""
        table = self._rounded()._repr_html_()
        return table and f"<p>{escape(self.verdict).replace(chr(10), '<br>')}</p>{table}"


def summary(
    idata,
    model: pm.Model | None = None,
    X_new: ArrayLike | Mapping[str, ArrayLike] | None = None,
    *,
    points: int = POINTS,
    name: str | None = None,
    weights: ArrayLike | xr.DataArray | None = None,
) -> Summary:
    r"""Say in one table, and in words, whether the chains of a posterior agree on the function of a network.

    Parameters
    ----------
    idata : InferenceData or DataTree
        What ``pm.sample`` or ``pmg.sample`` returned; its posterior must hold all weights and biases.
    model : pm.Model, optional
        The model; by default that of the context.
    X_new : array_like, shape (m, d), or mapping of str to array_like, optional
        Inputs at which to evaluate the network, as :func:`predict` takes them. By default rows of its own inputs,
        evenly spaced.
    points : int
        How many of its own rows to take at most.
    name : str, optional
        The name of the observed variable whose function is looked at, where the model has several.
    weights : array_like, (chain,), optional
        How much each chain counts in ``mean`` and ``sd``, numbers that add up to 1, such as :func:`stacking_weights`
        gives; by default all chains count alike. The other columns, and the verdict, compare the chains as they are.

    Returns
    -------
    pandas.DataFrame
        The table, which is shown with its verdict above it. ``verdict``, and ``attrs["verdict"]``, says in one or two
        sentences, each on a line, whether the chains agree on the outputs or, where y are labels of classes, on their
        probabilities, and what to try; then, if other rows need more draws, which. Chains agree if none is apart, R-hat
        is at most 1.05 and the bulk ESS at least 400, the worst of each over all points
        (:mod:`pymc_gibbsnn.diagnostics.agreement` says why). ``chains_agree`` is True or False, and does not ask for an
        ESS. Chains that never moved, or hold draws that are not finite, are named, and the others are compared with
        each other. If y is normal with a fixed standard deviation, and that of the residuals is more than three times
        or less than half as large, a sentence says so (:mod:`pymc_gibbsnn.diagnostics.fixed_noise`).

        The rows are ``output`` (at all points together, as :func:`function_space` computes them: without noise, and
        without what other parts of the model add to the means of its layers; below a softmax, less the mean over
        classes) or ``probability`` (of classes, given outputs without noise; those of a noisy network with logistic
        noise in place of the normal noise of its last layer, of the same variance, and raw outputs if that variance is
        learned and was not recorded; probabilities whose standard deviation over all draws is below 0.01 are left out,
        unless all are), ``log_noise`` (where a second network learns how noisy each row is: the log of the standard
        deviation of y at all points together), ``norm 1`` and so on (Σ W² + Σ b² of each layer, or Σ θ² of each
        variable where the network cannot be read), ``lp`` (the log density, if the sampler recorded it), and every
        other free variable that was recorded, such as learned variances, but for what belongs to components of a
        mixture of the inputs, which may exchange their numbers (label switching), and loadings of factors of the
        inputs, which may rotate. The columns are

        - ``numbers``: of how many numbers the row consists; the other columns then hold averages of ``mean`` and
          ``sd``, and the worst of ``ess_bulk``, ``ess_tail`` and ``r_hat``, all as ArviZ computes them [1]_, over the
          numbers that change, NaN if none does; they are shown rounded to the worse side;
        - ``between``: the share of the variance that lies between the chains, from 0 to 1;
        - ``apart``: the numbers of the chains that disagree with most others, by the rule of
          :mod:`pymc_gibbsnn.diagnostics.summary`; empty if all agree.

    Raises
    ------
    TypeError
        If an argument is of another type than asked for.
    ValueError
        If the posterior lacks weights, is that of another model, or has fewer than 4 draws, data of the model broadcast
        against their mean, ``weights`` are not one number for each chain that is not negative, with a sum of 1, or
        X_new has a wrong shape or other columns than the data, or is not finite.
    NetworkError
        As :func:`function_space`.

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
    ...     idata = pm.sample(1000, step=pmg.GibbsNN(), var_names=pmg.without_latents())  # doctest: +SKIP
    >>> print(pmg.summary(idata, model))  # doctest: +SKIP
    """
    model, points = model_of(model), whole("points", points)
    posterior = posterior_for(model, idata)
    of_chains = weights_of_chains(weights, posterior)
    check_observed_shapes(model)
    if posterior.sizes["draw"] < LEAST_DRAWS:
        raise ValueError(
            f"idata must hold at least {LEAST_DRAWS} draws of each chain; found {posterior.sizes['draw']}."
        )
    networks, space = networks_to_judge(model, name), function_evaluator(model, X_new, name, points)(posterior)
    judged_ones = judged(model, networks, name)(posterior, space)
    quantities = {row: that_matter(row, x) for row, x in judged_ones.items()} | _others(idata, posterior, model, space)
    names = [str(chain) for chain in posterior["chain"].values]
    joined = {name: _joined(x) for name, x in quantities.items()}
    table = _table(quantities, joined, names)
    if of_chains is not None:
        for row, x in quantities.items():
            table.loc[row, ["mean", "sd"]] = _weighted_moments(x, of_chains)
    finite = np.array([all(np.isfinite(x[i]).all() for x in quantities.values()) for i in range(len(names))])
    output, *_ = judged_ones.values()
    moves = np.ptp(output, axis=1).any(axis=1) & finite
    words, chains_agree = [], bool(moves.all())
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
        of_moving, numbers = table, list(compress(names, moves))
        if not moves.all():
            quantities = {name: x[moves] for name, x in quantities.items()}
            joined = {name: _joined(x) for name, x in quantities.items()}
            of_moving = _table(quantities, joined, numbers)
        groups = _groups(np.all([joined[name] for name in judged_ones], axis=0))
        chains_agree &= agree(of_moving.loc[list(judged_ones)], groups)
        lp = quantities["lp"][..., 0] if "lp" in quantities and of_moving.loc["lp", "apart"] else None
        words += in_words(of_moving, list(judged_ones), numbers, groups, lp)
        if X_new is None:
            output = space["output"].values[moves]
            words += noise_in_words(model, networks, posterior.isel(chain=moves), output, points, name)
    table.attrs |= {"verdict": "\n".join(words), "chains_agree": chains_agree}
    return table


def _chains(names: list[str], chosen: np.ndarray) -> str:
    """Name the chosen chains at the beginning of a sentence."""
    picked = list(compress(names, chosen))
    return f"{'Chain' if len(picked) == 1 else 'Chains'} {', '.join(picked)}"


def _table(quantities: dict[str, np.ndarray], joined: dict[str, np.ndarray], names: list[str]) -> Summary:
    """Make the table from draws (chain, draw, numbers) of its quantities, who is joined, and the numbers of chains."""
    rows = {
        name: _diagnose(x) | {"apart": ", ".join(names[c] for c in _outside(_groups(joined[name])))}
        for name, x in quantities.items()
    }
    return Summary(pd.DataFrame.from_dict(rows, orient="index"))


def _others(idata, posterior: xr.Dataset, model: pm.Model, space: xr.Dataset) -> dict[str, np.ndarray]:
    """Collect what the table has beside what is judged, as arrays (chain, draw, number) by the names of rows.

    Parameters
    ----------
    idata : InferenceData or DataTree
        The draws.
    posterior : xarray.Dataset
        Their posterior.
    model : pm.Model
        The model.
    space : xarray.Dataset
        The function of its network.

    Returns
    -------
    dict of str to array
    """
    known = set()
    with suppress(NetworkError):
        networks = read_networks(model, check_data=False)
        known = {v.name for network in networks for v in (*network.weights, *network.latents)}
        of_inputs = [network.random_inputs for network in networks if network.random_inputs is not None]
        known |= {one.name for inputs in of_inputs for one in inputs.learned if one not in inputs.identified}
    [axis] = set(space["norm"].dims) - {"chain", "draw"}
    quantities = {f"norm {label}": space["norm"].sel({axis: label}).values for label in space[axis].values}
    known |= set(space["norm"][axis].values) if axis == "parameter" else set()
    with suppress(KeyError, AttributeError):  # no such group, or a sampler that does not report it
        quantities["lp"] = dataset_of(idata, "sample_stats")["lp"].values
    others = [rv.name for rv in model.free_RVs if rv.name not in known and rv.name in posterior]
    quantities |= {name: posterior[name].transpose("chain", "draw", ...).values for name in others}
    return {name: x.reshape(*x.shape[:2], -1) for name, x in quantities.items()}


def _diagnose(x: np.ndarray) -> dict[str, float]:
    """Compute the numbers in a row of the table from draws (chain, draw, numbers)."""
    import arviz as az

    data = xr.Dataset({"x": (("chain", "draw", "number"), x)})
    with np.errstate(all="ignore"):
        within, between = x.var(axis=1, ddof=1).mean(), x.mean(axis=1).var(axis=0, ddof=1).mean() if len(x) > 1 else 0.0
        share = between / (between + within) if between + within > 0 else 0.0
        ess = [ess_of(x, method) for method in ("bulk", "tail")]
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


def _weighted_moments(x: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Average the means and the standard deviations of numbers over draws (chain, draw, number) of weighted chains."""
    x, weights = x[weights > 0], weights[weights > 0]
    means = x.mean(axis=1)
    mean = weights @ means
    variance = weights @ (x.var(axis=1) + (means - mean) ** 2)
    count = x.shape[0] * x.shape[1]
    return mean.mean(), np.sqrt(variance * count / (count - 1)).mean()


def _worst(values: np.ndarray, of) -> float:
    """Return the smallest or largest of some numbers, NaN if none is finite: ArviZ gives NaN for what is constant."""
    return float(of(values[np.isfinite(values)], default=np.nan))


def _joined(x: np.ndarray) -> np.ndarray:
    """Say which pairs of chains are not apart (chain, chain), from draws (chain, draw, numbers)."""
    finite = np.flatnonzero(np.isfinite(x).all(axis=(1, 2)))  # the others belong with none
    joined = np.eye(len(x), dtype=bool)
    if len(finite):
        import arviz as az

        x = x[finite]
        means, variances = x.mean(axis=1), x.var(axis=1, ddof=1)
        ess = [az.ess(xr.Dataset({"x": (("chain", "draw", "number"), one[None])}), method="mean")["x"] for one in x]
        errors = variances / np.clip(np.nan_to_num(np.stack(ess), nan=x.shape[1]), 1, x.shape[1])
        scale = np.maximum(variances.mean(axis=0), np.finfo(float).tiny)
        distance = ((means[:, None] - means) ** 2 / scale).mean(axis=-1)
        error = ((errors[:, None] + errors) / scale).mean(axis=-1)
        joined[np.ix_(finite, finite)] = (distance <= APART**2) | (distance <= ERRORS**2 * error)
    return joined


def _groups(joined: np.ndarray) -> np.ndarray:
    """Number the group to which each chain belongs."""
    return connected_components(joined, directed=False)[1]


def _outside(groups: np.ndarray) -> np.ndarray:
    """Return the numbers of the chains outside the largest group; those of all chains if none is the largest."""
    counts = np.bincount(groups)
    if len(counts) == 1:
        return np.array([], int)
    is_largest = counts == counts.max()
    return np.flatnonzero(groups != counts.argmax()) if is_largest.sum() == 1 else np.arange(len(groups))
