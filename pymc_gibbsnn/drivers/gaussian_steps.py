"""pCN, pCNL and MALA as PyMC step methods."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

import pymc as pm
from pytensor.graph.basic import Variable

from pymc_gibbsnn._arguments import boolean
from pymc_gibbsnn.drivers.step import GraphStep, options_of
from pymc_gibbsnn.networks.network import evaluate
from pymc_gibbsnn.samplers.mala import mala
from pymc_gibbsnn.samplers.pcn import pcn
from pymc_gibbsnn.samplers.pcnl import pcnl
from pymc_gibbsnn.samplers.transition import Transition
from pymc_gibbsnn.targets.plain import PlainTarget
from pymc_gibbsnn.targets.readout import ReadoutTarget
from pymc_gibbsnn.targets.target import Target, free_variables, of_given_numbers
from pymc_gibbsnn.targets.whitening import WhitenedTarget

__all__ = ["MALA", "PCN", "PCNL"]


def _on(kind: type[Target], sampler: Callable[..., Transition]) -> Callable[..., Transition]:
    """Make the function that builds the transition of a sampler on a kind of target.

    On minibatches it warns, before sampling, that the chain will not be exact, and refuses to tune the step size,
    because the acceptance rate does not show the error.
    """
    argument, default = next((p.name, p.default) for p in signature(sampler).parameters.values() if p.name != "target")

    @staticmethod
    @options_of(sampler)
    def build_transition(
        model: pm.Model, vars: Sequence[Variable] | None, *, reparametrise: bool = False, **options: Any
    ) -> Transition:
        """Build the transition on a target, or on the whitened inner weights."""
        values = [model.rvs_to_values[rv] for rv in free_variables(model, vars)]  # which both models share
        target = of_given_numbers(ReadoutTarget if boolean("reparametrise", reparametrise) else kind, model, values)
        transition, size = sampler(target, **options), options.get(argument, default)
        if target.batches is None:
            return transition
        name = sampler.__name__.upper()
        batch = f"a fresh batch of {target.batches.size} of {int(evaluate(target.batches.rows))} rows at each step"
        if size is None:
            raise ValueError(
                f"{argument}=None tunes the step to an acceptance rate. On minibatches, where {name} sees {batch}, "
                f"such a step is far too large, and draws spread several times as widely as the posterior. Give a "
                f"small {argument}, or observe all rows."
            )
        warnings.warn(
            f"{name} is not exact on minibatches: it sees {batch}, and its draws spread more widely than the "
            f"posterior. The error falls with {argument}: compare with the results of {argument}={size / 2:g}. For "
            f"exact draws observe all rows.",
            UserWarning,
            stacklevel=3,
        )
        return transition

    return build_transition


class PCN(GraphStep):
    """The preconditioned Crank-Nicolson sampler (pCN) for the Gaussian variables of any model.

    It moves variables with Normal and MvNormal priors, whatever their means and scales depend on, all in one block. In
    coordinates u that are standard normal a priori, it proposes v = sqrt(1 − β²) u + β w with w ~ N(0, I). The proposal
    leaves the prior invariant, so that the acceptance depends on the rest of the model alone [1]_ [2]_.
    :mod:`pymc_gibbsnn.samplers.pcn` states the step and the statistics that a draw has. Of weights on data with more
    columns than rows, it moves only the part that the data see (:mod:`pymc_gibbsnn.targets.row_space`).

    On a model that observes ``pm.Minibatch(X, y, batch_size=...)`` with ``total_size``, each step draws a fresh batch
    and evaluates both the current place and the proposal on it. Such a chain is not exact, which a warning says before
    it starts and the statistic ``exact``, 0, afterwards: each batch accepts by a posterior of its own, and the draws
    spread more widely than the posterior; they do so less, the smaller β is. An acceptance rate does not show this
    error, so that ``beta=None`` is refused there, and so is ``reparametrise=True``, which needs all rows.

    Parameters
    ----------
    vars : list of Variable, optional
        Free variables to move; by default all of them.
    beta : float, optional
        The step size β, in (0, 1] and without units; None tunes it, while the chain tunes, to an acceptance of 0.3
        (0.574 in :class:`PCNL`).
    reparametrise : bool
        Whether to integrate out the linear readout of a network with a Gaussian likelihood, as
        :mod:`pymc_gibbsnn.targets.readout` does, and to draw it exactly for each recorded draw. The statistic ``lp`` is
        then the log density of the data and all other variables, without the readout: not that of the model.
    sweeps_per_draw : int
        How many steps are made for each recorded draw: thinning inside the step.
    model, initial_point, compile_kwargs, rng, blocked
        As for any PyMC step method; see :class:`~pymc_gibbsnn.drivers.step.GraphStep`.

    Raises
    ------
    TypeError
        If an argument is of another type than asked for, or there is no such argument.
    ValueError
        If a prior is not Gaussian, a Gaussian variable is transformed, one in ``vars`` is not of the model, or β is not
        in (0, 1]; in a model with minibatches, if β is None, a prior depends on a minibatch, inputs and targets are
        batches of different rows, a batch is larger than the data, or ``total_size`` is missing.
    NetworkError
        If ``reparametrise`` is asked of a model whose readout is not linear, whose likelihood is not Gaussian, or that
        observes minibatches.
    FloatingPointError, RuntimeError
        While sampling, as :class:`~pymc_gibbsnn.drivers.step.GraphStep` says.

    References
    ----------
    .. [1] S. L. Cotter, G. O. Roberts, A. M. Stuart, D. White. MCMC methods for functions: modifying old algorithms to
       make them faster. Statistical Science 28 (2013).
    .. [2] L. Pezzetti, S. Favaro, S. Peluchetti. Function-space MCMC for Bayesian wide neural networks.
       arXiv 2408.14325.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_gibbsnn as pmg
    >>> X = np.random.default_rng(1).normal(size=(50, 3))
    >>> with pmg.wide_mlp(X, X[:, 0] ** 2, width=64):
    ...     step = pmg.PCN(beta=0.1, reparametrise=True, sweeps_per_draw=25)
    ...     idata = pm.sample(1000, step=step)  # doctest: +SKIP
    """

    name = "pcn"
    build_transition = _on(WhitenedTarget, pcn)


class PCNL(GraphStep):
    """The preconditioned Crank-Nicolson Langevin sampler (pCNL): :class:`PCN` whose proposal follows the gradient.

    With s = sqrt(1 − β²) and ℓ the log density relative to the prior, it proposes v = s u + (1 − s) ∇ℓ(u) + β w with
    w ~ N(0, I), and accepts by the Metropolis-Hastings rule [1]_. :mod:`pymc_gibbsnn.samplers.pcnl` states the step. On
    minibatches it behaves as :class:`PCN` does, and is not exact either.

    Parameters
    ----------
    vars, beta, reparametrise, sweeps_per_draw
        As in :class:`PCN`.
    model, initial_point, compile_kwargs, rng, blocked
        As for any PyMC step method; see :class:`~pymc_gibbsnn.drivers.step.GraphStep`.

    Raises
    ------
    TypeError, ValueError, NetworkError
        As in :class:`PCN`.
    FloatingPointError, RuntimeError
        While sampling, as :class:`~pymc_gibbsnn.drivers.step.GraphStep` says.

    References
    ----------
    .. [1] S. L. Cotter, G. O. Roberts, A. M. Stuart, D. White. MCMC methods for functions: modifying old algorithms to
       make them faster. Statistical Science 28 (2013).

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_gibbsnn as pmg
    >>> X = np.random.default_rng(1).normal(size=(50, 3))
    >>> with pmg.wide_mlp(X, X[:, 0] ** 2, width=64):
    ...     idata = pm.sample(1000, step=pmg.PCNL(beta=None))  # doctest: +SKIP
    """

    name = "pcnl"
    build_transition = _on(WhitenedTarget, pcnl)


class MALA(GraphStep):
    """The Metropolis-adjusted Langevin algorithm (MALA), and its underdamped form with one leapfrog step.

    It moves all continuous variables x of a model, in the coordinates that PyMC gives them, by the proposal
    x + ε²/2 ∇log π(x) + ε ξ with ξ ~ N(0, I), and accepts by the Metropolis-Hastings rule [1]_. The underdamped form
    takes for ξ the momentum sqrt(1 − α) m + sqrt(α) ξ, with m that of the step before, which is flipped after a
    rejection [2]_. :mod:`pymc_gibbsnn.samplers.mala` states the step and the statistics that a draw has.

    On a model that observes ``pm.Minibatch(X, y, batch_size=...)`` with ``total_size``, each step draws a fresh batch
    and evaluates both the current place and the proposal on it. Such a chain is not exact, which a warning says before
    it starts and the statistic ``exact``, 0, afterwards: each batch accepts by a posterior of its own, and the draws
    spread more widely than the posterior; they do so less, the smaller the step is. An acceptance rate does not show
    this error, so that there a ``step_size`` has to be given; ``reparametrise=True``, which needs all rows, is refused.

    Parameters
    ----------
    vars : list of Variable, optional
        Free continuous variables to move; by default all of them.
    step_size : float, optional
        The size ε of the leapfrog step, positive, in the units of the coordinates (without units if ``reparametrise``);
        None tunes it, while the chain tunes, to an acceptance of 0.574, or of 0.9 if momentum is kept.
    momentum_refresh : float
        α, the share of the momentum that is drawn anew at each step, in (0, 1]; 1 is MALA. With 0.03 to 0.1 a
        chain runs on in its direction until a rejection turns it back, and so crosses a long posterior sooner.
    reparametrise : bool
        Whether to move the whitened inner weights of a network with its linear readout integrated out, as :class:`PCN`
        does.
    sweeps_per_draw : int
        How many steps are made for each recorded draw: thinning inside the step.
    model, initial_point, compile_kwargs, rng, blocked
        As for any PyMC step method; see :class:`~pymc_gibbsnn.drivers.step.GraphStep`.

    Raises
    ------
    TypeError
        If an argument is of another type than asked for, or there is no such argument.
    ValueError
        If a variable is discrete or not of the model, or a number is out of range; with ``reparametrise``, if a prior
        is not Gaussian or a Gaussian variable is transformed; in a model with minibatches, if ``step_size`` is None, a
        prior depends on a minibatch, inputs and targets are batches of different rows, a batch is larger than the data,
        or ``total_size`` is missing.
    NetworkError
        If ``reparametrise`` is asked of a model whose readout is not linear, whose likelihood is not Gaussian, or that
        observes minibatches.
    FloatingPointError, RuntimeError
        While sampling, as :class:`~pymc_gibbsnn.drivers.step.GraphStep` says.

    References
    ----------
    .. [1] G. O. Roberts, J. S. Rosenthal. Optimal scaling of discrete approximations to Langevin diffusions. JRSSB 60
       (1998).
    .. [2] A. M. Horowitz. A generalized guided Monte Carlo algorithm. Physics Letters B 268 (1991).

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_gibbsnn as pmg
    >>> X = np.random.default_rng(1).normal(size=(50, 3))
    >>> with pmg.wide_mlp(X, X[:, 0] ** 2, width=64):
    ...     idata = pm.sample(1000, step=pmg.MALA())  # doctest: +SKIP
    """

    name = "mala"
    build_transition = _on(PlainTarget, mala)
