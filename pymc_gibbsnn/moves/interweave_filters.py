r"""The interweaving move for the filters of a convolution, all together, with what lies above integrated out.

What interweaving means stands in :mod:`pymc_gibbsnn.moves.interweave_pieces`. A filter meets every place of every
image, so that its draws given Z are held even more tightly. Let Z = U(conv(A, W̃)) + ε be what enters the activation,
where U is the identity, or an average pool, and ε the noise of all of it; and let Y | Z ~ N(σ(Z) Vᵀ, S), with the
post-activations, and a pool between them and the dense layer above, integrated out: for a dense layer W on a pool U',

    V = W U',     S = ΔZ' I + (ΔP + ΔA/p) W Wᵀ     (S = ΔZ' I + ΔA W Wᵀ and V = W without that pool),

where p is the number of pixels in a window of the pool U'.

With ε held fixed, the target for the filters W̃, as one vector, is

    log π(W̃) = −½ Σ_i (y_i − V σ(z_i))ᵀ S⁻¹ (y_i − V σ(z_i)) − ½ W̃ᵀ Λ W̃.

With the slopes a of σ as they are now, the map from W̃ to V σ(z_i) is linear, with a matrix J_i; the target is Gaussian
then, with precision and mean

    Q = Σ_i J_iᵀ S⁻¹ J_i + Λ,     W̃ + Q⁻¹ ∇,     ∇ = Σ_i J_iᵀ S⁻¹ (y_i − V σ(z_i)) − Λ W̃.

Two autoregressive steps of this Gaussian are proposed, the first of persistence 0 and the second of one that is uniform
on (0, 1). The Metropolis-Hastings rule accepts or rejects each, with the reverse proposal built from the slopes at Z'.
So the move is exact for every σ, and also where Q is computed of a part of many images
(:mod:`pymc_gibbsnn.moves.filter_gram`). It ends with draws of what was integrated out, but for A, which is left out of
date.

A convolution below another one has no such move yet: S is then a matrix between all outputs for an image. Those of its
filters are what the plain sampler makes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random import normal, uniform

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.moves.filter_gram import FilterGram
from pymc_gibbsnn.moves.plus_diagonal import plus_diagonal
from pymc_gibbsnn.moves.postactivations import direct_latents, draw_postactivations
from pymc_gibbsnn.moves.site import Acceptance, Move, NetworkState, Nothing
from pymc_gibbsnn.networks.activations import PiecewiseLinear
from pymc_gibbsnn.networks.layers import Operator
from pymc_gibbsnn.networks.network import Network
from pymc_gibbsnn.networks.smooth import Smooth

__all__ = ["activation_above", "interweave_filters", "makes_filter_move", "reach"]

WIDEST = 256
"""How many weights all filters of a layer may have together for the move to be made by default."""


def reach(network: Network, l: int) -> tuple[int, int] | None:
    """Find the layers that the move of layer l needs.

    Returns
    -------
    k, m : int
        The layer whose output enters the activation, which is l or a pool on it; and the dense layer above the
        activation, or above a pool on that. None if layer l is no convolution, or other layers follow.
    """
    layers, activations = network.layers, network.activations
    is_pool = [layer.operator.takes_means for layer in layers]
    if not layers[l].operator.has_filters:
        return None
    k = l if activations[l] else l + 1
    if k > l and not (is_pool[k] and k < len(activations) and activations[k]):
        return None
    m = k + 2 if is_pool[k + 1] and k + 2 < len(layers) and activations[k + 1] is None else k + 1
    if not layers[m].operator.has_gain or (m > k + 1 and layers[k + 1].offset is not None):
        return None
    return k, m


def activation_above(network: Network, l: int) -> int | None:
    """Return k of :func:`reach`; None where there is none."""
    reached = reach(network, l)
    return reached and reached[0]


def makes_filter_move(network: Network, l: int, widest: float = WIDEST) -> bool:
    """Whether the filters of layer l make this move: if it is possible, and they are not too many."""
    reached = reach(network, l)
    if reached is None or math.prod(network.layers[l].operator.augmented_shape) > widest:
        return False
    return not network.activations[reached[0]].function.is_scale_free  # of which no slope says anything


def interweave_filters(network: Network, l: int) -> Move:
    """Make the move of the filters of layer l, with the post-activations above it integrated out."""
    k, m = reach(network, l)

    def step(rng: Variable, state: NetworkState, memory: Nothing) -> tuple[Variable, NetworkState, Nothing, Acceptance]:
        conditional = FilterConditional.of(state, l, k, m)
        rng, w, z, accepted = two_steps(rng, conditional, state.weights[l], state.outputs[k])
        weights, outputs = list(state.weights), list(state.outputs)
        weights[l], outputs[k] = w, z
        if conditional.pool_above is not None:
            s = conditional.upward(conditional.function(z))
            maps = lambda p: p @ conditional.v.T, lambda r: conditional.noise * (r @ conditional.gain)
            rng, outputs[k + 1] = draw_postactivations(
                rng, s, conditional.noise, conditional.y, *maps, state.network.layers[m].noise
            )
        posts = list(state.posts)
        posts[k] = None
        if m > k + 1:
            posts[k + 1] = outputs[k + 1]
        state = replace(state, weights=tuple(weights), outputs=tuple(outputs), posts=tuple(posts))
        if k > l:
            rng, site = direct_latents(rng, state.site(l))
            state = state.put(l, site)
        return rng, state, memory, Acceptance(accepted)

    return Move.of(network.layers[l].operator.name, step, report=Acceptance)


class Filters(NamedTuple):
    """The filters with what their Gaussian is there."""

    w: Variable  # W̃ (h, d)
    z: Variable  # Z (n, places of all filters)
    pull: Variable  # Vᵀ S⁻¹ (y − V σ(z)), of the same shape
    gradient: Variable  # ∇ (h d,)
    factor: Variable  # L (h d, h d)


@dataclass(frozen=True, eq=False, kw_only=True)
class FilterConditional:
    """What the conditional distribution of the filters depends on.

    Attributes
    ----------
    conv : Operator
        The convolution; with the pool on it, if there is one.
    pool_above : Operator, optional
        The pool above the activation.
    function : PiecewiseLinear or Smooth
        The activation σ.
    a : Variable, (n, inputs)
        The images that it takes.
    y : Variable, (n, c)
        The output of the dense layer above, less its bias and offset.
    v : Variable, (c, inputs)
        The weights W of that layer.
    noise : Variable, ()
        The variance of its input given Z, the same for all numbers of it.
    gain : Variable, (c, inputs)
        S⁻¹ W.
    whitened : Variable, (c, places of all filters)
        L⁻¹ V, where S = L Lᵀ.
    """

    conv: Operator
    pool_above: Operator | None
    function: PiecewiseLinear | Smooth
    a: Variable
    y: Variable
    v: Variable
    noise: Variable
    gain: Variable
    whitened: Variable

    @classmethod
    def of(cls, state: NetworkState, l: int, k: int, m: int) -> FilterConditional:
        """Collect it for the filters of a layer.

        Parameters
        ----------
        state : NetworkState
            The network, and the values of its variables.
        l, k, m : int
            The convolution, and the layers that :func:`reach` finds for it.
        """
        layers, activation = state.network.layers, state.network.activations[k]
        dense, noise, noise_above = layers[m].operator, activation.noise, layers[m].noise
        pool_above = layers[k + 1].operator if m > k + 1 else None
        if pool_above is not None:
            noise = layers[k + 1].noise + noise / np.asarray(math.prod(pool_above.windows.size), noise.dtype)
        v = dense.linear(state.weights[m])
        s = plus_diagonal(noise * (v @ v.T), noise_above * pt.ones((dense.size[0],), v.dtype))
        whitened = pt.linalg.solve_triangular(pt.linalg.cholesky(s), v, lower=True, b_ndim=2)
        conv, a = layers[l].operator, state.input(l)
        if k > l:
            conv, a = conv.pooled(a, layers[k].operator.windows)
        return cls(
            conv=conv,
            pool_above=pool_above,
            function=activation.function,
            a=a,
            y=layers[m].centred(state.outputs[m]) - dense.intercept(state.weights[m]),
            v=v,
            noise=noise,
            gain=dense.gain(v, noise, noise_above),
            whitened=whitened if pool_above is None else pool_above.adjoint(whitened),
        )

    def moved(self, step: Variable) -> Variable:
        """Compute by how much Z moves with a step of W̃ (h, d)."""
        return self.conv.forward(self.a, step)

    def upward(self, s: Variable) -> Variable:
        """Take the means of post-activations over the windows of the pool above, if there is one."""
        return s if self.pool_above is None else self.pool_above.forward(s)

    def pull(self, r: Variable) -> Variable:
        """Compute Vᵀ S⁻¹ r of residuals r (n, c) of Y, for each number of Z."""
        pull = r @ self.gain
        return pull if self.pool_above is None else self.pool_above.adjoint(pull)

    def residual_pull(self, z: Variable) -> Variable:
        """Compute Vᵀ S⁻¹ (y − V σ(z))."""
        return self.pull(self.y - self.upward(self.function(z)) @ self.v.T)

    def at(self, w: Variable, z: Variable, pull: Variable) -> Filters:
        """Compute ∇ and the Cholesky factor L of Q = L Lᵀ, with the slopes of σ at Z.

        Parameters
        ----------
        w : Variable, (h, d)
            The filters W̃.
        z, pull : Variable, (n, places of all filters)
            Z, and Vᵀ S⁻¹ (y − V σ(z)).
        """
        conv, slopes = self.conv, self.function.derivative(z)
        precision = conv.precision * pt.ones(conv.size, w.dtype)
        gradient = conv.moments(self.a, slopes * pull).T - precision * w
        images = self.a.reshape((-1, *conv.windows.image))
        by_filter = (x.reshape((-1, conv.augmented_shape[0], conv.places)) for x in (slopes, self.whitened))
        gram = FilterGram(conv.windows, conv.has_bias)(images, *by_filter)
        return Filters(w, z, pull, gradient.ravel(), pt.linalg.cholesky(plus_diagonal(gram, precision.ravel())))


def two_steps(
    rng: Variable, conditional: FilterConditional, w: Variable, z: Variable
) -> tuple[Variable, Variable, Variable, Variable]:
    """Propose two steps of the filters, one after the other.

    Parameters
    ----------
    rng : Variable
        The random generator.
    conditional : FilterConditional
        What the conditional distribution of the filters depends on.
    w : Variable, (h, d)
        The filters W̃.
    z : Variable, (n, places of all filters)
        Z.

    Returns
    -------
    rng, w, z : Variable
        The next generator, and W̃ and Z after the steps.
    accepted : Variable, ()
        The share of the steps that were accepted.
    """
    zero, one = pt.constant(np.array([0, 1], w.dtype))
    rng, xi = draw(normal, rng, zero, one, size=(2, *conditional.conv.size))
    rng, u = draw(uniform, rng, zero, one, size=(3,))
    state, accepted = conditional.at(w, z, conditional.residual_pull(z)), []
    for i, rho in enumerate((zero, pt.minimum(u[2], 1 - 1e-6))):
        log_ratio, new = propose(conditional, state, rho, xi[i])
        accept = pt.log1p(-u[i]) < log_ratio  # False for NaN
        accepted.append(pt.cast(accept, w.dtype))
        state = Filters(*(pt.switch(accept, *pair) for pair in zip(new, state, strict=True)))
    return rng, state.w, state.z, sum(accepted) / 2


def propose(conditional: FilterConditional, state: Filters, rho: Variable, xi: Variable) -> tuple[Variable, Filters]:
    """Propose one step of the filters.

    Parameters
    ----------
    conditional : FilterConditional
        What the conditional distribution of the filters depends on.
    state : Filters
        What ``conditional.at`` returns.
    rho : Variable, ()
        The persistence ρ.
    xi : Variable, (h, d)
        Standard normal numbers.

    Returns
    -------
    log_ratio : Variable, ()
        The logarithm of the Metropolis-Hastings ratio.
    new : Filters
        The state if the step is accepted.
    """
    (w, z, pull, gradient, factor), xi = state, xi.ravel()
    scale = pt.sqrt((1 - rho) * (1 + rho))
    step = _solve(factor, (1 - rho) * _solve(factor, gradient) + scale * xi, transposed=True)
    step_w = step.reshape(conditional.conv.size, ndim=2)
    w_new, z_new = w + step_w, z + conditional.moved(step_w)
    change = conditional.function(z_new) - conditional.function(z)
    new = conditional.at(w_new, z_new, pull - conditional.pull(conditional.upward(change) @ conditional.v.T))
    xi_back = (new.factor.T @ step + (1 - rho) * _solve(new.factor, new.gradient)) / scale
    log_ratio = (
        (change * (pull + new.pull)).sum() / 2
        - (conditional.conv.precision * step_w * (w + w_new)).sum() / 2
        + pt.log(pt.diagonal(new.factor) / pt.diagonal(factor)).sum()
        + ((xi**2).sum() - (xi_back**2).sum()) / 2
    )
    return log_ratio, new


def _solve(factor: Variable, x: Variable, transposed: bool = False) -> Variable:
    """Compute L⁻¹ x or L⁻ᵀ x."""
    factor = factor.T if transposed else factor
    return pt.linalg.solve_triangular(factor, x, lower=not transposed, b_ndim=1)
