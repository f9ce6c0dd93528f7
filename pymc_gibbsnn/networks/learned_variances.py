"""The reader of noise variances and prior precisions of a network, which finds those that can be drawn with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pymc as pm
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from pymc.distributions.censored import CensoredRV
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.logprob.transforms import LogTransform
from pytensor.graph.basic import Variable
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.basic import GammaRV, InvGammaRV

from pymc_gibbsnn.networks.forms import NetworkError, evaluate, is_elemwise, match_monomial
from pymc_gibbsnn.networks.given import folded, is_given, real
from pymc_gibbsnn.networks.network import LearnedVariance, Use

__all__ = ["VarianceReader"]


class VarianceReader:
    """Reads the noise variances and prior variances of the Normal variables of a model.

    Parameters
    ----------
    model : pm.Model
        The model.
    parents : dict of Variable to set of Variable
        The random variables on which each random variable of the model depends directly.
    shapes : dict of str to tuple of int
        Shapes of the model's value variables, by name.
    """

    def __init__(self, model: pm.Model, parents: dict[Variable, set[Variable]], shapes: dict[str, tuple[int, ...]]):
        self.model = model
        self.parents = parents
        self.shapes = shapes

    def noise(self, sigma: Variable, rv: Variable) -> Variable:
        """Turn the standard deviation of a noisy variable, which must be one number, into its variance."""
        if not all(sigma.type.broadcastable):
            raise NetworkError(
                f"sigma of '{rv.name}' has shape {sigma.type.shape}; the noise of a layer is one number for all its "
                f"rows and units, or a number times a column (n, 1) that multiplies all noise of the network. Data may "
                f"have a sigma for each around a latent of their own, Z = pm.Normal('Z', mean, one number) and "
                f"pm.Normal('y', Z, sigma, observed=y); NUTS, PCN and MALA sample other models."
            )
        return folded(real(self._value(sigma, rv)).reshape(()) ** 2)

    def noise_of_rows(self, sigma: Variable, rv: Variable) -> tuple[Variable, Variable | None]:
        """Split the standard deviation of a noisy variable into a number s and a scale of each row.

        Returns
        -------
        variance : Variable, ()
            s².
        scale : Variable, (n, 1), or None
            The scales, in the model's random variables; None if there are none, and where noise differs otherwise.
        """
        number, factors = _split(sigma)
        if factors is not None and factors.ndim == 1 == rv.ndim:
            factors = factors[:, None]
        if factors is None or factors.ndim != 2 or factors.type.broadcastable != (False, True):
            return self.noise(sigma, rv), None
        below = set(ancestors([factors]))
        shared = [v for v in ancestors([] if number is None else [number]) if v in self.parents and v in below]
        if shared:
            raise NetworkError(
                f"sigma of '{rv.name}' is a number times a scale of each row, of which both depend on "
                f"'{shared[0].name}': let only the scale depend on it."
            )
        self._value(factors, rv)  # which checks them
        return self._squared(number, rv), abs(factors)

    def noise_of_data(self, sigma: Variable, rv: Variable) -> tuple[Variable, Variable | None]:
        """Split the standard deviation of data into a number s and factors, which are None if it is one number.

        Returns
        -------
        variance : Variable, ()
            s².
        factors : Variable or None
        """
        number, factors = _split(sigma)
        return self._squared(number, rv), None if factors is None else real(self._value(factors, rv))

    def _squared(self, number: Variable | None, rv: Variable) -> Variable:
        """Return the variance for the number that was split off a standard deviation; None stands for 1."""
        return self.noise(pt.as_tensor(np.array(1.0)) if number is None else number, rv)

    def sigmas(self, members: list[Variable | None]) -> list[Variable | None]:
        """Return the standard deviations of weights and biases in value variables; None where there is no bias."""
        return [None if rv is None else real(self._value(_sigma(rv), rv)) for rv in members]

    def value(self, parameter: Variable) -> Variable:
        """Return a parameter of a likelihood in value variables."""
        [value] = self.model.replace_rvs_by_values([parameter])
        return real(value)

    def deviation(self, sigma: Variable, rv: Variable) -> Variable:
        """Return a standard deviation of a variable, an array of any shape, in value variables."""
        return real(self._value(sigma, rv))

    def _value(self, sigma: Variable, rv: Variable) -> Variable:
        """Return the standard deviation of a variable in value variables; it is checked if it is a known number."""
        rvs = [node for node in ancestors([sigma]) if node in self.parents]
        for parent in rvs:
            if isinstance(parent.owner.op, FlatRV | HalfFlatRV):
                raise NetworkError(
                    f"The prior of '{parent.name}', in the scale of '{rv.name}', is improper, and so may the posterior "
                    f"be: give it a proper one, such as pm.InverseGamma for a variance."
                )
        if not rvs:
            value = evaluate(sigma)
            if not np.all((value > 0) & np.isfinite(value)):
                raise NetworkError(f"sigma of '{rv.name}' must be positive and finite; found {value.min():g}.")
        return self.model.replace_rvs_by_values([sigma])[0]

    def conjugate(self, noisy: list[Variable], weights: list[Variable]) -> tuple[LearnedVariance, ...]:
        """Find the variances and precisions that can be drawn with a network.

        These are variances with an InverseGamma prior and precisions with a Gamma prior on which the network's noise or
        weights depend, and nothing else does. ``noisy`` are its latents and data, ``weights`` its weights and biases.
        """
        return self._conjugate(
            [({member.name}, partial(self._use, member, is_weights=member in weights)) for member in (*noisy, *weights)]
        )

    def conjugate_in_columns(
        self, parts: list[tuple[str, set[str], Variable, Variable | None]], shape: tuple[int, int]
    ) -> tuple[LearnedVariance, ...]:
        """Find the variances and precisions of columns of inputs that can be drawn with these.

        Parameters
        ----------
        parts : list of tuple
            For the inputs, and for their measurement, a name, the names of the variables of which they are made, their
            standard deviations, (1, d) or those of components of a mixture, (components, d), and other parameters.
        shape : tuple of int
            The numbers of components, 1 without a mixture, and columns.
        """
        uses = [
            (users, partial(self._use_in_columns, name, sigma, other, shape)) for name, users, sigma, other in parts
        ]
        return self._conjugate(uses)

    def _conjugate(self, parts: Sequence[tuple[set[str], Callable]]) -> tuple[LearnedVariance, ...]:
        """Find the variances and precisions on which some parts of a model depend, and nothing else does.

        A part is the names of its variables, and a function of a variance or precision, and of the power to which it
        must stand in a standard deviation, that returns a ``Use``, or None.
        """
        names, variances = set().union(*(members for members, _ in parts)), []
        for rv in self.model.free_RVs:
            is_precision = isinstance(rv.owner.op, GammaRV)
            transform, users = self.model.rvs_to_transforms[rv], set(self.users(rv))
            if (
                not (is_precision or isinstance(rv.owner.op, InvGammaRV))
                or not (transform is None or isinstance(transform, LogTransform))
                or not users
                or not users <= names
            ):
                continue
            power = -0.5 if is_precision else 0.5
            uses = [use(rv, power) if members <= users else None for members, use in parts if members & users]
            if None in uses:
                continue
            alpha, scale = rv.owner.op.dist_params(rv.owner)
            alpha, rate = self._prior(rv, {"alpha": alpha, "beta": 1 / scale if is_precision else scale})
            value = self.model.rvs_to_values[rv]
            is_log = transform is not None
            variances.append(
                LearnedVariance(rv.name, value, is_precision, is_log, self.shapes[value.name], alpha, rate, tuple(uses))
            )
        return tuple(variances)

    def users(self, rv: Variable) -> list[str]:
        """List the names of the variables and potentials that depend on a variable directly."""
        users = [child.name for child, parents in self.parents.items() if rv in parents]
        return sorted(users + [p.name for p in self.model.potentials if rv in ancestors([p], blockers=self.parents)])

    def _prior(self, rv: Variable, parameters: dict[str, Variable]) -> list[Variable]:
        """Return the parameters of a prior in value variables; those that are known numbers must be positive."""
        for name, parameter in parameters.items():
            if not any(node in self.parents for node in ancestors([parameter])):
                value = evaluate(parameter)
                if not np.all((value > 0) & np.isfinite(value)):
                    raise NetworkError(
                        f"{name} of the prior of '{rv.name}' must be positive and finite; found {value}."
                    )
        values = self.model.replace_rvs_by_values(list(parameters.values()))
        return [real(value) for value in values]

    def _use(self, member: Variable, r: Variable, power: float, *, is_weights: bool) -> Use | None:
        """Read how the standard deviation of a variable depends on a variance or precision r.

        Parameters
        ----------
        member : Variable
            The random variable, a latent, data, weights or a bias.
        r : Variable
            The variance or precision.
        power : float
            The standard deviation must be a coefficient times r to this power, 0.5 for a variance, −0.5 for a
            precision.
        is_weights : bool
            Whether the variable is weights or a bias.

        Returns
        -------
        Use or None
            None if the standard deviation has another form.
        """
        *others, sigma = _uncensored(member)
        if not is_weights and not all(sigma.type.broadcastable):
            sigma, factors = _split(sigma)
            if sigma is None:
                return None
            others.append(factors)
        sigma = rewrite_graph(sigma, include=("canonicalize",), clone=False)
        monomial = match_monomial(sigma, r)
        if r in ancestors(others, blockers=self.parents) or monomial is None or monomial[1] != power:
            return None
        coefficient, numbers = self._elements(r, monomial)
        if not is_weights:
            return Use(member.name, None, coefficient.reshape(()), numbers.reshape(()))
        value = self.model.rvs_to_values[member]
        return Use(member.name, value, coefficient, np.broadcast_to(numbers, self.shapes[value.name]))

    def _use_in_columns(
        self, name: str, sigma: Variable, other: Variable | None, shape: tuple[int, int], r: Variable, power: float
    ) -> Use | None:
        """Read how the standard deviations of columns depend on a variance or precision r.

        Parameters
        ----------
        name : str
            The name of what has these columns.
        sigma : Variable
            The standard deviations, (1, d) or (components, d).
        other : Variable, optional
            Other parameters of its distribution, which must not depend on r.
        shape : tuple of int
            The numbers of components and columns.
        r, power
            As for :meth:`_use`.

        Returns
        -------
        Use or None
            None if they have another form.
        """
        sigma = rewrite_graph(sigma, include=("canonicalize",), clone=False)
        monomial = match_monomial(sigma, r)
        if monomial is None or monomial[1] != power or (other is not None and r in ancestors([other])):
            return None
        if any(rv in self.parents for rv in ancestors([monomial[2]], blockers=[r]) if rv is not r):
            return None  # another variable picks the elements
        coefficient, numbers = self._elements(r, monomial)
        return Use(name, None, coefficient, np.broadcast_to(numbers, shape))

    def _elements(self, r: Variable, monomial: tuple[Variable, float, Variable]) -> tuple[Variable, np.ndarray]:
        """Return the coefficient of a power of r, in value variables, and the numbers of the elements that enter."""
        coefficient, _, elements = monomial
        [coefficient] = self.model.replace_rvs_by_values([coefficient])
        shape = self.shapes[self.model.rvs_to_values[r].name]
        numbers = pytensor.function([r], elements, mode="FAST_COMPILE", on_unused_input="ignore")(
            np.arange(np.prod(shape, dtype=int), dtype=r.dtype).reshape(shape)
        )
        return real(coefficient), np.asarray(numbers, dtype=int)


def _uncensored(rv: Variable) -> list[Variable]:
    """Return the parameters of a random variable; of a censored one the bounds, and then those before censoring."""
    node, bounds = rv.owner, []
    if isinstance(node.op, CensoredRV):
        uncensored, *bounds = node.inputs
        node = uncensored.owner
    return [*bounds, *node.op.dist_params(node)]


def _sigma(rv: Variable) -> Variable:
    """Return the standard deviation of a Normal random variable."""
    return rv.owner.op.dist_params(rv.owner)[1]


def _split(sigma: Variable) -> tuple[Variable | None, Variable | None]:
    """Split an expression into two factors, one number and one array; None stands for one that there is not."""
    is_real = sigma.dtype.startswith("float")
    if not all(sigma.type.broadcastable) and is_real and sigma.owner is not None:
        op, operands = sigma.owner.op, sigma.owner.inputs
        if isinstance(op, DimShuffle):
            number, array = _split(operands[0])
            return number, op(array)
        if is_elemwise(sigma, ps.Mul):
            numbers, arrays = zip(*map(_split, operands), strict=True)
            return _product(numbers), _product(arrays)
        if is_elemwise(sigma, ps.TrueDiv):
            pairs = zip(*map(_split, operands), strict=True)
            return tuple(x if y is None else pt.true_div(np.array(1.0) if x is None else x, y) for x, y in pairs)
        if is_elemwise(sigma, (ps.Abs, ps.Reciprocal, ps.Sign, ps.Sqr)):
            return tuple(None if x is None else op(x) for x in _split(operands[0]))
        if is_elemwise(sigma, (ps.Pow, ps.Sqrt)) and all(all(p.type.broadcastable) for p in operands[1:]):
            number, array = _split(operands[0])
            if number is not None and _is_positive(number):  # else (a b)^p need not be a^p b^p
                power = np.array(0.5) if is_elemwise(sigma, ps.Sqrt) else operands[1].dimshuffle([])
                return number**power, array**power
    # In a dtype that holds products of small integers, and more digits than PyTensor keeps of the number 3.0
    whole = pt.cast(sigma, ps.upcast(sigma.dtype, pytensor.config.floatX))
    return (whole, None) if all(sigma.type.broadcastable) else (None, whole)


def _product(factors: Sequence[Variable | None]) -> Variable | None:
    """Multiply the factors that there are; None if there are none."""
    present = [x for x in factors if x is not None]
    return pt.mul(*present) if len(present) > 1 else next(iter(present), None)


def _is_positive(x: Variable) -> bool:
    """Whether an expression is positive, whatever values the variables of the model take."""
    if is_given(x):
        return bool(np.all(evaluate(x) > 0))
    if x.owner is None:
        return False
    op, operands = x.owner.op, x.owner.inputs
    match getattr(op, "scalar_op", op):
        case GammaRV() | InvGammaRV() | ps.Abs() | ps.Sqr() | ps.Sqrt():
            return True
        case DimShuffle() | ps.Cast() | ps.Reciprocal() | ps.Pow():
            return _is_positive(operands[0])
        case ps.Mul() | ps.TrueDiv():
            return all(map(_is_positive, operands))
    return False
