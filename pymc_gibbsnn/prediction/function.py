"""The function of a network without its noise, for every draw of a posterior: outputs, and norms of weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import ArrayLike
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, explicit_graph_inputs

from pymc_gibbsnn._data import array_of, finite, warn_of_rows
from pymc_gibbsnn.networks.forms import NetworkError, shapes_of
from pymc_gibbsnn.networks.likelihoods import LatentLikelihood
from pymc_gibbsnn.networks.likelihoods.row_noise import RowNoise
from pymc_gibbsnn.networks.network import Activation, Layer, Network, evaluate
from pymc_gibbsnn.networks.reader import only_network, read_networks
from pymc_gibbsnn.prediction.draws_of import draws_of
from pymc_gibbsnn.prediction.inputs import Inputs, evenly_spaced, find_observed
from pymc_gibbsnn.prediction.new_rows import NewRows, parts_at_once

__all__ = ["forward", "function_evaluator", "networks_of", "variance_of"]


def function_evaluator(
    model: pm.Model,
    X_new: ArrayLike | Mapping[str, ArrayLike] | None = None,
    name: str | None = None,
    points: int | None = None,
) -> Callable[[xr.Dataset], xr.Dataset]:
    """Read a model once, and return a function of its posteriors.

    What it computes is what :func:`pymc_gibbsnn.function_space` returns.

    Parameters
    ----------
    model : pm.Model
        The model.
    X_new : array_like or mapping of str to array_like, optional
        New rows of the inputs, or of several ``pm.Data`` by name; by default the rows that the model holds now.
    name : str, optional
        The name of the observed variable, if there are several.
    points : int, optional
        Without X_new, how many rows of the model's to take at most, evenly spaced; by default all.
    """
    try:
        networks = networks_of(model, name)
        network = only_network(networks)
    except NetworkError as refusal:
        return _general_evaluator(model, X_new, name, points, str(refusal))
    inputs = _inputs_of(model, networks, network, X_new, points)
    shapes = [shapes_of([model[value.name] for value in one.weights]) for one in networks]

    def evaluate(posterior: xr.Dataset) -> xr.Dataset:
        weights = [
            {name: draws_of(posterior, model, name, shape) for name, shape in of_one.items()}
            for one, of_one in zip(networks, shapes, strict=True)
            if one is network or set(of_one) <= set(posterior)
        ]
        space = _evaluate_network(network, posterior, weights[-1], inputs[-1])
        likelihood, output, of_noise = networks[0].observation, space["output"], inputs[0]
        if len(weights) > 1 and networks[0].sets_noise_of is not None and of_noise is not None:
            variance = variance_of(network.noisy[-1], network, posterior)  # of y
            if variance is not None:
                log_noise = _log_noise(networks[0], likelihood, weights[0], variance, of_noise)
                space["log_noise"] = xr.DataArray(log_noise, dims=output.dims[:3]).broadcast_like(output)
        return space

    return evaluate


# Noisy networks, whose layers are known


def networks_of(model: pm.Model, name: str | None = None) -> list[Network]:
    """Read the noisy network that gives what is observed, and that of its noise; raise NetworkError unless it is one.

    ``name`` is that of the observed variable, if there are several.
    """
    networks = read_networks(model, check_data=False)
    if name is not None:
        networks = [one for one in networks if one.likelihood.name == name]
        if not networks:
            raise NetworkError(f"None gives '{name}'.")
    only_network(networks)
    return networks


def forward(
    network: Network, weights: Mapping[str, np.ndarray], a: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the pre- and post-activations of each layer without noise or offsets; the last pair is the output, twice.

    Parameters
    ----------
    network : Network
        The network.
    weights : mapping of str to array, (..., *shape)
        Values of weights and biases by their names; they may have axes of draws in front.
    a : array, (n, d)
        Inputs.

    Yields
    ------
    z, a : array, (..., n, width)
    """
    for layer, activation in zip_longest(network.layers, network.activations):
        z = layer.operator.forward(a, layer.operator.named_matrix(weights))
        a = activation.function(z) if activation else z
        yield z, a


