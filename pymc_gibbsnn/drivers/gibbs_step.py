"""The Gibbs sampler of noisy networks as a PyMC step method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pymc as pm
from pytensor.graph.basic import Variable

from pymc_gibbsnn.drivers.step import GraphStep, options_of
from pymc_gibbsnn.drivers.thinning import AUTO
from pymc_gibbsnn.networks.reader import read_networks
from pymc_gibbsnn.samplers.gibbs import gibbs
from pymc_gibbsnn.samplers.transition import Transition

__all__ = ["GibbsNN"]


class GibbsNN(GraphStep):
    """Gibbs sampling of noisy networks, with Gaussian noise on every pre- and post-activation, as a PyMC step method.

    The model is that of :func:`mlp` [1]_, written in one call or by hand: latents Z ~ N(A Wᵀ + b, ΔZ) and
    A ~ N(σ(Z), ΔA), which are free variables of the model. One sweep draws all weights and latents, each block from its
    conditional distribution given the others; only pre-activations below a smooth activation, such as tanh, take
    Metropolis steps. Further moves, of scales and by interweaving, also leave the posterior invariant; they take the
    chain along narrow ridges of the posterior, where drawing one block at a time would be slow.
    :mod:`pymc_gibbsnn.samplers.gibbs` states the sweep line by line, and the statistics that a draw has.

    Parameters
    ----------
    vars : list of Variable, optional
        The free variables of the networks to move; by default those of all networks of the model.
    collapse : bool
        Whether to integrate post-activations out when pre-activations, and learned variances of noise, are drawn. False
        gives Algorithm 1 of the paper.
    scale_move : bool
        Whether to draw the scale of each unit, where the activation allows it, and to move that of the last weights
        below class labels. Without ``interweave`` and far from equilibrium this does harm: see
        :mod:`pymc_gibbsnn.moves.centred_scale`.
    interweave : {"auto", "pieces", "langevin", False}
        How to move the weights of each unit together with its pre-activations, by a Metropolis step that lets the
        outputs of the network decorrelate in tens of sweeps instead of thousands. "pieces" proposes from the exact
        Gaussian on the linear pieces of the activation, unit by unit; "langevin" takes one preconditioned step for all
        units, whose size is tuned while the chain tunes. "auto" chooses for each layer, by its number of inputs. False
        leaves these moves out.
    schedule : {"sequential", "layer-parallel"}
        The order of the sweep: layer by layer, or all weights, then all post-activations, then all pre-activations,
        with layers of one shape drawn as one batch. The latter, for deep networks on wide machines, needs
        ``collapse=False`` and ``interweave=False``.
    anneal : "auto", float or None
        How a chain that starts far from equilibrium gets there. "auto" acts only if all weights are 0 at the start,
        which is where PyMC starts chains by itself; any other start was chosen by the user and is left as it is. Where
        the network is not too large (without convolutions up to some 3,000 weights, and no class labels) and its noise
        is known, it fits the network without noise to the data, or to a random part of many images, before the first
        tuning step, and starts the chain there (:mod:`pymc_gibbsnn.starts.fitted_start`). So it does with learned
        noise in regressions by dense layers of up to 1,500 weights; learned variances then start where they suit the
        fit. Networks that are not fitted are annealed: variances of the noise that are not learned, if any, fall over
        the tuning steps from that of the data to their own values (:mod:`pymc_gibbsnn.starts.annealing`); ``lp`` is
        then that of the network with more noise. Make 1,000 tuning steps for "auto". A number is a variance, such as 1,
        in squared units of the latents, from which noise that is not learned falls whatever the start and the network;
        make 2,000 tuning steps for it. None, and ``tune=0``, switch both off.
    sweeps_per_draw : "auto" or int
        How many sweeps are made for each draw, those of the tuning included: thinning inside the step. "auto" chooses
        while the chain tunes, from the autocorrelation of outputs at 20 rows of the data, the log density and learned
        scales, so that all draws together have an effective sample size of 400 or more, with at most 10 sweeps a
        draw and fewer for large networks and data (:mod:`pymc_gibbsnn.drivers.thinning`). The statistic
        ``sweeps_per_draw`` holds the choice. Without tuning steps it is 1, or after :func:`continue_from` that of the
        chains before.
    model, initial_point, compile_kwargs, rng, blocked
        As for any PyMC step method; see :class:`~pymc_gibbsnn.drivers.step.GraphStep`.

    Raises
    ------
    NetworkError
        If the model holds no network that can be read, or data that do not fit it; the message names the variable.
    TypeError
        If an argument is of another type than asked for, or there is no such argument.
    ValueError
        If an argument has no such choice, or choices do not go together.
    FloatingPointError, RuntimeError
        While sampling, as :class:`~pymc_gibbsnn.drivers.step.GraphStep` says.

    References
    ----------
    .. [1] G. Piccioli, E. Troiani, L. Zdeborová. Gibbs sampling the posterior of neural networks. arXiv 2306.02729.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_gibbsnn as pmg
    >>> X = np.random.default_rng(1).normal(size=(50, 3))
    >>> with pmg.mlp(X, X[:, 0] ** 2, hidden=5):
    ...     idata = pm.sample(1000, step=pmg.GibbsNN(), var_names=pmg.without_latents())  # doctest: +SKIP
    """

    name = "gibbs_nn"
    default_sweeps = AUTO

    @staticmethod
    @options_of(gibbs)
    def build_transition(model: pm.Model, vars: Sequence[Variable] | None, **options: Any) -> Transition:
        """Build the sweep over the networks of a model."""
        return gibbs(read_networks(model, vars), **options)
