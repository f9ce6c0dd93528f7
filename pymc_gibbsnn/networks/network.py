r"""A noisy network in the value variables of a PyMC model.

    Z_{l+1} ~ Normal(A_l W_lᵀ + b_l + o_l, sqrt(ΔZ)),     A_l ~ Normal(σ(Z_l), sqrt(ΔA)),     W_l, b_l ~ Normal(0, ·)

Here A_1 is data, of which entries may be variables (:mod:`pymc_gibbsnn.networks.random_inputs`). The last Z is
observed, or gives what is observed, such as class labels; all other Z, A, W and b are free variables of the model. The
offset o, if there is one, is an expression of other variables of the model, and variances and precisions may be such
expressions, too. :mod:`pymc_gibbsnn.networks.reader` finds such a network in a model.

All noise of a row of data may be multiplied by a scale of this row, c, which may depend on the output of another
network. With σ(z/c) = σ(z)/c, which homogeneous activations have, the latents, inputs and data divided by c are then
those of a network all of whose rows have the same noise, and in which the constant input of the biases is 1/c, not 1.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, fields, replace
from itertools import zip_longest

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import explicit_graph_inputs

from pymc_gibbsnn._data import check_finite
from pymc_gibbsnn.networks.activations import PiecewiseLinear
from pymc_gibbsnn.networks.forms import NetworkError, evaluate
from pymc_gibbsnn.networks.layers import Operator
from pymc_gibbsnn.networks.layers.operator import Array
from pymc_gibbsnn.networks.layers.weighted import library
from pymc_gibbsnn.networks.likelihoods import LatentLikelihood, Likelihood, NormalLikelihood
from pymc_gibbsnn.networks.random_inputs import RandomInputs
from pymc_gibbsnn.networks.smooth import Smooth
from pymc_gibbsnn.networks.substitution import substitute

__all__ = ["Activation", "Layer", "Network", "NetworkError", "LearnedVariance", "Parameter", "Use", "evaluate"]


FEW = 0.25  # share of rows up to which Gram matrices are changed by what changing rows add to them, not formed anew
MOST = 2**23  # and of products of their entries by units, which lie in memory
LOST = 2e-4  # a share of a Gram matrix that rounding may change: of inputs at 10^6 standard deviations from 0

# The parts of a network that other variables of the model may determine
MOVING = (
    "noise", "precision", "offset", "alpha", "rate", "coefficient", "degrees", "factors", "row_scale", "slope", "rest",
    "density", "cutpoints", "squared", "log_prior", "inputs", "mean", "variance", "measured", "probabilities",
    "loadings", "center",
)  # fmt: skip
NESTED = (
    "operator", "uses", "layers", "activations", "observation", "variances", "parameters", "network", "random_inputs",
    "measurement", "means", "mixture", "learned_weights", "factor_model", "learned_loadings",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer of a noisy network: Z = operator(A) + offset + N(0, noise).

    Attributes
    ----------
    name : str
        The name of its output in the model.
    operator : Operator
        The linear map with its weights; where it has some, a ``Weighted``.
    output : Variable
        The value of Z, in the shape that the user gave it; in the last layer the observed data.
    noise : Variable, ()
        The variance ΔZ of its noise.
    offset : Variable, optional
        What other variables of the model add to the mean: a matrix that broadcasts to (n, d_out).
    """

    name: str
    operator: Operator
    output: Variable
    noise: Variable
    offset: Variable | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers (d_out, d_in) of outputs and inputs of a sample."""
        return self.operator.shape

    def mean(self, a: Variable, w: Variable) -> Variable:
        """Compute the mean of Z (n, d_out) given A (n, d_in) and W̃, the weights with the bias."""
        m = self.operator.forward(a, w)
        return m if self.offset is None else m + self.offset

    def centred(self, z: Variable) -> Variable:
        """Subtract the offset from Z: the rest is what the weights of the layer and its noise explain."""
        return z if self.offset is None else z - self.offset


@dataclass(frozen=True, eq=False)
class Activation:
    """A noisy activation A = σ(Z) + N(0, noise).

    Attributes
    ----------
    name : str
        The name of A in the model.
    output : Variable
        The value of A.
    function : PiecewiseLinear or Smooth
        The function σ.
    noise : Variable, ()
        The variance ΔA.
    """

    name: str
    output: Variable
    function: PiecewiseLinear | Smooth
    noise: Variable


@dataclass(frozen=True, eq=False)
class Use:
    """One place where a network uses a learned variance or precision r, which may be an array.

    The variance of element i of the noise or the weights is coefficient_i² r_k, or coefficient_i²/r_k for a precision,
    where k = which[i] is the number of an element of r.

    Attributes
    ----------
    part : str
        The name of the latent or data whose noise it is, or of the weights or bias whose prior it is.
    value : Variable, optional
        The value of the weights or the bias; None for noise.
    coefficient : Variable
        The known factor of the standard deviation.
    which : array of int
        Numbers of elements of r, in the shape of the weights or the bias; a single number for noise.
    """

    part: str
    value: Variable | None
    coefficient: Variable
    which: np.ndarray


@dataclass(frozen=True, eq=False)
class LearnedVariance:
    """Learned variances v ~ InverseGamma(alpha, rate), or precisions ~ Gamma(alpha, rate), that one network alone uses.

    Attributes
    ----------
    name : str
        The name of the variable in the model.
    value : Variable
        Its value variable.
    is_precision : bool
        Whether it is a precision.
    is_log : bool
        Whether its value variable is its logarithm.
    shape : tuple of int
        Its shape.
    alpha, rate : Variable
        The parameters of its prior, which broadcast to the shape.
    uses : tuple of Use
        All places where the network uses it.
    """

    name: str
    value: Variable
    is_precision: bool
    is_log: bool
    shape: tuple[int, ...]
    alpha: Variable
    rate: Variable
    uses: tuple[Use, ...]

    @property
    def of_noise(self) -> tuple[Variable, Variable]:
        """The parameters α and β of the InverseGamma prior that the noise of the first use has."""
        return self.alpha.reshape(()), self.rate.reshape(()) * self.uses[0].coefficient ** 2

    def value_at(self, noise: Variable) -> Variable:
        """Compute the value with which the noise of the first use has this variance."""
        return self.value_of(-pt.log(noise / self.uses[0].coefficient ** 2))

    def noise_at(self, value: Variable) -> Variable:
        """Compute the variance that the noise of the first use has at a value."""
        return self.uses[0].coefficient ** 2 * pt.exp(-self.log_precision(value))

    def log_precision(self, value: Variable) -> Variable:
        """Compute log τ, or −log v, from a value of its value variable."""
        log = value if self.is_log else pt.log(value)
        return log if self.is_precision else -log

    def scaled(self, value: Variable, u: Variable) -> Variable:
        """Compute the value after all standard deviations that depend on it were multiplied by e^u."""
        return self.value_of(self.log_precision(value) - 2 * u)

    def value_of(self, log_precision: Array) -> Array:
        """Compute the value of its value variable from log τ, or −log v."""
        log = log_precision if self.is_precision else -log_precision
        return (log if self.is_log else library(log).exp(log)).astype(self.value.dtype)


@dataclass(frozen=True, eq=False)
class Parameter:
    """A variable on which nothing but the likelihood of one network depends, such as a dispersion or cutpoints.

    Attributes
    ----------
    name : str
        The name of the variable in the model.
    value : Variable
        Its value variable.
    shape : tuple of int
        The shape of the latter.
    log_prior : Variable, ()
        The prior log density of the value variable, which may depend on other parameters.
    """

    name: str
    value: Variable
    shape: tuple[int, ...]
    log_prior: Variable


@dataclass(frozen=True, eq=False)
class Network:
    """A noisy multilayer network in the value variables of a PyMC model.

    Attributes
    ----------
    inputs : Variable, (n, d_1)
        The data A_1.
    layers : tuple of Layer
        The L layers; the output of the last one is observed unless there is an ``observation``.
    activations : tuple of Activation or None
        The L − 1 noisy activations between them; None where a layer takes the output of the one below as it is.
    observation : LatentLikelihood, optional
        The likelihood of data, such as labels, that are not the output of the last layer but are drawn given it.
    variances : tuple of LearnedVariance
        Variances and precisions that are drawn with the network.
    parameters : tuple of Parameter
        Other parameters of the likelihood, which are drawn with the network, too.
    row_scale : Variable, (n, 1), optional
        By what the standard deviation of all noise of a row is multiplied.
    random_inputs : RandomInputs, optional
        What is known of the inputs where some of their entries are drawn with the network.
    """

    inputs: Variable
    layers: tuple[Layer, ...]
    activations: tuple[Activation | None, ...]
    observation: LatentLikelihood | None = None
    variances: tuple[LearnedVariance, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    row_scale: Variable | None = None
    random_inputs: RandomInputs | None = None

    @property
    def keeps_inputs(self) -> bool:
        """Whether the inputs are the same in each sweep, so that what is computed of them can be kept."""
        return self.row_scale is None and self.random_inputs is None

    @property
    def changing_rows(self) -> Variable | None:
        """The numbers of those rows of the inputs that change in each sweep, where these are few; else None."""
        holes = None if self.random_inputs is None else self.random_inputs.holes
        if holes is None or self.row_scale is not None:
            return None
        rows, others = len(evaluate(holes.rows)), len(evaluate(holes.complete))
        are_few = rows <= FEW * (rows + others) and rows * math.prod(self.layers[0].shape) <= MOST
        return holes.rows if are_few else None

    @property
    def lasting_inputs(self) -> Variable | None:
        """The rows of the inputs that are the same in each sweep: all, or but for a few; else None."""
        if self.keeps_inputs:
            return self.inputs
        if self.changing_rows is None:
            return None
        inputs = self.random_inputs
        return inputs.seen(inputs.holes.known[inputs.holes.complete])

    @property
    def draws_inputs(self) -> bool:
        """Whether entries of the inputs are drawn with this network."""
        return self.random_inputs is not None and self.random_inputs.is_drawn

    @property
    def own_variances(self) -> dict[str, LearnedVariance]:
        """The learned variances that are one number and the noise of one variable alone, by the name of the latter."""
        own = [one for one in self.variances if one.shape == () and len(one.uses) == 1 and not one.is_precision]
        return {one.uses[0].part: one for one in own if one.uses[0].value is None}

    def at(self, state: dict[Variable, Variable]) -> Network:
        """Return the network with noise variances, precisions and offsets at a state of the model's value variables."""
        moved = {value: new for value, new in state.items() if new is not value}
        if not moved:
            return self

        def put(part):
            if part is None:
                return None
            if isinstance(part, tuple):
                return tuple(map(put, part))
            held = {f.name: getattr(part, f.name) for f in fields(part)}
            nested = {name: put(held[name]) for name in NESTED if name in held}
            held = {name: held[name] for name in MOVING if held.get(name) is not None}
            return replace(part, **nested, **dict(zip(held, substitute(list(held.values()), moved), strict=True)))

        return put(self)

    def of_equal_rows(self) -> Network:
        """Return the network of inputs divided by the scale of each row, whose rows have the same noise."""
        if self.row_scale is None:
            return self
        ones = 1 / self.row_scale
        layers = [
            replace(
                layer,
                operator=layer.operator.of_scaled_rows(ones),
                offset=None if layer.offset is None else layer.offset * ones,
            )
            for layer in self.layers
        ]
        observation = None if self.observation is None else self.observation.of_scaled_rows(ones)
        return replace(self, inputs=self.inputs * ones, layers=tuple(layers), observation=observation)

    @property
    def sets_noise_of(self) -> Network | None:
        """The other network whose noise this one sets, row by row; None for a network that gives data."""
        return getattr(self.observation, "network", None)

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood of the data y: that given the last latent, or the Normal one of the last layer's output."""
        last = self.layers[-1]
        return self.observation or NormalLikelihood(last.name, last.output, last.noise)

    @property
    def observed(self) -> Variable:
        """The data y, which are the output of the last layer or are drawn given it."""
        return self.likelihood.value

    @property
    def latents(self) -> list[Variable]:
        """The value variables of pre- and post-activations, and of inputs that are not known: numbers of samples."""
        of_units = [part.output for part in self.noisy if part.output is not self.observed]
        return [*of_units, *self.random_inputs.of_rows] if self.draws_inputs else of_units

    @property
    def noisy(self) -> list[Layer | Activation | LatentLikelihood]:
        """The parts that have noise: the latents, and the data unless they are a function of the last latent."""
        pairs = zip_longest(self.layers, self.activations)
        parts = [part for pair in pairs for part in pair if part is not None]
        return parts + [self.observation] * (self.observation is not None and self.observation.noise is not None)

    @property
    def noises(self) -> dict[str, Variable]:
        """The variances of the noise, by the names of the variables that have noise."""
        return {part.name: part.noise for part in self.noisy}

    @property
    def weights(self) -> list[Variable]:
        """The value variables of weights and biases."""
        return [value for layer in self.layers for value in layer.operator.variables]

    def has_weights_at_zero(self, point: dict[str, np.ndarray]) -> bool:
        """Whether all weights and biases are 0 at a point, where PyMC starts chains; any other start was chosen."""
        return not any(point[v.name].any() for v in self.weights)

    @property
    def variables(self) -> list[Variable]:
        """All value variables that a sampler of the network moves."""
        learned = [one.value for one in self.variances] + [one.value for one in self.parameters]
        of_inputs = self.random_inputs.of_columns if self.draws_inputs else []
        return self.weights + self.latents + learned + of_inputs

    @property
    def rows(self) -> Variable:
        """Data with a row for each sample: the inputs or, where entries are drawn, what is known of them."""
        if self.random_inputs is None:
            return self.inputs
        holes, measurement = self.random_inputs.holes, self.random_inputs.measurement
        return measurement.measured if holes is None else holes.known

    def data(self) -> np.ndarray:
        """Return the inputs (n, d_1) as they are now, with numbers in place of entries that are not known."""
        inputs = self.random_inputs
        return evaluate(self.inputs if inputs is None else inputs.seen(pt.constant(inputs.guess())))

    @property
    def is_thin(self) -> bool:
        """Whether the regression for a unit of the first layer has fewer samples than the unit has weights."""
        operator = self.layers[0].operator
        return operator.fan_in > len(self.data()) * operator.places

    def check_widths(self) -> None:
        """Refuse layers that do not fit together.

        Raises
        ------
        NetworkError
            The message names the layers and their widths.
        """
        width = self.data().shape[1]
        source = "the input data"
        for layer in self.layers:
            if layer.shape[1] != width:
                raise NetworkError(
                    f"'{layer.operator.name}' of '{layer.name}' takes {layer.shape[1]} inputs, "
                    f"but {source} has {width} columns."
                )
            width, source = layer.shape[0], f"'{layer.name}'"

    def check_rows(self, shapes: dict[str, tuple[int, ...]]) -> None:
        """Refuse latents and targets that have no row for each row of the inputs.

        The argument holds the shapes of value variables by name.

        Raises
        ------
        NetworkError
            The message names the variable and its shape.
        """
        n = len(self.data())
        for layer in self.layers:
            width = layer.shape[0]
            shape = evaluate(layer.output).shape if layer.output is self.observed else shapes[layer.output.name]
            if shape not in [(n, *row) for row in layer.operator.row_shapes]:
                raise NetworkError(f"'{layer.name}' has shape {shape}, but its mean has shape {(n, width)}.")

    def check_row_scale(self) -> None:
        """Refuse known scales of rows that are no positive number for each row of the inputs.

        Raises
        ------
        NetworkError
            The message names the variable and what was found.
        """
        if self.row_scale is None or list(explicit_graph_inputs([self.row_scale])):  # variables of the model
            return
        scale, name, n = evaluate(self.row_scale), self.layers[-1].name, len(self.data())
        if scale.shape != (n, 1):
            raise NetworkError(
                f"sigma of '{name}' must hold a number for each of {n} rows; found {scale.shape[0]} numbers."
            )
        if not np.all((scale > 0) & np.isfinite(scale)):
            raise NetworkError(f"sigma of '{name}' must be positive and finite; found {scale.min():g}.")

    def warn_of_offsets(self) -> None:
        """Warn of inputs so far from 0 beside their spread that digits are lost in the draws of weights."""
        x = self.data()
        with np.errstate(all="ignore"):
            centre, spread = x.mean(axis=0), np.where(np.ptp(x, axis=0) > 0, x.std(axis=0), np.inf)
            ratio = np.abs(centre) / spread
        eps = np.finfo(pytensor.config.floatX).eps
        k = int(ratio.argmax())
        if not ratio[k] ** 2 * eps > LOST:
            return
        is_image = len(self.layers[0].operator.input_shapes[0]) > 1
        what = f"Number {k} of the flattened images" if is_image else f"Column {k} of the input data"
        warnings.warn(
            f"{what} has mean {centre[k]:.3g} and standard deviation {spread[k]:.3g}. Beside such an offset draws of "
            f"weights lose digits, and may be wrong: subtract the mean of each column.",
            UserWarning,
            stacklevel=2,
        )

    def check_data(self) -> None:
        """Refuse inputs and targets that are not finite or whose numbers of rows differ.

        Raises
        ------
        NetworkError
            The message names the variable and what was found in it.
        """
        x = self.data()
        check_finite("the input data", x, NetworkError)
        self.likelihood.check(x, self.layers[-1].operator)
        self.check_row_scale()
