"""Error messages for models that are no noisy networks: the variable, what was found, and the nearest known form.

Each function returns the text of a message; ``name`` is the name of the variable of which it speaks.
"""

from __future__ import annotations

import pytensor.scalar as ps
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Join
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.einsum import Einsum
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.random.op import RandomVariable

from pymc_gibbsnn.networks.forms import is_elemwise, match_product, match_scaled_product, terms, undimshuffle
from pymc_gibbsnn.networks.notation import distribution_name, show

__all__ = [
    "changed_inputs",
    "impossible_factor",
    "input_is_variable",
    "left_to_others",
    "missing_values",
    "no_activation",
    "no_normal",
    "no_product",
    "no_weights",
    "noiseless_input",
    "prior_mean",
    "random_inputs_of_images",
    "scale_of_inputs",
    "shared",
    "shared_inputs",
    "two_products",
    "unread_term",
]

SUMS = CAReduce, Dot, Blockwise, Einsum  # operations that sum products
OTHERS = "FNBG, PCN, PCNL and MALA sample networks without noise inside"
BY_ROW = "is multiplied by what differs between rows"
COLUMN = "give one network a column of the data for it"
VARIABLE_INPUTS = (
    "Inputs that are variables must be observed, x = pm.Normal('x', mu, tau, observed=X) with NaN where X is missing, "
    "or be measured, pm.Normal('x_measured', x, s, observed=X). Others are for NUTS, MALA, FNBG, PCN and PCNL, in "
    "networks without noise inside."
)
GROUPS = "give each of k groups a column of the data, np.eye(k)[group], with weights like those of other columns"
WEIGHTS = "W = pm.Normal('W', 0, scale, ...)"


def no_normal(name: str, op: RandomVariable, observed: bool) -> str:
    """Say that a part of a network has another distribution than Normal."""
    kind = distribution_name(op)
    if "Minibatch" in kind:
        return (
            f"'{name}' observes a minibatch, but a Gibbs sweep takes all data at once: observe all of them, or sample "
            f"with pmg.FNBG(), which takes minibatches."
        )
    if not observed:
        return f"'{name}' must be pm.Normal to be a part of a noisy network; found {kind}."
    if kind in ("Categorical", "Bernoulli"):
        label = "ArgmaxLabel" if kind == "Categorical" else "SignLabel"
        grades = " or, if they are ordered grades, pm.OrderedProbit or pm.OrderedLogistic with eta=Z"
        return (
            f"'{name}' is {kind}, but classes of a noisy network have a probit likelihood: give the last layer noise, "
            f"Z = pm.Normal('Z', ..., sigma), and write pmg.{label}('{name}', Z, observed=...)"
            f"{grades if kind == 'Categorical' else ''}. {OTHERS}."
        )
    if kind in ("Censored", "TruncatedNormal"):
        return (
            f"'{name}' is {kind}, which data of a noisy network may be around a latent, as it is: give the last layer "
            f"noise, Z = pm.Normal('Z', ..., sigma), and write pm.{kind.removesuffix('Normal')}('{name}', "
            f"pm.Normal.dist(Z, sigma), lower, upper, observed=...). {OTHERS}."
        )
    return (
        f"'{name}' is {kind}, but no output of a noisy network is in its parameters: give the last layer noise, "
        f"Z = pm.Normal('Z', ..., sigma), and let each row of '{name}' depend on its row of Z, as in "
        f"pm.Poisson('{name}', pm.math.exp(Z), observed=...). {OTHERS}."
    )


def no_product(mean: Variable, name: str, is_observed: bool, latent: str | None = None) -> str:
    """Say that a mean holds no product of an input with weights.

    Parameters
    ----------
    mean : Variable
        The mean.
    name : str
        The name of the variable of which it is the mean.
    is_observed : bool
        Whether that is observed.
    latent : str, optional
        The name of the latent in it around which data lie, if it is one.

    Returns
    -------
    str
    """
    if latent is not None:
        return (
            f"The mean of '{name}' is {show(mean)}, where data lie around a latent as it is, of the shape of the data: "
            f"pm.Normal('{name}', {latent}, sigma, observed=y). Put what else is in the mean into that of '{latent}', "
            f"or add it to t * {latent} with numbers t."
        )
    if not any(map(_is_variable, ancestors([mean]))):
        return f"The mean of '{name}' is {show(mean)}, which holds no weights."
    for term in terms(mean):
        product = _product_inside(term)
        if product is not None and is_elemwise(term, ps.Second):  # what PyTensor makes of a product times 0
            return impossible_factor(show(product), 0, name)
        problem = unread_term(term, is_observed)
        if problem is not None:
            return f"The mean of '{name}' is {show(mean)}, {problem}"
    return f"The mean of '{name}' is {show(mean)}, where a layer is A @ W.T + b with weights {WEIGHTS}."


