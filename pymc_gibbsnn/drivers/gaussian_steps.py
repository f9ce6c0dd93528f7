"""pCN, pCNL and MALA as PyMC step methods."""

from __future__ import annotations

from collections.abc import Sequence

import pymc as pm
from pytensor.graph.basic import Variable

from pymc_gibbsnn._arguments import boolean
from pymc_gibbsnn.drivers.step import GraphStep
from pymc_gibbsnn.samplers.mala import mala
from pymc_gibbsnn.samplers.pcn import pcn
from pymc_gibbsnn.samplers.pcnl import pcnl
from pymc_gibbsnn.samplers.transition import Transition
from pymc_gibbsnn.targets.readout import readout_target
from pymc_gibbsnn.targets.whitening import plain_target, whitened_target

__all__ = ["MALA", "PCN", "PCNL"]


class PCN(GraphStep):
    """The preconditioned Crank-Nicolson sampler on Gaussian variables of any model.

    It moves variables with Normal and MvNormal priors, whatever their means and scales depend on, all in one block; the
    acceptance depends on all else in the model alone. See :mod:`pymc_gibbsnn.samplers.pcn` for the step, and
    :mod:`pymc_gibbsnn.targets.row_space` for what it leaves out on data with more columns than rows.

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
        If a prior is not Gaussian or beta is not in (0, 1].
    NetworkError
        If ``reparametrise`` is asked of a model whose readout is not linear or whose likelihood is not Gaussian.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     idata = pm.sample(step=pmg.PCN(beta=0.1, reparametrise=True, sweeps_per_draw=25))
    """

    name = "pcn"

    @staticmethod
    def build_transition(
        model: pm.Model,
        vars: Sequence[Variable] | None,
        *,
        beta: float | None = 0.1,
        reparametrise: bool = False,
    ) -> Transition:
        """The sampler on a whitened target."""
        return pcn(
            (readout_target if boolean("reparametrise", reparametrise) else whitened_target)(model, vars), beta=beta
        )


class PCNL(GraphStep):
    """The preconditioned Crank-Nicolson Langevin sampler: :class:`PCN` whose proposal follows the gradient.

    See :mod:`pymc_gibbsnn.samplers.pcnl` for the step. Errors are those of :class:`PCN`.

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

    @staticmethod
    def build_transition(
        model: pm.Model,
        vars: Sequence[Variable] | None,
        *,
        beta: float | None = 0.1,
        reparametrise: bool = False,
    ) -> Transition:
        """The sampler on a whitened target."""
        return pcnl(
            (readout_target if boolean("reparametrise", reparametrise) else whitened_target)(model, vars), beta=beta
        )


class MALA(GraphStep):
    """The Metropolis-adjusted Langevin algorithm, and its underdamped form with one leapfrog step.

    See :mod:`pymc_gibbsnn.samplers.mala` for the step.

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
        If a variable is discrete, or a number is out of range.
    NetworkError
        If ``reparametrise`` is asked of a model whose readout is not linear or whose likelihood is not Gaussian.

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
        target = (readout_target if boolean("reparametrise", reparametrise) else plain_target)(model, vars)
        return mala(target, step_size=step_size, momentum_refresh=momentum_refresh)
