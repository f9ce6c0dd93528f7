r"""The log density of data given a posterior, with latents integrated out.

Given the weights θ of one draw of the posterior, the latents of a row of data are unknown, and the density of the row
is an integral over them. In a noisy network, with A the last post-activations, Z the pre-activations below them, and W
and b the last weights and bias,

    y | A ~ N(A Wᵀ + b, ΔZ I),  A | Z ~ N(σ(Z), ΔA I)   imply   y | Z ~ N(σ(Z) Wᵀ + b, ΔZ I + ΔA W Wᵀ),

which is a closed form. Then p(y | x, θ) = E[p(y | Z)] is a mean over Z, which is drawn anew by running the network
below forwards, ``latent_draws`` times for each draw of the posterior. Where a second network sets the scale of a row
by a latent G, the distribution of G is divided into latent_draws/2 parts of equal probability, in each of which G is
drawn twice (stratified sampling): much of the density at an outlier comes from few values of G.

For a binary label, P(y = 1 | Z) = Φ(m/s), with mean m and variance s² as above. For a label that is the largest of k
pre-activations, let u be the noise of pre-activation y in its standard deviations; P(y | A, u) is the product over the
others j of Φ((m_y + s u − m_j)/s), and A and u are drawn. For any other likelihood the density is PyMC's, given the
variables on which it depends; if each datum depends on one number of a last latent alone, this is integrated out by
quadrature (:mod:`pymc_gibbsnn.prediction.quadrature`). A classical network has no latents, and nothing is
drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike, DTypeLike
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import NormalRV
from scipy.special import logsumexp, ndtri

from pymc_gibbsnn._arguments import model_of, whole
from pymc_gibbsnn._compat import add_group, dataset_of
from pymc_gibbsnn._data import check_labels, finite, warn_of_units
from pymc_gibbsnn.networks.likelihoods import find_noisy
from pymc_gibbsnn.networks.likelihoods.class_labels import numbered
from pymc_gibbsnn.networks.network import Network, NetworkError, evaluate
from pymc_gibbsnn.networks.reader import read_networks
from pymc_gibbsnn.prediction.chain_weights import weights_of_chains
from pymc_gibbsnn.prediction.conditionals import Conditional, FrozenDistribution, distribution_node
from pymc_gibbsnn.prediction.dense_units import read_dense_units
from pymc_gibbsnn.prediction.forward_draws import SharedNoise
from pymc_gibbsnn.prediction.inputs import Inputs, check_columns, find_observed, observed_value
from pymc_gibbsnn.prediction.inputs_as_data import with_inputs_as_data
from pymc_gibbsnn.prediction.new_rows import NewRows
from pymc_gibbsnn.prediction.outcomes import class_names, count_classes, is_smooth, log_density, log_normal
from pymc_gibbsnn.prediction.predict import name_axes
from pymc_gibbsnn.prediction.provenance import posterior_for
from pymc_gibbsnn.prediction.quadrature import log_integral

__all__ = ["log_predictive"]

AT_ONCE = 2**16  # integrals by quadrature, each of which keeps some dozens of panels


def log_predictive(
    idata,
    model: pm.Model | None = None,
    X_new: ArrayLike | Mapping[str, ArrayLike] | None = None,
    y_new: ArrayLike | None = None,
    *,
    latent_draws: int | None = None,
    extend_inferencedata: bool = True,
    name: str | None = None,
    thin: int = 1,
    weights: ArrayLike | xr.DataArray | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> xr.Dataset:
    r"""Compute the log predictive density of data, row by row, with latents integrated out.

    .. math:: \log p(y_i \mid x_i, D) \approx \log \frac1S \sum_s p(y_i \mid x_i, \theta_s), \quad
              p(y_i \mid x_i, \theta) = \int p(y_i \mid z) \, p(z \mid x_i, \theta) \, dz

    for the S draws of the posterior (a mean in which ``weights`` count, if given), with z the latents of a row. The
    noise of the last layer and that of the post-activations below it are integrated in closed form, deeper noise by
    ``latent_draws`` draws for each draw of the posterior; :mod:`pymc_gibbsnn.prediction.log_predictive` gives the
    formulas. Weights, biases and learned variances are taken from the posterior, as :func:`predict` does.

    With neither ``X_new`` nor ``y_new`` the density is that of the data that were fitted, and is added to ``idata`` as
    the group ``log_likelihood``, from which ``az.loo`` and ``az.compare`` estimate how well other data would be
    predicted [1]_. They then work with the density of a row given the weights, so that their measure of reliability
    (Pareto k) concerns leaving out a row, and not leaving out the latents of a row.

    Parameters
    ----------
    idata : InferenceData or DataTree
        What ``pm.sample`` or ``pmg.sample`` returned. Data that were fitted are taken from its groups ``constant_data``
        and ``observed_data`` if it has them, and else from the model.
    model : pm.Model, optional
        The model; by default that of the context.
    X_new : array_like, shape (m, d), or mapping of str to array_like, optional
        New rows of the model's inputs, as :func:`predict` takes them; by default the data that were fitted or, where
        ``y_new`` alone is given, the rows that the model holds now.
    y_new : array_like, shape (m,) or (m, k), optional
        What was observed at these inputs, in the units of the model's own data; for class labels, numbers of classes
        from 0 up, or the names of classes; these alone if the names are numbers other than 0, 1, ...
    latent_draws : int
        How often the latents of a row are drawn for each draw of the posterior: once, or an even number of times, to
        which an odd number is rounded up. By default once for new data, which is enough for ``log_density``, since that
        also averages over the posterior, and 20 times for data that were fitted: ``az.loo`` divides by the density
        given single draws, which must be exact to a few hundredths. Look at ``latent_mcse``.
    extend_inferencedata : bool
        Whether to add the group to ``idata``.
    name : str, optional
        The name of the observed variable, where the model has several.
    thin : int
        Every thin-th draw of each chain is used; by default all.
    weights : array_like, (chain,), optional
        How much each chain counts, numbers that add up to 1, such as :func:`stacking_weights` gives; by default all
        chains count alike.
    random_seed : int or numpy.random.Generator, optional
        The seed of the draws of latents.

    Returns
    -------
    xarray.Dataset
        Natural logarithms. A row with several outputs has one density, that of all of them together.

        - ``log_density`` (point): log p(y_i | x_i, D) of each row. Its mean is the held-out log predictive density,
          whose negative is the negative log-likelihood (NLL) that tables of benchmarks report.
        - ``mcse`` (point): the Monte Carlo standard error of ``log_density``, from the draws of the posterior and of
          latents together. With ``weights`` it is that given these weights, from the errors within each chain; without
          them differences between chains count, too.
        - ``log_likelihood`` (chain, draw, point): log p(y_i | x_i, θ).
        - ``latent_mcse`` (point): the standard error of ``log_likelihood`` that the draws of latents cause, as a root
          mean square over draws of the posterior; 0 where nothing is drawn, NaN for a single draw of latents.

    Raises
    ------
    TypeError
        If ``idata``, ``model``, ``latent_draws`` or ``thin`` is of another type than asked for.
    ValueError
        If ``y_new`` is missing, ``X_new`` or ``y_new`` is not finite or of a wrong shape or, as a data frame, has other
        columns than the data, labels are out of range or of no class, ``latent_draws`` or ``thin`` is no positive
        integer, ``weights`` are not one number for each chain that is not negative, with a sum of 1, data that were
        fitted have missing values, the rows of two frames of pandas have other labels, or the
        posterior is refused as by :func:`predict`.
    NetworkError
        If the distribution of y at new inputs cannot be known (see :func:`predict`), or if the model observes nothing,
        several variables and ``name`` is not given, or none of that name.

    Warns
    -----
    UserWarning
        If new rows, or what was observed there, are far from the data, as :func:`predict` warns.

    References
    ----------
    .. [1] A. Vehtari, A. Gelman, J. Gabry. Practical Bayesian model evaluation using leave-one-out cross-validation and
       WAIC. Statistics and Computing 27 (2017).

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_gibbsnn as pmg
    >>> with pmg.mlp(np.random.normal(size=(20, 3)), np.arange(20.0), hidden=5):
    ...     idata = pm.sample(1000, step=pmg.GibbsNN())  # doctest: +SKIP
    ...     found = pmg.log_predictive(idata, X_new=np.zeros((4, 3)), y_new=np.ones(4))  # doctest: +SKIP
    >>> nll = -found["log_density"].mean()  # doctest: +SKIP
    """
    if X_new is not None and y_new is None:
        raise ValueError("X_new needs y_new, which must hold what was observed at these inputs.")
    check_labels("y_new", y_new, "X_new", X_new)
    model, rng = model_of(model), np.random.default_rng(random_seed)
    posterior, present = posterior_for(model, idata, thin=thin), {}
    by_chain = weights_of_chains(weights, posterior)
    fitted, whole_model = X_new is None and y_new is None, model
    model = with_inputs_as_data(model)
    latent_draws = whole("latent_draws", (20 if fitted else 1) if latent_draws is None else latent_draws)
    if fitted:
        present, y_new = _fitted(idata, model, name)
    rows = NewRows(model, posterior, X_new, name, present)
    y = _checked(rows, y_new if fitted else _as_fitted(rows, y_new))
    if not fitted:
        targets = evaluate(observed_value(model, rows.observed))
        if targets.shape[1:] == y.shape[1:]:
            warn_of_units("y_new", y, targets, y_new, stacklevel=3)
    density = _Density(whole_model, rows, latent_draws)
    repeats = density.repeats
    log_likelihood = np.empty((rows.chains * rows.draws, rows.rows))
    log_density, mcse, squares = np.empty(rows.rows), np.empty(rows.rows), np.zeros(rows.rows)
    for these in rows.chunks():
        noise = SharedNoise(rng, rows.chains * rows.draws * repeats)
        for draws, parameters in rows.batches(these, repeats, density.inside):
            repeated = slice(draws.start * repeats, draws.stop * repeats)
            densities = density(these, repeated, parameters, y[these], noise)
            densities = densities.reshape(-1, repeats, densities.shape[-1])
            log_likelihood[draws, these] = mean = logsumexp(densities, axis=1) - np.log(repeats)
            if repeats > 1:
                one, other = np.split(np.exp(densities - _level(mean)[:, None]), 2, axis=1)
                squares[these] += np.nan_to_num(((one - other) / repeats) ** 2).sum(axis=(0, 1))
        log_density[these], mcse[these] = _mean_over_draws(log_likelihood[:, these], rows.chains, by_chain)
    _, coords = name_axes(rows, X_new)
    coords = {"point": coords["point"]} | {dim: posterior[dim].values for dim in ("chain", "draw")}
    log_likelihood = log_likelihood.reshape(rows.chains, rows.draws, rows.rows)
    densities = xr.Dataset({"log_likelihood": (("chain", "draw", "point"), log_likelihood)}, coords)
    densities["log_density"], densities["mcse"] = ("point", log_density), ("point", mcse)
    unknown = density.draws_latents and repeats == 1
    squares = np.full(rows.rows, np.nan) if unknown else squares / (rows.chains * rows.draws)
    densities["latent_mcse"] = ("point", np.sqrt(squares))
    if fitted and extend_inferencedata:
        add_group(idata, "log_likelihood", densities["log_likelihood"].rename(rows.observed.name).to_dataset())
    return densities


def _mean_over_draws(
    log_likelihood: np.ndarray, chains: int, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the log of the mean of densities (chain times draw, row) over the draws, and its standard error.

    Parameters
    ----------
    log_likelihood : array, (chain times draw, row)
        The logarithms of the densities.
    chains : int
        The number of chains.
    weights : array, (chain,), or None
        How much each chain counts; None if all count alike.
    """
    size = len(log_likelihood) // chains
    of_draws = 1 / len(log_likelihood) if weights is None else np.repeat(weights / size, size)[:, None]
    log_density = logsumexp(log_likelihood, axis=0, b=of_draws)
    with np.errstate(over="ignore"):  # in chains of weight 0
        shares = np.exp(log_likelihood - _level(log_density)).reshape(chains, -1, len(log_density))
    # Without weights chains are taken together, so that differences between them count as errors
    groups = [(1.0, shares)] if weights is None else [(w, x[None]) for w, x in zip(weights, shares, strict=True) if w]
    return log_density, np.sqrt(sum(w**2 * _error(x) ** 2 for w, x in groups))


