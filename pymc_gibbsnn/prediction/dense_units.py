r"""What the last hidden units of a dense network add to the layer above, for some draws of a posterior at a time.

Given weights W_l, biases b_l and standard deviations s_l, t_l of noise, the latents of a row x are

    A_1 = x,     Z_{l+1} = W_l A_l + b_l + s_l ε,     A_{l+1} = σ_l(Z_{l+1}) + t_l ε′,

and the mean of the last layer is W_L A_L + b_L = W_L σ_{L−1}(Z_L) + (b_L + W_L t_{L−1} ε′). This module computes the
first term. The noise of A_L, in the second one, needs fewer numbers than there are units
(:mod:`pymc_gibbsnn.prediction.forward_draws`).

The units of all rows at all draws are by far the largest array of a prediction. So a few rows and draws are computed at
a time, whose units stay in the cache of the processor from their pre-activations to the sum over them. Where
activations are piecewise linear, they are in single precision, with rounding errors far below Monte Carlo errors. So
that they stay small for inputs whose mean c is large beside their spread, W_1 c is part of the bias:
W_1 x + b_1 = W_1 (x − c) + (b_1 + W_1 c).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import DTypeLike
from pytensor.graph.basic import Variable

from pymc_gibbsnn.networks.activations import PiecewiseLinear
from pymc_gibbsnn.networks.layers.dense import Dense
from pymc_gibbsnn.networks.network import Network
from pymc_gibbsnn.networks.smooth import Smooth
from pymc_gibbsnn.prediction.conditionals import Conditional, FrozenDistribution, distribution_node, in_numpy
from pymc_gibbsnn.prediction.distributions import IN_NUMPY
from pymc_gibbsnn.prediction.mean_activation import mean_activation
from pymc_gibbsnn.prediction.new_rows import NewRows, parts_at_once

__all__ = ["DenseUnits", "read_dense_units"]


@dataclass(frozen=True, eq=False)
class DenseUnits:
    """The hidden units of a dense network, at new rows.

    Attributes
    ----------
    network : Network
        The network.
    latents : tuple of Variable
        Its hidden latents Z_2, A_2, Z_3, ..., A_L in the model.
    noise : tuple of Conditional
        Each of them as a distribution whose one parameter is the standard deviation of its noise.
    above : Conditional
        The output of the last layer, given that A_L is 0.
    inputs : callable
        A function of the data of some rows to the inputs x (row, d_1).
    activations : tuple of callable
        The functions σ of arrays.
    dtype : dtype_like
        The precision of the units.
    """

    network: Network
    latents: tuple[Variable, ...]
    noise: tuple[Conditional, ...]
    above: Conditional
    inputs: Callable[..., np.ndarray]
    activations: tuple[Callable[[np.ndarray], np.ndarray], ...]
    dtype: DTypeLike

    def deviations(
        self, data: Sequence[np.ndarray], values: Mapping[Variable, np.ndarray], draws: int
    ) -> list[np.ndarray]:
        """Compute the standard deviation (draw or 1, row or 1, unit or 1) of the noise of each latent.

        Parameters
        ----------
        data : sequence of array
            The data of some rows.
        values : mapping of Variable to array, (draw, ...)
            Parameters, and latents of other networks.
        draws : int
            How many draws these are.
        """
        return [one.distribution(data, values, draws).parameters[0] for one in self.noise]

    def output(
        self, sums: np.ndarray, data: Sequence[np.ndarray], values: Mapping[Variable, np.ndarray]
    ) -> FrozenDistribution:
        """Return the distribution of the output of the last layer, without the noise of A_L.

        Parameters
        ----------
        sums : array, (draw, row, output)
            What :meth:`sums` returned.
        data, values
            As of :meth:`deviations`.
        """
        rest = self.above.distribution(data, values, len(sums))
        mean, sigma = rest.parameters
        mean = mean + sums.reshape(*sums.shape[:2], *rest.shape[2:])
        return FrozenDistribution(rest.op, [mean, sigma], mean.shape)

    def sums(
        self,
        data: Sequence[np.ndarray],
        weights: Mapping[str, np.ndarray],
        deviations: Sequence[np.ndarray],
        normals: Callable[[Variable, tuple[int, ...], DTypeLike], np.ndarray],
        is_mean: bool = False,
    ) -> np.ndarray:
        """Draw all hidden latents but the noise of A_L, and compute W_L σ(Z_L), or its mean over the noise of Z_L.

        Parameters
        ----------
        data : sequence of array
            The data of some rows.
        weights : mapping of str to array, (draw, ...)
            Weights and biases.
        deviations : sequence of array
            What :meth:`deviations` returned.
        normals : callable
            A function of a latent, a shape (draw, row, unit) and a dtype to standard normal numbers.
        is_mean : bool
            Whether to take the mean, in double precision, in place of a draw of Z_L.

        Returns
        -------
        array, (draw, row, output)
        """
        x, dtype = self.inputs(*data), np.float64 if is_mean else self.dtype
        centre = x.mean(axis=0)
        [(w, b), *above] = [_weights_and_bias(layer.operator, weights) for layer in self.network.layers]
        layers = [(w, b + (w @ centre)[:, None]), *above]
        *hidden, (last, _) = [(w.mT.astype(dtype), b.astype(dtype)) for w, b in layers]
        x = (x - centre).astype(dtype)
        sds, numbers = [], []
        for i, (rv, sd) in enumerate(zip(self.latents[:-1], deviations, strict=False)):
            shape = (len(last), len(x), hidden[i // 2][0].shape[-1])
            sds.append(np.broadcast_to(sd.astype(dtype), shape))
            is_integrated = is_mean and rv is self.latents[-2]
            numbers.append(None if is_integrated else normals(rv, shape, dtype))
        outputs = np.empty((len(last), len(x), last.shape[-1]), dtype)
        widest = max(w.shape[-1] for w, _ in hidden)
        for rows, draws in parts_at_once(len(x), len(last), widest):
            a = x[rows]
            for i, (w, b) in enumerate(hidden):
                is_last = i == len(hidden) - 1
                z = a @ w[draws]
                z += b[draws]
                if is_mean and is_last:
                    a = mean_activation(self.activations[i], z, sds[2 * i][draws, rows])
                    continue
                z += sds[2 * i][draws, rows] * numbers[2 * i][draws, rows]
                a = self.activations[i](z)
                if not is_last:
                    a = a + sds[2 * i + 1][draws, rows] * numbers[2 * i + 1][draws, rows]
            np.matmul(a, last[draws], out=outputs[draws, rows])
        return outputs


def read_dense_units(rows: NewRows, network: Network, is_double: bool = False) -> DenseUnits | None:
    """Return the hidden units of a network; None if it has other layers, or nothing but data and weights enters them.

    Parameters
    ----------
    rows : NewRows
        New rows of the model of the network.
    network : Network
        The network.
    is_double : bool
        Whether all is to be in double precision, as log densities are, which may be very sensitive.
    """
    operators, parts = [layer.operator for layer in network.layers], network.noisy[: 2 * len(network.layers) - 2]
    is_dense = all(isinstance(one, Dense) and one.ones is None for one in operators) and all(network.activations)
    if not is_dense or not parts or any(layer.offset is not None for layer in network.layers[:-1]):
        return None
    conditionals = {c.rv.name: c for c in (*rows.latents, rows.last)}
    chain = [conditionals.get(part.name) for part in (*parts, network.layers[-1])]
    inputs = rows.function_of_data(network.inputs)
    if inputs is None or None in chain:
        return None
    for one, following in pairwise(chain):
        if [c for c in conditionals.values() if one.rv in c.parents] != [following]:
            return None
    latents = tuple(c.rv for c in chain[:-1])
    sigmas = [distribution_node(rv).op.dist_params(distribution_node(rv))[1] for rv in latents]
    functions = [activation.function for activation in network.activations]
    is_linear = all(isinstance(function, PiecewiseLinear) for function in functions)
    return DenseUnits(
        network,
        latents,
        tuple(rows.with_parameters(rv, [(sigma, 0)]) for rv, sigma in zip(latents, sigmas, strict=True)),
        rows.at_zero(chain[-1].rv, latents[-1], network.layers[-1].shape[1]),
        inputs,
        tuple(map(_of_arrays, functions)),
        np.float32 if is_linear and not is_double else np.float64,
    )


def _weights_and_bias(operator: Dense, weights: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights W (draw, d_out, d_in) of a layer, and its bias b (draw, 1, d_out)."""
    matrix = operator.named_matrix(weights)
    w = operator.linear(matrix)
    return w, (matrix[..., -1] if operator.has_bias else np.zeros(w.shape[:-1]))[:, None]


def _of_arrays(function: PiecewiseLinear | Smooth) -> Callable[[np.ndarray], np.ndarray]:
    """Return an activation as a function of arrays (draw, row, unit), with nothing to compile."""
    if isinstance(function, PiecewiseLinear):
        return function
    z = pt.dtensor3("z")
    evaluate = pytensor.function([z], in_numpy([function(z)]), mode=IN_NUMPY)
    return lambda z: evaluate(z)[0]