def _inputs_of(
    model: pm.Model,
    networks: list[Network],
    network: Network,
    X_new: ArrayLike | Mapping[str, ArrayLike] | None,
    points: int | None,
) -> list:
    """Return the inputs (n, d) at which to evaluate each network; None for another one if they are not known.

    Parameters
    ----------
    model : pm.Model
        The model.
    networks : list of Network
        Its networks.
    network : Network
        That among them whose inputs X_new holds, if it is an array.
    X_new : array_like or mapping of str to array_like, optional
        What the user gave.
    points : int, optional
        How many of the model's own rows to take at most.
    """
    if X_new is None:
        return [x[evenly_spaced(len(x), points)] for x in (one.data() for one in networks)]
    inputs = Inputs(model, model[network.likelihood.name])
    above = {one: set(ancestors([one.inputs])) for one in networks}
    data = {one: [v for v in inputs.data.values() if v in above[one]] for one in networks}
    new, of_layer = {}, None
    if isinstance(X_new, Mapping):
        new = dict(zip(*inputs.find(X_new, {}), strict=True))
        if missing := [v.name for v in data[network] if v not in new]:
            raise ValueError(f"X_new must hold new rows of {missing}, the inputs of the network; found {list(X_new)}.")
    elif len(data[network]) == 1 and not _is_of_layer(X_new, network, data[network][0]):
        [leaf] = data[network]
        new = {leaf: inputs.checked("X_new", leaf, X_new)}
        warn_of_rows("X_new", new[leaf], evaluate(leaf), X_new, stacklevel=5)
    else:
        of_layer = finite("X_new", X_new)
        [row, *others] = network.layers[0].operator.input_shapes
        if of_layer.shape[1:] not in (row, *others) or not len(of_layer):
            raise ValueError(
                f"X_new must have shape {str(('m', *row)).replace(chr(39), '')}, one row at least; found "
                f"{of_layer.shape}."
            )
        of_layer = of_layer.reshape(len(of_layer), -1)
    of_each = []
    for one in networks:
        if of_layer is not None:
            of_each.append(of_layer if one is network or np.array_equal(one.data(), network.data()) else None)
        elif set(data[one]) <= set(new) and data[one]:
            [x] = clone_replace([one.inputs], {v: pt.constant(x) for v, x in new.items()}, rebuild_strict=False)
            of_each.append(evaluate(x))
        else:
            of_each.append(None)
    return of_each


def _is_of_layer(X_new: ArrayLike, network: Network, data: Variable) -> bool:
    """Whether new rows have a shape that the first layer takes, as flattened images have, but not that of the data."""
    row = array_of("X_new", X_new).shape[1:]
    return row != np.shape(evaluate(data))[1:] and row in network.layers[0].operator.input_shapes


def _outputs(network: Network, weights: dict[str, np.ndarray], a: np.ndarray) -> np.ndarray:
    """Compute the outputs (chain, draw, n, units) at inputs (n, d), a few draws and rows at a time.

    Parameters
    ----------
    network : Network
        The network.
    weights : dict of str to array, (chain, draw, ...)
        Its weights and biases.
    a : array, (n, d)
        The inputs.
    """
    batch = next(iter(weights.values())).shape[:2]
    weights = {name: x.reshape(-1, *x.shape[2:]) for name, x in weights.items()}
    total, widest = int(np.prod(batch)), max(max(layer.shape) for layer in network.layers)
    outputs = np.empty((total, len(a), network.layers[-1].shape[0]))
    for rows, draws in parts_at_once(len(a), total, widest):
        *_, (output, _) = forward(network, {name: x[draws] for name, x in weights.items()}, a[rows])
        outputs[draws, rows] = output
    return outputs.reshape(*batch, *outputs.shape[1:])


def _evaluate_network(
    network: Network, posterior: xr.Dataset, weights: dict[str, np.ndarray], a: np.ndarray
) -> xr.Dataset:
    """Evaluate a noisy network at inputs for every draw of a posterior.

    Parameters
    ----------
    network : Network
        The network.
    posterior : xarray.Dataset
        The posterior.
    weights : dict of str to array, (chain, draw, ...)
        Its weights and biases.
    a : array, (n, d)
        The inputs.
    """
    output = _outputs(network, weights, a)
    norms, units = [], {}
    for operator in (layer.operator for layer in network.layers if layer.operator.variables):
        squares = operator.squares(operator.named_matrix(weights))
        norms.append(squares.sum(-1))
        if squares.shape[-1] > 1:
            unit = f"unit_{operator.name}"
            units[f"unit_norm_{operator.name}"] = (("chain", "draw", unit), np.sort(squares, -1))
    single = network.layers[-1].operator.is_single
    return xr.Dataset(
        _output(output[..., 0] if single else output)
        | {"norm": (("chain", "draw", "layer"), np.stack(norms, -1))}
        | units,
        coords=_coords(posterior) | {"layer": np.arange(1, len(norms) + 1)},
    )


