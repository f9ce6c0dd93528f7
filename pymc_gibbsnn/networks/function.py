"""The function of a network without its noise, for every draw of a posterior: outputs, and norms of weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest

import numpy as np
import pymc as pm
import pytensor
import xarray as xr
from numpy.typing import ArrayLike
from pymc.data import MinibatchOp
from pymc.distributions.moments import mean
from pymc.exceptions import UndefinedMomentException
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, explicit_graph_inputs
from pytensor.tensor.random.basic import NormalRV

from pymc_gibbsnn._compat import observed_variables
from pymc_gibbsnn._data import of_dtype
from pymc_gibbsnn.networks.draws_of import draws_of, shapes_of
from pymc_gibbsnn.networks.forms import NetworkError
from pymc_gibbsnn.networks.likelihoods import find_likelihood
from pymc_gibbsnn.networks.likelihoods.row_noise import RowNoise
from pymc_gibbsnn.networks.network import Network, evaluate
from pymc_gibbsnn.networks.reader import only_network, read_networks

__all__ = ["forward", "function_evaluator", "input_data", "variance_of_data"]


def function_evaluator(model: pm.Model) -> Callable[[xr.Dataset, ArrayLike | None], xr.Dataset]:
    """Read a model once, and return ``evaluate(posterior, X_new)`` for many posteriors.

    What it computes is what :func:`pymc_gibbsnn.function_space` returns.
    """
    try:
        networks = read_networks(model, check_data=False)
        network = only_network(networks)
    except NetworkError as refusal:
        return _likelihood_evaluator(model, str(refusal))
    shapes = [shapes_of([model[value.name] for value in one.weights]) for one in networks]

    def evaluate(posterior: xr.Dataset, X_new: ArrayLike | None = None) -> xr.Dataset:
        weights = [
            {name: draws_of(posterior, model, name, shape) for name, shape in of_one.items()}
            for one, of_one in zip(networks, shapes, strict=True)
            if one is network or set(of_one) <= set(posterior)
        ]
        found = _evaluate_network(network, posterior, weights[-1], X_new)
        law, output = networks[0].observation, found["output"]
        if len(weights) > 1 and isinstance(law, RowNoise):
            variance = variance_of_data(network, posterior)
            knows_inputs = X_new is None or np.array_equal(networks[0].data(), network.data())
            if variance is not None and knows_inputs:
                log_noise = _log_noise(networks[0], law, weights[0], variance, X_new)
                found["log_noise"] = xr.DataArray(log_noise, dims=output.dims[:3]).broadcast_like(output)
        return found

    return evaluate


# Noisy networks, whose layers are known


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


def _evaluate_network(
    network: Network, posterior: xr.Dataset, weights: dict[str, np.ndarray], X_new: ArrayLike | None
) -> xr.Dataset:
    """Evaluate a noisy network at X_new, or at its own inputs, for every draw of a posterior.

    Parameters
    ----------
    network : Network
        The network.
    posterior : xarray.Dataset
        The posterior.
    weights : dict of str to array, (chain, draw, ...)
        Its weights and biases.
    X_new : array_like, optional
        The inputs.
    """
    a = np.asarray(network.data() if X_new is None else X_new, dtype=float)
    [row, *others] = network.layers[0].operator.input_shapes
    if a.shape[1:] not in (row, *others):
        raise ValueError(f"X_new must have shape {str(('m', *row)).replace(chr(39), '')}; found {a.shape}.")
    a = a.reshape(len(a), -1)
    *_, (output, _) = forward(network, weights, a)
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


def variance_of_data(network: Network, posterior: xr.Dataset) -> np.ndarray | None:
    """Return the variance of the noise of y where the scale of the row is 1, (chain, draw) or (); None if not known."""
    last = network.layers[-1]
    for variance in network.variances:
        for use in variance.uses:
            if use.part == last.name and use.value is None:
                if variance.name not in posterior:
                    return None
                x = posterior[variance.name].transpose("chain", "draw", ...).values
                x = x.reshape(*x.shape[:2], -1)[..., np.ravel(use.which)[0]]
                return evaluate(use.coefficient) ** 2 * (1 / x if variance.is_precision else x)
    return None if list(explicit_graph_inputs([last.noise])) else evaluate(last.noise)


def _log_noise(
    of_noise: Network,
    law: RowNoise,
    weights: dict[str, np.ndarray],
    variance: np.ndarray,
    X_new: ArrayLike | None,
) -> np.ndarray:
    """Compute the log of the noise of y in each row, (chain, draw, row).

    Parameters
    ----------
    of_noise : Network
        The network whose output sets the scales of rows.
    law : RowNoise
        How it sets them.
    weights : dict of str to array, (chain, draw, ...)
        Its weights and biases.
    variance : array, (chain, draw) or ()
        The variance of the noise of y where the scale is 1.
    X_new : array_like, optional
        The inputs; by default those of the network.
    """
    a = np.asarray(of_noise.data() if X_new is None else X_new, dtype=float)
    *_, (g, _) = forward(of_noise, weights, a.reshape(len(a), -1))
    return np.log(variance[..., None] * evaluate(law.squared_scale(g[..., 0]))) / 2


# Other models, of which it is the mean of the likelihood


def input_data(model: pm.Model) -> SharedVariable:
    """Find the one ``pm.Data`` on which what the model observes depends, apart from the observations themselves.

    Raises
    ------
    NetworkError
        If there is none or more than one.
    """
    observed = _observed(model)
    targets = set(ancestors([model.rvs_to_values[observed]]))
    # An observed variable also depends on its observations where they determine its shape: these are left out.
    found = [v for v in ancestors([observed]) if v in set(model.data_vars) and v not in targets]
    if len(found) != 1:
        batches = any(v.owner is not None and isinstance(v.owner.op, MinibatchOp) for v in ancestors([observed]))
        raise NetworkError(
            f"The inputs of '{observed.name}' must be one pm.Data beside its observations; found "
            f"{[v.name for v in found]}."
            + (" The model observes minibatches: give the same model of all rows as model=." if batches else "")
        )
    return found[0]


def _observed(model: pm.Model) -> Variable:
    """Find the one observed variable of a model; refuse none or several."""
    observed = observed_variables(model)
    if len(observed) != 1:
        raise NetworkError(
            f"The function of a model must be that of one observed variable; found {[rv.name for rv in observed]}."
        )
    return observed[0]


def _likelihood_evaluator(model: pm.Model, refusal: str) -> Callable[[xr.Dataset, ArrayLike | None], xr.Dataset]:
    """Make the evaluator of a model that is no noisy network; ``refusal`` says why it is none."""
    observed = _observed(model)
    try:
        data = input_data(model)
    except NetworkError as error:
        raise NetworkError(f"{error} Nor is it a noisy network that can be read: {refusal}") from None
    inputs = {
        v: v.type(name=v.name) for v in [data, *(rv for rv in model.free_RVs if data not in set(ancestors([rv])))]
    }
    output = _without_noise(model, observed, inputs)
    used = set(ancestors([output]))
    parameters = [v for v, x in inputs.items() if v is not data and x in used]
    arguments = [inputs[v] for v in [data, *parameters]]
    function = pytensor.function(arguments, output, mode="FAST_COMPILE", on_unused_input="ignore")
    shapes = shapes_of(parameters)

    def evaluate(posterior: xr.Dataset, X_new: ArrayLike | None = None) -> xr.Dataset:
        x = data.get_value() if X_new is None else of_dtype("X_new", np.asarray(X_new), data.dtype, data.name)
        if x.shape[1:] != data.get_value(borrow=True).shape[1:]:
            raise ValueError(f"X_new must have rows like those of '{data.name}'; found shape {x.shape}.")
        values = {name: draws_of(posterior, model, name, shape) for name, shape in shapes.items()}
        batch = (posterior.sizes["chain"], posterior.sizes["draw"])
        dtypes = [rv.dtype for rv in parameters]
        outputs = np.array(
            [
                function(x, *(v[index].astype(dtype) for v, dtype in zip(values.values(), dtypes, strict=True)))
                for index in np.ndindex(batch)
            ]
        )
        norms = [(v**2).reshape(*batch, -1).sum(-1) for v in values.values()]
        return xr.Dataset(
            _output(outputs.reshape(*batch, *outputs.shape[1:]))
            | {"norm": (("chain", "draw", "parameter"), np.stack(norms, -1))},
            coords=_coords(posterior) | {"parameter": list(values)},
        )

    return evaluate


def _without_noise(model: pm.Model, rv: Variable, inputs: dict[Variable, Variable]) -> Variable:
    """Write the mean of a variable in terms of inputs and parameters, with latents replaced by their own means."""
    op, is_observed = rv.owner.op, rv in model.observed_RVs
    kind = find_likelihood(op) if is_observed or isinstance(op, NormalRV) else None
    if kind is not None:
        center = kind.centre(rv.owner)
    elif is_observed:
        try:
            center = mean(rv)
        except (UndefinedMomentException, NotImplementedError) as error:
            reason = str(error).rstrip(".")
            raise NetworkError(f"The function is the mean of '{rv.name}', which is not known: {reason}.") from None
    else:
        raise NetworkError(f"'{rv.name}' depends on the inputs and is no Normal: its value without noise is not known.")
    free = set(model.free_RVs)
    latents = [v for v in ancestors([center], blockers=free) if v in free and v not in inputs]
    [center] = clone_replace(
        [center], inputs | {v: _without_noise(model, v, inputs) for v in latents}, rebuild_strict=False
    )
    return center


# The results


def _output(values: np.ndarray) -> dict[str, tuple]:
    """Name the axes of outputs (chain, draw, point) or (chain, draw, point, component)."""
    return {"output": (("chain", "draw", "point", "component")[: values.ndim], values)}


def _coords(posterior: xr.Dataset) -> dict[str, np.ndarray]:
    """Return the coordinates of chains and draws of a posterior."""
    return {dim: posterior[dim].values for dim in ("chain", "draw")}
