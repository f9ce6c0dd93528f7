"""Stochastic-gradient samplers as PyMC step methods."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import pymc as pm
from numpy.typing import ArrayLike
from pytensor.graph.basic import Variable

from pymc_gibbsnn.drivers.step import GraphStep
from pymc_gibbsnn.networks.deterministic import read_classical
from pymc_gibbsnn.networks.minibatch import check_total_size
from pymc_gibbsnn.networks.network import NetworkError
from pymc_gibbsnn.samplers.constant_sgd import constant_sgd
from pymc_gibbsnn.samplers.isgd import isgd
from pymc_gibbsnn.samplers.sghmc import sghmc
from pymc_gibbsnn.samplers.sgld import sgld
from pymc_gibbsnn.samplers.transition import Transition
from pymc_gibbsnn.targets.plain import PlainTarget

__all__ = ["ConstantSGD", "ISGD", "SGHMC", "SGLD"]


class BatchedTarget(PlainTarget):
    """A plain target whose minibatches stand for all rows, and no others."""

    def __init__(self, model: pm.Model, vars: Sequence[Variable] | None = None):
        self.model = model
        super().__init__(model, vars)

    def check(self) -> None:
        """Refuse batches that do not fit the data as they are now."""
        super().check()
        check_total_size(self.model)


class SGLD(GraphStep):
    """Stochastic-gradient Langevin dynamics on the continuous variables of any model that observes minibatches.

    See :mod:`pymc_gibbsnn.samplers.sgld` for the step, and for what it samples: it is not exact. The model observes
    ``pm.Minibatch(X, y, batch_size=...)`` with ``total_size``; on a model without minibatches a warning says that
    gradients are exact.

    Parameters
    ----------
    vars : list of Variable, optional
        Free continuous variables to move; all by default.
    step_size : float, optional
        ε. By default learned while the chain tunes: variances are then too large by about a tenth at most.
    preconditioned : bool
        Whether each coordinate has a scale of its own, learned as of RMSprop while the chain tunes.
    temperature : float
        T: the target is the posterior to the power 1/T.
    decay : (float, float), optional
        (a, γ) of a step size that falls as (1 + k/a)^(−γ) with the number k of steps after tuning. Weigh draws by the
        statistic ``step_size`` then.
    cycle : int, optional
        Steps of a cycle in which the step size falls from its largest value to 0 by a cosine; its first half injects no
        noise. With ``sweeps_per_draw`` of the same number each draw is the end of a cycle. A learned step size begins
        ten times as large.
    control_variates : mapping of str to array, optional
        A fitted point, values of the variables by name, around which the gradient's noise is reduced.
    start : {"adam", None}
        "adam" fits the model in the first half of the tuning, from where the chain starts; None begins there.
    sweeps_per_draw : int
        Steps between two recorded draws: thinning inside the step.
    model, initial_point, compile_kwargs, rng, blocked
        As for any PyMC step method; see :class:`GraphStep`.

    Raises
    ------
    ValueError
        If a variable is discrete, a number is out of range, inputs and targets are batches of different rows, or
        ``total_size`` is missing or is not the number of rows.

    Examples
    --------
    >>> with pmg.classical_mlp(X, labels, 100, activation="relu", batch_size=128, total_size=len(X)):  # doctest: +SKIP
    ...     idata = pm.sample(100, tune=1000, step=pmg.SGLD(sweeps_per_draw=100))
    """

    name = "sgld"

    @staticmethod
    def build_transition(
        model: pm.Model,
        vars: Sequence[Variable] | None,
        *,
        step_size: float | None = None,
        preconditioned: bool = False,
        temperature: float = 1.0,
        decay: Sequence[float] | None = None,
        cycle: int | None = None,
        control_variates: Mapping[str, ArrayLike] | None = None,
        start: str | None = "adam",
    ) -> Transition:
        """The sampler on a plain target."""
        target = BatchedTarget(model, vars)
        transition = sgld(
            target,
            step_size=step_size,
            preconditioned=preconditioned,
            temperature=temperature,
            decay=decay,
            cycle=cycle,
            control_variates=control_variates,
            start=start,
        )
        _warn_of_exact_gradients("SGLD", target)
        return transition


class SGHMC(GraphStep):
    """Stochastic-gradient Hamiltonian Monte Carlo, scale-adapted, on any model that observes minibatches.

    See :mod:`pymc_gibbsnn.samplers.sghmc` for the step, and for what it samples: it is not exact. Models are those of
    :class:`SGLD`, and so are errors.

    Parameters
    ----------
    vars : list of Variable, optional
        Free continuous variables to move; all by default.
    step_size : float, optional
        ε, with η = ε² P. By default learned while the chain tunes.
    friction : float
        α, the share of the velocity that is lost in a step, in (0, 1].
    noise_estimate : float, optional
        b, half the variance of the gradient's noise, which need not be injected; 0 is the textbook's simplest choice.
        By default learned of each coordinate.
    preconditioned : bool
        Whether each coordinate has a scale of its own, learned while the chain tunes. ``SGHMC(step_size=...,
        noise_estimate=0, preconditioned=False)`` is the textbook's with unit mass.
    temperature, cycle, control_variates, start, sweeps_per_draw
        As of :class:`SGLD`.
    model, initial_point, compile_kwargs, rng, blocked
        As for any PyMC step method; see :class:`GraphStep`.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     idata = pm.sample(100, tune=1000, step=pmg.SGHMC(sweeps_per_draw=100))
    """

    name = "sghmc"

    @staticmethod
    def build_transition(
        model: pm.Model,
        vars: Sequence[Variable] | None,
        *,
        step_size: float | None = None,
        friction: float = 0.05,
        noise_estimate: float | None = None,
        preconditioned: bool = True,
        temperature: float = 1.0,
        cycle: int | None = None,
        control_variates: Mapping[str, ArrayLike] | None = None,
        start: str | None = "adam",
    ) -> Transition:
        """The sampler on a plain target."""
        target = BatchedTarget(model, vars)
        transition = sghmc(
            target,
            step_size=step_size,
            friction=friction,
            noise_estimate=noise_estimate,
            preconditioned=preconditioned,
            temperature=temperature,
            cycle=cycle,
            control_variates=control_variates,
            start=start,
        )
        _warn_of_exact_gradients("SGHMC", target)
        return transition


class ConstantSGD(GraphStep):
    """Stochastic gradient descent with a constant rate, chosen so that its own noise samples.

    See :mod:`pymc_gibbsnn.samplers.constant_sgd` for the rates, and for what it samples. Models are those of
    :class:`SGLD`; without minibatches there would be no noise, and the model is refused.

    Parameters
    ----------
    vars : list of Variable, optional
        Free continuous variables to move; all by default.
    diagonal : bool
        A rate for each coordinate.
    temperature, cycle, start, sweeps_per_draw
        As of :class:`SGLD`; the temperature multiplies the rates.
    model, initial_point, compile_kwargs, rng, blocked
        As for any PyMC step method; see :class:`GraphStep`.

    Raises
    ------
    ValueError
        As of :class:`SGLD`, and if the model observes no minibatch.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     idata = pm.sample(100, tune=1000, step=pmg.ConstantSGD(sweeps_per_draw=100))
    """

    name = "constant_sgd"

    @staticmethod
    def build_transition(
        model: pm.Model,
        vars: Sequence[Variable] | None,
        *,
        diagonal: bool = False,
        temperature: float = 1.0,
        cycle: int | None = None,
        start: str | None = "adam",
    ) -> Transition:
        """The sampler on a plain target."""
        target = BatchedTarget(model, vars)
        _refuse_exact_gradients("ConstantSGD", target)
        return constant_sgd(target, diagonal=diagonal, temperature=temperature, cycle=cycle, start=start)


class ISGD(GraphStep):
    """Isotropic SGD: Langevin steps at a rate that the noise of the gradient itself tells, nothing to be set by hand.

    See :mod:`pymc_gibbsnn.samplers.isgd` for the step, and for what it samples: it is not exact. Models are those of
    :class:`SGLD`; without minibatches the gradient has no noise, and the model is refused. Of a network that
    :func:`classical_mlp` could have written groups are its layers, of any other model its variables.

    Parameters
    ----------
    vars : list of Variable, optional
        Free continuous variables to move; all by default.
    noise : {"alpha", "gaussian"}
        How the noise is learned: by the Gaussian closest to an α-stable law, for weights and biases apart; or by mean
        squares, summed over a layer, a looser bound and smaller steps.
    scheme : {"A", "B", "C"}
        Whether it is learned while the chain is trained from its start, while it is trained on from a fitted point, or
        at a fitted point where it stays.
    rate : {"layer", "single"}
        A rate for each group, or one for all.
    temperature : float
        T, by which rates are multiplied: the target is the posterior to the power 1/T.
    momentum : float
        μ of the moving average over windows of 200 gradients.
    bound : {"eigenvalue", "diagonal"}
        Whether λ of "alpha" is at least the largest eigenvalue of the noise, or the largest element of its diagonal
        alone, as in the paper, with which the chain can diverge.
    cycle : int, optional
        As of :class:`SGLD`.
    start : {"adam", None}
        "adam" fits the model in the first half of the tuning; None begins at the chain's own start, a fitted point for
        schemes "B" and "C".
    sweeps_per_draw : int
        Steps between two recorded draws: thinning inside the step, the "keep every" of the paper.
    model, initial_point, compile_kwargs, rng, blocked
        As for any PyMC step method; see :class:`GraphStep`.

    Raises
    ------
    ValueError
        As of :class:`SGLD`; if the model observes no minibatch, or batches of one row with "gaussian".

    Examples
    --------
    >>> with pmg.classical_mlp(X, labels, 100, activation="relu", batch_size=128, total_size=len(X)):  # doctest: +SKIP
    ...     idata = pm.sample(100, tune=1000, step=pmg.ISGD(sweeps_per_draw=100))
    """

    name = "isgd"

    @staticmethod
    def build_transition(
        model: pm.Model,
        vars: Sequence[Variable] | None,
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
        """The sampler on a plain target."""
        target = BatchedTarget(model, vars)
        _refuse_exact_gradients("ISGD", target)
        if noise == "gaussian" and target.batches.size == 1:
            raise ValueError(
                "noise='gaussian' takes the gradient of a batch for nearly Gaussian; found batches of one row: take "
                "batches of some tens of rows, or noise='alpha'."
            )
        return isgd(
            target,
            _groups(model, target, together=noise == "gaussian"),
            noise=noise,
            scheme=scheme,
            rate=rate,
            temperature=temperature,
            momentum=momentum,
            bound=bound,
            cycle=cycle,
            start=start,
        )


def _groups(model: pm.Model, target: PlainTarget, together: bool) -> dict[str, list[int]]:
    """Numbers of the target's variables in each group: a layer's weights and bias together, or each variable alone."""
    layers = []
    if together:
        try:
            layers = read_classical(model).layers
        except NetworkError:
            layers = []
    number = {v: i for i, v in enumerate(target.variables)}
    groups = {layer.name: [number[v] for v in layer.variables if v in number] for layer in layers}
    members = {i for group in groups.values() for i in group}
    groups |= {v.name: [i] for v, i in number.items() if i not in members}
    return {name: group for name, group in groups.items() if group}


def _refuse_exact_gradients(sampler: str, target: PlainTarget) -> None:
    """What lives on the noise of gradients."""
    if target.batches is None:
        raise ValueError(
            f"{sampler} takes its step size from the noise of gradients on minibatches, and the model observes none: "
            f"X_batch, y_batch = pm.Minibatch(X, y, batch_size=...), observed with total_size=; or take MALA, which is "
            f"exact."
        )


def _warn_of_exact_gradients(sampler: str, target: PlainTarget) -> None:
    """What works without minibatches, but hardly pays."""
    if target.batches is None:
        warnings.warn(
            f"The model observes no minibatch, so that the gradient is exact, and {sampler} still is not: its error is "
            f"that of its step size. MALA costs as much and is exact.",
            UserWarning,
            stacklevel=4,
        )
