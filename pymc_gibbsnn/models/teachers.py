"""Teachers: networks drawn from the prior of a model, which label data for a student, the model that observes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors

from pymc_gibbsnn._arguments import boolean, describe, whole, widths
from pymc_gibbsnn.models.mlp import mlp
from pymc_gibbsnn.networks.given import is_given
from pymc_gibbsnn.networks.likelihoods import NOISY
from pymc_gibbsnn.networks.network import Network, NetworkError, evaluate
from pymc_gibbsnn.networks.reader import read_network
from pymc_gibbsnn.prediction.function import forward, function_evaluator
from pymc_gibbsnn.prediction.inputs import Inputs, find_observed

__all__ = ["TeacherStudent", "check_teacher", "teacher_student"]


@dataclass(frozen=True, eq=False)
class TeacherStudent:
    """A student model that observes the labels of a teacher drawn from the student's own prior.

    :func:`teacher_student` makes it, and :func:`thermalisation` runs chains on it (Piccioli, Troiani, Zdeborová, arXiv
    2306.02729, section II).

    Parameters
    ----------
    model : pm.Model
        The student. If it is a noisy network, it also holds the deterministic variable ``score``: the mean, over all
        weights W of the first layer, of Δ ∂ log P/∂W, where Δ is the noise variance of that layer and P the joint
        density. Its mean in equilibrium is 0.
    teacher : dict of str to array
        Values of all free variables of the model, latents included, by their names. With noisy labels they are one
        exact draw from the posterior.
    X : array of shape (n, d)
        Inputs of the model. Images have the shape that they have in the model's data.
    y : array of shape (n,) or (n, k)
        The teacher's labels at X, which the model observes.
    X_test : array of shape (n_test, d)
        Further inputs, for tests.
    f_test : array of shape (n_test,) or (n_test, k)
        The teacher's function at X_test, without noise.

    Examples
    --------
    >>> import pymc_gibbsnn as pmg
    >>> study = pmg.teacher_student((3, 4, 1), n=20, n_test=5, noise=0.01, random_seed=1)
    >>> study.X.shape, study.X_test.shape
    ((20, 3), (5, 3))
    """

    model: pm.Model
    teacher: dict[str, np.ndarray]
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    f_test: np.ndarray


def teacher_student(
    model: pm.Model | Sequence[int],
    n: int | None = None,
    n_test: int = 2000,
    *,
    noisy: bool = True,
    random_seed: int | np.random.Generator | None = None,
    **architecture,
) -> TeacherStudent:
    """Draw a teacher from a model's prior and labels from the teacher, and let the model observe them.

    The teacher is θ* ~ P(θ) and its labels are y* ~ P(y | θ*, X) [1]_. Since (θ*, y*) is a draw from the joint
    distribution, θ* is one exact draw from the posterior P(θ | y*): a chain that starts there starts in equilibrium.

    Parameters
    ----------
    model : pm.Model or sequence of int
        Any model with one observed variable, of which a copy is made; or the widths (d, ..., k) of the layers, from the
        inputs to the outputs, of a noisy network that :func:`mlp` then writes, (50, 10, 1) say.
    n : int, optional
        How many inputs to draw from a standard Gaussian. A model needs its inputs and observations in ``pm.Data`` for
        this; by default it keeps its own inputs. Widths need ``n``.
    n_test : int
        How many test inputs to draw. They are Gaussian, with the means and standard deviations of the columns of the
        inputs if a model keeps its own, and standard otherwise.
    noisy : bool
        False leaves out the noise of the labels and, of a network that can be read, of the latents. The teacher is then
        only approximately a draw from the posterior.
    random_seed : int or numpy.random.Generator, optional
        The seed of all draws.
    **architecture
        With widths, arguments of :func:`mlp`: ``noise`` (by default 0.1), ``prior`` (by default None), ``activation``,
        ``likelihood`` and ``bias``.

    Returns
    -------
    TeacherStudent
        The model that observes the labels, the teacher's values, and the data: see there.

    Raises
    ------
    TypeError
        If ``model`` is neither a model nor widths, or another argument is of another type than asked for.
    ValueError
        If a number or the widths make no sense, arguments of :func:`mlp` are given together with a model, or labels
        without noise are asked of a likelihood that has none, such as class labels of a model that is no network of
        this package.
    NetworkError
        If the inputs of the model cannot be found or changed, or it has not exactly one observed variable.

    References
    ----------
    .. [1] G. Piccioli, E. Troiani, L. Zdeborová. Gibbs sampling the posterior of neural networks. arXiv 2306.02729,
       section II.

    Examples
    --------
    >>> import pymc_gibbsnn as pmg
    >>> study = pmg.teacher_student((3, 4, 1), n=20, noise=0.01, random_seed=1)
    >>> sorted(study.teacher)
    ['A2', 'W1', 'W2', 'Z2', 'b1', 'b2']
    """
    n, n_test, noisy = None if n is None else whole("n", n), whole("n_test", n_test), boolean("noisy", noisy)
    rng = np.random.default_rng(random_seed)
    if isinstance(model, pm.Model):
        if architecture:
            raise ValueError(f"{sorted(architecture)} describe a network that is given by its widths, not a model.")
        model = model.copy()
    else:
        model = _student(model, n, architecture)
    try:
        network = read_network(model)
    except NetworkError:
        network = None
    if len(model.observed_RVs) != 1:
        raise NetworkError(
            f"A teacher labels one observed variable; found {[rv.name for rv in model.observed_RVs]} in the model."
        )
    [observed] = model.observed_RVs
    if n is not None:
        _resize(model, observed, n, rng)
    names = [rv.name for rv in model.free_RVs]
    *values, y = pm.draw([*model.free_RVs, observed], random_seed=rng, mode="FAST_COMPILE")
    teacher = dict(zip(names, values, strict=True))
    X = _inputs(model, network)
    if not noisy and network is not None:
        teacher, y = _silenced(network, teacher)
    elif not noisy:
        if not observed.dtype.startswith("float"):
            raise ValueError(f"noisy=False: '{observed.name}' is no real number and has no value without noise.")
        y = _function(model, teacher)
    _observe(model, observed, y)
    X, y = np.array(X), np.array(evaluate(model.rvs_to_values[observed]))
    spread = {} if n is not None else {"loc": X.mean(0), "scale": X.std(0)}
    X_test = rng.normal(**spread, size=(n_test, *X.shape[1:]))
    if network is not None:
        network = read_network(model)  # again, because it now has new observations
        _add_score(model, network)
    return TeacherStudent(model, teacher, X, y, X_test, _function(model, teacher, X_test))


def _student(model: Sequence[int], n: int | None, architecture: dict) -> pm.Model:
    """Write a noisy network of these widths with n placeholders for data."""
    if isinstance(model, str) or not isinstance(model, Sequence | np.ndarray):
        raise TypeError(f"model must be a PyMC model or widths of layers, such as (5, 3, 1); found {describe(model)}.")
    sizes = widths("model", model, each="the widths of the layers from the inputs to the outputs")
    if len(sizes) < 2 or n is None:
        raise ValueError(f"Give widths (d, ..., k) of at least two layers, and n; found {sizes} and n={n}.")
    d, *hidden, k = sizes
    name = architecture.get("likelihood")
    has_classes = name in NOISY and NOISY[name][0].has_classes
    y = np.arange(n) % max(k, 2) if has_classes else np.zeros(n if k == 1 else (n, k))
    return mlp(np.zeros((n, d)), y, hidden, **({"noise": 0.1, "prior": None} | architecture))


def _resize(model: pm.Model, observed: Variable, n: int, rng: np.random.Generator) -> None:
    """Give a model n new standard Gaussian inputs, and zeros as observations for the time being.

    Parameters
    ----------
    model : pm.Model
        The model, which is changed.
    observed : Variable
        Its observed random variable.
    n : int
        The number of inputs.
    rng : numpy.random.Generator

    Raises
    ------
    NetworkError
        If the inputs cannot be found, or the observations are no ``pm.Data``.
    """
    data, targets = _input_data(model), _targets(model, observed)
    if targets is None:
        raise NetworkError(f"'{observed.name}' observes constants: let it observe a pm.Data to draw n={n} inputs.")
    data.set_value(rng.normal(size=(n, *data.get_value().shape[1:])).astype(data.dtype))
    targets.set_value(np.zeros((n, *targets.get_value().shape[1:]), targets.dtype))


def _inputs(model: pm.Model, network: Network | None) -> np.ndarray:
    """Return the inputs of a model as they are now.

    Those of a network that are images have the shape that they have in the model's data, which :func:`predict` takes.
    """
    if network is None:
        return _input_data(model).get_value()
    X, shapes = network.data(), network.layers[0].operator.input_shapes
    try:
        row = _input_data(model).get_value().shape[1:]
    except NetworkError:
        row = None
    return X.reshape(-1, *(row if row in shapes else shapes[0]))


def _input_data(model: pm.Model) -> SharedVariable:
    """Find the one ``pm.Data`` on which what a model observes depends, apart from the observations themselves."""
    inputs = Inputs(model, find_observed(model))
    if len(inputs.data) != 1:
        raise NetworkError(
            f"The inputs of '{inputs.observed.name}' must be one pm.Data beside its observations; found "
            f"{list(inputs.data)}."
            + (" The model observes minibatches: give the same model of all rows." if inputs.batches else "")
        )
    [data] = inputs.data.values()
    return data


def _targets(model: pm.Model, observed: Variable) -> SharedVariable | None:
    """The ``pm.Data`` that an observed variable observes; None if it observes constants."""
    return next((v for v in ancestors([model.rvs_to_values[observed]]) if v in set(model.data_vars)), None)


def _observe(model: pm.Model, observed: Variable, y: np.ndarray) -> None:
    """Let the observed variable of a model observe y."""
    targets = _targets(model, observed)
    if targets is not None:
        targets.set_value(y.astype(targets.dtype))
    else:
        value = model.rvs_to_values[observed]
        new = pt.constant(y.astype(value.dtype), name=value.name)
        del model.values_to_rvs[value]
        model.rvs_to_values[observed], model.values_to_rvs[new] = new, observed


def _function(model: pm.Model, teacher: Mapping[str, np.ndarray], X: np.ndarray | None = None) -> np.ndarray:
    """Evaluate the teacher's function at inputs X; by default at the model's own inputs."""
    point = {name: np.asarray(value)[None, None] for name, value in teacher.items()}
    dims = {name: ("chain", "draw", *(f"{name}_{i}" for i in range(v.ndim - 2))) for name, v in point.items()}
    point = xr.Dataset({name: (dims[name], v) for name, v in point.items()}, coords={"chain": [0], "draw": [0]})
    return function_evaluator(model, X)(point)["output"].values[0, 0]


def _silenced(network: Network, teacher: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Replace the teacher's latents by their values without noise; return the teacher and its labels without noise."""
    teacher = dict(teacher)
    for l, (z, a) in enumerate(forward(network, teacher, network.data())):
        latents = {network.layers[l].output: z} | {part.output: a for part in network.activations[l : l + 1] if part}
        teacher |= {v.name: x.reshape(teacher[v.name].shape) for v, x in latents.items() if v.name in teacher}
    if network.observation is None:
        y = z
    elif network.observation.label is None:
        raise ValueError(f"noisy must be True: '{network.observation.name}' has no value without noise.")
    else:
        y = network.observation.label(z)
    return teacher, y.reshape(evaluate(network.observed).shape)


