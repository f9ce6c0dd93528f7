"""pCN, pCNL and MALA as PyMC step methods."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import pymc as pm
from pytensor.graph.basic import Variable

from pymc_gibbsnn._arguments import boolean
from pymc_gibbsnn.drivers.step import GraphStep
from pymc_gibbsnn.networks.network import evaluate
from pymc_gibbsnn.samplers.mala import mala
from pymc_gibbsnn.samplers.pcn import pcn
from pymc_gibbsnn.samplers.pcnl import pcnl
from pymc_gibbsnn.samplers.transition import Transition
from pymc_gibbsnn.targets.plain import PlainTarget
from pymc_gibbsnn.targets.readout import ReadoutTarget
from pymc_gibbsnn.targets.target import Target
from pymc_gibbsnn.targets.whitening import WhitenedTarget

__all__ = ["MALA", "PCN", "PCNL"]


def _crank_nicolson(sampler: Callable[..., Transition]) -> Callable[..., Transition]:
    """Function that builds the transition of pCN or pCNL."""

    def build_transition(
        model: pm.Model, vars: Sequence[Variable] | None, *, beta: float | None = 0.1, reparametrise: bool = False
    ) -> Transition:
        """The sampler on a whitened target."""
        return _transition(sampler, WhitenedTarget, model, vars, reparametrise, beta=beta)

    return staticmethod(build_transition)


class PCN(GraphStep):
    """The preconditioned Crank-Nicolson sampler on Gaussian variables of any model.

    It moves variables with Normal and MvNormal priors, whatever their means and scales depend on, all in one block; the
    acceptance depends on all else in the model alone. See :mod:`pymc_gibbsnn.samplers.pcn` for the step, and
    :mod:`pymc_gibbsnn.targets.row_space` for what it leaves out on data with more columns than rows.

    On a model that observes ``pm.Minibatch(X, y, batch_size=...)`` with ``total_size``, each step draws a fresh batch
    and evaluates both the current place and the proposal on it. Such a chain is not exact, which a warning says before
    it starts and the statistic ``exact``, 0, afterwards: each batch accepts by a posterior of its own, and the draws
    spread more widely than the posterior, the less so the smaller β is. An acceptance rate does not show this error, so
    that ``beta=None`` is refused there, and so is ``reparametrise=True``, which needs all rows.

    Parameters
    ----------
    vars : list of Variable, optional
        Free variables to move; all by default.
    beta : float, optional
        Step size in (0, 1]; None tunes it while the chain tunes.
    reparametrise : bool
        Integrate out the linear readout of a network with a Gaussian likelihood, as
        :mod:`pymc_gibbsnn.targets.readout` does, and draw it exactly for each recorded draw.
    sweeps_per_draw : int
        Steps between two recorded draws: thinning inside the step.
    model, initial_point, compile_kwargs, rng, blocked
        As for any PyMC step method; see :class:`GraphStep`.

    Raises
    ------
    ValueError
        If a prior is not Gaussian or beta is not in (0, 1]; of a model with minibatches, if beta is None, inputs and
        targets are batches of different rows, or ``total_size`` is missing.
    NetworkError
        If ``reparametrise`` is asked of a model whose readout is not linear, whose likelihood is not Gaussian, or that
        observes minibatches.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     idata = pm.sample(step=pmg.PCN(beta=0.1, reparametrise=True, sweeps_per_draw=25))
    """

    name = "pcn"
    build_transition = _crank_nicolson(pcn)


class PCNL(GraphStep):
    """The preconditioned Crank-Nicolson Langevin sampler: :class:`PCN` whose proposal follows the gradient.

    See :mod:`pymc_gibbsnn.samplers.pcnl` for the step. Errors are those of :class:`PCN`, and so is what it does on
    minibatches, where it is not exact either.

    Parameters
    ----------
    vars, beta, reparametrise, sweeps_per_draw
        As of :class:`PCN`.
    model, initial_point, compile_kwargs, rng, blocked
        As for any PyMC step method; see :class:`GraphStep`.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     idata = pm.sample(step=pmg.PCNL(beta=None))
    """

    name = "pcnl"
    build_transition = _crank_nicolson(pcnl)


class MALA(GraphStep):
    """The Metropolis-adjusted Langevin algorithm, and its underdamped form with one leapfrog step.

    See :mod:`pymc_gibbsnn.samplers.mala` for the step.

    On a model that observes ``pm.Minibatch(X, y, batch_size=...)`` with ``total_size``, each step draws a fresh batch
    and evaluates both the current place and the proposal on it. Such a chain is not exact, which a warning says before
    it starts and the statistic ``exact``, 0, afterwards: each batch accepts by a posterior of its own, and the draws
    spread more widely than the posterior, the less so the smaller the step is. An acceptance rate does not show this
    error, so that there a ``step_size`` has to be given; ``reparametrise=True``, which needs all rows, is refused.

    Parameters
    ----------
    vars : list of Variable, optional
        Free continuous variables to move; all by default.
    step_size : float, optional
        ε of the leapfrog step: the proposal is x + ε²/2 ∇log π + ε ξ. None tunes it while the chain tunes.
    momentum_refresh : float
        Share of the momentum that is drawn afresh at each step, in (0, 1]; 1 is MALA.
    reparametrise : bool
        Move the whitened inner weights of a network with its linear readout integrated out, as :class:`PCN` does.
    sweeps_per_draw : int
        Steps between two recorded draws.
    model, initial_point, compile_kwargs, rng, blocked
        As for any PyMC step method; see :class:`GraphStep`.

    Raises
    ------
    ValueError
        If a variable is discrete, or a number is out of range; of a model with minibatches, if ``step_size`` is None,
        inputs and targets are batches of different rows, or ``total_size`` is missing.
    NetworkError
        If ``reparametrise`` is asked of a model whose readout is not linear, whose likelihood is not Gaussian, or that
        observes minibatches.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     idata = pm.sample(step=pmg.MALA())
    """

    name = "mala"

    @staticmethod
    def build_transition(
        model: pm.Model,
        vars: Sequence[Variable] | None,
        *,
        step_size: float | None = None,
        momentum_refresh: float = 1.0,
        reparametrise: bool = False,
    ) -> Transition:
        """The sampler on a plain target, or on the whitened inner weights."""
        options = {"step_size": step_size, "momentum_refresh": momentum_refresh}
        return _transition(mala, PlainTarget, model, vars, reparametrise, **options)


def _transition(
    sampler: Callable[..., Transition],
    kind: type[Target],
    model: pm.Model,
    vars: Sequence[Variable] | None,
    reparametrise: bool,
    **options: float | None,
) -> Transition:
    """The sampler, with these options, on a target of this kind, or with the readout integrated out.

    The first of the options is its step size. On minibatches it says before sampling that it will not be exact, and
    refuses to tune a step by what does not show the error.
    """
    target = (ReadoutTarget if boolean("reparametrise", reparametrise) else kind)(model, vars)
    transition = sampler(target, **options)
    if target.batches is None:
        return transition
    name, (argument, size) = sampler.__name__.upper(), next(iter(options.items()))
    batch = f"a fresh batch of {target.batches.size} of {int(evaluate(target.batches.rows))} rows at each step"
    if size is None:
        raise ValueError(
            f"{argument}=None tunes the step to an acceptance rate. On minibatches, where {name} sees {batch}, such "
            f"a step is far too large, and draws spread several times as widely as the posterior. Give a small "
            f"{argument}, or observe all rows."
        )
    warnings.warn(
        f"{name} is not exact on minibatches: it sees {batch}, and its draws spread more widely than the posterior. "
        f"The error falls with {argument}: compare with the results of {argument}={size / 2:g}. For exact draws "
        f"observe all rows.",
        UserWarning,
        stacklevel=4,
    )
    return transition
