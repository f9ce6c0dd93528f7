"""The distribution of what a model observes, at rows of inputs that it has not seen: with its noise, or without.

The parameters of a model (weights, biases, learned variances, effects of groups) are the same for all rows of its data,
and a posterior has draws of them. Latents (pre- and post-activations) are not: each row has its own, and those that
were drawn for the data say nothing about other rows. So the random variables of PyMC's graph that have one row for each
row of the inputs are drawn anew, in their order, given the others. NumPy evaluates them for many draws of the posterior
at once.

That a row depends on no other row is not taken for granted. Before anything is drawn, the distribution of each variable
is evaluated at some rows, and again at fewer of them in another order. A variable whose distribution does not follow
the rows (one that depends on an array with a number for each row of the data, a Gaussian process, a mean over rows) is
refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from copy import copy
from functools import cached_property
from typing import NoReturn

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import ArrayLike
from pymc.data import MinibatchOp
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.exceptions import UndefinedMomentException
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors, explicit_graph_inputs
from pytensor.tensor.random.basic import NormalRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type import TensorType
from pytensor.tensor.type_other import NoneTypeT

from pymc_gibbsnn._data import check_finite
from pymc_gibbsnn.backends.modes import without_traces
from pymc_gibbsnn.networks.forms import AS_WRITTEN, shapes_of, value_shapes
from pymc_gibbsnn.networks.likelihoods import find_centred, find_noisy
from pymc_gibbsnn.networks.likelihoods.factorised import read_factorised
from pymc_gibbsnn.networks.network import NetworkError, evaluate
from pymc_gibbsnn.networks.substitution import substitute
from pymc_gibbsnn.prediction.conditionals import (
    Conditional,
    FrozenDistribution,
    distribution_node,
    in_numpy,
)
from pymc_gibbsnn.prediction.distributions import (
    IN_NUMPY,
    Centre,
    Composed,
    Distribution,
    in_64_bits,
    is_part,
    mean_or_without_bounds,
    parameters_of,
    size_of,
    variable_of,
)
from pymc_gibbsnn.prediction.draws_of import draws_of
from pymc_gibbsnn.prediction.inputs import Inputs, evaluate_leaf, evenly_spaced, find_observed, is_leaf
from pymc_gibbsnn.prediction.inputs_as_data import with_inputs_as_data

__all__ = ["NewRows", "parts_at_once"]

AT_ONCE = 2**21  # how many numbers the widest variable may have, for the rows and draws that are evaluated together
IN_CACHE = 2**16  # how many numbers of a layer stay in the cache of a processor on their way to the next one
FEWEST_ROWS = 11  # at how many rows, at least, it is tried whether rows depend on each other


def parts_at_once(rows: int, draws: int, width: int) -> Iterator[tuple[slice, slice]]:
    """Yield slices of rows and of draws, of which arrays with so many numbers for each row and draw fit in a cache."""
    count = max(1, min(rows, IN_CACHE // width))
    size = max(1, IN_CACHE // (width * count))
    for i in range(0, rows, count):
        for j in range(0, draws, size):
            yield slice(i, i + count), slice(j, j + size)


class NewRows:
    """The distribution of what a model observes at new rows of its inputs, given a posterior.

    Parameters
    ----------
    model : pm.Model
        The model; inputs that are missing or measured with error become data
        (:mod:`pymc_gibbsnn.prediction.inputs_as_data`).
    posterior : xarray.Dataset
        Draws (chain, draw, ...) of all variables that all rows share.
    X_new : array_like or mapping of str to array_like, optional
        New rows of the inputs, or of several ``pm.Data`` by name; by default the rows that the model holds now.
    name : str, optional
        The name of the observed variable, if there are several.
    present : mapping of str to array_like, optional
        Without X_new, values by the names of ``pm.Data`` that stand for those the model holds now.
    points : int, optional
        Without X_new, how many rows of the model's to take at most, evenly spaced; by default all.
    noiseless : bool
        Whether to take all noise away. Each variable that is drawn anew then has the value of its mean, and what is
        observed that of the centre of its distribution: its mean or location, or the probabilities of classes. Only
        what the centres depend on is taken from the posterior.
    together : bool
        Whether to take all rows as one, without X_new and without noise, so that they may depend on each other.

    Attributes
    ----------
    observed : Variable
        The observed variable.
    chains, draws, rows : int
        How many chains and draws the posterior has, and how many new rows there are.
    chosen : array of int
        Without X_new, the numbers of the rows among those of the model.
    shape : tuple of int
        The shape of what is observed at the new rows.
    latents : list of Conditional
        The variables that are drawn anew, in order.
    last : Conditional
        The observed variable given those before it.
    example : FrozenDistribution
        The distribution of the observed variable at some rows, given one draw of the posterior.
    parameters : dict of Variable to array, (chain times draw, ...)
        Draws of the variables that all rows share.
    widths : dict of Variable to int
        How many numbers each row adds to the largest array on the way to each variable that is drawn.

    Raises
    ------
    NetworkError
        If the distribution at new rows cannot be known; the message names the variable.
    ValueError
        If the posterior lacks a variable or holds it in another shape, or X_new has a wrong shape.
    """

    def __init__(
        self,
        model: pm.Model,
        posterior: xr.Dataset,
        X_new: ArrayLike | Mapping[str, ArrayLike] | None = None,
        name: str | None = None,
        present: Mapping[str, ArrayLike] | None = None,
        *,
        points: int | None = None,
        noiseless: bool = False,
        together: bool = False,
    ):
        model = with_inputs_as_data(model)
        self.model, self.observed, self._posterior = model, find_observed(model, name), posterior
        self._rvs, self._noiseless, self._together = set(model.basic_RVs), noiseless, together
        inputs = Inputs(model, self.observed)
        self._leaves, self._data = inputs.find(X_new, present or {})
        if X_new is None:
            self.chosen = evenly_spaced(len(self._data[0]), points)
            self._data = self._data if points is None else [x[self.chosen] for x in self._data]
        # Where chains are to be diagnosed, those that are not finite count, too.
        self._distribution_of = Conditional.unchecked_distribution if noiseless else Conditional.distribution
        self._batches, self._old_rows = set(inputs.batches.values()), inputs.target_rows
        self.rows = len(self._data[0])
        self.chains, self.draws = posterior.sizes["chain"], posterior.sizes["draw"]
        types = [leaf.type.clone(shape=(None, *leaf.type.shape[1:])) for leaf in self._leaves]
        unique = {id(x): type_(name=leaf.name) for leaf, type_, x in zip(self._leaves, types, self._data, strict=True)}
        self._inputs = dict(zip(self._leaves, (unique[id(x)] for x in self._data), strict=True))
        self._data = list({id(x): x for x in self._data}.values())
        self.parameters: dict[Variable, np.ndarray] = {}
        self.latents: list[Conditional] = []
        self.widths: dict[Variable, int] = {}
        self._visit_all()

    def given(self, posterior: xr.Dataset) -> NewRows:
        """Return the distribution at the same rows, given another posterior of the model."""
        new = copy(self)
        new._posterior, new.chains, new.draws = posterior, posterior.sizes["chain"], posterior.sizes["draw"]
        new.parameters = {rv: new._draws_of(rv) for rv in self.parameters}
        return new

    @cached_property
    def noisy_output(self) -> Conditional | None:
        """The noisy pre-activation that gives the observed label, or around which the observed number has noise.

        None if what is observed is no function of one, or the distribution of anything else depends on it, too.
        """
        node = distribution_node(self.observed)
        kind = find_noisy(node)
        if kind is None:
            return None
        z = kind.latent(node)
        matches = [latent for latent in self.latents if latent.rv is z]
        others = [p for p, _ in kind.parameters(node) or parameters_of(node, self._rvs) if p is not z]
        used = z in ancestors(others) or any(z in latent.parents for latent in self.latents)
        return matches[0] if matches and not used and isinstance(distribution_node(z).op, NormalRV) else None

    def with_parameters(self, rv: Variable, parameters: list[tuple[Variable, int]]) -> Conditional:
        """Return a variable with other parameters than its distribution has; nothing can be drawn of it.

        Parameters
        ----------
        rv : Variable
            The variable.
        parameters : list of tuple
            The parameters, each with the number of its own axes; the first one has none.
        """
        padded = [pt.shape_padleft(p, rv.ndim + core - p.ndim) for p, core in parameters]
        op = Centre(0, tuple(core for _, core in parameters[1:]))
        return self._conditional(rv, (op, padded, rv.ndim))[0]

    def at_zero(self, rv: Variable, parent: Variable, units: int) -> Conditional:
        """Return the distribution of a variable where a latent (row, unit) on which it depends is 0 in all rows.

        Parameters
        ----------
        rv, parent : Variable
            The variable and the latent.
        units : int
            How many units the latent has.
        """
        op, parameters, axes = self._distribution(rv)
        parameters = substitute(parameters, {parent: pt.constant(np.zeros((1, units), parent.dtype))})
        return self._conditional(rv, (op, parameters, axes))[0]

    def function_of_data(self, expression: Variable) -> Callable[..., np.ndarray] | None:
        """Make an expression a function of the data of some rows; None if it does not follow them, row by row."""
        [new] = substitute([expression], self._inputs)
        inputs = [*dict.fromkeys(self._inputs.values())]
        if any(v not in inputs for v in explicit_graph_inputs([new])):
            return None
        function = pytensor.function(inputs, in_numpy([new]), mode=IN_NUMPY, on_unused_input="ignore")
        if len(function(*self._tried)[0]) != len(self._tried[0]):  # no array of the model has as many rows
            return None
        return lambda *data: function(*data)[0]

    @cached_property
    def factor(self) -> Conditional | None:
        """The normal latent of which what is observed depends, number by number, on one number alone; None if none is.

        Where a latent has one number a row, several numbers in a row may depend on it.
        """
        around = [latent for latent in self.latents if latent.rv in self.last.parents]
        if len(around) != 1 or self.observed not in self.model.rvs_to_values:
            return None
        [latent] = around
        used = any(latent.rv in other.parents for other in self.latents)
        if used or not isinstance(distribution_node(latent.rv).op, NormalRV):
            return None
        rvs = [rv for rv in self.last.parents if rv in self.model.rvs_to_values]
        try:
            likelihood = read_factorised(self.model, self.observed, latent.rv, value_shapes(self.model, rvs))
        except (NetworkError, ValueError, KeyError):  # ValueError where the model's data do not fit together now
            return None
        is_single = likelihood.latent.type.shape[1:] in ((), (1,))
        return latent if is_single or not likelihood.is_by_row else None

    # Evaluation

    def chunks(self) -> Iterator[slice]:
        """Yield slices of the rows, so short that all draws of what is observed there fit in memory, and one of all."""
        observed = self.chains * self.draws * int(np.prod(self.shape[1:]))
        size = self.rows if self._together else max(1, AT_ONCE // max(*self.widths.values(), observed, 1))
        return (slice(i, min(i + size, self.rows)) for i in range(0, self.rows, size))

    def batches(
        self, rows: slice, repeats: int = 1, elsewhere: Collection[Variable] = ()
    ) -> Iterator[tuple[slice, dict[Variable, np.ndarray]]]:
        """Yield slices of the draws of all chains, with the parameters of these draws.

        Parameters
        ----------
        rows : slice
            The rows for which they are meant.
        repeats : int
            How often each draw stands there.
        elsewhere : collection of Variable
            Latents whose conditionals are not used, so that they need no memory.
        """
        count, total = len(range(*rows.indices(self.rows))), self.chains * self.draws
        widths = [width for rv, width in self.widths.items() if rv not in elsewhere]
        widest = max(max(widths, default=1) * count, *(x[0].size for x in self.parameters.values()), 1)
        size = max(1, AT_ONCE // (widest * repeats))
        for i in range(0, total, size):
            draws = slice(i, min(i + size, total))
            yield draws, {rv: _repeated(x[draws], repeats) for rv, x in self.parameters.items()}

    def data(self, rows: slice) -> list[np.ndarray]:
        """Return the inputs at some of the new rows."""
        return [x[rows] for x in self._data]

    def draw_latents(
        self, rng: np.random.Generator | None, rows: slice, values: Mapping[Variable, np.ndarray]
    ) -> dict[Variable, np.ndarray]:
        """Draw latents at some rows given parameters; return both, by variable. Without noise nothing is random."""
        values, data = dict(values), self.data(rows)
        draws = len(next(iter(values.values()))) if values else 1
        for conditional in self.latents:
            values[conditional.rv] = self._distribution_of(conditional, data, values, draws).draw(rng)
        return values

    def distribution(self, rows: slice, values: Mapping[Variable, np.ndarray]) -> FrozenDistribution:
        """Compute the distribution of what is observed at some rows, given parameters and latents."""
        return self._distribution_of(
            self.last, self.data(rows), values, len(next(iter(values.values()))) if values else 1
        )

    # How the graph is read

    def _visit_all(self) -> None:
        """Visit the observed variable and all before it, and try whether their rows depend on each other."""
        current = [np.asarray(evaluate_leaf(leaf)) for leaf in self._inputs]
        self._old_rows |= {len(x) for x in current}
        few, fewer = self._rows_to_try(current)
        self._tried, self._again, self._order = few, [x[fewer] for x in few], fewer
        self._at_few: dict[Variable, np.ndarray] = {}
        self._at_fewer: dict[Variable, np.ndarray] = {}
        self._rng = np.random.default_rng(0)
        self._visit(self.observed)
        if not self._noiseless:
            self._check_potentials()
        self.shape = (self.rows, *self.example.shape[2:])

    def _rows_to_try(self, current: list[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
        """Choose rows with which to try the distributions, and an order in which to try fewer of them.

        They come from the new and the present inputs; no other array of the model has as many rows.
        """
        known = {n for v in ancestors([self.observed]) if is_leaf(v) for n in np.shape(evaluate(v))}
        known |= {n for x in self._posterior.data_vars.values() for n in x.shape} | self._old_rows
        count = FEWEST_ROWS
        while {count, count - 1} & known:
            count += 1
        by_input = dict(zip(self._inputs.values(), current, strict=True))
        few = []
        for new, old in zip(self._data, by_input.values(), strict=True):
            old = old[:: max(1, len(old) // count)] if len(old) else new
            few.append(np.resize(np.concatenate([new[: count // 2], old]), (count, *new.shape[1:])).astype(new.dtype))
        return few, np.arange(count)[::-1][:-1]

    def _visit(self, rv: Variable) -> None:
        """Make the conditionals of a variable and of those before it, or take the variable from the posterior."""
        if rv in self._at_few:
            return
        if rv is not self.observed and not any(leaf in self._inputs for leaf in ancestors([rv])):
            return self._take(rv)
        if rv is not self.observed and not isinstance(distribution_node(rv).op, RandomVariable):
            return self._take(rv)
        conditional, inputs, expressions = self._conditional(rv)
        if rv is self.observed and self._together and not self.latents:
            self.last, self.example = conditional, conditional.unchecked_distribution(self._data, self._at_few, 1)
            return
        try:
            distribution = conditional.unchecked_distribution(self._tried, self._at_few, 1)
            again = conditional.unchecked_distribution(self._again, self._at_fewer, 1)
        except (ValueError, IndexError, TypeError, AssertionError) as error:
            self._refuse(conditional, error)
        if rv is not self.observed and distribution.shape == again.shape:
            return self._take(rv)
        if not self._noiseless:
            distribution.check(rv.name)
        elif not isinstance(distribution.op, Centre):
            raise NetworkError(
                f"'{rv.name}' depends on the inputs and is no Normal: its value without noise is not known."
            )
        if not self._follows(distribution, again):
            self._refuse(conditional)
        width = self._width(conditional, inputs, expressions)
        self.widths[rv] = max(width, np.prod(distribution.shape[2:], dtype=int))
        if rv is self.observed:  # a pm.CustomDist need not know how to draw it
            self.last, self.example = conditional, distribution
            return
        x = distribution.draw(self._rng)
        self._at_few[rv], self._at_fewer[rv] = x, x[:, self._order]
        self.latents.append(conditional)

    def _width(self, conditional: Conditional, inputs: list[Variable], expressions: list[Variable]) -> int:
        """Count the numbers that each row adds to the largest array on the way to the distribution of a variable."""
        arrays = [v for v in ancestors(expressions, blockers=inputs) if v.owner and isinstance(v.type, TensorType)]
        function = pytensor.function(inputs, arrays, mode=AS_WRITTEN, on_unused_input="ignore")
        few = function(*self._tried, *conditional.given(self._at_few))
        fewer = function(*self._again, *conditional.given(self._at_fewer))  # a row less
        return max((np.size(x) - np.size(y) for x, y in zip(few, fewer, strict=True)), default=0)

    def _follows(self, distribution: FrozenDistribution, again: FrozenDistribution) -> bool:
        """Whether the distribution of each row is the same whatever other rows there are."""
        few, fewer = len(self._tried[0]), len(self._order)
        axes = len(distribution.shape) - distribution.op.ndim_supp
        if axes < 2 or distribution.shape[1] != few or again.shape != (1, fewer, *distribution.shape[2:]):
            return False
        for x, y in zip(distribution.parameters, again.parameters, strict=True):
            expected = x[:, self._order] if x.shape[1] == few else x
            tolerance = 1e-3 if x.dtype == np.float32 else 1e-7
            if expected.shape != y.shape or not np.allclose(
                expected, y, tolerance, tolerance * np.abs(x[np.isfinite(x)]).max(initial=0), equal_nan=True
            ):
                return False
        return True

    def _distribution(self, rv: Variable) -> tuple[Distribution, list[Variable], int]:
        """Return the distribution of a variable, its parameters, and how many axes a draw has before an event's."""
        node = distribution_node(rv)
        if not isinstance(node.op, RandomVariable | SymbolicRandomVariable):
            raise NetworkError(f"'{rv.name}' is {node.op}, whose distribution at new rows is not known.")
        op, axes = node.op, rv.ndim - node.op.ndim_supp
        if not isinstance(op, RandomVariable):
            try:
                op = Composed(node, rv.ndim, self._rvs)
            except NetworkError as error:
                raise NetworkError(f"The distribution of '{rv.name}' at new inputs is not known: {error}") from None
        parameters = [pt.shape_padleft(p, axes + core - p.ndim) for p, core in parameters_of(node, self._rvs)]
        return self._without_noise(rv, op, parameters, axes) if self._noiseless else (op, parameters, axes)

    def _without_noise(
        self, rv: Variable, op: Distribution, parameters: list[Variable], axes: int
    ) -> tuple[Distribution, list[Variable], int]:
        """Replace a distribution by its centre; that of a latent which is not Normal is not known.

        Parameters
        ----------
        rv : Variable
            The random variable.
        op, parameters, axes
            What :meth:`_distribution` would return for it with its noise.
        """
        node = distribution_node(rv)
        kind = find_centred(node) if rv is self.observed or isinstance(node.op, NormalRV) else None
        if kind is not None:
            centre = kind.centre(node)
            core = next((k for p, k in parameters_of(node, self._rvs) if p is centre), 0)
            centre = pt.shape_padleft(centre, axes + core - centre.ndim)
        elif rv is self.observed:
            core = op.ndim_supp
            try:
                centre = mean_or_without_bounds(variable_of(op, parameters), self._rvs)
                # That of a mixture looks at the shapes of its parts, which are those of their means.
                while parts := self._parts(centre):
                    means = {v: mean_or_without_bounds(v, self._rvs) for v in parts}
                    [centre] = substitute([centre], means)
                    if any(v in ancestors([x]) for v, x in means.items()):
                        break
            except (UndefinedMomentException, NotImplementedError) as error:
                reason = str(error).rstrip(".")
                raise NetworkError(f"The function is the mean of '{rv.name}', which is not known: {reason}.") from None
        else:
            return op, parameters, axes
        others = [
            (p, k)
            for p, k in zip(parameters, op.ndims_params, strict=True)
            if any(a and not b for a, b in zip(centre.type.broadcastable[:axes], p.type.broadcastable, strict=False))
        ]
        return Centre(core, tuple(k for _, k in others)), [centre, *(p for p, _ in others)], axes

    def _parts(self, expression: Variable) -> list[Variable]:
        """List what is drawn on the way to an expression and is no variable of the model."""
        drawn = [v for v in ancestors([expression], blockers=self._rvs) if is_part(v, self._rvs)]
        return [v for v in drawn if isinstance(v.type, TensorType)]

    @without_traces()
    def _conditional(
        self, rv: Variable, distribution: tuple[Distribution, list[Variable], int] | None = None
    ) -> tuple[Conditional, list[Variable], list[Variable]]:
        """Make the distribution of a variable a function of inputs and draws of its parents; return its graph, too.

        That is what :meth:`_distribution` returns, unless it is given, which then has the shape of its parameters.
        """
        node = distribution_node(rv)
        op, parameters, axes = distribution or self._distribution(rv)
        size = size_of(node)
        sees_batches = size is not None and any(v in self._batches for v in ancestors([size]))  # that of targets
        has_size = not (distribution or size is None or isinstance(size.type, NoneTypeT) or sees_batches)
        expressions = [pt.as_tensor(size if has_size else np.zeros(0, "int64")), *parameters]
        above = list(ancestors(expressions, blockers=[*self._rvs, *self._inputs]))
        inner = [v for v in above if _is_random(v) and v not in self._rvs and v not in self._inputs]
        if inner:
            raise NetworkError(f"'{rv.name}' depends on {inner[0]}, which is random and no variable of the model.")
        parents = [v for v in above if v in self._rvs]
        batches = {}
        for v in parents:
            self._visit(v)
            shape = v.type.shape if v in self.parameters else (None, *v.type.shape[1:])
            batches[v] = v.type.clone(shape=(None, *shape))(name=v.name)
        new = in_numpy(vectorize_graph(expressions, self._inputs | batches))
        inputs = [*dict.fromkeys(self._inputs.values()), *batches.values()]
        function = pytensor.function(inputs, new, mode=IN_NUMPY, on_unused_input="ignore")
        of_size = []
        for axis in range(axes):
            ends = [axis - axes - core for core in op.ndims_params]
            of_size.append(all(p.type.broadcastable[end] for p, end in zip(new[1:], ends, strict=True)))
        dtypes = tuple(in_64_bits(p.dtype).name for p in new[1:])
        return Conditional(rv, op, tuple(parents), function, dtypes, tuple(of_size)), inputs, new

    # What is taken from the posterior

    def _take(self, rv: Variable) -> None:
        """Take a variable that all rows share from the posterior or, if it is observed, from the data."""
        self.parameters[rv] = x = self._draws_of(rv)
        self._at_few[rv] = self._at_fewer[rv] = x[:1]

    def _draws_of(self, rv: Variable) -> np.ndarray:
        """Return draws (chain times draw, ...) of a variable that all rows share."""
        shape = shapes_of([rv])[rv.name]
        if rv in self.model.observed_RVs and rv.name not in self._posterior:
            value = evaluate(self.model.rvs_to_values[rv])
            x = np.broadcast_to(value, (self.chains, self.draws, *shape))
        else:
            x = draws_of(self._posterior, self.model, rv.name, shape)
        x = x.reshape(-1, *shape).astype(rv.dtype)
        if not self._noiseless:
            check_finite(f"'{rv.name}' in the posterior", x, advice="leave these chains out, or cut them off before")
        return x

    def _check_potentials(self) -> None:
        """Refuse potentials that change the distribution of latents, which are drawn without them."""
        latents = {conditional.rv for conditional in self.latents}
        for potential in self.model.potentials:
            touched = sorted(v.name for v in ancestors([potential], blockers=self._rvs) if v in latents)
            if touched:
                raise NetworkError(
                    f"The potential '{potential.name}' acts on {touched}, whose distribution at new rows is then "
                    f"not known."
                )

    def _refuse(self, conditional: Conditional, error: Exception | None = None) -> NoReturn:
        """Raise NetworkError, which says why the distribution of a variable is not known at new rows.

        ``error`` is what was raised when it was evaluated there.
        """
        rv = conditional.rv
        culprits = []
        for v in ancestors(distribution_node(rv).inputs, blockers=self._rvs):
            if v in self._inputs or (v in self._at_few and v not in self.parameters):
                continue
            if v in self.parameters:
                shape = self.parameters[v].shape[1:]
            elif is_leaf(v):
                shape = np.shape(evaluate(v))
            else:
                continue
            if shape and shape[0] in self._old_rows and shape[0] > 1:
                culprits.append(f"'{v.name}'" if v.name else f"a constant of shape {shape}")
        names = ", ".join(dict.fromkeys(culprits))
        given = ", ".join(f"'{leaf.name or 'X'}': ..." for leaf in dict.fromkeys(self._inputs.values()))
        if culprits:
            reason = (
                f"it depends on {names}, which has a row for each row of the data that the model holds. If it is an "
                f"input, make it a pm.Data and give its new rows as well, X_new={{{given}, ...}}; what was drawn for "
                f"the rows of the data says nothing of new ones."
            )
        elif isinstance(error, IndexError | TypeError):
            reason = f"it cannot be computed there, {str(error).splitlines()[0]}."
        else:
            reason = (
                "one row of it depends on other rows of the inputs, or has no row for each of theirs along its first "
                "axis. Rows of a network are independent given its weights."
            )
        raise NetworkError(f"The distribution of '{rv.name}' at new inputs is not known: {reason}")


def _repeated(x: np.ndarray, repeats: int) -> np.ndarray:
    """Repeat each row of an array, which is not copied for one."""
    return x if repeats == 1 else np.repeat(x, repeats, axis=0)


def _is_random(v: Variable) -> bool:
    """Whether a variable is a random draw, or a random batch of data."""
    return v.owner is not None and isinstance(v.owner.op, RandomVariable | MinibatchOp)