def unread_term(term: Variable, is_of_data: bool) -> str | None:
    """Say why a term of a mean, that of data or of a latent, is no layer; None if it does not look like one."""
    op, operands = (term.owner.op, term.owner.inputs) if term.owner else (None, [])
    product, picked = _product_inside(term), _picked(term)
    factors = [x for x in operands if _product_inside(x) is None]
    if match_scaled_product(term):
        return None
    if product is None and picked is not None and any(isinstance(_op(x), SUMS) for x in ancestors([term])):
        return f"where each row has weights of its own, {show(picked)}, but a layer has one matrix: {GROUPS}. {OTHERS}."
    if product is None:
        is_sum = isinstance(op, CAReduce) and is_elemwise(operands[0], ps.Mul)
        return "where a product is written A @ W." if is_sum or isinstance(op, Einsum) else None
    if not is_elemwise(term, (ps.Mul, ps.TrueDiv, ps.Neg)) or len(factors) < len(operands) - 1:
        return f"where the product {show(product)} of a layer must be a term by itself. {OTHERS}."
    if any(map(_differs_between_rows, factors)):
        [inner] = [x for x in operands if x not in factors]
        latent = f"give it a latent of its own, tau = pm.Normal('tau', {show(inner)}, s), and write t * tau"
        return f"where the product {show(product)} {BY_ROW}: {latent if is_of_data else COLUMN}. {OTHERS}."
    weights = show(match_product(product)[1])
    return (
        f"where the product {show(product)} must be a term by itself: put a factor into its prior, {weights} = "
        f"pm.Normal('{weights}', 0, factor * scale, ...), the same model, and leave out a minus sign, for the prior is "
        f"symmetric."
    )


def _op(x: Variable) -> Op | None:
    """Return the operation of which an expression is the result; None of a leaf."""
    return None if x.owner is None else x.owner.op


def _picked(term: Variable) -> Variable | None:
    """Find a variable of which an expression takes rows by their numbers, as ``E[group]``."""
    picked = (x for x in ancestors([term]) if type(_op(x)).__name__.startswith("AdvancedSubtensor"))
    return next((x for x in picked if _is_variable(x.owner.inputs[0])), None)


def _is_variable(x: Variable) -> bool:
    """Whether an expression in canonical form is a leaf that stands for a random variable."""
    return x.owner is None and not isinstance(x, Constant | SharedVariable)


def _differs_between_rows(x: Variable) -> bool:
    """Whether an expression may hold other numbers for other rows."""
    return x.ndim > 0 and not x.type.broadcastable[0]


def impossible_factor(part: str, factor: float, name: str) -> str:
    """A product or a bias that the model multiplies by 0, or by what is no finite number."""
    return (
        f"The mean of '{name}' holds {part} times {factor:g}, where a factor is a finite number other than 0: leave "
        f"out what is multiplied by 0, and mind that numbers below 1e-308 are 0."
    )


def _product_inside(term: Variable) -> Variable | None:
    """Find the matrix product from which an expression is made by elementwise operations; None if there is none."""
    if match_product(term):
        return term
    if term.owner is None or not isinstance(term.owner.op, Elemwise):
        return None
    return next((product for x in term.owner.inputs if (product := _product_inside(x)) is not None), None)


def two_products(products: list[Variable], name: str) -> str:
    """Say that a hidden layer has several products."""
    return (
        f"The mean of '{name}' holds two products, {' and '.join(map(show, products[:2]))}, where a hidden layer has "
        f"one: put inputs side by side, np.concatenate([...], axis=1), with one matrix of weights for all columns."
    )


def noiseless_input(source: Variable, inner: str, name: str, is_latent: bool) -> str:
    """Say that the input of a layer is neither data nor a latent.

    Parameters
    ----------
    source : Variable
        The input.
    inner, name : str
        The names of a variable that is in it, and of the variable in whose mean the layer is.
    is_latent : bool
        Whether the mean of the former depends on other variables.

    Returns
    -------
    str
    """
    enters = f"'{inner}' enters '{name}' through {show(source)}"
    if not is_latent and _picked(source) is not None:
        return f"{enters}, rows of a variable, where the input of a layer is data or a latent: {GROUPS}. {OTHERS}."
    if not is_latent:
        return (
            f"{enters}, where the input of a layer is data or a latent: put scales of inputs into the prior of their "
            f"weights, W = pm.Normal('W', 0, {inner}, ...). {VARIABLE_INPUTS}"
        )
    if isinstance(source.owner.op, Join):
        return (
            f"'{inner}' enters '{name}' in {show(source)}, where the input of a layer is data alone, or one noisy "
            f"post-activation: write a bias as A @ W.T + b; connections that skip a layer are not known. {OTHERS}."
        )
    factors = source.owner.inputs if is_elemwise(source, (ps.Mul, ps.TrueDiv)) else []
    if any(_differs_between_rows(x) and not any(map(_is_variable, ancestors([x]))) for x in factors):
        return f"{enters}, which {BY_ROW}: {COLUMN}. {OTHERS}."
    return (
        f"{enters}, which carries no noise: give it a latent of its own, A = pm.Normal('A', {show(source)}, sigma), "
        f"and let '{name}' take A. {OTHERS}."
    )


