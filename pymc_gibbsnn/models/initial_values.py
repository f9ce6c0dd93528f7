"""Starting values of a chain at which all variables of a model agree with one another."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike

from pymc_gibbsnn._arguments import describe, model_of, one_of, whole
from pymc_gibbsnn.networks.forms import NetworkError, evaluate
from pymc_gibbsnn.networks.input_reader import variable_inputs
from pymc_gibbsnn.networks.network import Network
from pymc_gibbsnn.networks.reader import read_networks

__all__ = ["initial_values"]


def initial_values(
    model: pm.Model | None = None,
    kind: str = "prior",
    *,
    teacher: Mapping[str, ArrayLike] | None = None,
    chains: int | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> dict[str, np.ndarray] | list[dict[str, np.ndarray]]:
    """Make values of the free variables to start chains from, for ``pm.sample(initvals=...)`` or ``pmg.sample``.

    The values cover the variables of the noisy networks in the model; where it holds no network that can be read, they
    cover all free variables. Latents (noisy pre- and post-activations) agree with the weights and with class labels, so
    that the log density at the start is finite.

    Parameters
    ----------
    model : pm.Model, optional
        The model; by default that of the context.
    kind : {"zero", "prior", "informed"}
        - "zero": all weights and latents are 0, from which the Gibbs sampler may start. Transformed variables, such as
          variances, are left out, and so start where the model says.
        - "prior": weights and scales are drawn from their prior, and latents by running the network forwards. Where
          there are class labels, the entries of the last latent change places or signs so that they agree with them.
        - "informed": weights and scales are the teacher's. Latents that the teacher does not give are drawn from them
          by running the network forwards. If it gives all latents, an informed chain starts in equilibrium [1]_.
    teacher : mapping of str to array_like, optional
        For "informed": values, by the names of the variables in the model.
    chains : int, optional
        Return a list of that many starts, drawn independently.
    random_seed : int or numpy.random.Generator, optional
        The seed of the draws.

    Returns
    -------
    dict of str to array, or list of dict if ``chains`` is given
        Values by the names of the variables, in the shapes that these have in the model.

    Raises
    ------
    TypeError
        If an argument is of another type than asked for.
    ValueError
        If the kind is not known, ``chains`` is not positive, ``teacher`` is missing for "informed" or given for another
        kind, or the teacher lacks weights or scales, has a value that is not finite or of a wrong shape, or a name that
        the model does not have.

    References
    ----------
    .. [1] G. Piccioli, E. Troiani, L. Zdeborová. Gibbs sampling the posterior of neural networks. arXiv 2306.02729,
       section II.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_gibbsnn as pmg
    >>> model = pmg.mlp(np.random.normal(size=(20, 3)), np.arange(20.0), hidden=5)
    >>> starts = pmg.initial_values(model, "zero", chains=2)
    >>> len(starts), starts[0]["Z2"].shape
    (2, (20, 5))
    """
    model = model_of(model)
    one_of("kind", kind, ("zero", "prior", "informed"))
    if (kind == "informed") != (teacher is not None):
        raise ValueError("kind='informed' needs teacher=, and only that kind takes one.")
    if teacher is not None and not isinstance(teacher, Mapping):
        raise TypeError(f"teacher must be a mapping of names of variables to their values; found {describe(teacher)}.")
    chains = None if chains is None else whole("chains", chains)
    rng = np.random.default_rng(random_seed)
    try:
        networks = read_networks(model)
    except NetworkError:
        networks = []
    moved = {v for network in networks for v in network.variables} or set(model.rvs_to_values.values())
    latents = {v.name for network in networks for v in network.latents}
    free = {rv.name: model.rvs_to_transforms[rv] for rv in model.free_RVs if model.rvs_to_values[rv] in moved}
    shapes = model.eval_rv_shapes()
    shapes = {name: tuple(map(int, shapes[name])) for name in free}
    given = _check_teacher(shapes, latents, teacher or {})
    known_inputs = _known_inputs(model, networks, given, rng)

    def start() -> dict[str, np.ndarray]:
        if kind == "zero":
            return {name: np.zeros(shape) for name, shape in shapes.items() if free[name] is None}
        values = _forward(model, shapes, given | known_inputs, rng)
        for network in networks:
            last = network.layers[-1].output.name
            if network.observation and last not in given:
                values[last] = network.observation.agreeing(values[last])
        return values

    return start() if chains is None else [start() for _ in range(chains)]


def _check_teacher(
    shapes: dict[str, tuple[int, ...]], latents: set[str], teacher: Mapping[str, ArrayLike]
) -> dict[str, np.ndarray]:
    """Check a teacher against the shapes of the model's variables; return its values as arrays.

    Only latents, whose names are in ``latents``, may be missing.
    """
    given = {name: np.asarray(value, dtype=float) for name, value in teacher.items()}
    for name, value in given.items():
        if name not in shapes:
            raise ValueError(
                f"teacher names '{name}', which is no free variable of the model's network; those are {list(shapes)}."
            )
        if value.shape != shapes[name] or not np.isfinite(value).all():
            raise ValueError(
                f"teacher's '{name}' must be finite and of shape {shapes[name]}; found shape {value.shape}."
            )
    missing = [name for name in shapes if name not in given and name not in latents]
    if given and missing:
        raise ValueError(f"teacher lacks {missing}; only latents may be left out.")
    return given


def _known_inputs(
    model: pm.Model, networks: list[Network], given: Mapping[str, ArrayLike], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Return known entries of inputs of which others are missing and, beside a teacher, a guess of those not known.

    Parameters
    ----------
    model : pm.Model
        The model.
    networks : list of Network
        Its networks.
    given : mapping of str
        What the teacher gives.
    rng : numpy.random.Generator
    """
    found = [one.known for one in variable_inputs(model) if one.known is not None]
    known = {rv.name: evaluate(model.rvs_to_values[rv]) for rv in found}
    for network in networks if given else ():
        if network.draws_inputs:
            inputs = network.random_inputs
            known |= {name: x for name, x in inputs.guessed_values(rng).items() if name not in given}
    return known


def _forward(
    model: pm.Model, shapes: dict[str, tuple[int, ...]], given: dict[str, np.ndarray], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Draw variables from the prior of a model, given the values of some of them.

    Parameters
    ----------
    model : pm.Model
        The model.
    shapes : dict of str to tuple of int
        Names and shapes of the variables that are wanted.
    given : dict of str to array
        Values of some of them.
    rng : numpy.random.Generator

    Returns
    -------
    dict of str to array
        The values that were given and those that were drawn.
    """
    if given:
        model = pm.do(model, given)
    names = [name for name in shapes if name not in given]
    draws = pm.draw([model[name] for name in names], random_seed=rng, mode="FAST_COMPILE") if names else []
    values = given | dict(zip(names, draws, strict=True))
    return {name: values[name] for name in shapes}