def _add_score(model: pm.Model, network: Network) -> None:
    """Add the deterministic ``score`` to a model: the mean over the weights W of the first layer of Δ ∂ log P/∂W."""
    if "score" in model.named_vars:
        return
    first = network.layers[0]
    with model:
        gradient = pt.grad(model.logp(), first.operator.weights)
        values = {}
        for rv in model.free_RVs:
            transform = model.rvs_to_transforms[rv]
            value = rv if transform is None else transform.forward(rv, *rv.owner.inputs)
            values[model.rvs_to_values[rv]] = value
        [score] = graph_replace([(first.noise * gradient).mean()], values, strict=False)
        pm.Deterministic("score", score)


def check_teacher(study: TeacherStudent) -> None:
    """Refuse a study whose teacher is no draw from the posterior of its model.

    Raises
    ------
    ValueError
        If the teacher has other variables than the model, the model observes other data than the teacher's labels, or
        the model is a network and the teacher's latents or labels are further from its function than the noise allows.
    """
    model = study.model
    shapes = {name: tuple(map(int, shape)) for name, shape in model.eval_rv_shapes().items()}
    shapes = {rv.name: shapes[rv.name] for rv in model.free_RVs}
    teacher_shapes = {name: np.shape(value) for name, value in study.teacher.items()}
    if teacher_shapes != shapes:
        wrong = sorted(name for name in {**teacher_shapes, **shapes} if teacher_shapes.get(name) != shapes.get(name))
        raise ValueError(f"The teacher does not belong to the model: {wrong} are in one of them, or differ in shape.")
    [observed] = model.observed_RVs
    try:
        network = read_network(model)
    except NetworkError:
        network = None
    X = _inputs(model, network)
    for name, now, then in (
        ("the inputs", X, study.X),
        (f"'{observed.name}'", evaluate(model.rvs_to_values[observed]), study.y),
    ):
        if not np.array_equal(now, then):
            raise ValueError(
                f"The model holds other data than the study as {name}: the teacher is no draw of its posterior. "
                f"Use the model that teacher_student returned, and set no data in it."
            )
    if network is not None:
        _check_noise(network, study)


