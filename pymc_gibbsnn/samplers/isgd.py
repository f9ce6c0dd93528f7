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
from itertools import chain

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
Arrays = list[Variable]
Named = dict[str, Variable]


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

    bounded = noise == "alpha" and bound == "eigenvalue"
    number_of = {i: p for p, members in enumerate(groups.values()) for i in members}  # the group of a coordinate
    suffixes = [""] if rate == "single" else [f"_{group}" for group in groups]
    reported = [[name + suffix for suffix in suffixes] for name in ("lambda", "learning_rate", "noise_share")]

    def learn(g: Arrays, kept: dict, count: Variable) -> dict[str, Variable]:
        now = dict(zip(names, g, strict=True))
        w = {name: x - kept[f"before_{name}"] for name, x in now.items()}  # with the covariance 4B
        window = alpha_window(w, kept, count) if noise == "alpha" else gaussian_window(now, kept)
        changed = moving_averages(window, kept, mu)
        b = [half_variance(name, changed, noise) for name in names]
        for name, x, half in zip(names, g, b, strict=True):
            changed |= {f"before_{name}": x, f"noise_{name}": half}
        lambdas = lambdas_of(b, groups, noise)
        if bounded:
            for p, (group, members) in enumerate(groups.items()):
                of_group = [names[i] for i in members]
                changed |= learn_top(group, of_group, [w[name] for name in of_group], kept, count - 1)
                lambdas[p] = pt.maximum(lambdas[p], changed[f"top_{group}"] / 4)
        lambdas = pt.stack(lambdas)
        lambdas = pt.maximum(lambdas, FLOOR * lambdas.max())
        if rate == "single":
            lambdas = pt.zeros_like(lambdas) + lambdas.sum()
        return changed | {"rate": pt.switch(count >= LEAST, 1 / lambdas, 0)}

    def update(rng: Variable, theta: Arrays, g: Arrays, kept: dict, factor: Variable, quiet: Variable | None):
        rates, b = factor * kept["rate"], [kept[f"noise_{name}"] for name in names]  # 1/λ and b
        rng, n = standard_normals(rng, theta)
        change, clipped = [], 0
        for i, (slope, xi) in enumerate(zip(g, n, strict=True)):
            C = 1 / rates[number_of[i]] - b[i]
            injected = pt.sqrt(2 * pt.maximum(C, 0)) * (1 if quiet is None else 1 - quiet)
            change.append(-T * rates[number_of[i]] * (slope + injected * xi))
            clipped += pt.lt(C * rates[number_of[i]], -1e-6).sum()  # beyond rounding
        lambdas = pt.switch(rates > 0, 1 / rates, 0)
        shares = pt.stack([sum(b[i].sum() for i in p) / sum(b[i].size for i in p) for p in groups.values()]) * rates
        values = (lambdas, T * rates, shares.mean(keepdims=True) if rate == "single" else shares)
        stats = {one: x[p] for x, ones in zip(values, reported, strict=True) for p, one in enumerate(ones)}
        stats["clip_rate"] = clipped / sum(x.size for x in theta)
        return rng, change, stats | ({} if quiet is None else {"exploring": quiet})

    learned = what_is_learned(target, len(groups), noise)
    if bounded:
        for group, members in groups.items():
            learned |= start_top(group, {names[i]: target.coordinates[names[i]] for i in members})
    return stochastic_gradient(
        target,
        update,
        stats=[*chain.from_iterable(reported), "clip_rate"] + ["exploring"] * (cycle is not None),
        phases=phases,
        learned=learned,
        learn=learn,
        schedule=schedule,
    )


