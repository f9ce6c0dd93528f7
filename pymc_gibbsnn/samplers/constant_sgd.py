r"""Constant SGD: stochastic gradient descent at the constant rate for which its own noise makes it a sampler [1]_.

    θ ← θ − h g,   scalar h = T D/tr B,   diagonal h_j = T/b_j,

where g is the gradient of f = −log π on a batch, 2B the covariance of its noise, b the diagonal of B, and D the number
of coordinates. In terms of the loss f/N and of the covariance C of one row's gradient of it, 2B = N² C/N_b, and these
are the rates 2 D N_b/(N tr C) and (2 N_b/N) C⁻¹ of the paper. No noise is injected. B is learned while the chain tunes.

What it samples: a Gaussian close to the posterior where that is Gaussian and B is proportional to its curvature H
(scalar), or to a diagonal H, and the batch is a small part of the data; otherwise the closest that a constant rate can
give, which can be far. Coordinates without gradient noise come to rest.

References
----------
.. [1] S. Mandt, M. D. Hoffman, D. M. Blei. Stochastic gradient descent as approximate Bayesian inference. JMLR 18
   (2017), theorem 1 and corollary 1.
"""

from __future__ import annotations

import pytensor
import pytensor.tensor as pt

from pymc_gibbsnn._arguments import boolean
from pymc_gibbsnn.samplers.gradient_noise import learn_noise, learn_top, start_top, zeros
from pymc_gibbsnn.samplers.step_sizes import step_sizes
from pymc_gibbsnn.samplers.stochastic_gradient import check_temperature, phases_from, stochastic_gradient
from pymc_gibbsnn.samplers.transition import Transition
from pymc_gibbsnn.targets.target import Target

__all__ = ["constant_sgd"]

FLOOR = 1e-2  # the smallest noise of a coordinate that counts, as a share of the mean noise


def constant_sgd(
    target: Target,
    *,
    diagonal: bool = False,
    temperature: float = 1.0,
    cycle: int | None = None,
    start: str | None = "adam",
) -> Transition:
    """Make the transition of constant SGD on a target.

    Parameters
    ----------
    target : Target
        What is moved, and its density.
    diagonal : bool
        Whether each coordinate has a rate of its own.
    temperature : float
        T, by which rates are multiplied.
    cycle, start
        As in :func:`~pymc_gibbsnn.samplers.sgld.sgld`.

    Returns
    -------
    Transition
        Its statistics are ``lp``; ``exact``, which is 0; and ``learning_rate``, the mean of h. The latter is at most
        N/(N_b λ), with λ the largest eigenvalue of E g gᵀ, since a well-specified model diverges at twice that.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another type than asked for, or out of range.
    """
    T, schedule, names = check_temperature(temperature), step_sizes(None, cycle), list(target.coordinates)
    diagonal = boolean("diagonal", diagonal)
    learned = {"rate": pt.zeros((), dtype=pytensor.config.floatX)} | start_top("gradient", target.coordinates)
    learned |= zeros("before", target.coordinates) | zeros("noise", target.coordinates)
    if diagonal:
        learned |= zeros("preconditioner", target.coordinates)

    def learn(g, kept, count):
        changed = learn_noise(names, g, kept, count)
        noises = [changed[f"noise_{name}"] for name in names]
        mean = sum(b.sum() for b in noises) / sum(b.size for b in noises)
        if diagonal:
            P = [pt.switch(count > 1, mean / pt.maximum(b, FLOOR * mean), 1) for b in noises]
            changed |= {f"preconditioner_{name}": x for name, x in zip(names, P, strict=True)}
            g = [pt.sqrt(p) * x for p, x in zip(P, g, strict=True)]
        changed |= learn_top("gradient", names, g, kept, count - 1)
        most = target.batches.rows / target.batches.size / changed["top_gradient"]
        changed["rate"] = pt.switch(count > 1, pt.minimum(T / mean, most), 0)
        return changed

    def update(rng, theta, g, kept, factor, quiet):
        h = [factor * kept["rate"] * (kept[f"preconditioner_{name}"] if diagonal else 1) for name in names]
        change = [-rate * slope for rate, slope in zip(h, g, strict=True)]
        mean = sum((rate + pt.zeros_like(x)).sum() for x, rate in zip(theta, h, strict=True))
        return rng, change, {"learning_rate": mean / sum(x.size for x in theta) if diagonal else h[0]}

    return stochastic_gradient(
        target,
        update,
        stats=["learning_rate"],
        phases=phases_from(start),
        learned=learned,
        learn=learn,
        schedule=schedule,
    )