def variance_of(
    part: Layer | Activation | LatentLikelihood, network: Network, posterior: xr.Dataset
) -> np.ndarray | None:
    """Return the variance of the noise of a latent or of data of a network, (chain, draw) or (); None if not known.

    Where rows have scales it is that of a row of scale 1; for data that are not normal it is their squared scale.
    """
    for variance in network.variances:
        for use in variance.uses:
            if use.part == part.name and use.value is None:
                if variance.name not in posterior:
                    return None
                x = posterior[variance.name].transpose("chain", "draw", ...).values
                x = x.reshape(*x.shape[:2], -1)[..., np.ravel(use.which)[0]]
                return evaluate(use.coefficient) ** 2 * (1 / x if variance.is_precision else x)
    return None if list(explicit_graph_inputs([part.noise])) else evaluate(part.noise)


def _log_noise(
    of_noise: Network, likelihood: RowNoise, weights: dict[str, np.ndarray], variance: np.ndarray, a: np.ndarray
) -> np.ndarray:
    """Compute the log of the noise of y in each row, (chain, draw, row).

    Parameters
    ----------
    of_noise : Network
        The network whose output sets the scales of rows.
    likelihood : RowNoise
        How it sets them.
    weights : dict of str to array, (chain, draw, ...)
        Its weights and biases.
    variance : array, (chain, draw) or ()
        The variance of the noise of y where the scale is 1.
    a : array, (n, d)
        Its inputs.
    """
    g = _outputs(of_noise, weights, a)[..., 0]
    return np.log(variance[..., None] * evaluate(likelihood.squared_scale(g))) / 2


# Other models, of which it is the mean of what is observed


def _general_evaluator(
    model: pm.Model,
    X_new: ArrayLike | Mapping[str, ArrayLike] | None,
    name: str | None,
    points: int | None,
    refusal: str,
) -> Callable[[xr.Dataset], xr.Dataset]:
    """Make the evaluator of a model that is no noisy network.

    Parameters
    ----------
    model : pm.Model
        The model.
    X_new, name, points
        As of :func:`function_evaluator`.
    refusal : str
        Why it is no noisy network.
    """
    read: list[NewRows] = []

    def evaluate(posterior: xr.Dataset) -> xr.Dataset:
        if not read:
            read.append(_rows_without_noise(model, posterior, X_new, name, points))
        rows = read[0].given(posterior)
        outputs = np.empty((rows.chains * rows.draws, *rows.shape), rows.example.parameters[0].dtype)
        for these in rows.chunks():
            for draws, parameters in rows.batches(these):
                with np.errstate(all="ignore"):
                    outputs[draws, these] = rows.distribution(these, rows.draw_latents(None, these, parameters)).draw(
                        None
                    )
        if X_new is None:
            outputs = outputs[:, evenly_spaced(rows.rows, points)]
        batch = (rows.chains, rows.draws)
        known = [rv for rv in model.basic_RVs if rv in rows.parameters]
        norms = [(rows.parameters[rv] ** 2).reshape(*batch, -1).sum(-1) for rv in known]
        return xr.Dataset(
            _output(outputs.reshape(*batch, *outputs.shape[1:]))
            | {"norm": (("chain", "draw", "parameter"), np.stack(norms, -1))},
            coords=_coords(posterior) | {"parameter": [rv.name for rv in known]},
        )

    try:
        find_observed(model, name)
    except NetworkError as error:
        raise NetworkError(f"{error} Nor is it a noisy network that can be read: {refusal}") from None
    return evaluate


def _rows_without_noise(
    model: pm.Model,
    posterior: xr.Dataset,
    X_new: ArrayLike | Mapping[str, ArrayLike] | None,
    name: str | None,
    points: int | None,
) -> NewRows:
    """Read what a model observes at new rows, or at some of its own; at all of its own where they cannot be divided.

    Parameters
    ----------
    model : pm.Model
        The model.
    posterior : xarray.Dataset
        A posterior.
    X_new, name, points
        As of :func:`function_evaluator`.
    """
    try:
        return NewRows(model, posterior, X_new, name, points=points, noiseless=True)
    except NetworkError as refusal:
        if X_new is not None:
            raise
        try:
            return NewRows(model, posterior, None, name, noiseless=True, together=True)
        except NetworkError:
            raise refusal from None


# The results


def _output(values: np.ndarray) -> dict[str, tuple]:
    """Name the axes of outputs (chain, draw, point) or (chain, draw, point, component)."""
    return {"output": (("chain", "draw", "point", "component")[: values.ndim], values)}


def _coords(posterior: xr.Dataset) -> dict[str, np.ndarray]:
    """Return the coordinates of chains and draws of a posterior."""
    return {dim: posterior[dim].values for dim in ("chain", "draw")}