def no_weights(term: Variable, name: str) -> str:
    """Say that an input is multiplied with something else than a variable."""
    message = f"The mean of '{name}' holds a product with {show(term)}, where a product is with weights, "
    if is_elemwise(term, ps.Add):
        return f"{message}a variable whose prior has mean 0: {WEIGHTS}. {OTHERS}."
    if is_elemwise(term, (ps.Mul, ps.TrueDiv)):
        return f"{message}one variable: put a factor into its prior, W = pm.Normal('W', 0, factor * scale, ...)."
    if isinstance(undimshuffle(term), Constant):
        return f"{message}a variable instead of numbers: {WEIGHTS}."
    return f"{message}a variable with a Normal prior: {WEIGHTS}."


def prior_mean(weights: str, mean: Variable) -> str:
    """Say that the prior of weights has another mean than 0."""
    return (
        f"The prior of '{weights}' must have mean 0; found {show(mean)}. On data X, a mean M of numbers may be written "
        f"as X @ M + X @ {weights}, with '{weights}' around 0. On latents it is not known: PCN, PCNL, MALA and NUTS "
        f"take any mean, in networks without noise inside."
    )


def input_is_variable(name: str, around: Variable | RandomVariable) -> str:
    """Say that the input of a network is a variable, such as inputs that are measured with an error.

    Parameters
    ----------
    name : str
        The name of the variable.
    around : Variable or RandomVariable
        Its mean or, where it is not Normal, its distribution.

    Returns
    -------
    str
    """
    shown = show(around) if isinstance(around, Variable) else distribution_name(around)
    return f"'{name}' enters a layer, where inputs are data or the output of a layer; found {shown}. {VARIABLE_INPUTS}"


def changed_inputs(source: Variable, name: str, z: str) -> str:
    """Say that inputs that are missing or measured with error enter a layer ``z`` through an expression of them."""
    return (
        f"'{name}', inputs that are missing or measured with error, enters '{z}' through {show(source)}: let it enter "
        f"as it is, {name} @ W.T, or in other units, (({name} - mean) / scale) @ W.T, all columns in one variable."
    )


def random_inputs_of_images(name: str, z: str) -> str:
    """Say that images that are missing or measured with error enter a convolution or a pool, the mean of ``z``."""
    return (
        f"'{name}', inputs that are missing or measured with error, enters '{z}' by a convolution or a pool, but only "
        f"a dense layer may take them: {name} @ W.T."
    )


def shared_inputs(name: str, layers: list[str], others: list[str]) -> str:
    """Say that inputs that are missing or measured with error enter other variables than these first layers."""
    own = " and ".join(f"'{layer}'" for layer in layers)
    return (
        f"'{name}', inputs that are missing or measured with error, must enter {own} and nothing else, but "
        f"{others} depend on it, too: give these the data themselves, with numbers in place of missing values."
    )


def scale_of_inputs(name: str, z: str) -> str:
    """Say that inputs that are missing or measured with error enter a layer ``z`` and its standard deviation."""
    return (
        f"'{name}', inputs that are missing or measured with error, enters '{z}' and the scale of its noise, too: let "
        f"a second network set this scale, pmg.row_scale(G) with G = pm.Normal('G', {name} @ V, sigma)."
    )


def no_activation(mean: Variable, name: str, inner: list[str]) -> str:
    """Say that a post-activation is no function of one pre-activation alone."""
    dependence = f"depends on {inner}" if inner else "depends on no variable"
    return (
        f"'{name}' enters a layer, so its mean must be an activation of one pre-activation, whose coefficients are "
        f"numbers; found {show(mean)}, which {dependence}."
    )


def shared(name: str, child: str, users: list[str], observed: set[str]) -> str:
    """Say that a part of a network is used elsewhere, too.

    Parameters
    ----------
    name : str
        The name of the part.
    child : str
        The name of the variable in which it should be used alone.
    users : list of str
        The names of all variables in which it is used.
    observed : set of str
        The names of the variables that the model observes.

    Returns
    -------
    str
    """
    message = f"'{name}' must enter '{child}' and nothing else; it is used by {users}."
    if not set(users) <= observed:
        return message
    return f"{message} Outputs that share a hidden layer are columns of one output: observe np.column_stack([...])."


def left_to_others(latents: list[str], numbers: int, reasons: list[str]) -> str:
    """Warn of the latents of a noisy network that is not read, beside others that are.

    Parameters
    ----------
    latents : list of str
        The names of the latents.
    numbers : int
        How many numbers they hold.
    reasons : list of str
        Why the network is not read, as other messages here say it.

    Returns
    -------
    str
    """
    reason = " ".join(dict.fromkeys(reasons)) or (
        "Their network must end in the mean of data, as A @ W.T + b, or in a latent in it, as t * Z with numbers t."
    )
    return (
        f"GibbsNN leaves {latents}, {numbers:,} numbers, to other steps, which move such latents far more slowly. "
        f"{reason} Without the noise inside it, this network would have none for other steps to move."
    )


def missing_values(name: str) -> str:
    """Say that an observed variable has missing values, of which PyMC has made a second variable."""
    return (
        f"'{name}' has missing values, for which PyMC makes a variable '{name}_unobserved': drop the rows with missing "
        f"values from inputs and targets."
    )