def _check_noise(network: Network, study: TeacherStudent) -> None:
    """Refuse a teacher in which the mean square of a variable's noise exceeds the variance of that noise.

    Their ratio is about 1, or 0 for a teacher without noise; six standard deviations above 1 are allowed.

    Raises
    ------
    ValueError
        If a ratio is larger.
    """
    if network.row_scale is not None:  # which may depend on the data
        return
    values = study.teacher | {network.observed.name: study.y}
    if network.observation is None:
        values[network.layers[-1].output.name] = study.y
    a = study.X.reshape(len(study.X), -1)
    for layer, part in zip_longest(network.layers, network.activations):
        mean = layer.operator.forward(a, layer.operator.named_matrix(study.teacher))
        z = a = values[layer.output.name].reshape(mean.shape)
        parts = [(layer.name, z - mean, layer.noise)]
        if part:
            a = values[part.output.name].reshape(mean.shape)
            parts.append((part.name, a - part.function(z), part.noise))
        for name, noise, variance in parts:
            if not is_given(variance) or (name == layer.name and layer.offset is not None):
                continue  # the distribution of this noise depends on other variables of the model
            ratio = np.mean(noise**2) / evaluate(variance)
            if ratio > 1 + 6 * np.sqrt(2 / noise.size):
                raise ValueError(
                    f"The teacher does not belong to the model: its '{name}' has {ratio:.3g} times the variance of the "
                    f"model's noise."
                )
