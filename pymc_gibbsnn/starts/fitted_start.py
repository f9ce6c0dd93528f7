r"""Where a chain starts by itself: at a network without noise that has been fitted to the data.

A Gibbs sampler that starts from weights of zero at a small noise Δ stays at the first mode of the posterior that it
meets, where one hidden unit does the work of two, say. It is quick in equilibrium and slow on the way, where least
squares are quick. So before the first tuning step the function f of the network without noise is fitted,

    minimise  Σ [(y − f)²/v + log v]/2 + Σ Λ W̃²/2,     v = ΔZ_L + mean Σ_l (‖∂f/∂z_l‖² ΔZ_l + ‖∂f/∂a_l‖² ΔA_l),

where v is the variance that all noise together gives y, to first order. As long as errors are larger than v, v is taken
as given: a larger v would explain them, but by weights that make much of the noise. Small networks of dense layers are
fitted by steps of Gauss and Newton (:mod:`pymc_gibbsnn.starts.least_squares`), networks with convolutions by a
quasi-Newton method (:mod:`pymc_gibbsnn.starts.quasi_newton`), which takes v as given throughout; both look for a good
mode among several. For class labels of images −log P(y | f) takes the place of the squared errors. For data with heavy
tails around f, errors have Student's t distribution with squared scale v. For counts, shares and other data whose
density PyMC gives, the targets are a working response (:mod:`pymc_gibbsnn.starts.working_response`). Where the noise
differs between data or rows, errors are divided by its scale.

Learned variances and precisions are held at the values at which the chain would start until a good mode is found.
Then they and the weights take turns, as far as the data determine these scales (:mod:`pymc_gibbsnn.starts.evidence`).

Networks beside other terms in the mean of data, networks with convolutions and learned noise, dense networks with class
labels, whose chains get no further from a fit than by annealing, and networks so large that a fit would take long
beside the tuning, start from zero, annealed (:mod:`pymc_gibbsnn.starts.annealing`) where their noise is known.

The tuning steps that follow are plain sweeps, which need not know any of this: a sampler is exact from any start.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
from numpy.linalg import LinAlgError
from pytensor.graph.traversal import explicit_graph_inputs

from pymc_gibbsnn.networks.likelihoods.latent_likelihood import Errors
from pymc_gibbsnn.networks.network import Network, evaluate
from pymc_gibbsnn.prediction.function import forward
from pymc_gibbsnn.starts.evidence import at_point, learned_scales
from pymc_gibbsnn.starts.least_squares import Fit, LeastSquares, learns_noise, suits_least_squares
from pymc_gibbsnn.starts.quasi_newton import QuasiNewton, suits_quasi_newton
from pymc_gibbsnn.starts.working_response import working_response

__all__ = ["can_be_fitted", "fitted_start"]

ROUNDS = 15  # in which learned scales and weights take turns, a step each


def can_be_fitted(network: Network) -> bool:
    """Whether a fit is worth its time; all noise must be known or, in dense networks, drawn with the network."""
    layers, observation = network.layers, network.observation
    if len(layers) == 1 or any(layer.offset is not None for layer in layers):
        return False
    errors = Errors() if observation is None else observation.errors
    noises = [part.noise for part in network.noisy]
    if errors is not None and errors.factors is not None:
        noises.append(errors.factors)
    has_response = observation is not None and observation.has_working_response
    unknown = set(explicit_graph_inputs(noises))
    if (errors is not None or has_response) and suits_least_squares(network):
        return unknown <= set(network.variables)
    is_smooth = observation is None or observation.is_logistic
    return not unknown and is_smooth and suits_quasi_newton(network)


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
        New values, by name, of the network's weights, its latents without noise, and of learned scales that were fitted
        with them; none if some weights of the point are not 0, because the user chose them then, or if the data cannot
        be fitted.
    """
    layers, operators, observation = network.layers, [layer.operator for layer in network.layers], network.observation
    if not network.has_weights_at_zero(point):
        return {}
    weighted = [operator for operator in operators if operator.variables]
    targets = evaluate(network.observed)
    if observation is None or observation.errors is not None:
        targets = operators[-1].rows(np.asarray(targets, "float64"))
        targets = targets if observation is None else observation.on_scale_of_latent(targets)
    inputs = np.asarray(network.data(), "float64").reshape(len(targets), -1)
    new = {}
    with np.errstate(all="ignore"):
        try:
            if observation is not None and observation.has_working_response:
                targets, variances = working_response(observation, point, (len(targets), layers[-1].shape[0]))
                matrices, new = _least_squares(network, point, inputs, targets, rng, variances)
            elif suits_least_squares(network):
                matrices, new = _least_squares(network, point, inputs, targets, rng)
            else:
                noises, precisions = _scales(network, point)
                matrices = QuasiNewton(network, inputs, targets, noises, precisions, rng).search()
        except (LinAlgError, ValueError):  # numbers that are not finite, in data that cannot be fitted
            matrices = None
    if matrices is None:
        return {}
    if network.random_inputs is not None:
        new |= network.random_inputs.guessed_values(rng)
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


