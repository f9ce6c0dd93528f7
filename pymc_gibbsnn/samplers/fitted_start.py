r"""Where a chain starts by itself: at a network without noise that has been fitted to the data.

A Gibbs sampler that starts from weights of zero at a small noise Δ falls into the first valley that it meets, where one
hidden unit does the work of two, say, and stays there. It is quick in equilibrium and slow on the way, where least
squares are quick. So before the first tuning step the function f of the network without noise is fitted,

    minimise  Σ (y − f(X; W̃))² / (2v) + Σ Λ W̃² / 2,     v = ΔZ_L + mean Σ_l (‖∂f/∂z_l‖² ΔZ_l + ‖∂f/∂a_l‖² ΔA_l),

where v is the variance that all noise together gives y, to first order. Small networks of dense layers are fitted by
steps of Gauss and Newton (:mod:`pymc_gibbsnn.samplers.least_squares`), networks with convolutions by a quasi-Newton
method (:mod:`pymc_gibbsnn.samplers.quasi_newton`); both look for a good valley among several. For class labels
−log P(y | f) takes the place of the squared errors, and the quasi-Newton method fits all networks.

Networks with learned noise or other laws of the data, and networks so large that a fit would take long beside the
tuning, start from zero, with heat (:mod:`pymc_gibbsnn.samplers.heat`) where their noise is known.

The tuning steps that follow are plain sweeps, which need not know any of this: a sampler is exact from any start.
"""

from __future__ import annotations

import numpy as np
import pytensor
from numpy.linalg import LinAlgError
from pytensor.graph.traversal import explicit_graph_inputs

from pymc_gibbsnn.networks.function import forward
from pymc_gibbsnn.networks.likelihoods.likelihood import LabelLikelihood
from pymc_gibbsnn.networks.network import Network, evaluate
from pymc_gibbsnn.samplers.least_squares import Fit, LeastSquares, suits_least_squares
from pymc_gibbsnn.samplers.quasi_newton import QuasiNewton, suits_quasi_newton

__all__ = ["can_be_fitted", "fitted_start"]


def can_be_fitted(network: Network) -> bool:
    """Whether it has known noise and real targets or labels, and a fit is not too much work."""
    layers = network.layers
    return (
        len(layers) > 1
        and all(layer.offset is None for layer in layers)
        and isinstance(network.observation, LabelLikelihood | None)
        and not list(explicit_graph_inputs([part.noise for part in network.noisy]))
        and (suits_least_squares(network) or suits_quasi_newton(network))
    )


def fitted_start(network: Network, point: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Fit a network that can be fitted to its data.

    Parameters
    ----------
    network : Network
        The network.
    point : dict of str to array
        The point of value variables at which the chain would start.
    rng : numpy.random.Generator
        The generator of the chain.

    Returns
    -------
    dict of str to array
        New values, by name, of the network's weights and latents, the latter without noise; none if some weights of the
        point are not 0, because the user chose them then, or if the data cannot be fitted.
    """
    layers, operators, observation = network.layers, [layer.operator for layer in network.layers], network.observation
    if not network.has_weights_at_zero(point):
        return {}
    weighted = [operator for operator in operators if operator.variables]
    noises, precisions = [part.noise for part in network.noisy], [operator.precision for operator in weighted]
    others = list(explicit_graph_inputs(precisions))  # precisions may be learned
    read = pytensor.function(others, noises + precisions, mode="FAST_COMPILE")
    found = [np.asarray(x, "float64") for x in read(*(point[v.name] for v in others))]
    noises, precisions = [float(x) for x in found[: len(noises)]], found[len(noises) :]
    if observation:
        targets = evaluate(observation.value)
    else:
        targets = operators[-1].rows(np.asarray(evaluate(network.observed), "float64"))
    inputs = np.asarray(network.data(), "float64").reshape(len(targets), -1)
    shapes = [operator.augmented_shape for operator in weighted]
    precisions = [np.broadcast_to(p, shape) for p, shape in zip(precisions, shapes, strict=True)]
    with np.errstate(all="ignore"):
        try:
            if suits_least_squares(network) and not observation:
                functions = [activation.function for activation in network.activations]
                problem = LeastSquares(inputs, targets, functions, noises)
                fit = problem.search(Fit([np.zeros(shape) for shape in shapes], precisions), rng)
                matrices = fit and fit.weights
            else:
                matrices = QuasiNewton(network, inputs, targets, noises, precisions, rng).search()
        except (LinAlgError, ValueError):  # numbers that are not finite, in data that cannot be fitted
            matrices = None
    if matrices is None:
        return {}
    new = {}
    for operator, w in zip(weighted, matrices, strict=True):
        new |= {v.name: value for v, value in operator.values(w).items()}
    pairs = list(forward(network, new, inputs))
    for layer, activation, (z, a) in zip(layers, network.activations, pairs, strict=False):
        new[layer.output.name] = layer.operator.written(z, layer.output.ndim)
        if activation:
            new[activation.output.name] = layer.operator.written(a, activation.output.ndim)
    if observation:
        z = observation.agreeing(pairs[-1][0])
        new[layers[-1].output.name] = operators[-1].written(z, layers[-1].output.ndim)
    return {name: np.asarray(x, point[name].dtype) for name, x in new.items()}
