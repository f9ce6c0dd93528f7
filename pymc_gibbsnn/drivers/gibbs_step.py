"""The Gibbs sampler of noisy networks as a PyMC step method."""

from __future__ import annotations

from collections.abc import Sequence

import pymc as pm
from pytensor.graph.basic import Variable

from pymc_gibbsnn.drivers.step import GraphStep
from pymc_gibbsnn.networks.reader import read_networks
from pymc_gibbsnn.samplers.gibbs import gibbs
from pymc_gibbsnn.samplers.transition import Transition

__all__ = ["GibbsNN"]


class GibbsNN(GraphStep):
    """Gibbs sampling of a noisy network.

    See :mod:`pymc_gibbsnn.samplers.gibbs` for the sweep and its statistics.

    Parameters
    ----------
    vars : list of Variable, optional
        The free variables of the network, if the model holds more than one network.
    collapse : bool
        Integrate post-activations out when pre-activations are drawn. False gives Algorithm 1 of the paper.
    scale_move : bool
        Draw the scale of each unit exactly, where the activation allows it.
    interweave : {"auto", "pieces", "langevin", False}
        Move the weights of each unit together with its pre-activations: a Metropolis step that lets the outputs of the
        network decorrelate in tens of sweeps instead of thousands. "pieces" proposes from the exact Gaussian on the
        linear pieces of the activation, unit by unit; "langevin" takes one preconditioned step for all units, whose
        size is tuned while the chain tunes. "auto" chooses for each layer, by its number of inputs.
    schedule : {"sequential", "layer-parallel"}
        Order of the sweep: layer by layer, or all weights, then all post-activations, then all pre-activations, layers
        of one shape as one batch. The latter, for deep networks on wide machines, needs ``collapse=False`` and
        ``interweave=False``.
    anneal : float, optional
        A variance, such as 1, from which every smaller noise falls geometrically to its own value over the tuning
        steps: chains that start far from equilibrium then rarely get stuck. Give ``pm.sample`` some thousand tuning
        steps. During tuning ``lp`` is that of the hotter network.
    sweeps_per_draw : int
        Sweeps between two recorded draws: thinning inside the step.
    model, initial_point, compile_kwargs, rng, blocked
        As for any PyMC step method; see :class:`GraphStep`.

    Raises
    ------
    NetworkError
        If the model holds no network that can be read, or data that do not fit it.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     idata = pm.sample(step=pmg.GibbsNN(), var_names=["W1", "b1", "W2"])
    """

    name = "gibbs_nn"

    @staticmethod
    def build_transition(
        model: pm.Model,
        vars: Sequence[Variable] | None,
        *,
        collapse: bool = True,
        scale_move: bool = True,
        interweave: str | bool = "auto",
        schedule: str = "sequential",
        anneal: float | None = None,
    ) -> Transition:
        """The sweep on the networks of a model."""
        return gibbs(
            read_networks(model, vars),
            collapse=collapse,
            scale_move=scale_move,
            interweave=interweave,
            schedule=schedule,
            anneal=anneal,
        )
