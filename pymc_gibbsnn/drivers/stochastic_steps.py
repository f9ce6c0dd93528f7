"""Stochastic-gradient samplers as PyMC step methods."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import pymc as pm
from pytensor.graph.basic import Variable

from pymc_gibbsnn.drivers.step import GraphStep, options_of
from pymc_gibbsnn.networks.deterministic import read_classical
from pymc_gibbsnn.networks.network import NetworkError
from pymc_gibbsnn.samplers.constant_sgd import constant_sgd
from pymc_gibbsnn.samplers.isgd import isgd
from pymc_gibbsnn.samplers.sghmc import sghmc
from pymc_gibbsnn.samplers.sgld import sgld
from pymc_gibbsnn.samplers.transition import Transition
from pymc_gibbsnn.targets.batched import BatchedTarget
from pymc_gibbsnn.targets.plain import PlainTarget

__all__ = ["ConstantSGD", "ISGD", "SGHMC", "SGLD"]


class SGLD(GraphStep):
    """Stochastic-gradient Langevin dynamics (SGLD) on the continuous variables of any model that observes minibatches.

    A step is θ − ε P g + sqrt(2 ε T P) n with n ~ N(0, I), where g is the gradient of −log π on a batch that is drawn
    anew at each step [1]_, and P is 1 or, ``preconditioned``, sqrt(mean V/V) with V = E g² [2]_. It is not exact:
    :mod:`pymc_gibbsnn.samplers.sgld` says what it samples, and which statistics a draw has. The model observes
    ``pm.Minibatch(X, y, batch_size=...)`` with ``total_size``; on a model without minibatches a warning says that
    gradients are exact.

    While a chain tunes, it is fitted (first half of the tuning), learns from its gradients what is not given (third
    quarter), and settles (last quarter), for which 2,000 tuning draws are enough. ``tune=0`` fits and learns nothing:
    it is for chains that start at a fitted point, with ``step_size`` given and ``preconditioned=False``.

    Parameters
    ----------
    vars : list of Variable, optional
        Free continuous variables to move; by default all of them.
    step_size : float, optional
        ε, positive, in squared units of the variables. By default it is learned while the chain tunes, such that
        variances are too large by about a tenth at most.
    preconditioned : bool
        Whether each coordinate has a scale of its own, which is learned while the chain tunes, as in the optimiser
        RMSprop.
    temperature : float
        T, positive, without units: the target is the posterior to the power 1/T.
    decay : (float, float), optional
        a, positive and in steps, and γ, in [0, 1], of a step size that falls as (1 + k/a)^(−γ) with the number k of
        steps after tuning; not together with ``cycle``. Draws are then to be weighted by the statistic ``step_size``.
    cycle : int, optional
        The number of steps, at least 2, of a cycle [4]_, in which the step size falls from its largest value to 0 by a
        cosine, and in the first half of which no noise is injected. If ``sweeps_per_draw`` is the same number, each
        draw is the end of a cycle. A learned step size begins ten times as large.
    control_variates : mapping of str to array, optional
        A fitted point around which the gradient's noise is reduced [3]_: a value of each variable that is moved, in its
        shape, by the name of its value variable, on the transformed scale where there is a transform (``sigma_log__``).
        It needs minibatches.
    start : {"adam", None}
        "adam" fits the model in the first half of the tuning, beginning where the chain starts; None does not, and
        learning begins at once.
    sweeps_per_draw : int
        How many steps are made for each recorded draw: thinning inside the step.
    model, initial_point, compile_kwargs, rng, blocked
        As for any PyMC step method; see :class:`~pymc_gibbsnn.drivers.step.GraphStep`.

    Raises
    ------
    TypeError
        If an argument is of another type than asked for, or there is no such argument.
    ValueError
        If a variable is discrete or not of the model, a number is out of range, ``decay`` and ``cycle`` are both given,
        ``start`` is another word, a prior depends on a minibatch, inputs and targets are batches of different rows, a
        batch is larger than the data, ``total_size`` is missing or is not the number of rows, or ``control_variates``
        lack a variable, have another shape, are not finite or are given to a model that observes no minibatch.
    FloatingPointError, RuntimeError
        While sampling, as :class:`~pymc_gibbsnn.drivers.step.GraphStep` says.

    References
    ----------
    .. [1] M. Welling, Y. W. Teh. Bayesian learning via stochastic gradient Langevin dynamics. ICML (2011).
    .. [2] C. Li, C. Chen, D. Carlson, L. Carin. Preconditioned stochastic gradient Langevin dynamics for deep neural
       networks. AAAI (2016).
    .. [3] J. Baker, P. Fearnhead, E. B. Fox, C. Nemeth. Control variates for stochastic gradient MCMC. Statistics and
       Computing 29 (2019).
    .. [4] R. Zhang, C. Li, J. Zhang, C. Chen, A. G. Wilson. Cyclical stochastic gradient MCMC for Bayesian deep
       learning. ICLR (2020).

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_gibbsnn as pmg
    >>> X = np.random.default_rng(1).normal(size=(50, 3))
    >>> labels = (X[:, 0] > 0).astype(int)
    >>> with pmg.classical_mlp(X, labels, 10, activation="relu", batch_size=25, total_size=50):
    ...     idata = pm.sample(100, tune=1000, step=pmg.SGLD(sweeps_per_draw=100))  # doctest: +SKIP
    """

    name = "sgld"

    @staticmethod
    @options_of(sgld)
    def build_transition(model: pm.Model, vars: Sequence[Variable] | None, **options: Any) -> Transition:
        """Build the transition on a plain target."""
        target = BatchedTarget(model, vars)
        transition = sgld(target, **options)
        _warn_of_exact_gradients("SGLD", target)
        return transition


class SGHMC(GraphStep):
    """Stochastic-gradient Hamiltonian Monte Carlo (SGHMC), scale-adapted, on any model that observes minibatches.

    A step changes a velocity v to (1 − α) v − η g + sqrt(2 η (α T − η b)) n with n ~ N(0, I), where nothing is injected
    if the root is of a negative number, and then θ to θ + v. Here g is the gradient of −log π on a batch that is drawn
    anew at each step [1]_ [2]_. It is not exact: :mod:`pymc_gibbsnn.samplers.sghmc` says what it samples, and which
    statistics a draw has. Models are those of :class:`SGLD`.

    While a chain tunes, it is fitted (first half of the tuning), learns from its gradients what is not given (third
    quarter), and settles (last quarter), for which 2,000 tuning draws are enough. ``tune=0`` fits and learns nothing:
    it is for chains that start at a fitted point, with ``step_size`` and ``noise_estimate`` given and
    ``preconditioned=False``.

    Parameters
    ----------
    vars : list of Variable, optional
        Free continuous variables to move; by default all of them.
    step_size : float, optional
        ε, positive, in the units of the variables, in η = ε² P with P the scales of the coordinates. By default it is
        learned while the chain tunes.
    friction : float
        α, the share of the velocity that is lost in a step, in (0, 1].
    noise_estimate : float, optional
        b, at least 0, half the variance of the gradient's noise, in inverse squared units of the variables, which need
        not be injected; 0 is the simplest choice of the first paper. By default that of each coordinate is learned.
    preconditioned : bool
        Whether each coordinate has a scale of its own, which is learned while the chain tunes. ``SGHMC(step_size=...,
        noise_estimate=0, preconditioned=False)`` is the algorithm of the first paper with unit mass.
    cycle : int, optional
        As in :class:`SGLD`, but it is ε² that falls by the cosine; a learned ε begins twice as large.
    temperature, control_variates, start, sweeps_per_draw
        As in :class:`SGLD`.
    model, initial_point, compile_kwargs, rng, blocked
        As for any PyMC step method; see :class:`~pymc_gibbsnn.drivers.step.GraphStep`.

    Raises
    ------
    TypeError, ValueError
        As in :class:`SGLD`.
    FloatingPointError, RuntimeError
        While sampling, as :class:`~pymc_gibbsnn.drivers.step.GraphStep` says.

    References
    ----------
    .. [1] T. Chen, E. B. Fox, C. Guestrin. Stochastic gradient Hamiltonian Monte Carlo. ICML (2014).
    .. [2] J. T. Springenberg, A. Klein, S. Falkner, F. Hutter. Bayesian optimization with robust Bayesian neural
       networks. NeurIPS (2016).

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_gibbsnn as pmg
    >>> X = np.random.default_rng(1).normal(size=(50, 3))
    >>> labels = (X[:, 0] > 0).astype(int)
    >>> with pmg.classical_mlp(X, labels, 10, activation="relu", batch_size=25, total_size=50):
    ...     idata = pm.sample(100, tune=1000, step=pmg.SGHMC(sweeps_per_draw=100))  # doctest: +SKIP
    """

    name = "sghmc"

    @staticmethod
    @options_of(sghmc)
    def build_transition(model: pm.Model, vars: Sequence[Variable] | None, **options: Any) -> Transition:
        """Build the transition on a plain target."""
        target = BatchedTarget(model, vars)
        transition = sghmc(target, **options)
        _warn_of_exact_gradients("SGHMC", target)
        return transition


class ConstantSGD(GraphStep):
    """Stochastic gradient descent at the constant rate for which its own noise makes it a sampler.

    A step is θ − h g, where g is the gradient of −log π on a batch that is drawn anew at each step. The rate is
    h = T D/tr B or, if ``diagonal``, T/b_j for each coordinate, with 2B the covariance of the noise of g, b the
    diagonal of B and D the number of coordinates (theorem 1 and corollary 1 of [1]_); it is at most what keeps the
    chain stable. The sampler is not exact: :mod:`pymc_gibbsnn.samplers.constant_sgd` says what it samples. Models are
    those of :class:`SGLD`; without minibatches there would be no noise, and the model is refused.

    While a chain tunes, it is fitted (first half of the tuning), learns B from its gradients (third quarter), and
    settles (last quarter), for which 2,000 tuning draws are enough. Since B is always learned, ``tune=0`` fails.

    Parameters
    ----------
    vars : list of Variable, optional
        Free continuous variables to move; by default all of them.
    diagonal : bool
        Whether each coordinate has a rate of its own.
    cycle : int, optional
        The number of steps, at least 2, of a cycle as in :class:`SGLD`, in which the rate falls from h to 0 by a
        cosine. No noise is injected at any time.
    temperature, start, sweeps_per_draw
        As in :class:`SGLD`; the temperature multiplies the rates.
    model, initial_point, compile_kwargs, rng, blocked
        As for any PyMC step method; see :class:`~pymc_gibbsnn.drivers.step.GraphStep`.

    Raises
    ------
    TypeError
        As in :class:`SGLD`.
    ValueError
        As in :class:`SGLD`, and if the model observes no minibatch.
    FloatingPointError, RuntimeError
        While sampling, as :class:`~pymc_gibbsnn.drivers.step.GraphStep` says.

    References
    ----------
    .. [1] S. Mandt, M. D. Hoffman, D. M. Blei. Stochastic gradient descent as approximate Bayesian inference. JMLR 18
       (2017).

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_gibbsnn as pmg
    >>> X = np.random.default_rng(1).normal(size=(50, 3))
    >>> labels = (X[:, 0] > 0).astype(int)
    >>> with pmg.classical_mlp(X, labels, 10, activation="relu", batch_size=25, total_size=50):
    ...     idata = pm.sample(100, tune=1000, step=pmg.ConstantSGD(sweeps_per_draw=100))  # doctest: +SKIP
    """

    name = "constant_sgd"

    @staticmethod
    @options_of(constant_sgd)
    def build_transition(model: pm.Model, vars: Sequence[Variable] | None, **options: Any) -> Transition:
        """Build the transition on a plain target."""
        target = BatchedTarget(model, vars)
        _refuse_exact_gradients("ConstantSGD", target)
        return constant_sgd(target, **options)


class ISGD(GraphStep):
    """Isotropic SGD (I-SGD): Langevin steps at a rate that follows from the noise of the gradient itself.

    Nothing has to be set by hand. A step is θ − (T/λ) (g + √2 C^{1/2} n) with n ~ N(0, I), where g is the gradient of
    −log π on a batch that is drawn anew at each step, and C fills its noise up to the same size λ in all directions:
    C = λ − b, with b half the variances of the noise of g (algorithm 2 of [1]_). It is not exact:
    :mod:`pymc_gibbsnn.samplers.isgd` says what it samples, and which statistics a draw has. Models are those of
    :class:`SGLD`; without minibatches the gradient has no noise, and the model is refused.

    Parameters share a λ in groups. For ``noise="alpha"`` each variable, such as W1 or b1, is a group, and λ is at least
    its largest b. For "gaussian" groups are the layers of a network that :func:`classical_mlp` could have written, and
    the variables of any other model, and λ is at least the sum of b over the group.

    While a chain tunes, it is trained and learns λ from its gradients, as ``scheme`` and ``start`` say, in the first
    three quarters of the tuning, and settles in the last one, for which 2,000 tuning draws are enough. Since λ is
    always learned, ``tune=0`` fails.

    Parameters
    ----------
    vars : list of Variable, optional
        Free continuous variables to move; by default all of them.
    noise : {"alpha", "gaussian"}
        How the noise is learned: by the Gaussian closest to an α-stable distribution, for weights and biases apart; or
        by mean squares, summed over a layer, which is a looser bound and gives smaller steps.
    scheme : {"A", "B", "C"}
        Whether the noise is learned while the chain is trained from its start, while it is trained on from a fitted
        point, or at a fitted point where it stays.
    rate : {"layer", "single"}
        Whether each group has a rate of its own, or all groups have one.
    temperature : float
        T, positive, without units, by which rates are multiplied: the target is the posterior to the power 1/T.
    momentum : float
        μ of the moving average over windows of 200 gradients, or of 100 for "gaussian", in [0, 1).
    bound : {"eigenvalue", "diagonal"}
        Whether λ of "alpha" is at least the largest eigenvalue of the noise, or the largest element of its diagonal
        alone, as in the paper, with which the chain can diverge.
    cycle : int, optional
        The number of steps, at least 2, of a cycle as in :class:`SGLD`, in which the rate falls from T/λ to 0 by a
        cosine, and in the first half of which no noise is injected.
    start : {"adam", None}
        For the schemes "B" and "C": "adam" fits the model in the first half of the tuning, and the noise is learned in
        the third quarter; None takes the chain's own start for a fitted point, and learning begins at once. Scheme "A"
        learns from the start in any case. It trains by Adam, as "B" does, until three quarters of the tuning are over.
    sweeps_per_draw : int
        How many steps are made for each recorded draw: thinning inside the step, the "keep every" of the paper.
    model, initial_point, compile_kwargs, rng, blocked
        As for any PyMC step method; see :class:`~pymc_gibbsnn.drivers.step.GraphStep`.

    Raises
    ------
    TypeError
        As in :class:`SGLD`.
    ValueError
        As in :class:`SGLD`, and if a choice is none of those above, or the model observes no minibatch, or batches of
        one row with "gaussian".
    FloatingPointError, RuntimeError
        While sampling, as :class:`~pymc_gibbsnn.drivers.step.GraphStep` says.

    References
    ----------
    .. [1] G. Franzese, R. Candela, D. Milios, M. Filippone, P. Michiardi. Isotropic SGD: a practical approach to
       Bayesian posterior sampling. arXiv 2006.05087 (2020).

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_gibbsnn as pmg
    >>> X = np.random.default_rng(1).normal(size=(50, 3))
    >>> labels = (X[:, 0] > 0).astype(int)
    >>> with pmg.classical_mlp(X, labels, 10, activation="relu", batch_size=25, total_size=50):
    ...     idata = pm.sample(100, tune=1000, step=pmg.ISGD(sweeps_per_draw=100))  # doctest: +SKIP
    """

    name = "isgd"

    @staticmethod
    @options_of(isgd)
    def build_transition(model: pm.Model, vars: Sequence[Variable] | None, **options: Any) -> Transition:
        """Build the transition on a plain target."""
        target, is_gaussian = BatchedTarget(model, vars), options.get("noise") == "gaussian"
        _refuse_exact_gradients("ISGD", target)
        if is_gaussian and target.batches.size == 1:
            raise ValueError(
                "noise='gaussian' takes the gradient of a batch for nearly Gaussian; found batches of one row: take "
                "batches of some tens of rows, or noise='alpha'."
            )
        return isgd(target, _groups(model, target, together=is_gaussian), **options)


def _groups(model: pm.Model, target: PlainTarget, together: bool) -> dict[str, list[int]]:
    """Group the target's variables, by number: a layer's weights and bias together, or each variable by itself."""
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
    """Refuse a model without minibatches, for a sampler that needs the noise of gradients."""
    if target.batches is None:
        raise ValueError(
            f"{sampler} takes its step size from the noise of gradients on minibatches, and the model observes none: "
            f"X_batch, y_batch = pm.Minibatch(X, y, batch_size=...), observed with total_size=; or take MALA, which is "
            f"exact."
        )


def _warn_of_exact_gradients(sampler: str, target: PlainTarget) -> None:
    """Warn of a model without minibatches, for a sampler that works there but is not worth it."""
    if target.batches is None:
        warnings.warn(
            f"The model observes no minibatch, so that the gradient is exact, and {sampler} still is not: its error is "
            f"that of its step size. MALA costs as much and is exact.",
            UserWarning,
            stacklevel=4,
        )