def what_is_learned(target: Target, groups: int, noise: str) -> dict[str, Variable]:
    """Return the entries of the carry from which λ of so many groups is learned, with their values to begin with."""
    averages = ["log", "log_sum"] if noise == "alpha" else ["square"]
    sums = ["block_sum", "sum_of_logs", "sum_of_log_sums"] if noise == "alpha" else ["sum_of_squares"]
    nothing = pt.zeros((), dtype=pytensor.config.floatX)
    learned = {"rate": pt.zeros(groups, dtype=pytensor.config.floatX), "in_window": nothing, "windows": nothing}
    for prefix in [*averages, *sums, "before", "noise"]:
        learned |= zeros(prefix, target.coordinates)
    return learned


def alpha_window(w: Named, kept: Named, count: Variable) -> tuple[Named, Named]:
    """Add up log|w| and log|sum of a block of w| over a window, for each coordinate, and take their means.

    w are differences of consecutive gradients, of which there have been ``count``. Sums, entries of the carry ``kept``,
    and means are those of the window so far.
    """
    is_new = pt.eq(pt.mod(count, 2), 0)  # each gradient is a part of one difference only
    seen = kept["in_window"] + is_new
    ends = pt.and_(is_new, pt.eq(pt.mod(seen, BLOCK), 0))
    blocks, sums, means = pt.floor(seen / BLOCK), {"in_window": seen}, {}
    for name, x in w.items():
        total = kept[f"block_sum_{name}"] + is_new * x
        logs = kept[f"sum_of_logs_{name}"] + is_new * log_size(x)
        log_sums = kept[f"sum_of_log_sums_{name}"] + ends * log_size(total)
        sums |= {f"sum_of_logs_{name}": logs, f"sum_of_log_sums_{name}": log_sums}
        sums[f"block_sum_{name}"] = pt.switch(ends, 0, total)
        mean = logs / pt.maximum(seen, 1)
        of_gaussian = mean + math.log(BLOCK) / 2
        means[f"log_{name}"] = mean
        means[f"log_sum_{name}"] = pt.switch(blocks > 0, log_sums / pt.maximum(blocks, 1), of_gaussian)
    return sums, means


def gaussian_window(g: Named, kept: Named) -> tuple[Named, Named]:
    """Add up g² over a window, for each coordinate, and take its mean; both are as in :func:`alpha_window`."""
    sums, means = {"in_window": kept["in_window"] + 1}, {}
    for name, x in g.items():
        sums[f"sum_of_squares_{name}"] = kept[f"sum_of_squares_{name}"] + x**2
        means[f"square_{name}"] = sums[f"sum_of_squares_{name}"] / sums["in_window"]
    return sums, means


def moving_averages(window: tuple[Named, Named], kept: Named, mu: float) -> Named:
    """Bring s ← μ s + (1 − μ) s(window) up to date where a window ends, and begin a new one.

    Within the first window s are its own means so far. The result are the entries of the carry that have changed.
    """
    sums, means = window
    ends = sums["in_window"] >= WINDOW
    changed = {name: pt.switch(ends, 0, x) for name, x in sums.items()}
    for name, new in means.items():
        averaged = pt.switch(ends, mu * kept[name] + (1 - mu) * new, kept[name])
        changed[name] = pt.switch(kept["windows"] > 0, averaged, new)
    return changed | {"windows": kept["windows"] + ends}


def half_variance(name: str, averages: Named, noise: str) -> Variable:
    """Compute b, half the variance of the gradient's noise, of a coordinate, from the averages over windows."""
    if noise == "gaussian":
        return averages[f"square_{name}"] / 2
    alpha, c = stable_from_logs(averages[f"log_{name}"], averages[f"log_sum_{name}"], BLOCK)
    return closest_gaussian(alpha, c / 2 ** (1 / alpha)) / 2  # differences have 2^(1/α) c


def lambdas_of(b: Arrays, groups: Groups, noise: str) -> Arrays:
    """Compute λ of each group: the largest b for "alpha", the sum of b for "gaussian"."""
    if noise == "gaussian":
        return [sum(b[i].sum() for i in members) for members in groups.values()]
    return [pt.max(pt.stack([b[i].max() for i in members])) for members in groups.values()]