def _error(x: np.ndarray) -> np.ndarray:
    """Estimate the standard errors (row,) of the means of draws (chain, draw, row)."""
    import arviz as az

    with np.errstate(invalid="ignore"):
        errors = az.mcse(xr.Dataset({"p": (("chain", "draw", "point"), x)}), method="mean")
    is_constant = np.ptp(x, axis=(0, 1)) <= 1e-12  # as where a probability is 1
    return np.where(is_constant, 0, np.asarray(errors["p"]))


def _level(log_mean: np.ndarray) -> np.ndarray:
    """Return what to subtract from log densities of draws to have densities of mean 1; 0 where their mean is 0."""
    return np.where(np.isneginf(log_mean), 0, log_mean)


class _Density:
    """The log density of rows given parameters and latents that are drawn anew; some noise is integrated out exactly.

    Parameters
    ----------
    model : pm.Model
        The model that was sampled.
    rows : NewRows
        The rows, with the parameters of the posterior.
    latent_draws : int
        How often latents are to be drawn for each draw of the posterior.

    Attributes
    ----------
    draws_latents : bool
        Whether there are latents to draw.
    repeats : int
        How often they are drawn: 1, or an even number, since draws i and repeats/2 + i belong together.
    units : DenseUnits or None
        The hidden units of a dense network that alone leads into the last Normal.
    inside : set of Variable
        Their latents, whose conditionals are not used.
    """

    def __init__(self, model: pm.Model, rows: NewRows, latent_draws: int):
        self.rows = rows
        node = distribution_node(rows.observed)
        kind = find_noisy(node)
        if kind is not None and kind.is_deterministic and rows.noisy_output is None:
            raise NetworkError(f"'{rows.observed.name}' is not given by a noisy pre-activation.")
        # The pre-activation that gives a label or what else is observed, if it can be integrated out
        latent = rows.noisy_output if kind is not None and kind.log_probability is not None else None
        self.observation = kind if latent is not None else None
        parameters = None if self.observation is None else self.observation.parameters(node)
        self.of_observation = rows.last if parameters is None else rows.with_parameters(rows.observed, parameters)
        latent = latent or rows.factor
        self.is_given_latent = latent is not None
        estimates = self.observation is not None and not self.observation.is_integrable
        conditionals = {conditional.rv: conditional for conditional in rows.latents}
        self.last = latent or rows.last
        self.is_normal = isinstance(distribution_node(self.last.rv).op, NormalRV)
        self.integrated: dict[Variable, Network] = {}
        self.row_noise: set[Variable] = set()
        if self.is_normal and not estimates:
            with suppress(NetworkError):
                self._find(read_networks(model, check_data=False), rows.model, conditionals)
        self.units = None
        if len(self.integrated) == 1:
            [network] = self.integrated.values()
            self.units = read_dense_units(rows, network, is_double=True)
        self.inside = set() if self.units is None else set(self.units.latents)
        self.latents = [conditional for conditional in rows.latents if conditional is not self.last]
        drawn = [conditional for conditional in self.latents if conditional.rv not in self.integrated]
        self.draws_latents = bool(drawn) or estimates
        self.repeats = latent_draws + latent_draws % 2 if self.draws_latents and latent_draws > 1 else 1

    def _find(self, networks: list[Network], model: pm.Model, conditionals: Mapping[Variable, Conditional]) -> None:
        """Find the post-activations that enter the mean of the last Normal linearly, and what sets scales of rows."""
        self.row_noise = {model[x.layers[-1].name] for x in networks if x.sets_noise_of is not None}
        networks = [network for network in networks if network.layers[-1].name == self.last.rv.name]
        if self.is_given_latent and any(network.layers[-1].shape[0] > 1 for network in networks):
            return
        entering = {
            model[network.activations[-1].name]: network
            for network in networks
            if any(network.activations[-1:]) and network.layers[-1].operator.has_gain
        }
        self.integrated = {a: network for a, network in entering.items() if a in conditionals}

    def _stratified(self, distribution: FrozenDistribution, rng: np.random.Generator) -> np.ndarray:
        """Draw a normal latent with two draws in each of repeats/2 parts of equal probability of its distribution."""
        mean, sigma = distribution.parameters
        parts = max(1, self.repeats // 2)
        part = (np.arange(distribution.shape[0]) % parts).reshape(-1, *[1] * (len(distribution.shape) - 1))
        return mean + sigma * ndtri((part + rng.random(distribution.shape)) / parts)

    def __call__(
        self,
        these: slice,
        repeated: slice,
        parameters: Mapping[Variable, np.ndarray],
        y: np.ndarray,
        noise: SharedNoise,
    ) -> np.ndarray:
        """Compute the log density of some rows, with latents drawn anew.

        Parameters
        ----------
        these : slice
            The rows.
        repeated : slice
            Which draws these are, of those that are repeated.
        parameters : mapping of Variable to array, (draw, ...)
            Values of the variables that all rows share, for each draw.
        y : array, (row, ...)
            What was observed in these rows.
        noise : SharedNoise
            Normal numbers for these rows.

        Returns
        -------
        array, (draw, row)
        """

        def normals(rv: Variable, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
            return noise.normals((rv,), repeated, shape, dtype)

        values, data, rng = dict(parameters), self.rows.data(these), noise.rng
        draws, weights = len(next(iter(values.values()))), {rv.name: x for rv, x in parameters.items()}
        added: list[tuple[np.ndarray, np.ndarray]] = []  # W Wᵀ (draw, k, k) and the standard deviations sqrt(ΔA)
        sums = None
        for conditional in self.latents:
            if conditional.rv in self.integrated:
                if self.units is None:
                    distribution = conditional.distribution(data, values, draws)
                    values[conditional.rv] = np.broadcast_to(distribution.parameters[0], distribution.shape)
                    sd = distribution.parameters[1]
                else:
                    deviations = self.units.deviations(data, values, draws)
                    sums, sd = self.units.sums(data, weights, deviations, normals), deviations[-1]
                operator = self.integrated[conditional.rv].layers[-1].operator
                w = operator.linear(operator.named_matrix(weights))
                added.append((w @ np.swapaxes(w, -1, -2), sd.astype(float)))
                continue
            if conditional.rv in self.inside:
                continue
            distribution = conditional.distribution(data, values, draws)
            if conditional.rv in self.row_noise:
                values[conditional.rv] = self._stratified(distribution, rng)
            elif isinstance(distribution.op, NormalRV):
                mean, sigma = distribution.parameters
                values[conditional.rv] = mean + sigma * normals(conditional.rv, distribution.shape, mean.dtype)
            else:
                values[conditional.rv] = distribution.draw(rng)
        if sums is None:
            distribution = self.last.distribution(data, values, draws)
        else:
            distribution = self.units.output(sums, data, values)
        if self.is_given_latent:
            mean, sigma = np.broadcast_to(distribution.parameters[0], distribution.shape), distribution.parameters[1]
            for squares, sd in added:
                variance = squares[:, 0] * _of_rows(sd) ** 2  # (draw, row), or a row for all
                sigma = np.sqrt(sigma**2 + variance.reshape(*variance.shape, *[1] * (mean.ndim - 2)))
            if self.observation is None:
                return self._integrated(data, values, mean, sigma, y)
            values[self.last.rv] = mean
            parameters = self.of_observation.distribution(data, values, draws).parameters
            return _by_row(self.observation.log_probability(mean, sigma, y, rng, parameters))
        if added:
            mean, sigma = (x.astype(float) for x in distribution.parameters)
            k = added[0][0].shape[-1]
            covariance = np.eye(k)  # in units of sigma, in which that of all rows is the same
            for squares, sd in added:
                covariance = covariance + squares * _ratio(sd, sigma)[:, None, None] ** 2
            density = log_normal(((y - mean) / sigma).reshape(draws, len(y), k), covariance)
            return density - k * np.log(_of_rows(sigma))
        return _by_row(self._of_pymc(distribution, y))

    @cached_property
    def _of_pymc(self) -> Callable[[FrozenDistribution, np.ndarray], np.ndarray]:
        """PyMC's log density of what is observed, given its distribution and y (draw, row, ...)."""
        return log_density(self.rows.last, has_checks=not self.is_given_latent)

    def _integrated(
        self,
        data: list[np.ndarray],
        values: Mapping[Variable, np.ndarray],
        mean: np.ndarray,
        sigma: np.ndarray,
        y: np.ndarray,
    ) -> np.ndarray:
        """Integrate the last latent out of PyMC's log density, by quadrature for each of its numbers.

        Parameters
        ----------
        data : list of array
            The inputs at some rows.
        values : mapping of Variable to array, (draw, ...)
            Values of all other variables.
        mean, sigma : array, (draw, row, ...)
            The mean of the latent, and its standard deviation, which broadcasts to it.
        y : array, (row, ...)
            What was observed in these rows.

        Returns
        -------
        array, (draw, row)
        """
        densities, sigma = [], np.broadcast_to(sigma, mean.shape)
        size = max(1, AT_ONCE // max(1, mean[0].size))
        for i in range(0, len(mean), size):
            part = {rv: x[i : i + size] for rv, x in values.items()}

            def given(z: np.ndarray, part: dict = part) -> np.ndarray:
                distribution = self.rows.last.distribution(data, part | {self.last.rv: z}, len(z))
                each = self._of_pymc(distribution, y)
                return (each if each.size == z.size else _by_row(each)).reshape(z.shape)

            part_of = mean[i : i + size], sigma[i : i + size]
            densities.append(_by_row(log_integral(given, *part_of, is_smooth(self.rows.last))))
        return np.concatenate(densities)


def _ratio(sd: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """Return the ratio (draw,) of two standard deviations (draw, row, ...), which is the same for all rows and units.

    It is taken from the row whose sigma is closest to 1, since those of other rows may be 0 or infinite.
    """
    sd, sigma = np.broadcast_arrays(_of_rows(sd), _of_rows(sigma))
    row = np.abs(np.log(sigma)).argmin(axis=1)[:, None]
    return (np.take_along_axis(sd, row, 1) / np.take_along_axis(sigma, row, 1))[:, 0]


def _of_rows(sd: np.ndarray) -> np.ndarray:
    """Return standard deviations (draw, row, ...) that are the same for all units of a row as (draw, row)."""
    return sd.reshape(*sd.shape[:2], -1)[:, :, 0]


def _by_row(x: np.ndarray) -> np.ndarray:
    """Sum an array over all its axes but the first two, of draws and rows."""
    return x.reshape(*x.shape[:2], -1).sum(-1)


def _fitted(idata, model: pm.Model, name: str | None) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the model's data and what it observed when it was sampled; what was not recorded, as it is now."""
    observed = find_observed(model, name)
    if observed not in model.rvs_to_values:
        raise ValueError(f"'{observed.name}' has missing values: give X_new and y_new, rows without any.")
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


def _as_fitted(rows: NewRows, y_new: ArrayLike) -> ArrayLike:
    """Return what a user gives as new data as the model holds such data: names of classes become their numbers."""
    check_columns(rows.model, rows.observed.name, "y_new", y_new)
    classes = count_classes(rows.example)
    if classes is None or np.ma.is_masked(y_new):
        return y_new
    return numbered("y_new", y_new, class_names(rows.model, classes))


def _checked(rows: NewRows, y_new: ArrayLike) -> np.ndarray:
    """Return what was observed at new rows as an array; raise ValueError if it does not fit the model."""
    finite("y_new", y_new)
    y, dtype, classes = np.asarray(y_new), np.dtype(rows.observed.dtype), count_classes(rows.example)
    if y.shape != rows.shape:
        raise ValueError(f"y_new must have shape {rows.shape}, a row for each row of the inputs; found {y.shape}.")
    wrong = y[(y < 0) | (y >= classes) | (y != np.floor(y))] if classes else y[y != y.astype(dtype)]
    if dtype.kind in "iu" and wrong.size:
        known = f", labels from 0 to {classes - 1}" if classes else ""
        raise ValueError(f"y_new must hold integers{known}; found {np.unique(wrong)[:5]}.")
    return y.astype(dtype)
