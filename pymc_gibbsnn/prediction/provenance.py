"""From which model draws come, in one number that travels with them, so that no other model reads them in silence.

The steps of this package record it at every draw as the statistic ``model_fingerprint``. It tells four parts of a model
apart: the activations, which are in the means of latents and data; the kind of the likelihood; the noise; and the
priors. Each is hashed to 13 bits, and a float of 64 bits holds the four of them exactly.

Expressions are compared by their values, not by how they are written. Each parameter of each random variable is
computed as if all axes had length one, so that products of matrices are those of numbers, at a few values of the other
random variables. What ``pm.set_data`` can change, such as inputs or a noise that is a ``pm.Data``, does not count; nor
does what is learned, which is among the draws. The means and scales by which :func:`pymc_gibbsnn.mlp` standardises are
such data, and are compared with those that were stored beside the draws.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from math import prod

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.graph.utils import MethodNotDefined
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.basic import NormalRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type import TensorType

from pymc_gibbsnn._arguments import describe, posterior_of
from pymc_gibbsnn._compat import dataset_of
from pymc_gibbsnn.networks.forms import shapes_of
from pymc_gibbsnn.networks.named_activations import NAMED
from pymc_gibbsnn.prediction.conditionals import distribution_node
from pymc_gibbsnn.prediction.draws_of import draws_of

__all__ = ["FINGERPRINT", "SCALES", "model_fingerprint", "posterior_for"]

FINGERPRINT = "model_fingerprint"
SCALES = ("X_mean", "X_scale", "y_mean")  # the data by which a model standardises
PARTS = ("activation", "likelihood", "noise", "prior")
BITS = 13
PROBES = np.array([0.3, 1.1, 3.7, 9.1, -0.45, -1.7])  # on all pieces of the activations that have names
DATA = np.full(len(PROBES), 1.3)

Parts = dict[str, dict[str, str]]  # for each part, what is compared of each random variable


def model_fingerprint(model: pm.Model) -> float:
    """Return the fingerprint of a model, a whole number."""
    return _packed(_parts(model))


def posterior_for(model: pm.Model, idata, name: str = "idata", thin: int = 1) -> xr.Dataset:
    """Return the posterior of what ``pm.sample`` or ``pmg.sample`` returned, if its draws are of this model.

    Draws without a fingerprint, such as those of other samplers, are not compared.

    Parameters
    ----------
    model : pm.Model
        The model.
    idata : InferenceData or DataTree
        What was returned.
    name : str
        What the user calls it.
    thin : int
        Every thin-th draw is taken.

    Raises
    ------
    TypeError, ValueError
        As :func:`~pymc_gibbsnn._arguments.posterior_of`.
    ValueError
        If the draws were made with another activation, likelihood, noise or prior, or if inputs or targets were
        standardised otherwise.
    """
    posterior = posterior_of(name, idata, thin)
    _refuse_other_scales(model, idata, name)
    stats = dataset_of(idata, "sample_stats") if "sample_stats" in idata else {}
    if FINGERPRINT not in stats:
        return posterior
    parts = _parts(model)
    here, fingerprints = _unpacked(_packed(parts)), np.unique(np.asarray(stats[FINGERPRINT], float))
    for there in map(_unpacked, fingerprints[np.isfinite(fingerprints)]):
        other = [f"another {part}" for part in PARTS if there[part] != here[part]]
        if not other:
            continue
        is_other_model = len(other) == len(PARTS)
        if there["likelihood"] != here["likelihood"]:  # its mean and noise are parts of the others, which tell no more
            other = [words for words in other if words in ("another likelihood", "another prior")]
        shapes = shapes_of(model.free_RVs)
        for variable in parts["prior"].keys() & posterior.keys():  # which may say more
            draws_of(posterior, model, variable, shapes[variable])
        names = [_activation(model, parts, one["activation"]) for one in (there, here)]
        if other[0] == "another activation" and all(names):
            other[0] = f"the activation {names[0]}, where this one has {names[1]}"
        which = "another model" if is_other_model else f"a model with {'; '.join(other)}"
        raise ValueError(
            f"The draws of {name} are those of {which}: give the model that was sampled. To "
            f"read them with this one all the same, drop '{FINGERPRINT}' from their sample_stats."
        )
    return posterior


def _refuse_other_scales(model: pm.Model, idata, name: str) -> None:
    """Raise ValueError if the model whose draws these are standardised its data otherwise."""
    stored = dataset_of(idata, "constant_data") if "constant_data" in idata else {}
    for which in (one for one in SCALES if one in stored and one in model.named_vars):
        here, there = model[which].get_value(), stored[which].values
        if here.shape != there.shape or not np.allclose(here, there, rtol=1e-6, atol=0):
            raise ValueError(
                f"The draws of {name} are those of a model that standardised its data otherwise: its '{which}' was "
                f"{describe(there.tolist())}, and that of this model is {describe(here.tolist())}. Give the model that "
                f"was sampled."
            )


def _packed(parts: Parts) -> float:
    """Hash each part to a few bits, and put them side by side."""
    hashes = (hashlib.sha256(repr(sorted(parts[part].items())).encode()).digest() for part in PARTS)
    return float(sum((int.from_bytes(x[:4], "big") % 2**BITS) << (BITS * i) for i, x in enumerate(hashes)))


def _unpacked(fingerprint: float) -> dict[str, int]:
    """Return the hash of each part."""
    return {part: (int(fingerprint) >> (BITS * i)) % 2**BITS for i, part in enumerate(PARTS)}


def _parts(model: pm.Model) -> Parts:
    """Describe the random variables of a model."""
    parts: Parts = {part: {} for part in PARTS}
    known, with_rows = _probes(model), set()
    for rv in model.basic_RVs:
        node, name = distribution_node(rv), rv.name
        random = isinstance(node.op, RandomVariable)
        inputs = node.op.dist_params(node) if random else [v for v in node.inputs if isinstance(v.type, TensorType)]
        values, in_rows = _values(inputs, known, with_rows, rv.ndim)
        is_normal, is_observed = isinstance(node.op, NormalRV), rv in model.observed_RVs
        if is_observed or any(v in in_rows for v in (inputs[:1] if is_normal else inputs)):
            with_rows.add(rv)
            of_mean = [v for i, v in enumerate(inputs) if (i == 0 if is_normal else v in in_rows)]
            others = _text(values[v] for v in inputs if v not in of_mean)
            parts["activation"][name] = _text(values[v] for v in of_mean)
            parts["noise" if is_normal or not is_observed else "likelihood"][name] = others
            if is_observed:
                parts["likelihood"][name] = f"{type(node.op).__name__} {'' if is_normal else others}"
        else:
            values, _ = _values(inputs, known, with_rows)
            parts["prior"][name] = f"{type(node.op).__name__} {rv.ndim} {_text(values[v] for v in inputs)}"
    return parts


def _probes(model: pm.Model) -> dict[Variable, np.ndarray]:
    """Return the values of random variables at which others are computed, which differ from name to name."""
    return {rv: PROBES * (1 + hashlib.sha256(rv.name.encode()).digest()[0] / 2**11) for rv in model.basic_RVs}


def _text(values: Iterable[np.ndarray]) -> str:
    """Write numbers to four digits, which are the same on every machine."""
    return " ".join(f"{0.0 if abs(x) < 1e-12 else x:.3e}" for one in values for x in one)


def _values(
    expressions: Iterable[Variable],
    known: Mapping[Variable, np.ndarray],
    with_rows: set[Variable],
    axes: int | None = None,
) -> tuple[dict[Variable, np.ndarray], set[Variable]]:
    """Compute expressions as if all axes had length one.

    Parameters
    ----------
    expressions : iterable of Variable
        Parameters of a random variable.
    known : mapping of Variable to array, (probe,)
        Values of the random variables before it.
    with_rows : set of Variable
        Those of them that have a row for each row of the data.
    axes : int, optional
        Of how many axes an array of constants may have a row for each row of the data, and counts as data.

    Returns
    -------
    values : dict of Variable to array, (probe,)
        The value of each variable in the expressions.
    in_rows : set of Variable
        The variables among them that have a row for each row of the data.
    """
    expressions = list(expressions)
    values, in_rows, moving = dict(known), set(with_rows), set(known)
    nodes = io_toposort(list(known), expressions)

    def visit(v: Variable) -> None:
        if v in values:
            return
        if not isinstance(v, Constant):  # data, batches of data
            in_rows.add(v)
        elif isinstance(v.data, np.ndarray) and v.data.dtype.kind in "biuf" and v.data.size:
            x = v.data
            if x.size == 1 or axes is None or x.ndim < axes:  # the weights tell the places of the numbers apart
                values[v] = np.full(len(PROBES), np.average(np.ravel(x), weights=1 + np.arange(x.size) / x.size))
        values.setdefault(v, DATA)

    for node in nodes:
        elementwise = isinstance(node.op, Elemwise | DimShuffle)
        # What is no number in the others is an index, or the length of an axis
        inputs = [v for v in node.inputs if elementwise or getattr(v.type, "dtype", "").startswith("float")]
        for v in inputs:
            visit(v)
        moves = any(v in moving for v in inputs)
        for v in node.outputs:
            values[v] = _value(node.op, [values[x] for x in inputs])
            if any(x in in_rows for x in inputs) or (moves and not elementwise):
                in_rows.add(v)
            if moves:
                moving.add(v)
    for v in expressions:
        visit(v)
    return values, in_rows


def _value(op, inputs: list[np.ndarray]) -> np.ndarray:
    """Compute an operation on numbers in place of arrays; those that are not elementwise are taken for products."""
    if not inputs:
        return DATA
    if not isinstance(op, Elemwise):
        return prod(inputs[1:], start=inputs[0])
    results = []
    with np.errstate(all="ignore"):
        for numbers in zip(*inputs, strict=True):
            try:
                results.append(float(op.scalar_op.impl(*numbers)))
            except (ValueError, TypeError, ArithmeticError, NotImplementedError, MethodNotDefined):
                results.append(np.nan)
    return np.array(results)


def _activation(model: pm.Model, parts: Parts, hashed: int) -> str:
    """Find the name of the activation with which those of a model have this hash; empty if none has one."""
    known, arguments = _probes(model), {}
    for rv in model.free_RVs:
        node = distribution_node(rv)
        if isinstance(node.op, NormalRV) and rv.name in parts["activation"]:
            mean = node.op.dist_params(node)[0]
            inside = [v for v in ancestors([mean], blockers=known) if v in known or v.owner is not None]
            [*random] = (v for v in inside if v in known)
            if len(random) == 1 and all(v in known or isinstance(v.owner.op, Elemwise | DimShuffle) for v in inside):
                arguments[rv.name] = random[0]
    for name, function in NAMED.items():
        others = {}
        for rv, argument in arguments.items():
            expression = function(argument)
            values, _ = _values([expression], known, set())
            others[rv] = _text([values[expression]])
        if others and _unpacked(_packed(parts | {"activation": parts["activation"] | others}))["activation"] == hashed:
            return name
    return ""
