"""What the models of noisy networks have in common: priors, learned scales, and dense layers up to the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.graph.basic import Variable

from pymc_gibbsnn._arguments import each, one_of, positive_numbers, whole
from pymc_gibbsnn._data import array_of, column_names
from pymc_gibbsnn.networks.likelihoods import NOISY, LatentLikelihood
from pymc_gibbsnn.networks.likelihoods.likelihood import integers
from pymc_gibbsnn.networks.scales_of_rows import row_scale

__all__ = [
    "data_arguments",
    "dense_layers",
    "deviations_of",
    "latent_deviations",
    "likelihood_of",
    "read_targets",
    "scales",
    "scales_of_rows",
    "standardised",
    "units_of_columns",
]

# Parameters of the InverseGamma priors of learned variances: of data, of latents, and of the latent that is the
# logarithm of a variance. The first leaves the noise to the data; the second favours little noise, with which networks
# were seen to predict better. They are in double precision: PyMC takes the logarithm of a plain 5 in single precision.
DATA, LATENT, LOG_VARIANCE = np.array([(1, 0.001), (5, 0.0001), (3, 0.3)])
# The squared scales of rows lie between the first number and the sum of both. Without these limits, rows that can be
# fitted exactly would lose all noise against the others.
FLOOR, SPAN = 0.1, 10.0
DEFAULTS = {"trials": 1, "exposure": 1.0, "lower": None, "upper": None}


def dense_layers(
    a: Variable,
    sizes: Sequence[int],
    dims: Sequence[str],
    priors: Sequence[float | str],
    deviations: dict[str, float | Variable],
    function: Callable,
    bias: bool,
    targets: Variable,
    out: tuple[str, ...],
    kind: type[LatentLikelihood] | None,
    first: int = 1,
    row_scale: Variable | None = None,
    of_data: Mapping[str, Any] | None = None,
    units: tuple[np.ndarray | float, float] | None = None,
) -> None:
    """Write dense layers, with noise on pre- and post-activations, from an input up to the data.

    Parameters
    ----------
    a : Variable, (n, d)
        The input.
    sizes : sequence of int
        The numbers of inputs of each layer.
    dims : sequence of str
        The names of the dimensions of these inputs.
    priors : sequence of float or str
        What :func:`scales` takes, for each layer.
    deviations : dict of str to float or Variable
        The standard deviations of noise, by the names of the noisy variables.
    function : callable
        The activation.
    bias : bool
        Whether the layers have biases.
    targets : Variable
        What is observed.
    out : tuple of str
        The dimension of the output, if it has one.
    kind : type of LatentLikelihood, optional
        The likelihood of data given the last pre-activations; None if these are observed themselves.
    first : int
        The number of the first layer.
    row_scale : Variable, (n,), optional
        By what the standard deviations of all noise of a row are multiplied.
    of_data : mapping of str, optional
        What the likelihood needs beside the noise; arrays become data variables of these names.
    units : tuple, optional
        The center of the output, which is added to its mean, and its scale, by which the deviations of the priors of
        the last weights and bias are multiplied.
    """
    center, scale = (None, 1.0) if units is None else units
    if row_scale is not None:
        deviations = {
            name: s * (row_scale[:, None] if name != "y" or out else row_scale) for name, s in deviations.items()
        }
    for i, (d, precision) in enumerate(zip(sizes, priors, strict=True)):
        l, last = first + i, i == len(sizes) - 1
        out_dims = out if last else (dims[i + 1],)
        wider = kind.prior_scale if kind is not None and isinstance(precision, str) else 1.0
        mean = _affine(a, d, (*out_dims, dims[i]), precision, bias, str(l), wider * scale if last else 1.0)
        if last and center is not None:
            mean = mean + pm.Data("y_mean", center, dims=out or None)
        name = f"Z{l + 1}"
        if last and kind is None:
            pm.Normal("y", mean, deviations["y"], observed=targets, shape=mean.shape, dims=("row", *out_dims))
            return
        z = pm.Normal(name, mean, deviations["y" if last and "y" in deviations else name], dims=("row", *out_dims))
        if last and kind is not None:
            rows, y_dims = z.shape[: targets.ndim], ("row", *out_dims)[: targets.ndim]
            parameters = {"noise": deviations.get("y"), "scale": scale} | {
                what: pm.Data(what, x, dims=y_dims) if np.ndim(x) else x for what, x in (of_data or {}).items()
            }
            kind.observe("y", z, parameters, observed=targets, shape=rows, dims=y_dims)
        else:
            a = pm.Normal(f"A{l + 1}", function(z), deviations[f"A{l + 1}"], dims=("row", *out_dims))


def data_arguments(
    kind: type[LatentLikelihood], likelihood: str | None, y: np.ndarray, given: Mapping[str, Any]
) -> tuple[type[LatentLikelihood], dict[str, Any]]:
    """Check what a likelihood needs beside the noise: one number for all data, or one for each.

    Parameters
    ----------
    kind : type of LatentLikelihood
        The kind of likelihood.
    likelihood : str, optional
        Its name, as the user gave it.
    y : array, shape (n,) or (n, k)
        The data.
    given : mapping of str
        What the user gave, by the names "trials", "exposure", "lower" and "upper"; None where nothing was given.

    Returns
    -------
    kind : type of LatentLikelihood
        That of this name which has the arguments that were given, such as that of censored data for bounds. Where no
        name was given, bounds are those of normal data.
    arguments : dict of str
        What :meth:`Likelihood.observe` needs.

    Raises
    ------
    ValueError
        If the likelihood has no such argument, its shape is not that of y, or a value is not possible.
    """
    asked = {name for name, x in given.items() if x is not None}
    kinds = (kind, *NOISY[likelihood or "student"], *(() if likelihood else NOISY["normal"]))
    kind = next((one for one in kinds if asked <= set(one.arguments)), kind)
    for name in (name for name in given if name in asked and name not in kind.arguments):
        knowing = [known for known, of_name in NOISY.items() if any(name in one.arguments for one in of_name)]
        known = " or ".join(f"likelihood={one!r}" for one in knowing)
        raise ValueError(f"{name}= goes with {known}; found likelihood={likelihood!r}.")
    arguments = {name: DEFAULTS[name] if given[name] is None else given[name] for name in kind.arguments}
    for name, x in arguments.items():
        if x is None:
            continue
        if name == "trials":
            x = whole(name, x) if np.ndim(x) == 0 else integers(x, name)
        elif name == "exposure":
            x = positive_numbers(name, x, "how much or how long was counted")
        else:
            x = np.asarray(array_of(name, x), "float64")
        x = arguments[name] = x if np.ndim(x) else np.asarray(x).item()
        if np.ndim(x) and x.shape != y.shape:
            raise ValueError(f"{name} must be one number or an array of the shape of y, {y.shape}; found {x.shape}.")
    if "trials" in arguments and (wrong := y[y > arguments["trials"]]).size:
        raise ValueError(f"y holds {wrong.flat[0]} successes, more than there are trials.")
    return kind, arguments


def latent_deviations(
    noisy: Sequence[str], noises: Sequence[float | str], scale: float = 1.0
) -> dict[str, float | Variable]:
    """Return standard deviations, by the names of the noisy variables; the last one is that of data or next to them.

    Data have the scale ``scale``, by which the prior of a learned deviation of the last one is multiplied.
    """
    of_data = DATA * [1, scale**2]
    return {
        name: deviation(name, s, of_data if name == noisy[-1] else None) for name, s in zip(noisy, noises, strict=True)
    }


def scales_of_rows(a: Variable, sizes: Sequence[int], dims: Sequence[str], function: Callable) -> Variable:
    """Write a noisy network of an output G, which sets the scale c of the noise of each row of another.

    It is row_scale(G, floor=0.1, span=10), whose square is nearly 0.1 + exp(G) where G is below −1. The last layer of
    this network has no bias: the level of the noise is that of the variances of the other network.

    Parameters
    ----------
    a : Variable, (n, d)
        The input.
    sizes : sequence of int
        The numbers of inputs of each layer.
    dims : sequence of str
        The names of the dimensions of these inputs.
    function : callable
        The activation.

    Returns
    -------
    Variable, (n,)
    """
    for l, (d, dim, units) in enumerate(zip(sizes, dims, (*dims[1:], None), strict=True), start=1):
        dims_of_weights = (dim,) if units is None else (units, dim)
        prior = "relevance" if l == 1 else "learned"
        mean = _affine(a, d, dims_of_weights, prior, units is not None, f"{l}_noise")
        z, rows = f"Z{l + 1}_noise", ("row",) if units is None else ("row", units)
        z = pm.Normal(z, mean, deviation(z, "learned", LOG_VARIANCE if units is None else None), dims=rows)
        if units is None:
            return row_scale(z, floor=FLOOR, span=SPAN)
        post = f"A{l + 1}_noise"
        a = pm.Normal(post, function(z), deviation(post, "learned"), dims=rows)


def units_of_columns(X: np.ndarray, is_number: Sequence[bool]) -> tuple[np.ndarray, np.ndarray]:
    """Compute means and standard deviations of the columns of inputs; 0 and 1 of those that are left as they are.

    Parameters
    ----------
    X : array, (n, d)
        The inputs; missing ones are NaN.
    is_number : sequence of bool, (d,)
        Which columns are standardised; others are indicators of categories.
    """
    deviations = np.nanstd(X, axis=0)
    mean = np.where(is_number, np.nanmean(X, axis=0), 0.0)
    return mean, np.where(is_number & (deviations > 0), deviations, 1.0)


def standardised(a: Variable, mean: np.ndarray, scale: np.ndarray) -> Variable:
    """Write inputs (n, d) less means of columns, divided by their scales, both of which become data variables."""
    return (a - pm.Data("X_mean", mean, dims="feature")) / pm.Data("X_scale", scale, dims="feature")


def _affine(
    a: Variable, d: int, dims: tuple[str, ...], prior: float | str, bias: bool, number: str, scale: float = 1.0
) -> Variable:
    """Write the product of an input with new weights, and a new bias.

    Parameters
    ----------
    a : Variable, (n, d)
        The input.
    d : int
        Its width.
    dims : tuple of str
        The dimensions of the weights, of which the last is that of the input.
    prior : float or str
        What :func:`scales` takes.
    bias : bool
        Whether there is a bias.
    number : str
        What follows "W" and "b" in their names.
    scale : float
        By what the deviations of their priors are multiplied.

    Returns
    -------
    Variable, (n,) or (n, units)
    """
    of_weights, of_biases = scales(f"W{number}", prior, d, dims[-1], scale)
    mean = a @ pm.Normal(f"W{number}", 0, **of_weights, dims=dims).T
    return mean + pm.Normal(f"b{number}", 0, **of_biases, dims=dims[:-1] or None) if bias else mean


def read_targets(
    y: ArrayLike, likelihood: str | None
) -> tuple[type[LatentLikelihood], np.ndarray, tuple[str, ...], dict[str, np.ndarray]]:
    """Check what is observed, choose the kind of likelihood, and name the outputs of the last layer.

    Parameters
    ----------
    y : array_like, shape (n,) or (n, k)
        What the user gave: numbers or, for a probit likelihood, labels.
    likelihood : str, optional
        What y is given the last layer, a name in :data:`NOISY`; None stands for one of real numbers.

    Returns
    -------
    kind : type of LatentLikelihood
        The likelihood given a latent.
    y : array, shape (n,) or (n, k)
        The numbers, or labels as integers.
    out : tuple of str
        The dimension of the output; none where it is a single number a row.
    coords : dict of str to array
        The names along that dimension.

    Raises
    ------
    ValueError
        If the likelihood is not known, or data are not finite or no labels.
    """
    if likelihood is not None:
        one_of("likelihood", likelihood, NOISY)
    kinds = NOISY[likelihood or "student"]
    data, classes = kinds[0].targets(y)
    kind = next(kind for kind in kinds if kind.takes(classes))
    width, coords = kind.width(data, classes), {} if classes is None else {"class": classes}
    if width is None or data.ndim > 2:
        return kind, data, (), coords
    if classes is not None:
        return kind, data, ("class",), coords
    return kind, data, ("output",), {"output": column_names(y, width)}


def deviations_of(
    noise: float | str | Sequence[float | str], noisy: list[str], kind: type[LatentLikelihood]
) -> list[float | str]:
    """Check the standard deviations of noise that a user gives, and return one, or "learned", for each noisy variable.

    ``noisy`` are the names of these variables. The noise of a last latent of which the data do not tell stays 1
    where all is to be learned.
    """
    if (kind.ignores_scale or kind.sets_unit) and isinstance(noise, str):
        noise = [noise] * (len(noisy) - 1) + [1]
    noises = each("noise", noise, noisy, ["learned"], "a standard deviation")
    if kind.ignores_scale and noises[-1] == "learned":
        raise ValueError(
            f"The noise of '{noisy[-1]}' must be a number where labels are observed, which do not tell it from the "
            f"size of the last weights; found 'learned': write 1."
        )
    return noises


def likelihood_of(likelihood: str | None, noise_of_y: float | str, by_row: bool = False) -> str:
    """Return the likelihood that a user asks for or, where none is named, that of real targets.

    It is Student's where the noise of y is learned, since one outlier could otherwise set the noise of all rows. A
    known noise is taken at its word. Noise that is learned by row is normal: an outlier is then a row of large noise.
    """
    return likelihood or ("student" if noise_of_y == "learned" and not by_row else "normal")


def deviation(name: str, noise: float | str, prior: np.ndarray | None = None) -> float | Variable:
    """Return the standard deviation of a noisy variable: a number, or the root of a learned variance with a prior."""
    if noise != "learned":
        return noise
    alpha, rate = LATENT if prior is None else prior
    return pt.sqrt(pm.InverseGamma(f"variance_{name}", alpha, rate))


def scales(
    name: str, prior: float | str, d: int, inputs: str, scale: float = 1.0
) -> tuple[dict[str, float | Variable], dict[str, float]]:
    """Return the scales of the priors of a layer's weights and of its biases, as arguments of ``pm.Normal``.

    Parameters
    ----------
    name : str
        The name of the weights.
    prior : float, "learned" or "relevance"
        What the user asks for.
    d : int
        The number of the layer's inputs.
    inputs : str
        The name of the dimension of the inputs.
    scale : float
        By what the deviations are multiplied.

    Returns
    -------
    of_weights, of_biases : dict
        Either ``sigma`` or ``tau``.
    """
    if isinstance(prior, str):
        shape = {"dims": inputs} if prior == "relevance" else {}
        precision = pm.Gamma(f"precision_{name}", np.float64(2), np.float64(2 / d * scale**2), **shape)
        return {"tau": precision}, {"sigma": np.float64(scale)}
    sigma = scale * prior**-0.5
    return {"sigma": sigma}, {"sigma": sigma}