def _scales(network: Network, point: dict[str, np.ndarray]) -> tuple[list[float], list[np.ndarray]]:
    """Return the variances of all noise, and the precisions of all weights W̃, at a point."""
    parts, weighted = network.noisy, [layer.operator for layer in network.layers if layer.operator.variables]
    values = at_point([part.noise for part in parts] + [operator.precision for operator in weighted], point)
    precisions = [
        np.broadcast_to(p, operator.augmented_shape) for p, operator in zip(values[len(parts) :], weighted, strict=True)
    ]
    return [x.item() for x in values[: len(parts)]], precisions


def _least_squares(
    network: Network,
    point: dict[str, np.ndarray],
    inputs: np.ndarray,
    targets: np.ndarray,
    rng: np.random.Generator,
    variances: np.ndarray | None = None,
) -> tuple[list[np.ndarray] | None, dict[str, np.ndarray]]:
    """Fit a small network of dense layers, and its learned scales.

    Parameters
    ----------
    network, point, rng
        As in :func:`fitted_start`.
    inputs, targets : array
        The data X and y, with a row for each sample.
    variances : array, optional
        Known variances of the targets around the last latent, whose own noise is then not fitted.

    Returns
    -------
    weights : list of array or None
        All W̃; None if there is no fit.
    scales : dict of str to array
        The values of the value variables of learned scales.
    """
    functions, observation = [activation.function for activation in network.activations], network.observation
    errors, degrees = observation and observation.errors, np.inf
    if errors is not None and errors.degrees is not None:
        [degrees] = at_point([errors.degrees], point)

    def at(point: dict[str, np.ndarray]) -> tuple[LeastSquares, list[np.ndarray]]:
        noises, precisions = _scales(network, point)
        spread: np.ndarray | float = 1.0
        if network.row_scale is not None:
            [spread] = at_point([network.row_scale], point)
        if errors is not None:
            *noises, last, around = noises
            each = last + around
            if errors.factors is not None:
                [factors] = at_point([errors.factors], point)
                each = last + around * factors**2
            noises.append(each)
        elif variances is not None:
            noises[-1] = noises[-1] + variances
        if np.ndim(noises[-1]):
            of_targets = 1 / np.mean(1 / noises[-1])  # as many targets as exact as this would tell as much
            spread, noises[-1] = np.sqrt(noises[-1] / of_targets), of_targets
        return LeastSquares(inputs, targets, functions, noises, degrees, spread), precisions

    problem, precisions = at(point)
    is_known = not learns_noise(network) and network.row_scale is None  # all noise
    fit = problem.search(Fit([np.zeros(p.shape) for p in precisions], precisions), rng, is_long=is_known)
    scales: dict[str, np.ndarray] = {}
    with suppress(LinAlgError, ValueError):  # what was found before is good enough to start from
        for _ in range(ROUNDS if fit and network.variances and variances is None else 0):
            new = learned_scales(network, point | scales, problem, fit)
            problem, precisions = at(point | new)
            fit, scales = problem.fitted(replace(fit, precisions=precisions), 1), new
    return fit and fit.weights, scales
