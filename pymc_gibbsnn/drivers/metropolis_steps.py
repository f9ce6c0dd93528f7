"""Metropolis within blocked Gibbs as a PyMC step method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace

from pymc_gibbsnn._arguments import boolean
from pymc_gibbsnn._compat import observed_variables
from pymc_gibbsnn.drivers.step import GraphStep
from pymc_gibbsnn.networks.deterministic import ClassicalNetwork, read_classical
from pymc_gibbsnn.networks.minibatch import Batches, check_minibatches, read_minibatches
from pymc_gibbsnn.networks.network import NetworkError
from pymc_gibbsnn.networks.reader import starting_point
from pymc_gibbsnn.samplers.blocks import flat_layers, network_layers, partition, unit_pieces
from pymc_gibbsnn.samplers.fnbg import fnbg, sweep_by_density
from pymc_gibbsnn.samplers.fnbg_network import sweep_by_units
from pymc_gibbsnn.samplers.transition import Transition
from pymc_gibbsnn.targets.plain import PlainTarget, continuous_variables
from pymc_gibbsnn.targets.target import of_given_numbers

__all__ = ["FNBG"]


class FNBG(GraphStep):
    """Metropolis within blocked Gibbs: sampling without gradients, block by block, of networks and of any other model.

    A sweep visits blocks q of the parameters θ in turn. It proposes θ_q + s_q ξ with ξ ~ N(0, I), and accepts with
    probability min(1, π(θ*)/π(θ)) [1]_. With parts of nodes as blocks this is the finer node-blocked Gibbs sampler
    (FNBG). :mod:`pymc_gibbsnn.samplers.fnbg` states the algorithm and the statistics that a draw has.

    In a classical network (dense layers and elementwise activations inside one Categorical, Bernoulli, Normal, Poisson
    or Binomial likelihood) a block within a node changes one pre-activation of each sample, and only what follows from
    it is computed again. For other blocks and models the whole log density is evaluated for every block.

    Where the likelihood observes ``pm.Minibatch(X, y, batch_size=...)``, a sweep draws one batch and moves all blocks
    on it. Such a chain is not exact, which the statistic ``exact``, 0, records: each batch accepts by a posterior of
    its own, and the draws spread more widely than the posterior; they do so less, the smaller the scales are.
    ``total_size`` counts as the model has it; without it the target is the prior times the likelihood of a batch, as
    in the paper.

    Parameters
    ----------
    vars : list of Variable, optional
        Continuous free variables to move; by default all of the model.
    blocks : {"node", "layer", "all"}, int, or sequence of sequences of int
        One block for each node (the incoming weights and the bias of a unit), one for each layer, or one for all; an
        integer cuts nodes into even pieces of at most that many parameters; or lists of parameters, numbered through
        the variables in the order of the model, as :func:`correlated_blocks` returns them. In a model that is no
        network each variable counts as a layer, and each stretch along its last axis as a node.
    scale : float or sequence of float, optional
        Standard deviations s_q of the proposals, in the units of the parameters: one number, one for each layer or one
        for each block, which are kept. By default that of each block is tuned while the chain tunes.
    target_accept : float
        The acceptance probability to which scales are tuned, between 0 and 1.
    stratify : bool
        Whether to draw minibatches in which each class has the same share as in the data, but for a row or two; for
        models that observe one minibatch of class labels.
    sweeps_per_draw : int
        How many sweeps are made for each recorded draw: thinning inside the step.
    model, initial_point, compile_kwargs, rng, blocked
        As for any PyMC step method; see :class:`~pymc_gibbsnn.drivers.step.GraphStep`.

    Raises
    ------
    TypeError
        If an argument is of another type than asked for, or there is no such argument.
    ValueError
        If blocks overlap or miss parameters, a scale is not positive, the target is not between 0 and 1, a variable is
        discrete or not of the model, ``stratify`` is asked of a model that does not observe one minibatch of class
        labels, a prior depends on a minibatch, or minibatches are larger than the data or of different rows.
    NetworkError
        If the data of a classical network do not fit it, such as labels that are no integers or out of range.
    FloatingPointError, RuntimeError
        While sampling, as :class:`~pymc_gibbsnn.drivers.step.GraphStep` says.

    References
    ----------
    .. [1] T. Papamarkou. The premise of approximate MCMC in Bayesian deep learning. arXiv 2208.11389, algorithm 2.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_gibbsnn as pmg
    >>> X = np.random.default_rng(1).normal(size=(50, 3))
    >>> labels = (X[:, 0] > 0).astype(int)
    >>> with pmg.classical_mlp(X, labels, [10, 10], batch_size=25):
    ...     idata = pm.sample(1000, tune=2000, step=pmg.FNBG(blocks=20))  # doctest: +SKIP
    """

    name = "fnbg"

    @staticmethod
    def build_transition(
        model: pm.Model,
        vars: Sequence[Variable] | None,
        *,
        blocks: str | int | Sequence[Sequence[int]] = "node",
        scale: float | Sequence[float] | None = None,
        target_accept: float = 0.35,
        stratify: bool = False,
    ) -> Transition:
        """Build the sweep, the fast one where blocks lie within the nodes of a classical network.

        Parameters
        ----------
        model : pm.Model
            The model.
        vars : sequence of Variable, optional
            The variables to move.
        blocks, scale, target_accept, stratify
            As in the class.
        """
        stratify = boolean("stratify", stratify)
        variables = continuous_variables(model, vars)
        check_minibatches(model, total_size_needed=False)
        point = starting_point(model)
        shapes = {v.name: point[v.name].shape for v in variables}
        network = _network(model, variables)
        layers = flat_layers(shapes) if network is None else network_layers(network.layers, shapes)
        parts = partition(blocks, layers)
        pieces = unit_pieces(parts, layers) if network and len(layers) == len(network.layers) else None
        if pieces is not None:
            batches, check = network.batches, network.check_data
            numbers = np.concatenate([layer.parameters for layer in layers])
            sweep, rows = sweep_by_units(network, numbers, pieces), None if batches else network.inputs
        else:
            target = of_given_numbers(PlainTarget, model, variables, total_size_needed=False)
            batches, check = target.batches, target.check if network is None else network.check_data
            sweep, rows = sweep_by_density(target, parts), None
        batches = _stratified(model, batches) if stratify else batches
        return fnbg(
            variables, sweep, parts, layers, scale=scale, target_accept=target_accept, batches=batches, check=check,
            rows=rows,
        )  # fmt: skip


def _network(model: pm.Model, variables: list[Variable]) -> ClassicalNetwork | None:
    """Read the classical network of a model if all its weights are among these variables; return None otherwise."""
    try:
        network = read_classical(model)
    except NetworkError:
        return None
    network.check_data()
    return network if set(network.variables) <= set(variables) else None


def _stratified(model: pm.Model, batches: Batches | None) -> Batches:
    """Stratify batches by the one vector of class labels of which the model observes a minibatch."""
    labels = []
    for rv in observed_variables(model):
        value = model.rvs_to_values[rv]
        [batch], own = read_minibatches([value])
        if own is not None and value.dtype.startswith("int") and value.ndim == 1:
            labels += clone_replace([batch], {own.index: pt.arange(own.rows)}, rebuild_strict=False)
    if len(labels) != 1:
        raise ValueError(
            f"stratify=True needs a model that observes one minibatch of class labels; found {len(labels)} of them."
        )
    return replace(batches, labels=labels[0])
