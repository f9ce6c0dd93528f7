r"""The log density of data given a posterior, latents integrated out.

Given the weights θ of one draw, a row's latents are unknown, and its density is an integral over them. From the top
down, of a noisy network with A the last post-activation, Z the pre-activation below it, and W the last weights:

    y | A ~ Normal(A Wᵀ + b, ΔZ),  A | Z ~ Normal(σ(Z), ΔA)   so that   y | Z ~ Normal(σ(Z) Wᵀ + b, ΔZ I + ΔA W Wᵀ)

is known in closed form, and p(y | x, θ) = E[p(y | Z)] is a mean over Z drawn anew from the network below,
``latent_draws`` times for each draw of the posterior. Of a binary label P(y = 1 | Z) = Φ(m/s) with mean and variance as
above. Of the label of k pre-activations, given A and the noise u of pre-activation y itself, P(y | A, u) is the product
over the others j of Φ((m_y + s u − m_j)/s); A and u are drawn. Any other likelihood is that of PyMC, given what it
depends on; a classical network has no latents, and nothing is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import NormalRV
from scipy.special import logsumexp

from pymc_gibbsnn._arguments import finite, model_of, posterior_of
from pymc_gibbsnn._compat import add_group, dataset_of
from pymc_gibbsnn.diagnostics.outcomes import count_classes, log_argmax, log_density, log_normal, log_sign
from pymc_gibbsnn.diagnostics.prediction import name_axes
from pymc_gibbsnn.networks.laws import Conditional, law_node
from pymc_gibbsnn.networks.likelihoods.argmax_label import ArgmaxLabelRV
from pymc_gibbsnn.networks.likelihoods.sign_label import SignLabelRV
from pymc_gibbsnn.networks.network import Network, NetworkError, evaluate
from pymc_gibbsnn.networks.new_inputs import Inputs, find_observed
from pymc_gibbsnn.networks.new_rows import NewRows
from pymc_gibbsnn.networks.reader import read_networks

__all__ = ["log_predictive"]


def log_predictive(
    idata,
    model: pm.Model | None = None,
    X_new: ArrayLike | Mapping[str, ArrayLike] | None = None,
    y_new: ArrayLike | None = None,
    *,
    latent_draws: int = 20,
    extend_inferencedata: bool = True,
    name: str | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> xr.Dataset:
    r"""The log density of data, row by row, with latents integrated out.

    .. math:: \log p(y_i \mid x_i, D) \approx \log \frac1S \sum_s p(y_i \mid x_i, \theta_s), \quad
              p(y_i \mid x_i, \theta) = \int p(y_i \mid z) \, p(z \mid x_i, \theta) \, dz

    The noise of the last layer and that of the post-activations below it are integrated in closed form, deeper noise by
    ``latent_draws`` draws for each draw of the posterior; see :mod:`pymc_gibbsnn.diagnostics.log_predictive`. Weights,
    biases and learned scales are taken from the posterior, as :func:`predict` does.

    With neither ``X_new`` nor ``y_new`` it is that of the data that were fitted, and is added to ``idata`` as the group
    ``log_likelihood``, from which ``az.loo`` and ``az.compare`` estimate how well other data would be predicted. These
    take the density of a row given the weights: their reliability (Pareto k) is then that of leaving a row out, and not
    that of leaving out its latents.

    Parameters
    ----------
    idata : InferenceData or DataTree
        What ``pm.sample`` or ``pmg.sample`` returned. Data that were fitted are taken from its ``constant_data`` and
        ``observed_data``, where it has these groups, else from the model.
    model : pm.Model, optional
        Taken from the context by default.
    X_new : array_like, shape (m, d), or mapping of str to array_like, optional
        As of :func:`predict`.
    y_new : array_like, shape (m,) or (m, k), optional
        What was observed there, in the units of the model's own data.
    latent_draws : int
        Draws of the latents of a row for each draw of the posterior. One is enough for ``log_density``, which averages
        over the posterior as well; ``az.loo`` divides by the density given single draws, which must be exact to a few
        hundredths: look at ``latent_mcse``.
    extend_inferencedata : bool
        Whether to add the group to ``idata``.
    name : str, optional
        Of the observed variable, where the model has several.
    random_seed : int or Generator, optional

    Returns
    -------
    xarray.Dataset
        Natural logarithms. A row with several outputs has one density, that of all of them.

        - ``log_density`` (point): of each row; its mean is the held-out log predictive density, its negative the
          negative log-likelihood (NLL) that tables of benchmarks report.
        - ``mcse`` (point): its Monte Carlo standard error, from the draws of the posterior and of latents together.
        - ``log_likelihood`` (chain, draw, point): log p(y_i | x_i, θ).
        - ``latent_mcse`` (point): standard error of the latter by the draws of latents, the root of its mean square
          over draws of the posterior; 0 where nothing is drawn, NaN for a single draw of latents.

    Raises
    ------
    ValueError
        If ``y_new`` or ``X_new`` is missing, not finite or of a wrong shape, labels are out of range, or the posterior
        lacks a variable.
    NetworkError
        As :func:`predict`.

    References
    ----------
    .. [1] A. Vehtari, A. Gelman, J. Gabry. Practical Bayesian model evaluation using leave-one-out cross-validation and
       WAIC. Statistics and Computing 27 (2017).
    """
    if int(latent_draws) != latent_draws or latent_draws < 1:
        raise ValueError(f"latent_draws must be a positive integer; found {latent_draws}.")
    if X_new is not None and y_new is None:
        raise ValueError("X_new needs y_new, what was observed there.")
    model, rng = model_of(model), np.random.default_rng(random_seed)
    posterior, present = posterior_of("idata", idata), {}
    fitted = X_new is None and y_new is None
    if fitted:
        present, y_new = _fitted(idata, model, name)
    rows = NewRows(model, posterior, X_new, name, present)
    y = _checked(rows, y_new)
    density = _Density(model, rows)
    repeats = int(latent_draws) if density.draws_latents else 1
    log_likelihood = np.empty((rows.chains * rows.draws, rows.rows))
    squares = np.zeros(rows.rows)
    for these in rows.chunks():
        for draws, parameters in rows.batches(these, repeats):
            found = density(these, parameters, y[these], rng)
            found = found.reshape(-1, repeats, found.shape[-1])
            log_likelihood[draws, these] = mean = logsumexp(found, axis=1) - np.log(repeats)
            if repeats > 1:
                relative = np.exp(found - mean[:, None]).var(axis=1, ddof=1) / repeats
                squares[these] += np.nan_to_num(relative).sum(axis=0)
    shape = (rows.chains, rows.draws, rows.rows)
    log_likelihood = log_likelihood.reshape(shape)
    _, coords = name_axes(rows, X_new)
    coords = {"point": coords["point"]} | {dim: posterior[dim].values for dim in ("chain", "draw")}
    dims = ("chain", "draw", "point")
    found = xr.Dataset({"log_likelihood": (dims, log_likelihood)}, coords)
    import arviz as az

    highest = log_likelihood.max(axis=(0, 1))
    shares = xr.Dataset({"p": (dims, np.exp(log_likelihood - highest))}, coords)
    mean = shares["p"].mean(("chain", "draw"))
    found["log_density"] = highest + np.log(mean)
    found["mcse"] = ("point", np.asarray(az.mcse(shares, method="mean")["p"] / mean))
    unknown = density.draws_latents and repeats == 1
    squares = np.full(rows.rows, np.nan) if unknown else squares / (rows.chains * rows.draws)
    found["latent_mcse"] = ("point", np.sqrt(squares))
    if fitted and extend_inferencedata:
        add_group(idata, "log_likelihood", found["log_likelihood"].rename(rows.observed.name).to_dataset())
    return found


class _Density:
    """log p(y | parameters, latents drawn anew) of rows, with what is integrated in closed form."""

    def __init__(self, model: pm.Model, rows: NewRows):
        self.rows = rows
        node = law_node(rows.observed)
        op = node.op
        self.labels = op if isinstance(op, ArgmaxLabelRV | SignLabelRV) else None
        conditionals = {conditional.rv: conditional for conditional in rows.latents}
        # The last variable with noise: y, or the pre-activation of which the label is a function
        self.last = rows.last if self.labels is None else conditionals.get(op.dist_params(node)[0], rows.last)
        self.is_normal = isinstance(law_node(self.last.rv).op, NormalRV)
        if self.labels is not None and not (self.is_normal and self.last is not rows.last):
            raise NetworkError(f"The labels '{rows.observed.name}' are not of a noisy pre-activation.")
        self.integrated = self._integrable(model, conditionals)
        self.latents = [conditional for conditional in rows.latents if conditional is not self.last]
        drawn = [conditional for conditional in self.latents if conditional.rv not in self.integrated]
        self.draws_latents = bool(drawn) or isinstance(self.labels, ArgmaxLabelRV)
        self.of_pymc: Callable | None = None

    def _integrable(self, model: pm.Model, conditionals: Mapping[Variable, Conditional]) -> dict[Variable, Network]:
        """Post-activations that enter the mean of the last Normal linearly, each with the network that says how."""
        if not self.is_normal or isinstance(self.labels, ArgmaxLabelRV):
            return {}
        try:
            networks = read_networks(model, check_data=False)
        except NetworkError:
            return {}
        networks = [network for network in networks if network.layers[-1].name == self.last.rv.name]
        if self.labels is not None and any(network.layers[-1].shape[0] > 1 for network in networks):
            return {}
        found = {model[network.activations[-1].name]: network for network in networks if network.activations}
        return {a: network for a, network in found.items() if a in conditionals}

    def __call__(
        self, these: slice, parameters: Mapping[Variable, np.ndarray], y: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """(draw, row) for some rows, y of these."""
        values, data = dict(parameters), self.rows.data(these)
        draws, weights = len(next(iter(values.values()))), {rv.name: x for rv, x in parameters.items()}
        covariance = 0.0  # of the mean of the last Normal: Σ ΔA W Wᵀ, (draw, k, k)
        for conditional in self.latents:
            law = conditional.law(data, values, draws)
            if conditional.rv in self.integrated:
                values[conditional.rv] = np.broadcast_to(law.parameters[0], law.shape)
                operator = self.integrated[conditional.rv].layers[-1].operator
                w = operator.linear(operator.named_matrix(weights))
                w = w * law.parameters[1].reshape(-1, 1, 1)
                covariance = covariance + w @ np.swapaxes(w, -1, -2)
            else:
                values[conditional.rv] = law.draw(rng)
        law = self.last.law(data, values, draws)
        if isinstance(self.labels, ArgmaxLabelRV):
            return log_argmax(law.parameters[0], law.parameters[1], y, rng.standard_normal(law.shape[:-1]))
        if self.labels is not None:
            mean, sigma = law.parameters
            if self.integrated:
                sigma = np.sqrt(sigma**2 + covariance[:, 0, 0].reshape(-1, *[1] * (mean.ndim - 1)))
            return _by_row(log_sign(mean, sigma, y))
        if self.integrated:
            mean, sigma = law.parameters
            k = covariance.shape[-1]
            covariance = covariance + (sigma**2).reshape(-1, 1, 1) * np.eye(k)
            return log_normal((y - mean).reshape(draws, len(y), k), covariance)
        if self.of_pymc is None:
            self.of_pymc = log_density(self.rows.observed)
        return _by_row(self.of_pymc(law, y))


def _by_row(x: np.ndarray) -> np.ndarray:
    """Summed over everything but draws and rows."""
    return x.reshape(*x.shape[:2], -1).sum(-1)


def _fitted(idata, model: pm.Model, name: str | None) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Values of the model's data, and what it observed, when it was sampled; where not recorded, those of now."""
    observed = find_observed(model, name)
    inputs = Inputs(model, observed)
    groups = {}
    for group in ("constant_data", "observed_data"):
        try:
            groups |= {key: x.values for key, x in dataset_of(idata, group).items()}
        except (KeyError, AttributeError):
            continue
    present = {key: groups[key] for key in inputs.data if key in groups}
    value = model.rvs_to_values[observed]
    if inputs.batches:
        [target] = inputs.targets
        return present, groups.get(target.name, evaluate(target))
    return present, groups[observed.name] if observed.name in groups else evaluate(value)


def _checked(rows: NewRows, y_new: ArrayLike) -> np.ndarray:
    finite("y_new", y_new)
    y, dtype, classes = np.asarray(y_new), np.dtype(rows.observed.dtype), count_classes(rows.example)
    if y.shape != rows.shape:
        raise ValueError(f"y_new must have shape {rows.shape}, a row for each row of the inputs; found {y.shape}.")
    wrong = y[(y < 0) | (y >= classes) | (y != np.floor(y))] if classes else y[y != y.astype(dtype)]
    if dtype.kind in "iu" and wrong.size:
        known = f", labels from 0 to {classes - 1}" if classes else ""
        raise ValueError(f"y_new must hold integers{known}; found {np.unique(wrong)[:5]}.")
    return y.astype(dtype)
