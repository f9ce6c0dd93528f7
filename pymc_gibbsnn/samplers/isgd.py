r"""Isotropic SGD (I-SGD): Langevin steps whose gradient noise is filled up to be the same in all directions.

With the gradient g of f = −log π on a batch, 2B the covariance of its noise, b the diagonal of B, and groups p of
parameters, each with a λ_p = max_{j in p} b_j,

    θ_p ← θ_p − (T/λ_p) (g_p + √2 C^{1/2} n),   C = λ_p − b,   n ~ N(0, I).

The noise of g and C together have the covariance 2 λ_p: this is an unadjusted Langevin step of size h = T/λ_p. In terms
of the gradient g/N of the mean loss, λ is divided by N², and the same trajectory has the rate 1/(N λ).

What it samples: where B is diagonal and known, on a quadratic f with curvature H, a Gaussian whose variance is T/H
times 1/(1 − h H/2); in a well-specified regression h H is about 2 N_b/N. Where the gradients of a group's parameters
are correlated, B is not diagonal, and what it has outside its diagonal stays in the noise.

How b is learned, from windows of gradients while the chain tunes, and fixed afterwards. Of the statistics s of windows
a moving average, s ← μ s + (1 − μ) s(window), is kept:

- "alpha": differences of consecutive gradients are fitted by an α-stable distribution, each coordinate by itself, and b
  is half the variance of the Gaussian closest to it (:mod:`pymc_gibbsnn.samplers.alpha_stable`); s are the means of the
  logarithms. Groups are variables.
- "gaussian": b = E g²/2, and λ_p = Σ_{j in p} b_j, a bound on the largest eigenvalue of B; s is the mean of g². Groups
  are layers.

and where the chain is meanwhile: scheme "A", trained from its start; "B", trained on from a fitted point; "C", frozen
there.

Beyond the paper: for "alpha", λ_p is at least the largest eigenvalue of the group's part of B, unless ``bound`` is
"diagonal". C must make up for B, whose largest eigenvalue exceeds max b_j wherever gradients are correlated; the chain
can diverge without. No λ_p is less than a thousandth of the largest.

References
----------
.. [1] G. Franzese, R. Candela, D. Milios, M. Filippone, P. Michiardi. Isotropic SGD: a practical approach to Bayesian
   posterior sampling. arXiv 2006.05087 (2020), algorithm 2 and appendix B.3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_gibbsnn._arguments import number, one_of
from pymc_gibbsnn.samplers.alpha_stable import closest_gaussian, log_size, stable_from_logs
from pymc_gibbsnn.samplers.gradient_noise import learn_top, start_top, zeros
from pymc_gibbsnn.samplers.metropolis_hastings import standard_normals
from pymc_gibbsnn.samplers.step_sizes import step_sizes
from pymc_gibbsnn.samplers.stochastic_gradient import (
    LEARNED,
    Phases,
    check_temperature,
    phases_from,
    stochastic_gradient,
)
from pymc_gibbsnn.samplers.transition import Transition
from pymc_gibbsnn.targets.target import Target

__all__ = ["isgd"]

BLOCK = 10  # the number N₁ of differences of gradients in a block
WINDOW = 100  # the number N₁ N₂ of differences in a window, or of gradients for "gaussian"
LEAST = 4  # the number of gradients from which on λ is known; until the first block ends, noise counts as Gaussian
FLOOR = 1e-3  # the smallest λ, as a share of the largest one

Groups = dict[str, list[int]]


def isgd(
    target: Target,
    groups: Groups,
    *,
    noise: str = "alpha",
    scheme: str = "A",
    rate: str = "layer",
    temperature: float = 1.0,
    momentum: float = 0.5,
    bound: str = "eigenvalue",
    cycle: int | None = None,
    start: str | None = "adam",
) -> Transition:
    """Make the transition of I-SGD on a target with minibatches.

    Parameters
    ----------
    target : Target
        What is moved, and its density.
    groups : dict of str to list of int
        The numbers of the target's coordinates in each group, by the group's name.
    noise : {"alpha", "gaussian"}
        How b is learned, as the module says.
    scheme : {"A", "B", "C"}
        Where the chain is while b is learned, as the module says.
    rate : {"layer", "single"}
        Whether each group has its own λ, or all groups have the sum of these.
    temperature : float
        T, positive.
    momentum : float
        μ, in [0, 1).
    bound : {"eigenvalue", "diagonal"}
        What bounds λ from below, for "alpha".
    cycle : int, optional
        The number of steps of a cycle, in which λ is divided by the factor of
        :mod:`pymc_gibbsnn.samplers.step_sizes`.
    start : {"adam", None}
        Whether the chain is fitted in the first half of its tuning, for "B" and "C".

    Returns
    -------
    Transition
        Its statistics are ``lp``; ``exact``, which is 0; ``lambda_...`` and ``learning_rate_...`` (T/λ) of each group
        or of all; ``noise_share_...``, the mean of b/λ, the share of the noise that comes from the gradient;
        ``clip_rate``, the share of coordinates with b > λ, for which C is 0; and with a cycle ``exploring``.

    Raises
    ------
    TypeError
        If an argument is of another type than asked for.
    ValueError
        If an argument has no such choice, or a number is out of range.
    """
    one_of("noise", noise, ("alpha", "gaussian"))
    one_of("scheme", scheme, ("A", "B", "C"))
    one_of("rate", rate, ("layer", "single"))
    one_of("bound", bound, ("eigenvalue", "diagonal"))
    mu = number("momentum", momentum, "a number in [0, 1)", lambda x: 0 <= x < 1)
    T, schedule, names = check_temperature(temperature), step_sizes(None, cycle), list(target.coordinates)
    fitted = phases_from(start).train
    phases = {
        "A": Phases(train=LEARNED, learn=1.0, move=LEARNED),
        "B": Phases(train=LEARNED, learn=fitted, move=LEARNED),
        "C": Phases(train=fitted, learn=fitted, move=LEARNED),
    }[scheme]

    nothing = pt.zeros((), dtype=pytensor.config.floatX)
    bounded = noise == "alpha" and bound == "eigenvalue"
    averages = ["log", "log_sum"] if noise == "alpha" else ["square"]
    sums = ["block_sum", "sum_of_logs", "sum_of_log_sums"] if noise == "alpha" else ["sum_of_squares"]
    window = {"in_window": nothing, "windows": nothing}
    window |= {k: x for prefix in [*averages, *sums] for k, x in zeros(prefix, target.coordinates).items()}
    learned = {"rate": pt.zeros(len(groups), dtype=pytensor.config.floatX)} | window
    learned |= zeros("before", target.coordinates) | zeros("noise", target.coordinates)
    if bounded:
        for group, members in groups.items():
            learned |= start_top(group, {names[i]: target.coordinates[names[i]] for i in members})

    def learn(g, kept, count):
        w = [x - kept[f"before_{name}"] for name, x in zip(names, g, strict=True)]
        found = {f"before_{name}": x for name, x in zip(names, g, strict=True)}
        found |= alpha_window(w, kept, count) if noise == "alpha" else gaussian_window(g, kept)
        # Within the first window these are its own means; from then on they are moving averages over windows.
        ends, means = found["in_window"] >= WINDOW, {}
        for prefix, name in product(averages, names):
            key, new = f"{prefix}_{name}", found.pop(f"mean_{prefix}_{name}")
            averaged = pt.switch(ends, mu * kept[key] + (1 - mu) * new, kept[key])
            means[key] = pt.switch(kept["windows"] > 0, averaged, new)
        found = {key: x if key.startswith("before") else pt.switch(ends, 0, x) for key, x in found.items()} | means
        found["windows"] = kept["windows"] + ends
        b = [variance_of(means, name) / 2 for name in names]
        found |= {f"noise_{name}": x for name, x in zip(names, b, strict=True)}

        lambdas = []
        for group, members in groups.items():
            if noise == "gaussian":
                lambdas.append(sum(b[i].sum() for i in members))
                continue
            largest = pt.max(pt.stack([b[i].max() for i in members]))
            if bounded:  # the covariance of differences is 4B
                top = learn_top(group, [names[i] for i in members], [w[i] for i in members], kept, count - 1)
                found |= top
                largest = pt.maximum(largest, top[f"top_{group}"] / 4)
            lambdas.append(largest)
        lambdas = pt.stack(lambdas)
        lambdas = pt.maximum(lambdas, FLOOR * lambdas.max())
        if rate == "single":
            lambdas = pt.zeros_like(lambdas) + lambdas.sum()
        found["rate"] = pt.switch(count >= LEAST, 1 / lambdas, 0)
        return found

    def alpha_window(w, kept, count):
        """Add up log|w| and log|sum of a block of w| over a window, for each coordinate, and take their means."""
        is_new = pt.eq(pt.mod(count, 2), 0)  # each gradient is a part of one difference only
        seen = kept["in_window"] + is_new
        ends = pt.and_(is_new, pt.eq(pt.mod(seen, BLOCK), 0))
        blocks, found = pt.floor(seen / BLOCK), {"in_window": seen}
        for name, x in zip(names, w, strict=True):
            total = kept[f"block_sum_{name}"] + is_new * x
            logs = kept[f"sum_of_logs_{name}"] + is_new * log_size(x)
            log_sums = kept[f"sum_of_log_sums_{name}"] + ends * log_size(total)
            found |= {f"sum_of_logs_{name}": logs, f"sum_of_log_sums_{name}": log_sums}
            found[f"block_sum_{name}"] = pt.switch(ends, 0, total)
            mean = logs / pt.maximum(seen, 1)
            found[f"mean_log_{name}"] = mean
            of_gaussian = mean + math.log(BLOCK) / 2
            found[f"mean_log_sum_{name}"] = pt.switch(blocks > 0, log_sums / pt.maximum(blocks, 1), of_gaussian)
        return found

    def gaussian_window(g, kept):
        """Add up g² over a window, for each coordinate, and take its mean."""
        seen = kept["in_window"] + 1
        found = {"in_window": seen}
        for name, x in zip(names, g, strict=True):
            found[f"sum_of_squares_{name}"] = kept[f"sum_of_squares_{name}"] + x**2
            found[f"mean_square_{name}"] = found[f"sum_of_squares_{name}"] / seen
        return found

    def variance_of(means, name):
        """Compute 2b, the variance of the gradient's noise, of a coordinate."""
        if noise == "gaussian":
            return means[f"square_{name}"]
        alpha, c = stable_from_logs(means[f"log_{name}"], means[f"log_sum_{name}"], BLOCK)
        return closest_gaussian(alpha, c / 2 ** (1 / alpha))  # differences have 2^(1/α) c

    of_group = {i: number for number, members in enumerate(groups.values()) for i in members}

    def update(rng, theta, g, kept, factor, quiet):
        rates = factor * kept["rate"]
        rng, n = standard_normals(rng, theta)
        change, clipped = [], 0
        for i, (slope, xi) in enumerate(zip(g, n, strict=True)):
            C = 1 / rates[of_group[i]] - kept[f"noise_{names[i]}"]
            injected = pt.sqrt(2 * pt.maximum(C, 0)) * (1 if quiet is None else 1 - quiet)
            change.append(-T * rates[of_group[i]] * (slope + injected * xi))
            clipped += pt.lt(C * rates[of_group[i]], -1e-6).sum()  # beyond rounding
        lambdas = pt.switch(rates > 0, 1 / rates, 0)
        stats = _by_group("lambda", groups, rate, lambdas) | _by_group("learning_rate", groups, rate, T * rates)
        shares = pt.stack([
            sum(kept[f"noise_{names[i]}"].sum() for i in members) / sum(theta[i].size for i in members)
            for members in groups.values()
        ]) * rates  # fmt: skip
        if rate == "single":
            shares = shares.mean(keepdims=True)
        stats |= _by_group("noise_share", groups, rate, shares)
        stats["clip_rate"] = clipped / sum(x.size for x in theta)
        return rng, change, stats | ({} if quiet is None else {"exploring": quiet})

    stats = [*_by_group("lambda", groups, rate), *_by_group("learning_rate", groups, rate)]
    stats += [*_by_group("noise_share", groups, rate), "clip_rate"]
    return stochastic_gradient(
        target,
        update,
        stats=stats + ["exploring"] * (cycle is not None),
        phases=phases,
        learned=learned,
        learn=learn,
        schedule=schedule,
    )


def _by_group(
    name: str, groups: Sequence[str], rate: str, values: Variable | None = None
) -> dict[str, Variable | None]:
    """Name a statistic for each group, or once for all groups.

    Parameters
    ----------
    name : str
        The name of the statistic.
    groups : sequence of str
        The names of the groups.
    rate : {"layer", "single"}
        Whether there is one for each group, or one for all.
    values : Variable, optional
        A vector of its values.

    Returns
    -------
    dict of str to Variable or None
    """
    names = [name] if rate == "single" else [f"{name}_{group}" for group in groups]
    return {one: None if values is None else values[i] for i, one in enumerate(names)}
